"""How the errors of this package speak: what they say of a value, of a path, of a misspelt name.

It refuses to know what is checked. Trap: `repr` of a caller's value may be megabytes, recurse past the stack or raise
(an integer of 5,000 digits does), so containers are named by type and size only.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass

from decider.errors import InputError

Path = tuple[str | int, ...]
"""Where a fault is inside a request, outermost first."""

_MAX_CHARACTERS = 60


def show(value: object) -> str:
    """A value for a message, of at most about 60 characters, on one line: `repr` of a scalar, else type and size."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _MAX_CHARACTERS else f"{value[:_MAX_CHARACTERS]!r}…"
    if value is None or isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if abs(value) < 10**_MAX_CHARACTERS else f"an int of {value.bit_length():,} bits"
    try:
        size = f" of length {len(value):,}" if isinstance(value, Sized) else ""
    # Arrays without dimensions have a length that raises, and a class may raise anything.
    except Exception:  # noqa: BLE001
        size = ""
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}{size}"


def step(key: str) -> str:
    """A key as one step of a path, cut where it is long."""
    return key if len(key) <= _MAX_CHARACTERS else f"{key[:_MAX_CHARACTERS]}…"


def hint(name: object, known: Iterable[str]) -> str:
    """`did you mean …?` for a name that resembles a known one, else all known names."""
    names = list(known)
    near = difflib.get_close_matches(name[:_MAX_CHARACTERS], names, n=1) if isinstance(name, str) else []
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(map(repr, names))}"


def located(*prefix: str | int) -> AbstractContextManager[None]:
    """Put `prefix` before the path of any InputError that passes."""
    return _Located(prefix)


@dataclass(frozen=True, slots=True)
class _Located:
    # A generator would take three times as long, several times a question.
    prefix: Path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, InputError):
            error.loc = (*self.prefix, *error.loc)
