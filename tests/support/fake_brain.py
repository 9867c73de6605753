"""A model for the server's tests: the real questions, rows and reading, over bytes as tokens, and no forward at all.

Scores depend on a row's own tokens alone, so what runs beside it changes nothing. Trap: `score` runs on the engine's
thread; what a test sets here while packs run must be a single assignment.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from string import ascii_uppercase
from typing import cast

import numpy as np

from decider.answering import Asked, LaidOut
from decider.errors import QuestionError
from decider.questions.request import Request
from decider.questions.rotate import Rotation
from decider.questions.wire import MODEL_ALIAS
from decider.read import log_probabilities
from decider.serve.brain import ModelEntry, Prepared, RowScores, Score, prepared
from decider.tokens.config import DeciderConfig
from decider.tokens.labels import LabelTable
from decider.tokens.layout import Layout
from decider.tokens.rows import Row, RowBuilder
from decider.tokens.tokenizer import Tokenizer

NAME = "decider-fake"


class ByteTokenizer:
    """A token a byte; no special tokens."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


def row_builder(*, max_positions: int = 65_536, max_state_tokens: int = 32_768) -> RowBuilder:
    names = (*ascii_uppercase, *map("".join, product(ascii_uppercase, repeat=2)))[:255]
    labels = LabelTable(names, tuple(range(256, 256 + len(names))))
    tokenizer = cast("Tokenizer", ByteTokenizer())
    return RowBuilder(
        tokenizer,
        labels,
        DeciderConfig(),
        chat=None,
        max_positions=max_positions,
        max_state_tokens=max_state_tokens,
    )


def fake_scores(row: Row, temperatures: Sequence[float]) -> RowScores:
    """Log-probabilities that follow from the row's tokens, and from nothing else."""
    seed = zlib.crc32(row.id_bytes)
    scores = []
    for slot, (n_options, temperature) in enumerate(zip(row.n_options, temperatures, strict=True)):
        # As uneven as a model's, and without a random generator, which would be most of the time.
        logits = np.sin(np.arange(1, n_options + 1) * (1 + (seed + slot) % 9973)) * 3
        scores.append(log_probabilities(logits, n_options, temperature))
    return tuple(scores)


@dataclass(eq=False)
class FakeBrain:
    """Answers after `delay_s` a pack and `per_token_s` a token, or as its switches say."""

    delay_s: float = 0.0
    per_token_s: float = 0.0
    prepare_s: float = 0.0
    """Sleep in `prepare`."""
    fault: Callable[[Sequence[Row]], BaseException | None] | None = None
    """What `score` raises for a pack, if anything."""
    hold: threading.Event | None = None
    """While it is not set, `score` does not return."""
    devices: tuple[str, ...] = ("fake",)
    """An engine on each."""
    before: Callable[[str], None] | None = None
    """Called with the device before each pack; it may wait or raise."""
    name: str = NAME
    builder: RowBuilder = field(default_factory=row_builder)
    packs: list[tuple[Row, ...]] = field(default_factory=list)
    """Every pack that was asked for, kept while `records`."""
    ran_on: list[tuple[str, tuple[Row, ...]]] = field(default_factory=list)
    """The same, with the device, of packs whose scores came."""
    records: bool = True
    running: list[str] = field(default_factory=list)
    """The devices in a forward."""
    closed: bool = False

    @property
    def models(self) -> Sequence[ModelEntry]:
        return (ModelEntry(self.name, "a fake", "2026-01-01"),)

    def asked(self, request: Request) -> Asked:
        """As `Decider.prepare` makes it."""
        if request.model not in (None, self.name, MODEL_ALIAS):
            raise QuestionError(f"unknown model {request.model!r:.60}; this one is {self.name!r}", loc=("model",))
        layout = Layout.parse(request.layout or "plain")
        built = self.builder.build(request, layout=layout, truncate=False)
        temperatures = [[1.0] * len(row.slots) for row in built.rows]
        asking = Rotation(request, dict.fromkeys(request.questions, 0))
        return Asked([LaidOut(asking, built, layout, temperatures)], None, None)

    def prepare(self, request: Request) -> Prepared:
        if self.prepare_s:
            time.sleep(self.prepare_s)
        asked = self.asked(request)
        read = partial(asked.read_rows, model=self.name)
        return prepared(asked.rows, asked.temperatures, read, shared_from_tokens=1)

    @property
    def engines(self) -> Mapping[str, Score]:
        return {device: partial(self.score_on, device) for device in self.devices}

    def score_on(
        self, device: str, rows: Sequence[Row], temperatures: Sequence[Sequence[float]]
    ) -> Sequence[RowScores]:
        self.running.append(device)
        try:
            if self.before is not None:
                self.before(device)
            scores = self.score(rows, temperatures)
        finally:
            self.running.remove(device)
        if self.records:
            self.ran_on.append((device, tuple(rows)))
        return scores

    def score(self, rows: Sequence[Row], temperatures: Sequence[Sequence[float]]) -> Sequence[RowScores]:
        if self.records:
            self.packs.append(tuple(rows))
        if self.hold is not None:
            assert self.hold.wait(60), "a test left its fake engine held"
        if self.fault is not None and (error := self.fault(rows)) is not None:
            raise error
        if self.delay_s or self.per_token_s:
            time.sleep(self.delay_s + self.per_token_s * pack_tokens(rows))
        return [fake_scores(row, own) for row, own in zip(rows, temperatures, strict=True)]

    def describe(self) -> Mapping[str, object]:
        ran = Counter(device for device, _ in self.ran_on)
        engines = [{"name": name, "report": "fake", "stats": {"forwards": ran[name]}} for name in self.devices]
        return {"executor": "fake", "report": "fake: no forward", "stats": {}, "engines": engines, "picks": []}

    def close(self) -> None:
        """As executors do it: not before the forwards that run have ended."""
        while self.running:
            time.sleep(0.01)
        self.closed = True


def pack_tokens(rows: Sequence[Row]) -> int:
    """What a pack costs: a start that a row shares with the row before it counts once."""
    total, before = 0, b""
    for row in rows:
        shared = bool(before) and row.start_bytes == before
        total += len(row.ids) - (len(row.start_bytes) // 8 if shared else 0)
        before = row.start_bytes
    return total
