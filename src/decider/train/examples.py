"""Labelled decisions to rows with a target at each slot, by the row builder that serves.

It refuses to know packs and devices. Trap: a question has a slot for each of its rows, and a Score that is judged level
by level has several, whose options are (no, yes). What is right there is yes for one level and no for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from decider.assembly import find_chat_frame
from decider.errors import ConfigError
from decider.questions.request import Request
from decider.questions.types import Choice, Score
from decider.tokens.config import DeciderConfig, load_config
from decider.tokens.labels import label_table
from decider.tokens.layout import Layout
from decider.tokens.rows import Row, RowBuilder, Rows, Slot
from decider.tokens.tokenizer import Tokenizer
from decider.train.augment import Asking

NO_TARGET = -1
"""Of a slot whose question has no right answer, beside others in one row."""
NO, YES = 0, 1


@dataclass(frozen=True, slots=True)
class Twin:
    """A question asked in two orders of its options."""

    first: Slot
    second: Slot
    order: tuple[int, ...]
    """Of each of the first's options, its place among the second's."""


@dataclass(frozen=True, slots=True)
class Example:
    """The rows of one asking."""

    rows: tuple[Row, ...]
    targets: tuple[tuple[int, ...], ...]
    """For each row and slot the right option's index, or `NO_TARGET`."""
    weights: tuple[tuple[float, ...], ...]
    """For each row and slot what its loss counts: together 1 a decision, and 1 more where it has a twin."""
    twins: tuple[Twin, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """How a model reads requests."""

    builder: RowBuilder
    layout: Layout
    """Of requests that name none."""

    @property
    def config(self) -> DeciderConfig:
        """The model's `decider_config.json`."""
        return self.builder.config

    @property
    def trains_schema_first(self) -> bool:
        """Whether layouts that put the questions first are trained."""
        return self.config.schema_first or self.config.schema_first_trained

    def built(self, request: Request) -> Rows:
        """The rows of a request, a state over the cap cut. Raises an InputError for one that the model cannot take."""
        layout = self.layout if request.layout is None else Layout.parse(request.layout)
        return self.builder.build(request, layout=layout, truncate=True)

    def example(self, asking: Asking, twin: Asking | None = None) -> Example:
        """Rows and targets, of an asking and of its twin behind it (`augment.twin_of`). Raises as `built` does."""
        one, places = self._example(asking)
        if twin is None:
            return one
        other, places_there = self._example(twin)
        twins = []
        for name, question in twin.request.questions.items():
            own = asking.request.questions[name]
            assert isinstance(own, Choice)
            assert isinstance(question, Choice)
            (first,), (there,) = places[name], places_there[name]
            order = tuple(question.names.index(option) for option in own.names)
            twins.append(Twin(first, replace(there, row=there.row + len(one.rows)), order))
        rows = one.rows + other.rows
        return Example(rows, one.targets + other.targets, one.weights + other.weights, tuple(twins))

    def _example(self, asking: Asking) -> tuple[Example, Mapping[str, tuple[Slot, ...]]]:
        request, built = asking.request, self.built(asking.request)
        targets = [[NO_TARGET] * len(row.slots) for row in built.rows]
        weights = [[0.0] * len(row.slots) for row in built.rows]
        for name, right in asking.gold.items():
            slots = built.places[name]
            isolated = isinstance(request.questions[name], Score) and len(slots) > 1
            for level, slot in enumerate(slots):
                targets[slot.row][slot.index] = (YES if level == right else NO) if isolated else right
                weights[slot.row][slot.index] = 1 / len(slots)
        return Example(built.rows, tuple(map(tuple, targets)), tuple(map(tuple, weights))), built.places


def reading_of(
    folder: Path,
    *,
    config: Path | None,
    layout: str | None,
    max_positions: int,
    max_state_tokens: int,
    schema_first: bool,
) -> Reading:
    """How the model in `folder` reads, as it is served: its tokenizer, labels and configuration.

    `config` stands in for its `decider_config.json`, `layout` for that one's; with `schema_first`, layouts that put the
    questions first count as trained. Raises ModelError or ConfigError as serving does, and ConfigError for a layout
    that needs a template it lacks.
    """
    read = load_config(folder, config)
    if schema_first:
        read = replace(read, schema_first_trained=True)
    tokenizer = Tokenizer.from_pretrained(folder)
    labels = label_table(tokenizer)
    own = Layout(read.chat, read.schema_first) if layout is None else Layout.parse(layout)
    frame, fault = find_chat_frame(tokenizer, labels, needed=False)
    if own.chat and frame is None:
        raise ConfigError(f"layout {own.name!r} cannot be trained: {fault}")
    builder = RowBuilder(
        tokenizer, labels, read, chat=frame, max_positions=max_positions, max_state_tokens=max_state_tokens
    )
    return Reading(builder, own)
