"""One labelled item, and what a task is.

It refuses to know packages and splits. Trap: `group` decides the split, and an item's other text does not. Items that
share a state, or are written from one template text, must share their group, or a test set asks what was calibrated on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from decider.data.archive import Archive
from decider.data.sources import Source

Gold: TypeAlias = str | int | bool
"""A Choice's option name, a Score's level from 0, a Noul's answer."""
Read: TypeAlias = Callable[[Archive], Iterator["Item"]]


@dataclass(frozen=True, slots=True)
class Item:
    """One state with its questions, in their wire form, and their right answers."""

    state: object
    questions: Mapping[str, Mapping[str, object]]
    gold: Mapping[str, Gold]
    group: str
    """The text that must not be in both splits."""

    def content(self) -> str:
        """The item as canonical JSON; what it is told apart by."""
        return json.dumps(
            [self.state, self.questions, self.gold], ensure_ascii=False, sort_keys=True, separators=(",", ":")
        )


@dataclass(frozen=True, slots=True)
class Task:
    """One evaluation task: a source, how its items are read, and what to tell a user about it."""

    name: str
    kinds: tuple[str, ...]
    """The question types on each state: choice, score, noul."""
    options: str
    """How many options a question has, in words."""
    source: Source
    licence: str
    """Of the data, where it may differ from the package's."""
    asks: str
    n_decisions: tuple[int, int]
    """For calibration and test, at the usual limit."""
    read: Read
    templated: bool = False
    """Whether the texts are made from a template, so that different items look nearly the same."""


def choice(instructions: str, options: Mapping[str, object] | list[str]) -> dict[str, object]:
    """A Choice in its wire form; a list of names, or names with descriptions."""
    return {"type": "choice", "instructions": instructions, "criteria": options}


def score(instructions: str, levels: list[str]) -> dict[str, object]:
    """A Score in its wire form, levels from the lowest."""
    return {"type": "score", "instructions": instructions, "criteria": levels}


def noul(instructions: str, *, yes: str | None = None, no: str | None = None) -> dict[str, object]:
    """A Noul in its wire form."""
    sides = {key: text for key, text in (("true", yes), ("false", no)) if text is not None}
    question: dict[str, object] = {"type": "noul", "instructions": instructions}
    return question | {"criteria": sides} if sides else question
