"""An executor without a model: its logits follow from a row alone, and it waits or raises as a test says.

Refuses to count: what ran is in `calls`. Trap: what is set here is read on the engines' threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from fake_brain import fake_scores

from decider.run.executor import Logits
from decider.run.stats import ReferenceReport
from decider.tokens.rows import Row


class AcceleratorError(RuntimeError):
    """Named as torch's."""


class FakeExecutor:
    """Logits that follow from a row alone; `error` is raised once it is set, and `hold` is waited for."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.error: Exception | None = None
        self.hold: threading.Event | None = None
        self.closed = 0

    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        self.calls.append(len(rows))
        if self.hold is not None:
            assert self.hold.wait(20)
        if self.error is not None:
            raise self.error
        return [np.stack(fake_scores(each, [1.0] * len(each.slots))) for each in rows]

    def describe(self) -> ReferenceReport:
        return ReferenceReport("fake", "float32")

    def close(self) -> None:
        self.closed += 1
        if self.error is not None:
            raise self.error
