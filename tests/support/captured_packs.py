"""Executors whose packs are captured by a fake capturer, on a small ladder, beside one that runs them eagerly.

Refuses to know kernels: off CUDA a graph rebuilds its tree from the static tables. Trap: sizes that measure no faster
than the next are dropped, so a test that captures tells the times as well (`falling_times`, `told`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from fake_pack_graphs import FakeWorkCapturer

from decider.backbone.decoder import Backbone
from decider.model.head import LabelHead
from decider.plan.packs import PackLimits, card_limits
from decider.plan.tables import PackShape
from decider.run.executor import Logits
from decider.run.packed import PackedExecutor
from decider.run.stats import GridStats
from decider.tokens.rows import Row

Model = tuple[Backbone, LabelHead]

LADDER_HERE = (32, 64, 160)
SHAPES = tuple(PackShape(n, tree) for n in reversed(LADDER_HERE) for tree in (True, False))
TOLERANCE = 1e-5


def quiet(_: str) -> None:
    pass


def told(price: Callable[[int], float]) -> Callable[..., float]:
    met: list[int] = []

    def milliseconds(_: torch.device, work: Callable[[], object], **__: object) -> float:
        work()
        met.append(1)
        # They are measured in the order they are captured: both families of the largest size first.
        return price(sorted(LADDER_HERE, reverse=True)[(len(met) - 1) // 2 % len(LADDER_HERE)])

    return milliseconds


def captured(
    model: Model, *, capturer: FakeWorkCapturer | None = None, ladder: tuple[int, ...] = LADDER_HERE
) -> PackedExecutor:
    capturer = capturer or FakeWorkCapturer()
    executor = PackedExecutor(*model, card_limits(ladder), capturer=capturer)
    executor.warmup(quiet)
    executor.seal()
    capturer.closed = True
    return executor


def eager(model: Model) -> PackedExecutor:
    return PackedExecutor(*model, PackLimits(160, 64, 256))


def counted(executor: PackedExecutor, rows: Sequence[Row]) -> tuple[list[Logits], GridStats]:
    before = executor.stats
    logits = executor.label_logits(rows)
    return logits, executor.stats - before
