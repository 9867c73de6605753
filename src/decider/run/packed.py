"""The packed executor: rows of many requests in one forward, without padding, and a common start of rows only once.

It refuses to know questions and probabilities, and how a layer computes. Trap: a hidden key takes part with the weight
0, and 0 · NaN is NaN. So one branch that overflows spoils its siblings, and what is not finite is run again alone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import torch

from decider.backbone.decoder import Backbone
from decider.backbone.load import backbone_of
from decider.errors import EngineError
from decider.model.head import LabelHead
from decider.model.load import LoadedModel
from decider.ops.onednn import onednn_linear, why_not_onednn
from decider.plan.pack import Pack
from decider.plan.packs import PackLimits, plan_packs
from decider.run.backbone_check import check_backbone, check_trees
from decider.run.device import Pick
from decider.run.executor import Logits, by_row
from decider.run.forward import on_device
from decider.run.pack_forward import states_at_slots
from decider.run.stats import GridStats, PackedReport
from decider.tokens.rows import Row


class PackedExecutor:
    """Satisfies `Executor` for the families that `decider.backbone` knows, on any device. Any thread may call it."""

    def __init__(self, backbone: Backbone, head: LabelHead, limits: PackLimits, picks: Sequence[Pick] = ()) -> None:
        self._backbone: Backbone | None = backbone
        self._head = head
        self._limits = limits
        self._device = torch.device(backbone.device)
        if self._device.type == "cpu":
            # glibc gives freed blocks back to the system until one so large was freed once, and a layer then faults the
            # same pages in again at every operation.
            torch.empty(_LARGEST_MMAP_BYTES, dtype=torch.uint8)
        self._report = PackedReport(
            str(backbone.device),
            str(backbone.dtype).removeprefix("torch."),
            backbone.spec.family,
            limits.max_tokens,
            tuple(picks),
        )
        self._stats = GridStats()
        self._lock = threading.Lock()

    @property
    def stats(self) -> GridStats:
        """Counts up to now. No graph runs packs yet, so every forward is an eager one."""
        return self._stats

    def describe(self) -> PackedReport:
        """What runs, where, in which precision, and which choices were made."""
        return self._report

    def close(self) -> None:
        """Drop the model. `describe` and `stats` still answer; rows raise EngineError."""
        with self._lock:
            self._backbone = None

    @torch.inference_mode()
    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        """See `Executor`. Rows have at most the model's positions. The arrays are the caller's own."""
        with self._lock, on_device(self._device):
            if self._backbone is None:
                raise EngineError("this engine is closed; make a new one")
            results: dict[int, Logits] = {}
            for pack in plan_packs(rows, self._limits):
                found = self._run(self._backbone, pack, rows)
                # Siblings kept apart from the start take a product for each, up to 1.15 times the forward.
                for index in [index for index, logits in found.items() if not np.isfinite(logits).all()]:
                    if pack.n_branches:
                        [alone] = plan_packs([rows[index]], self._limits)
                        found[index] = self._run(self._backbone, alone, [rows[index]])[0]
                results.update(found)
            return [results[index] for index in range(len(rows))]

    def score_shared(self, rows: Sequence[Row], *, gate: bool = True) -> list[Logits] | None:  # noqa: ARG002
        """`label_logits`: a pack shares whatever can be shared, so there is nothing to gate and nothing declined."""
        return self.label_logits(rows)

    def why_not_shared(self, rows: Sequence[Row], *, gate: bool = True) -> str | None:  # noqa: ARG002
        """None: see `score_shared`."""
        return None

    def _run(self, backbone: Backbone, pack: Pack, rows: Sequence[Row]) -> dict[int, Logits]:
        logits: Logits = self._head(states_at_slots(backbone, pack)).cpu().numpy()
        self._stats += _count(pack)
        return by_row(logits, pack.rows, rows)


def packed_executor(
    loaded: LoadedModel, head: LabelHead, limits: PackLimits, *, prepack: bool = True
) -> PackedExecutor:
    """An executor over a backbone made from `loaded`, whose trees and answers were checked.

    `prepack` lays weights out for oneDNN where that can be done. Raises ModelError for a model without a native
    backbone, or for one that answers differently; DeviceError as `check_trees`.
    """
    backbone, pick = _backbone(loaded, prepack=prepack)
    executor = PackedExecutor(backbone, head, limits, (pick,))
    check_backbone(executor, loaded, head)
    check_trees(backbone, loaded)
    return executor


def _backbone(loaded: LoadedModel, *, prepack: bool) -> tuple[Backbone, Pick]:
    name = "linear layers"
    refusal = why_not_onednn(torch.device(loaded.device), loaded.module.dtype) if prepack else "prepack is off"
    if refusal is not None:
        return backbone_of(loaded), Pick(name, "torch's own", refusal)
    reason = "6 % faster in bfloat16 and 15 % in float32 than torch's own, forward for forward (docs/log.md)"
    return backbone_of(loaded, linear=onednn_linear), Pick(name, "oneDNN, weights laid out once", reason)


# Just below the largest threshold that glibc raises itself to.
_LARGEST_MMAP_BYTES = 31 << 20


def _count(pack: Pack) -> GridStats:
    trunks = {span.parent for span in pack.spans if span.parent is not None}
    return GridStats(
        forwards=1,
        eager_forwards=1,
        eager_rows=len(pack.rows),
        unbucketed_rows=len(pack.rows) if pack.oversize else 0,
        real_tokens=pack.n_real_tokens,
        padded_tokens=pack.n_tokens,
        shared_calls=len(trunks),
        shared_rows=pack.n_branches,
    )
