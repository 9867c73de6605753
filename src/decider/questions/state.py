"""The state as the model reads it: text unchanged, anything else JSON with the positions of long arrays written in.

It refuses to know tokens, and that a state may be cut. Trap: a position is longer than most short elements, so the size
is bounded before any is written; a body of `[0,0,0,…]` would otherwise grow a hundredfold in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from decider.errors import SchemaError, TooLargeError
from decider.questions.faults import show
from decider.questions.jsontext import JsonValue, check, dumps, utf8_bytes
from decider.questions.limits import Limits

INDEXED_LENGTH = 8
"""Arrays of at least this many elements get their positions."""
_INDEX = "_index"
_LEAST_ELEMENT_BYTES = len('{"_index": 0}, ')


def render_state(state: object, limits: Limits) -> str:
    """Text unchanged; a mapping, list or tuple as JSON, where each array of 8 or more has `_index` in its elements.

    Raises SchemaError for a state of another type or with a part that is not JSON; TooLargeError over `max_state_bytes`
    (UTF-8 bytes of the result).
    """
    loc = ("state",)
    if isinstance(state, str):
        _check_size(utf8_bytes(state, loc=loc), limits)
        return str.__str__(state)
    if not isinstance(state, (Mapping, list, tuple)):
        raise SchemaError(f"the state is {show(state)}; give text, an object or an array", loc=loc)
    return render_json(check(state, limits=limits, loc=loc), limits)


def render_json(state: JsonValue, limits: Limits) -> str:
    """As `render_state`, for an object or array that is checked already. Raises TooLargeError."""
    _check_size(_least_bytes(state), limits)
    text = dumps(_indexed(state))
    _check_size(utf8_bytes(text), limits)
    return text


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.max_state_bytes:
        raise TooLargeError(
            f"the state has at least {size:,} bytes, over the limit of {limits.max_state_bytes:,} (max_state_bytes), "
            "which no model's maximum context length can use; shorten it",
            loc=("state",),
        )


def _least_bytes(value: JsonValue) -> int:
    """A lower bound of the rendered size, from the elements of indexed arrays."""
    if isinstance(value, dict):
        return sum(map(_least_bytes, value.values()))
    if isinstance(value, list):
        own = _LEAST_ELEMENT_BYTES * len(value) if len(value) >= INDEXED_LENGTH else 0
        return own + sum(map(_least_bytes, value))
    return 0


def _indexed(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _indexed(element) for key, element in value.items()}
    if not isinstance(value, list):
        return value
    elements = [_indexed(element) for element in value]
    if len(elements) < INDEXED_LENGTH:
        return elements
    # An element's own `_index` overwrites the value and keeps the place, which is the front.
    return [
        {_INDEX: index, **element} if isinstance(element, dict) else {_INDEX: index, "value": element}
        for index, element in enumerate(elements)
    ]
