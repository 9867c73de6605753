"""`POST /v1/decisions`: the OpenAI Decisions shape, as `openai` 3.57's `client.decisions.create` sends and reads it.

Questions are a list and answers come back in its order; `predicate` is our Noul, `choice` and `score` are ours with
their options and levels written as lists. It refuses to know HTTP. Trap: a choice's value may be the text "true" or the
boolean true, which the model reads alike but the caller must get back as it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from decider.errors import InputError, QuestionError, SchemaError
from decider.questions.answered import Answers
from decider.questions.answers import Answer, ChoiceAnswer, NoulAnswer, ScoreAnswer
from decider.questions.faults import hint, located, show
from decider.questions.jsontext import JsonValue
from decider.questions.limits import Limits
from decider.questions.request import check_questions, make_request
from decider.questions.types import Choice, Noul, Question, Score
from decider.serve.forms import Parsed, object_of
from decider.serve.openai_input import content_of, state_of

Value: TypeAlias = str | bool

_OURS = ("independent", "layout", "error_rate")
_REQUIRED = ("model", "input", "questions")


@dataclass(frozen=True, slots=True)
class _Asked:
    """One question, and what its answer takes from it."""

    question: Question
    name: str | None
    values: tuple[Value, ...] = ()
    """A choice's, as given."""
    labels: tuple[str, ...] = ()
    """A score's."""


def openai_form(body: bytes, limits: Limits) -> Parsed:
    """A request of this shape. Fields of its cache and of users are ignored; `independent`, `layout` and `error_rate`
    may be given as on the wire.

    Raises SchemaError, QuestionError or TooLargeError with the path inside the request.
    """
    value = object_of(body, limits)
    for key in _REQUIRED:
        if value.get(key) is None:
            raise SchemaError(f"the request has no {key}; add it", loc=(key,))
    listed = value["questions"]
    if not isinstance(listed, list):
        raise SchemaError(f"the questions are {show(listed)}; give a list", loc=("questions",))
    check_questions(dict(enumerate(listed)), limits)
    asked = []
    for index, question in enumerate(listed):
        with located("questions", index):
            asked.append(_question(question))
    questions = {str(index): one.question for index, one in enumerate(asked)}
    ours = {key: value[key] for key in _OURS if value.get(key) is not None}
    try:
        state = state_of(value["input"])
        request = make_request(state, questions, model=value["model"], limits=limits, **ours)  # type: ignore[arg-type]
    except InputError as error:
        error.loc = _renamed(error.loc)
        raise
    return Parsed(request, partial(_response, asked))


