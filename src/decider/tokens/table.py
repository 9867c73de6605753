"""One object of a JSON configuration file, read key by key with checks.

It refuses to know which keys there are. Trap: Python's `bool` is an `int`, so a number is checked for it first; and
a key that holds `null` is there, so it gets no default.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard, cast

from decider.errors import ConfigError
from decider.questions.faults import show
from decider.questions.jsontext import JsonValue


@dataclass(frozen=True, slots=True)
class Table:
    """`entries` of the object at `where` (file and path). Every method raises ConfigError for a value out of range."""

    where: str
    entries: Mapping[str, JsonValue]

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.entries.get(key, default)
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def text(self, key: str, *, default: str | None = None) -> str:
        """A string that is not empty; without a `default` the key must be there."""
        value = self.entries.get(key, default)
        if not isinstance(value, str) or not value:
            raise self.fault(key, "a string that is not empty")
        return value

    def number(self, key: str, *, default: float | None = None) -> float:
        """A finite number; without a `default` the key must be there."""
        value = self.entries.get(key, default)
        if not _is_number(value):
            raise self.fault(key, "a finite number")
        return float(value)

    def positive(self, key: str, *, default: float | None = None) -> float:
        """A finite number above 0; without a `default` the key must be there."""
        value = self.number(key, default=default)
        if value <= 0:
            raise self.fault(key, "a finite number above 0")
        return value

    def whole(self, key: str, *, most: int = sys.maxsize) -> int:
        """A whole number from 1 to `most`, by default the largest of 64 bits; the key must be there."""
        value = self.entries.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.fault(key, f"a whole number, 1 to {most}")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """Finite numbers, at least one; the key must be there."""
        numbers = self.numbers_or_nulls(key)
        for index, number in enumerate(numbers):
            if number is None:
                raise self.element_fault(key, index, "a finite number")
        return cast("tuple[float, ...]", numbers)

    def numbers_or_nulls(self, key: str) -> tuple[float | None, ...]:
        """Finite numbers, or None for null; at least one; the key must be there."""
        value = self.entries.get(key)
        if not isinstance(value, list) or not value:
            raise self.fault(key, "a list that is not empty")
        numbers: list[float | None] = []
        for index, element in enumerate(value):
            if element is not None and not _is_number(element):
                raise self.element_fault(key, index, "a finite number")
            numbers.append(None if element is None else float(element))
        return tuple(numbers)

    def object(self, key: str, *, allowed: tuple[str, ...] | None = None) -> Table | None:
        """The object at `key`, None where that is absent or null. Its keys must be among `allowed`, if given."""
        value = self.entries.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.fault(key, "an object")
        inner = Table(f"{self.where}: {key}", value)
        if allowed is not None and (unknown := inner.unknown(allowed)):
            raise ConfigError(f"{unknown[0]}; allowed are {', '.join(allowed)}")
        return inner

    def unknown(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """One sentence for each key that is not among `known`, with the known key that it resembles."""
        return tuple(
            f"{self.where}: unknown key {show(key)}{near_miss(key, known)}" for key in self.entries if key not in known
        )

    def fault(self, key: str, allowed: str) -> ConfigError:
        """The error for the value at `key`; `allowed` says what it must be."""
        value = show(self.entries[key]) if key in self.entries else "missing"
        return ConfigError(f"{self.where}: {key} is {value}; it must be {allowed}")

    def element_fault(self, key: str, index: int, allowed: str) -> ConfigError:
        """The error for one element, counted from 0, of the list at `key`."""
        elements = self.entries[key]
        assert isinstance(elements, list), elements
        return ConfigError(f"{self.where}: {key}: element {index} is {show(elements[index])}; it must be {allowed}")


def _is_number(value: object) -> TypeGuard[int | float]:
    # An integer of JSON may be too large for `math.isfinite`.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def near_miss(name: str, known: tuple[str, ...]) -> str:
    """` (did you mean …?)` for a name that resembles a known one, else nothing."""
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
