"""JSON, strictly: text to values, Python values checked and copied, values to the text the model was trained on.

It refuses to know requests and questions. Trap: Python's `json` accepts NaN, lone surrogates and repeated keys, and
overruns the stack on deep input; the parser's hooks mark such places, and the walk that knows the path reports them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from decider.errors import SchemaError, TooLargeError
from decider.questions.faults import Path, show, step
from decider.questions.limits import Limits

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Content: TypeAlias = "str | list[JsonValue] | dict[str, JsonValue]"
"""What a state, an instruction or a description may be: text, an array or an object."""

MAX_DIGITS = 640
"""The longest number. The smallest limit that `sys.set_int_max_str_digits` may set, so no interpreter refuses less."""
_TOO_LARGE_INT = 10**MAX_DIGITS


def loads(body: bytes | str, limits: Limits) -> JsonValue:
    """Parse one JSON document (RFC 8259, UTF-8).

    Raises TooLargeError for a body over `max_body_bytes`, before it is parsed; SchemaError, with a position or a path,
    for anything else: malformed or followed by more text, invalid UTF-8, nested over `max_depth`, a repeated key, NaN,
    Infinity, a number over 640 characters or beyond a double's range, a lone surrogate.
    """
    text = _decode(body, limits)
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_int=_int, parse_float=_float, parse_constant=_constant
        )
    except json.JSONDecodeError as error:
        raise SchemaError(
            f"malformed JSON at line {error.lineno}, column {error.colno}: {error.msg}; send one JSON document"
        ) from None
    except RecursionError:
        raise _too_deep(limits) from None
    return check(value, limits=limits)


def check(value: object, *, limits: Limits, loc: Path = ()) -> JsonValue:
    """Copy a Python value as JSON: mappings become dicts, tuples lists, subclasses of scalars the scalars themselves.

    Raises SchemaError, with the path below `loc`, for any other type, a key that is no string, a float that is not
    finite, an integer over 640 digits, a lone surrogate, or nesting over `max_depth` (a value that contains itself).
    """
    # Not by `located`: this runs for every text of a request.
    try:
        return _copy(value, limits, limits.max_depth)
    except SchemaError as error:
        error.loc = (*loc, *error.loc)
        raise


def dumps(value: object) -> str:
    """A checked value as the model reads it: `", "` and `": "`, key order and non-ASCII kept, numbers as `json`'s."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def utf8_bytes(text: str, *, loc: Path = ()) -> int:
    """The length of `text` in UTF-8, at no cost for ASCII. Raises SchemaError for a lone surrogate."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise SchemaError(
            f"the text has a lone surrogate {text[error.start]!r} at character {error.start:,}; send valid Unicode",
            loc=loc,
        ) from None


@dataclass(frozen=True, slots=True)
class _Fault:
    """Stands in a parsed tree for a value that is not allowed there, until the walk finds its path."""

    message: str


def _decode(body: bytes | str, limits: Limits) -> str:
    # A character has at least one byte, so a text too long by characters is never encoded to be measured.
    size = len(body) if isinstance(body, bytes) or len(body) > limits.max_body_bytes else utf8_bytes(body)
    if size > limits.max_body_bytes:
        raise TooLargeError(
            f"the request has at least {size:,} bytes, over the limit of {limits.max_body_bytes:,} (max_body_bytes), "
            "which no model's maximum context length can use; shorten the state or ask fewer questions"
        )
    if isinstance(body, str):
        return body
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"the request is not UTF-8: {error.reason} at byte {error.start:,}; encode it as UTF-8"
        ) from None


def _object(pairs: list[tuple[str, object]]) -> object:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    seen: set[str] = set()
    repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return _Fault(f"duplicate key {show(repeated)}; keep one")


def _int(digits: str) -> object:
    return int(digits) if len(digits) <= MAX_DIGITS else _long_number(digits)


def _float(digits: str) -> object:
    if len(digits) > MAX_DIGITS:
        return _long_number(digits)
    value = float(digits)
    return (
        value if math.isfinite(value) else _Fault(f"the number {step(digits)} is out of range; a double must hold it")
    )


def _long_number(digits: str) -> _Fault:
    return _Fault(f"a number of {len(digits):,} characters is over the limit of {MAX_DIGITS}; send it as a string")


def _constant(name: str) -> _Fault:
    return _Fault(f"{name} is not JSON; send null or a finite number")


def _copy(value: object, limits: Limits, depth: int) -> JsonValue:
    """`depth` levels of nesting are left. Errors get their path on the way out, so that sound values pay for none."""
    if isinstance(value, str):
        if not value.isascii():
            utf8_bytes(value)
        return str.__str__(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) >= _TOO_LARGE_INT:
            raise SchemaError(f"{show(value)} is over the limit of {MAX_DIGITS} digits; send it as a string")
        return int.__int__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SchemaError(f"{value!r} is not JSON; send null or a finite number")
        return float.__float__(value)
    if isinstance(value, (list, tuple)):
        return _copy_list(value, limits, _deeper(depth, limits))
    if isinstance(value, Mapping):
        return _copy_mapping(value, limits, _deeper(depth, limits))
    if isinstance(value, _Fault):
        raise SchemaError(value.message)
    raise SchemaError(f"{show(value)} is not JSON; send text, numbers, true, false, null, lists and maps")


def _copy_list(values: Sequence[object], limits: Limits, depth: int) -> list[JsonValue]:
    copied: list[JsonValue] = []
    try:
        for value in values:
            copied.append(_copy(value, limits, depth))  # noqa: PERF401 - the length says where it failed
    except SchemaError as error:
        error.loc = (len(copied), *error.loc)
        raise
    return copied


def _copy_mapping(values: Mapping[object, object], limits: Limits, depth: int) -> dict[str, JsonValue]:
    copied: dict[str, JsonValue] = {}
    for key, value in values.items():
        name = _key(key)
        try:
            copied[name] = _copy(value, limits, depth)
        except SchemaError as error:
            error.loc = (step(name), *error.loc)
            raise
    return copied


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise SchemaError(f"the key {show(key)} is no string; every key of an object is one")
    if not key.isascii():
        utf8_bytes(key)
    return str.__str__(key)


def _deeper(depth: int, limits: Limits) -> int:
    if not depth:
        raise _too_deep(limits)
    return depth - 1


def _too_deep(limits: Limits) -> SchemaError:
    return SchemaError(
        f"nested more than {limits.max_depth} levels deep (max_depth; of a server, max_json_depth), or containing "
        "itself; flatten it"
    )
