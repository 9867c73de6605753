"""A capturer of packs without a device, and packs at the edges of a ladder.

Refuses to be fast: a fake graph does its work again at each replay. Trap: off CUDA the work makes its tree from the
tables alone, so an answer is right only if all of them are.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch

from decider.run.graphs import Graph, Work
from decider.tokens.rows import Row


@dataclass(frozen=True, slots=True)
class FakeWorkGraph:
    """Does its work at each replay."""

    work: Work

    def replay(self) -> None:
        """Once more."""
        self.work()


@dataclass(slots=True)
class FakeWorkCapturer:
    """Counts; refuses to capture once `closed`. `spoil` may replace the graph of the n-th capture."""

    warmed: int = 0
    recorded: int = 0
    closed: bool = False
    spoil: Callable[[int, Work], Work | None] = lambda _, __: None

    def warm(self, work: Work) -> None:
        """Do it."""
        self.warmed += 1
        work()

    def record(self, work: Work) -> Graph:
        """A fake graph, or AssertionError."""
        assert not self.closed, "captured after the seal"
        self.recorded += 1
        return FakeWorkGraph(self.spoil(self.recorded, work) or work)


def falling_times() -> Callable[..., float]:
    """In the place of `measure.milliseconds`: each work takes a little less than the one before.

    At warm-up larger packs come first, so none is dropped by noise, and two are never faster than one.
    """
    counts = itertools.count()

    def milliseconds(_: torch.device, work: Callable[[], object], **__: object) -> float:
        work()
        return 1000.0 - 1e-3 * next(counts)

    return milliseconds


def rows_of(n_tokens: int, n_rows: int, *, shared: int = 0, seed: int = 0) -> list[Row]:
    """`n_rows` rows which are together a pack of `n_tokens`, all but the first as short as can be.

    `shared`: tokens of a trunk that they all have; 0 for rows that share nothing.
    """
    draw = random.Random(f"{n_tokens} {n_rows} {shared} {seed}")
    trunk = draw.choices(range(1024), k=shared)
    lengths = [1] * n_rows
    lengths[0] = n_tokens - shared - (n_rows - 1)
    assert lengths[0] >= 1, (n_tokens, n_rows, shared)
    firsts = draw.sample(range(1024), n_rows)
    rows = []
    for first, length in zip(firsts, lengths, strict=True):
        ids = (*trunk, first, *draw.choices(range(1024), k=length - 1))
        slots = tuple(sorted({len(ids) - 1, shared + length // 2 if length > 1 else len(ids) - 1}))
        rows.append(Row(ids, slots, (5,) * len(slots), shared))
    return rows
