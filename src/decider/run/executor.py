"""The seam between planning and reading: what every executor promises.

It refuses to know how a forward is done. Trap: rows are independent of each other. An executor that lets a neighbour, a
bucket or padding move a row's logits by more than reduction order breaks the contract, whatever it gains in speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from decider.run.stats import GridReport, PackedReport, ReferenceReport
from decider.tokens.rows import Row

Logits = NDArray[np.floating]


def by_row(logits: Logits, order: Iterable[int], rows: Sequence[Row]) -> dict[int, Logits]:
    """`logits` [slots, labels], which has the slots of `rows` in this `order` of them, as an array of its own a row."""
    results: dict[int, Logits] = {}
    start = 0
    for index in order:
        stop = start + len(rows[index].slots)
        results[index] = logits[start:stop].copy()
        start = stop
    return results


class Executor(Protocol):
    """Runs rows of token ids through one model."""

    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        """One array [slots, labels] a row, in the order given: float32, or float64 for such a model."""
        ...

    def describe(self) -> GridReport | PackedReport | ReferenceReport:
        """What runs, where, in which precision, and which choices were made; `str()` of it is one line."""
        ...

    def close(self) -> None:
        """Give back graphs and memory of its own. It takes no rows afterwards; calling it again does nothing."""
        ...
