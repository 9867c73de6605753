"""What the tests of `decider.verify` share: a small ladder, cases that cost nothing, and an oracle of fixed logits.

Refuses to test. Trap: no length of the ladder is one that the check of rows runs, so that a fault at an edge is the
edges' to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fake_graphs import LABEL_IDS, VOCAB

from decider.plan.buckets import Grid
from decider.run.executor import Logits
from decider.tokens.rows import Row
from decider.verify.cases import Ground
from decider.verify.pace import Pace, Point

POSITIONS = 200
GRID = Grid(lengths=(16, 48, 64, 96), batches=(1, 2, 4), token_budget=256, long_multiple=32)
FREE = Pace((Point(64, 0.0, 0.0),))


def ground(grid: Grid = GRID, *, positions: int = POSITIONS, oracle_tokens: int | None = None) -> Ground:
    return Ground(VOCAB, len(LABEL_IDS), positions, grid.lengths, grid.long_multiple, oracle_tokens)


def logits_of(*slots: Sequence[float]) -> Logits:
    return np.array(slots, dtype=np.float32)


@dataclass
class ReferenceStub:
    """Gives the same logits to every row, and counts them."""

    logits: Logits
    n_rows: int = 0

    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        self.n_rows += len(rows)
        return [self.logits for _ in rows]

    def describe(self) -> Any:
        return "stub"

    def close(self) -> None:
        return None
