"""A request: one state, rendered, and the typed questions about it. The builder is the way in for Python callers.

It refuses to know JSON bodies (`wire`) and models. Trap: ids are the caller's; they key the answers and are never shown
to the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from decider.errors import SchemaError, TooLargeError
from decider.questions.faults import hint, located, show, step
from decider.questions.jsontext import JsonValue, check, utf8_bytes
from decider.questions.limits import DEFAULT_LIMITS, Limits
from decider.questions.parse import parse_question
from decider.questions.prompt import check_size
from decider.questions.state import render_state
from decider.questions.types import Choice, Noul, Question, Score

LAYOUT_NAMES = ("plain", "chat", "plain_schema_first", "chat_schema_first")


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller asked, checked. `make_request` and the parsers of `wire` build it."""

    state: str
    """As the model reads it, uncut."""
    questions: Mapping[str, Question]
    """By id, at least one, in the order asked; read-only."""
    independent: bool
    """Every question in its own row; otherwise one row, where later questions see the text of earlier ones."""
    layout: str | None
    """One of `LAYOUT_NAMES`; None follows the model."""
    model: str | None
    """The model's name as asked for; None where the caller names none."""
    error_rate: float | None
    """In (0, 1): ask for prediction sets and abstention at it; None asks for neither."""


def make_request(
    state: object,
    questions: Mapping[str, Question | Mapping[str, object]],
    *,
    independent: bool = True,
    layout: str | None = None,
    model: str | None = None,
    error_rate: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
    are_json: bool = False,
) -> Request:
    """Check and render a request. `state` is text, a mapping or a list; a question is typed, or a mapping of the wire.

    `are_json`: the mappings are JSON that `jsontext` has checked.

    Raises SchemaError, QuestionError or TooLargeError, with the path inside the request.
    """
    return Request(
        state=render_state(state, limits),
        questions=MappingProxyType(_questions(questions, limits, are_json=are_json)),
        independent=_flag(independent),
        layout=None if layout is None else _layout(layout),
        model=None if model is None else _name(model),
        error_rate=None if error_rate is None else check_error_rate(error_rate),
    )


def check_error_rate(value: object) -> float:
    """`value` as a float. Raises SchemaError unless it is a number above 0 and below 1 (a boolean is none)."""
    # NaN fails both comparisons.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise SchemaError(
            f"error_rate is {show(value)}; it must be a number above 0 and below 1, for example 0.05",
            loc=("error_rate",),
        )
    return float(value)


def check_questions(questions: object, limits: Limits) -> Mapping[object, object]:
    """Any questions at all, and not too many. Raises SchemaError or TooLargeError."""
    if not isinstance(questions, Mapping):
        raise SchemaError(f"the questions are {show(questions)}; give a map id → question", loc=("questions",))
    if not questions:
        raise SchemaError("there are no questions (0); ask at least one", loc=("questions",))
    if len(questions) > limits.max_questions:
        raise TooLargeError(
            f"{len(questions):,} questions are too many tokens for one request, which holds at most "
            f"{limits.max_questions:,} (max_questions); split them over several",
            loc=("questions",),
        )
    return questions


def _questions(questions: object, limits: Limits, *, are_json: bool) -> dict[str, Question]:
    checked: dict[str, Question] = {}
    for question_id, value in check_questions(questions, limits).items():
        if not isinstance(question_id, str):
            raise SchemaError(f"the question id {show(question_id)} is no string; ids are text", loc=("questions",))
        utf8_bytes(question_id, loc=("questions",))
        with located("questions", step(question_id)):
            if isinstance(value, (Choice, Score, Noul)):
                question: Question = value
            else:
                question = parse_question(cast("JsonValue", value) if are_json else check(value, limits=limits))
            check_size(question, limits)
        checked[question_id] = question
    return checked


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise SchemaError(f"independent is {show(value)}; it must be true or false", loc=("independent",))
    return value


def _layout(value: object) -> str:
    if not isinstance(value, str) or value not in LAYOUT_NAMES:
        raise SchemaError(f"unknown layout {show(value)}; {hint(value, LAYOUT_NAMES)}", loc=("layout",))
    return value


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise SchemaError(f"model is {show(value)}; it must be a name", loc=("model",))
    return value
