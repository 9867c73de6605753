"""The three forms a request may have: the wire's, the plain one, and the OpenAI Decisions shape (`openai_shape`).

Each turns a body's bytes into a `Request`, and its `Answers` into what is sent. It refuses to know HTTP. Trap: the
plain form calls things by other names than the wire, so the paths of its faults are renamed; `loc` is what a caller
reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from decider.errors import InputError, SchemaError
from decider.questions.answered import Answers
from decider.questions.faults import show
from decider.questions.jsontext import JsonValue, loads
from decider.questions.limits import Limits
from decider.questions.request import Request
from decider.questions.wire import parse_plain, parse_request


@dataclass(frozen=True, slots=True)
class Parsed:
    """A request, and how its answers are written."""

    request: Request
    write: Callable[[Answers], object]


Form: TypeAlias = Callable[[bytes, Limits], Parsed]
"""Raises InputError's subclasses."""

_PLAIN_NAMES = {"state": "context", "questions": "schema"}


def wire_form(body: bytes, limits: Limits) -> Parsed:
    """`POST /v1/systemone`. Beyond `parse_request`, the wire needs a `model`."""
    request = parse_request(body, limits)
    if request.model is None:
        raise SchemaError("the request has no model; name one, see /v1/models", loc=("model",))
    return Parsed(request, Answers.to_wire)


def plain_form(body: bytes, limits: Limits) -> Parsed:
    """`POST /decide`: `{"context", "schema"}` to the answers by question text, of one row that all questions share."""
    value = object_of(body, limits)
    for key in _PLAIN_NAMES.values():
        if key not in value:
            raise SchemaError(f"the request has no {key}; add it", loc=(key,))
    schema = value["schema"]
    if not isinstance(schema, dict):
        raise SchemaError(f"the schema is {show(schema)}; give a map question text → question", loc=("schema",))
    try:
        request = parse_plain(value["context"], schema, limits=limits)
    except InputError as error:
        if error.loc:
            error.loc = (_PLAIN_NAMES.get(str(error.loc[0]), error.loc[0]), *error.loc[1:])
        raise
    return Parsed(request, lambda answers: {text: answer.to_wire() for text, answer in answers.items()})


def object_of(body: bytes, limits: Limits) -> dict[str, JsonValue]:
    """A body that is one JSON object. Raises as `loads` does."""
    value = loads(body, limits)
    if not isinstance(value, dict):
        raise SchemaError(f"the request is {show(value)}; it must be an object")
    return value
