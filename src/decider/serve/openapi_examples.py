"""A request of each form with its answer, for the description of the server.

Answers are written by the code that writes real ones, from made-up probabilities, so an example has every field that an
answer has. It refuses to know schemas and paths. Trap: a request is sent as it stands here by whoever tries it, so it
names the model by the alias, which every server takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from decider.questions.answered import Answers
from decider.questions.answers import read_answer
from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.wire import MODEL_ALIAS
from decider.serve.forms import Form, plain_form, wire_form
from decider.serve.openai_shape import openai_form
from decider.serve.respond import dumps

_STATE = "My card was charged twice for order 4417, and nobody answers the phone."
_REFUND, _TEAM, _SEVERITY = "Does the customer want money back?", "Which team should handle this?", "How severe is it?"
_LEVELS = ["no problem", "annoying", "a real loss"]
_PROBABILITIES: Mapping[str, tuple[float, ...]] = {
    "noul": (0.0625, 0.9375),
    "choice": (0.875, 0.125),
    "score": (0.0625, 0.25, 0.6875),
}
_INPUT_TOKENS = 118


@dataclass(frozen=True, slots=True)
class Example:
    """A body and what is answered."""

    request: Mapping[str, object]
    response: object


def examples(name: str) -> Mapping[str, Example]:
    """By path, as the served model `name` would answer."""
    wire = {
        "state": _STATE,
        "model": MODEL_ALIAS,
        "questions": {
            "refund": {"type": "noul", "instructions": _REFUND},
            "team": {
                "type": "choice",
                "instructions": _TEAM,
                "criteria": {"billing": "charges and refunds", "technical": None},
            },
            "severity": {"type": "score", "instructions": _SEVERITY, "criteria": _LEVELS},
        },
    }
    decisions = {
        "model": MODEL_ALIAS,
        "input": _STATE,
        "questions": [
            {"type": "predicate", "name": "refund", "instructions": _REFUND},
            {
                "type": "choice",
                "instructions": _TEAM,
                "choices": [{"value": "billing", "description": "charges and refunds"}, {"value": "technical"}],
            },
            {"type": "score", "instructions": _SEVERITY, "levels": [{"label": level} for level in _LEVELS]},
        ],
    }
    plain = {
        "context": _STATE,
        "schema": {
            _REFUND: {"type": "bool"},
            _TEAM: {"type": "choice", "options": ["billing", "technical"]},
            _SEVERITY: {"type": "scale", "levels": _LEVELS},
        },
    }
    return {
        "/v1/systemone": _answered(wire_form, wire, name),
        "/v1/decisions": _answered(openai_form, decisions, name),
        "/decide": _answered(plain_form, plain, name),
    }


def _answered(form: Form, request: Mapping[str, object], name: str) -> Example:
    parsed = form(dumps(request), DEFAULT_LIMITS)
    answers = {
        question_id: read_answer(question, _PROBABILITIES[question.kind], truncated=False)
        for question_id, question in parsed.request.questions.items()
    }
    return Example(request, parsed.write(Answers(answers, name, _INPUT_TOKENS)))
