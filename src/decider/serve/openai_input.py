"""The `input` of the OpenAI Decisions shape as a state, and its content parts as text or JSON.

It refuses to know questions. Trap: an image that were dropped would be answered as if it had been seen, so any image is
refused; and of an item only the fields that say something reach the model: statuses and cache marks do not.
"""

from __future__ import annotations

from collections.abc import Mapping

from decider.errors import QuestionError, SchemaError
from decider.questions.faults import hint, located, show
from decider.questions.jsontext import JsonValue

_ROLES = ("user", "developer", "system", "assistant")
_TEXTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Part type → the field of its text."""
_IMAGE = "input_image"
_JSON = "input_json"
_ITEMS: Mapping[str, tuple[str, ...]] = {
    "function_call": ("name", "arguments"),
    "function_call_output": ("output",),
    "custom_tool_call": ("name", "input"),
    "custom_tool_call_output": ("output",),
}
"""Item type → what the model reads of it, beside its type and `call_id`."""


def state_of(value: JsonValue) -> JsonValue:
    """Text as it is; the text of a lone user message; else a list of messages, calls and outputs.

    Raises SchemaError, or QuestionError for an image, with the path from `input` on.
    """
    if isinstance(value, str):
        return value
    with located("input"):
        if not isinstance(value, list) or not value:
            raise SchemaError(f"the input is {show(value)}; give text, or a list of at least one item")
        items = []
        for index, item in enumerate(value):
            with located(index):
                items.append(_item(item))
    only = items[0]
    if len(items) == 1 and only.get("role") == "user":
        return only["content"]
    return items  # type: ignore[return-value]


def content_of(value: JsonValue) -> JsonValue:
    """Text, or parts: several texts become one, a line each; a lone JSON part its data; else a list of both."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise SchemaError(f"the content is {show(value)}; give text, or a list of at least one part")
    parts = []
    for index, part in enumerate(value):
        with located(index):
            parts.append(_part(part))
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) == len(parts):
        return "\n".join(texts)
    return parts[0] if len(parts) == 1 else parts


def _part(value: JsonValue) -> JsonValue:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        raise SchemaError(f"a part is {show(value)}; it must be an object with a type")
    if kind == _IMAGE:
        raise QuestionError("this model is text-only; send the request without images")
    if kind == _JSON:
        data = value.get("data")
        if not isinstance(data, (dict, list)):
            raise SchemaError(f"the data is {show(data)}; give an object or a list", loc=("data",))
        return data
    if kind not in _TEXTS:
        raise SchemaError(f"unknown part type {show(kind)}; {hint(kind, (*_TEXTS, _JSON))}", loc=("type",))
    text = value.get(_TEXTS[kind])
    if not isinstance(text, str):
        raise SchemaError(f"the {_TEXTS[kind]} is {show(text)}; it must be text", loc=(_TEXTS[kind],))
    return text


def _item(value: JsonValue) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise SchemaError(f"an item is {show(value)}; it must be an object")
    kind = value.get("type") or "message"
    if kind == "message":
        role = value.get("role")
        if role not in _ROLES:
            raise SchemaError(f"unknown role {show(role)}; {hint(role, _ROLES)}", loc=("role",))
        with located("content"):
            return {"role": role, "content": content_of(value.get("content"))}
    fields = _ITEMS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise SchemaError(f"unknown item type {show(kind)}; {hint(kind, ('message', *_ITEMS))}", loc=("type",))
    call_id = value.get("call_id")
    if not isinstance(call_id, str):
        raise SchemaError(f"the call_id is {show(call_id)}; it must be text", loc=("call_id",))
    said: dict[str, JsonValue] = {"type": kind, "call_id": call_id}
    for field in fields:
        with located(field):
            found = value.get(field)
            if field == "output":
                found = content_of(found)
            elif not isinstance(found, str):
                raise SchemaError(f"it is {show(found)}; it must be text")
        said[field] = found
    return said
