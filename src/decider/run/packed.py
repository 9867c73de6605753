"""The packed executor: rows of many requests in one forward, without padding, and a common start of rows only once.

It refuses to know questions and probabilities, and how a layer computes. Trap: a pack is planned from the rows of one
call. What is not in the call, however alike, shares nothing with it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import numpy as np
import torch

from decider.backbone.decoder import Backbone
from decider.backbone.load import backbone_of
from decider.errors import EngineError, ModelError
from decider.model.head import LabelHead, last_hidden
from decider.model.load import LoadedModel
from decider.ops.onednn import onednn_linear, why_not_onednn
from decider.ops.tree import tree_of
from decider.plan.pack import Pack
from decider.plan.packs import PackLimits, plan_packs
from decider.run.device import Pick
from decider.run.executor import Logits, by_row
from decider.run.forward import on_device
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
                results.update(by_row(self._run(self._backbone, pack), pack.rows, rows))
                self._stats += _count(pack)
            return [results[index] for index in range(len(rows))]

    def score_shared(self, rows: Sequence[Row], *, gate: bool = True) -> list[Logits] | None:  # noqa: ARG002
        """`label_logits`: a pack shares whatever can be shared, so there is nothing to gate and nothing declined."""
        return self.label_logits(rows)

    def why_not_shared(self, rows: Sequence[Row], *, gate: bool = True) -> str | None:  # noqa: ARG002
        """None: see `score_shared`."""
        return None

    def _run(self, backbone: Backbone, pack: Pack) -> Logits:
        tree = tree_of(pack, self._device, backbone.spec.taps)
        ids = torch.from_numpy(np.array(pack.ids)).to(self._device)
        logits: Logits = self._head(backbone.hidden_at_slots(ids, tree)).cpu().numpy()
        return logits


def packed_executor(
    loaded: LoadedModel, head: LabelHead, limits: PackLimits, *, prepack: bool = True
) -> PackedExecutor:
    """An executor over a backbone made from `loaded`, whose answers were compared with it on a short request.

    `prepack` lays weights out for oneDNN where that can be done. Raises ModelError for a model without a native
    backbone, or for one that answers differently.
    """
    backbone, pick = _backbone(loaded, prepack=prepack)
    executor = PackedExecutor(backbone, head, limits, (pick,))
    check_backbone(executor, loaded, head)
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
# Largest |Δ| of a label logit that a backbone may have from the library's own forward, relative to the largest. A
# layer that is put together wrongly is off by the logits' own size; halves differ by what they round.
BACKBONE_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.2}
_CHECKED_TOKENS = 48


@torch.inference_mode()
def check_backbone(executor: PackedExecutor, loaded: LoadedModel, head: LabelHead) -> None:
    """Compare a short trunk with two branches with full rows of `loaded`. Raises ModelError if they differ."""
    n_tokens = min(_CHECKED_TOKENS, loaded.max_positions)
    vocab = int(loaded.module.config.get_text_config().vocab_size)
    draw = random.Random(0)
    ids = [draw.randrange(vocab) for _ in range(n_tokens)]
    shared = n_tokens // 2
    rows = [Row((*ids[:shared], *tail), (n_tokens - 1,), (2,), shared) for tail in (ids[shared:], ids[shared:][::-1])]
    ours = np.concatenate(executor.label_logits(rows))
    hidden = last_hidden(loaded.module, torch.tensor([row.ids for row in rows], device=loaded.device))
    theirs = head(hidden[:, -1]).cpu().numpy()
    difference = float(np.abs(ours - theirs).max() / max(1e-6, np.abs(theirs).max()))
    allowed = BACKBONE_TOLERANCE[loaded.module.dtype]
    # A NaN must fail too, so the comparison is not turned round.
    if not difference <= allowed:
        raise ModelError(
            f"our backbone answers {difference:.2g} of the largest logit differently from {loaded.name!r:.60} "
            f"({loaded.model_type}, allowed: {allowed:.2g}); use --executor grid and report it"
        )


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
