"""One question in JSON, of the wire or of the plain form, to its type.

It refuses to know requests and ids. Trap: a field that is not known is refused, since a misspelt `criteria` that were
ignored would silently ask something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from decider.errors import InputError, SchemaError
from decider.questions.faults import hint, show
from decider.questions.jsontext import JsonValue
from decider.questions.types import Choice, Noul, Question, Score


@dataclass(frozen=True, slots=True)
class _Form:
    """One `type` of JSON question; `fields` maps names as written to the type's own, canonical ones first."""

    make: type[Choice | Score | Noul]
    fields: dict[str, str]


_TEXT = {"instructions": "instructions", "question": "instructions"}
_NOUL = _Form(Noul, {**_TEXT, "criteria": "criteria"})
_WIRE = {
    "choice": _Form(Choice, {**_TEXT, "criteria": "criteria", "options": "criteria"}),
    "score": _Form(Score, {**_TEXT, "criteria": "criteria", "isolated": "isolated"}),
    "noul": _NOUL,
    "bool": _NOUL,
}
_PLAIN = {
    "choice": _Form(Choice, {"options": "criteria"}),
    "bool": _Form(Noul, {}),
    "scale": _Form(Score, {"levels": "criteria"}),
}


def parse_question(value: JsonValue) -> Question:
    """A question of the wire: `type` choice, score, noul (alias bool); aliases `question`, and `options` of a choice.

    Raises SchemaError for any other shape (not an object, unknown type or field, an alias beside its name), and what
    the question types raise; the path names fields as written.
    """
    return _parse(value, _WIRE, {})


def parse_plain_question(text: str, value: JsonValue) -> Question:
    """A question of the plain form, which asks `text`: `type` choice with `options`, bool, or scale with `levels`.

    Raises as `parse_question` does.
    """
    return _parse(value, _PLAIN, {"instructions": text})


def _parse(value: JsonValue, forms: Mapping[str, _Form], given: Mapping[str, Any]) -> Question:
    if not isinstance(value, dict):
        raise SchemaError(f"a question is {show(value)}; it must be an object with a type")
    if "type" not in value:
        raise SchemaError(f"a question has no type; {hint(None, forms)}", loc=("type",))
    kind = value["type"]
    form = forms.get(kind) if isinstance(kind, str) else None
    if form is None:
        raise SchemaError(f"unknown question type {show(kind)}; {hint(kind, forms)}", loc=("type",))
    arguments = dict(given)
    written = {field: name for name, field in reversed(form.fields.items())}
    for name, content in value.items():
        if name == "type":
            continue
        field = form.fields.get(name)
        if field is None:
            raise SchemaError(f"a {kind} has no field {show(name)}; {hint(name, ('type', *form.fields))}")
        if field in arguments:
            raise SchemaError(f"{written[field]!r} and {name!r} are the same field; give one of them", loc=(name,))
        arguments[field], written[field] = content, name
    try:
        return form.make(**arguments)
    except InputError as error:
        if error.loc:
            error.loc = (written.get(str(error.loc[0]), error.loc[0]), *error.loc[1:])
        raise
