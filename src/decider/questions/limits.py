"""How large a request may be, in bytes and counts, all checked before any text is tokenised.

It refuses to know tokens: their limits belong to the model. Trap: options and levels are bounded by the format itself,
not by an operator, so those are class constants here and no constructor takes them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from decider.errors import ConfigError
from decider.questions.faults import show


@dataclass(frozen=True, slots=True)
class Limits:
    """An operator's limits, each a positive integer. Raises ConfigError for any other value."""

    HARD_DEPTH: ClassVar[int] = 64
    """The most that `max_depth` may be: what walks JSON here recurses, and must not meet the interpreter's limit."""
    max_options: ClassVar[int] = 255
    """The most options of a Choice."""
    min_levels: ClassVar[int] = 2
    max_levels: ClassVar[int] = 10

    max_body_bytes: int = 8 * 2**20
    """The most bytes of a request's JSON."""
    max_state_bytes: int = 2 * 2**20
    """The most UTF-8 bytes of a state as the model would read it."""
    max_question_bytes: int = 2**20
    """The most UTF-8 bytes of one question's text and options together."""
    max_questions: int = 4096
    max_depth: int = HARD_DEPTH
    """Levels of nested arrays and objects: of a whole body, or of a state or question that came as a Python value."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{field.name} is {show(value)}; it must be a positive integer")
        if self.max_depth > self.HARD_DEPTH:
            raise ConfigError(f"max_depth is {self.max_depth}; it must be at most {self.HARD_DEPTH}")


DEFAULT_LIMITS = Limits()
