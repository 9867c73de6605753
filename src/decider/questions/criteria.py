"""What the fields of a question may hold: each function checks one field and returns a normalised copy.

It refuses to know the types that hold the fields. Trap: counts are checked before contents, so a list of a million
options costs nothing; and Python's `bool` is an `int`, so True is never a level's number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from decider.errors import QuestionError, SchemaError
from decider.questions.faults import hint, show
from decider.questions.jsontext import Content, JsonValue, check
from decider.questions.limits import DEFAULT_LIMITS

_INSTRUCTIONS = ("instructions",)
_CRITERIA = ("criteria",)
_SIDES = ("true", "false")


def check_instructions(value: object) -> Content | None:
    """Text, an object, an array or None."""
    if value is None:
        return None
    if not isinstance(value, (str, Mapping, list, tuple)):
        raise SchemaError(f"instructions are {show(value)}; give text, an object, an array or null", loc=_INSTRUCTIONS)
    return cast("Content", check(value, limits=DEFAULT_LIMITS, loc=_INSTRUCTIONS))


def check_options(criteria: object) -> dict[str, JsonValue]:
    """Name → description of a Choice; a list of names has no descriptions."""
    if not isinstance(criteria, (Mapping, list, tuple)):
        raise SchemaError(f"the options are {show(criteria)}; give a map or a list of names", loc=_CRITERIA)
    if not criteria:
        raise SchemaError("there are no options (0); give at least one", loc=_CRITERIA)
    if len(criteria) > DEFAULT_LIMITS.max_options:
        raise QuestionError(
            f"{len(criteria):,} options; the limit is {DEFAULT_LIMITS.max_options} options per choice, so offer fewer",
            loc=_CRITERIA,
        )
    checked = check(criteria, limits=DEFAULT_LIMITS, loc=_CRITERIA)
    if isinstance(checked, dict):
        return checked
    options: dict[str, JsonValue] = {}
    for index, name in enumerate(cast("list[JsonValue]", checked)):
        if not isinstance(name, str):
            raise SchemaError(f"an option is {show(name)}; a list of options holds names", loc=(*_CRITERIA, index))
        if name in options:
            raise SchemaError(f"duplicate option {show(name)}; name each option once", loc=(*_CRITERIA, index))
        options[name] = None
    return options


def check_levels(criteria: object) -> tuple[JsonValue, ...]:
    """The descriptions of a Score, lowest level first; a map is sorted by its keys as numbers."""
    if not isinstance(criteria, (Mapping, list, tuple)):
        raise SchemaError(f"the levels are {show(criteria)}; give a list of descriptions", loc=_CRITERIA)
    if not criteria:
        raise SchemaError("there are no levels (0); give at least two", loc=_CRITERIA)
    fewest, most = DEFAULT_LIMITS.min_levels, DEFAULT_LIMITS.max_levels
    if not fewest <= len(criteria) <= most:
        raise QuestionError(f"a score of {len(criteria):,} levels; give it {fewest} to {most}", loc=_CRITERIA)
    ordered = _by_number(criteria) if isinstance(criteria, Mapping) else criteria
    levels = cast("list[JsonValue]", check(ordered, limits=DEFAULT_LIMITS, loc=_CRITERIA))
    for index, level in enumerate(levels):
        if level is None:
            raise SchemaError("a level is null; describe it, if only by an empty text", loc=(*_CRITERIA, index))
    return tuple(levels)


def check_isolated(value: object) -> None:
    """True, False or None."""
    if value is not None and not isinstance(value, bool):
        raise SchemaError(f"isolated is {show(value)}; it must be true, false or null", loc=("isolated",))


def check_sides(criteria: object) -> dict[str, JsonValue] | None:
    """The descriptions of a Noul, under "true" and "false"."""
    if criteria is None:
        return None
    if not isinstance(criteria, Mapping):
        raise SchemaError(f'the criteria are {show(criteria)}; give a map with "true" and "false"', loc=_CRITERIA)
    for key in criteria:
        if key not in _SIDES:
            raise SchemaError(f"a noul has no criterion {show(key)}; {hint(key, _SIDES)}", loc=_CRITERIA)
    return cast("dict[str, JsonValue]", check(criteria, limits=DEFAULT_LIMITS, loc=_CRITERIA))


def _by_number(criteria: Mapping[object, object]) -> list[object]:
    numbered: dict[float, object] = {}
    for key, level in criteria.items():
        number = _number(key)
        if number in numbered:
            raise SchemaError(f"the level key {show(key)} equals another as a number; use each once", loc=_CRITERIA)
        numbered[number] = level
    return [numbered[number] for number in sorted(numbered)]


def _number(key: object) -> float:
    number = math.nan
    if isinstance(key, (str, int, float)) and not isinstance(key, bool):
        # What is no number, or none that a double holds, stays NaN.
        with suppress(ValueError, OverflowError):
            number = float(key)
    if not math.isfinite(number):
        raise SchemaError(f"the level key {show(key)} is no finite number; give numbers, or a list", loc=_CRITERIA)
    return number