def _renamed(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Paths of `make_request` as this shape has them."""
    if loc[:1] == ("state",):
        return ("input", *loc[1:])
    if loc[:1] == ("questions",) and len(loc) > 1:
        return ("questions", int(loc[1]), *loc[2:])
    return loc


def _question(value: JsonValue) -> _Asked:
    if not isinstance(value, dict):
        raise SchemaError(f"a question is {show(value)}; it must be an object with a type")
    kind = value.get("type")
    make = _KINDS.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise SchemaError(f"unknown question type {show(kind)}; {hint(kind, _KINDS)}", loc=("type",))
    name = value.get("name")
    if name is not None and not isinstance(name, str):
        raise SchemaError(f"the name is {show(name)}; it must be text", loc=("name",))
    if value.get("instructions") is None:
        raise SchemaError(f"a {kind} has no instructions; add them", loc=("instructions",))
    with located("instructions"):
        instructions = content_of(value["instructions"])
    return make(value, instructions, name)


def _predicate(_: Mapping[str, JsonValue], instructions: JsonValue, name: str | None) -> _Asked:
    return _Asked(Noul(instructions), name)  # type: ignore[arg-type]


def _choice(value: Mapping[str, JsonValue], instructions: JsonValue, name: str | None) -> _Asked:
    values: list[Value] = []
    options: dict[str, str | None] = {}
    for index, (choice, description) in enumerate(_listed(value, "choices", "value", Limits.max_options)):
        if not isinstance(choice, (str, bool)):
            raise SchemaError(
                f"a value is {show(choice)}; it must be text or a boolean", loc=("choices", index, "value")
            )
        written = choice if isinstance(choice, str) else str(choice).lower()
        if written in options:
            same = "repeats another" if choice in values else "reads as another does, which is of another type"
            raise QuestionError(f"the value {show(choice)} {same}; give each once", loc=("choices", index, "value"))
        values.append(choice)
        options[written] = description
    return _Asked(Choice(instructions, options), name, values=tuple(values))  # type: ignore[arg-type]


def _score(value: Mapping[str, JsonValue], instructions: JsonValue, name: str | None) -> _Asked:
    labels: list[str] = []
    levels: list[str] = []
    for index, (label, description) in enumerate(_listed(value, "levels", "label", Limits.max_levels)):
        if not isinstance(label, str):
            raise SchemaError(f"a label is {show(label)}; it must be text", loc=("levels", index, "label"))
        labels.append(label)
        levels.append(f"{label}: {description}" if description else label)
    try:
        return _Asked(Score(instructions, levels), name, labels=tuple(labels))  # type: ignore[arg-type]
    except InputError as error:
        error.loc = ("levels", *error.loc[1:])
        raise


def _listed(value: Mapping[str, JsonValue], field: str, key: str, most: int) -> list[tuple[JsonValue, str | None]]:
    """What `field` lists: each entry's `key`, and its description."""
    entries = value.get(field)
    if not isinstance(entries, list) or not entries:
        raise SchemaError(f"the {field} are {show(entries)}; give a list of at least one", loc=(field,))
    if len(entries) > most:
        raise QuestionError(f"{len(entries):,} {field}; the limit is {most}, so offer fewer", loc=(field,))
    found = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or key not in entry:
            raise SchemaError(f"this is {show(entry)}; it must be an object with a {key}", loc=(field, index))
        description = entry.get("description")
        if description is not None and not isinstance(description, str):
            raise SchemaError(
                f"the description is {show(description)}; it must be text", loc=(field, index, "description")
            )
        found.append((entry[key], description))
    return found


_KINDS: Mapping[str, Callable[[Mapping[str, JsonValue], JsonValue, str | None], _Asked]] = {
    "predicate": _predicate,
    "choice": _choice,
    "score": _score,
}


def _response(asked: Sequence[_Asked], answers: Answers) -> dict[str, object]:
    return {
        "model": answers.model,
        "answers": [_answer(one, answers[str(index)]) for index, one in enumerate(asked)],
        "usage": {
            "input_tokens": answers.input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answers.input_tokens,
        },
    }


def _answer(asked: _Asked, answer: Answer) -> dict[str, object]:
    """The documented fields, then those of ours, whose set holds the caller's values."""
    wire = answer.to_wire()
    ours = {key: value for key, value in wire.items() if key.startswith("x_")}
    if isinstance(answer, NoulAnswer):
        return {"type": "predicate", "name": asked.name, "probability": answer.noul, **ours}
    if isinstance(answer, ScoreAnswer):
        levels = enumerate(zip(asked.labels, answer.probabilities, strict=True))
        probabilities = [{"value": value, "label": label, "probability": p} for value, (label, p) in levels]
        known = {"score": answer.score, "confidence": answer.confidence, "probabilities": probabilities}
        return {"type": "score", "name": asked.name, **known, **ours}
    assert isinstance(answer, ChoiceAnswer)
    given = dict(zip(answer.probabilities, asked.values, strict=True))
    return {
        "type": "choice",
        "name": asked.name,
        "choice": given[answer.choice],
        "confidence": answer.confidence,
        "probabilities": [{"value": given[name], "probability": p} for name, p in answer.probabilities.items()],
        **ours,
        **({} if answer.selection is None else {SET: [given[str(one)] for one in answer.selection.prediction_set]}),
    }


SET = "x_set"
