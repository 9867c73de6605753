"""The three question types, checked and copied when they are made. Field names are those of the wire.

It refuses to know ids, layouts and how a question reads (`prompt`). Trap: `0`, `false`, `[]` and `{}` are descriptions;
only null and the empty string are none. Instructions, though, are empty for `[]` and `{}` too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal, TypeAlias, cast

from decider.errors import QuestionError
from decider.questions.criteria import check_instructions, check_isolated, check_levels, check_options, check_sides
from decider.questions.jsontext import JsonValue

Instructions: TypeAlias = str | Mapping[str, object] | Sequence[object] | None
"""Text, or JSON content: a mapping or a list, which the model reads as JSON."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of 1 to 255 options. `criteria` maps names to descriptions (JSON or None), or is a list of names.

    Raises QuestionError for more options, SchemaError for none, a repeated name or anything of another type.
    """

    kind: ClassVar[Literal["choice"]] = "choice"

    instructions: Instructions = None
    criteria: Mapping[str, object] | Sequence[str] = ()

    def __post_init__(self) -> None:
        _replace(self, "instructions", check_instructions(self.instructions))
        _replace(self, "criteria", MappingProxyType(check_options(self.criteria)))

    def __reduce__(self) -> tuple[object, ...]:
        # A read-only view cannot be pickled; what it shows can.
        return Choice, (self.instructions, dict(self._options))

    @property
    def names(self) -> tuple[str, ...]:
        """The options' names, in the order given."""
        return tuple(self._options)

    @property
    def descriptions(self) -> tuple[JsonValue, ...]:
        """One description an option; None where there is none."""
        return tuple(self._options.values())

    @property
    def _options(self) -> Mapping[str, JsonValue]:
        return cast("Mapping[str, JsonValue]", self.criteria)


@dataclass(frozen=True, slots=True)
class Score:
    """A scale of 2 to 10 levels, lowest first. `criteria` is a list of descriptions, or a map whose keys are numbers,
    which order the levels and are not kept. `isolated` asks for one yes/no row a level; None leaves it to the model.

    Raises QuestionError for 1 or more than 10 levels, SchemaError for none, a null level, a key that is no finite
    number or equals another as a number, or anything of another type.
    """

    kind: ClassVar[Literal["score"]] = "score"

    instructions: Instructions = None
    criteria: Sequence[object] | Mapping[str, object] | Mapping[int, object] | Mapping[float, object] = ()
    isolated: bool | None = None

    def __post_init__(self) -> None:
        _replace(self, "instructions", check_instructions(self.instructions))
        _replace(self, "criteria", check_levels(self.criteria))
        check_isolated(self.isolated)

    @property
    def levels(self) -> tuple[JsonValue, ...]:
        """The levels' descriptions, never None, lowest first."""
        return cast("tuple[JsonValue, ...]", self.criteria)


@dataclass(frozen=True, slots=True)
class Noul:
    """Yes or no. `criteria` may describe either side: a map with the keys "true" and "false", both optional.

    Raises QuestionError where there are neither instructions nor a description, SchemaError for anything of another
    type.
    """

    kind: ClassVar[Literal["noul"]] = "noul"

    instructions: Instructions = None
    criteria: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        sides = check_sides(self.criteria)
        _replace(self, "instructions", check_instructions(self.instructions))
        _replace(self, "criteria", None if sides is None else MappingProxyType(sides))
        if not self.instructions and not is_described(self.true) and not is_described(self.false):
            raise QuestionError('a noul has nothing to ask; give it instructions, or describe "true" or "false"')

    def __reduce__(self) -> tuple[object, ...]:
        # As in Choice.
        return Noul, (self.instructions, None if self.criteria is None else dict(self.criteria))

    @property
    def true(self) -> JsonValue:
        """What yes means; None where it is not said."""
        return self._side("true")

    @property
    def false(self) -> JsonValue:
        """What no means; None where it is not said."""
        return self._side("false")

    def _side(self, key: str) -> JsonValue:
        return cast("Mapping[str, JsonValue]", self.criteria or {}).get(key)


Question: TypeAlias = Choice | Score | Noul


def is_described(description: JsonValue) -> bool:
    """Whether an option has a description: anything but null and the empty string."""
    return description is not None and description != ""


def _replace(question: Question, field: str, value: object) -> None:
    object.__setattr__(question, field, value)
