"""The packed executor: rows of many requests in one forward, without padding, and a common start of rows only once.

It refuses to know questions and probabilities, and how a layer computes. Trap: a hidden key takes part with the weight
0, and 0 · NaN is NaN. So one branch that overflows spoils its siblings, and what is not finite is run again alone.

Packs go plan → upload → run → fetch (`run/pack_statics.py`): a pack is written and its copies are queued while the one
before it runs. What no graph holds runs eagerly, at once, and is counted.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

from decider.backbone.decoder import Backbone
from decider.backbone.load import backbone_of
from decider.errors import EngineError
from decider.model.head import LabelHead
from decider.model.load import LoadedModel
from decider.ops.onednn import onednn_linear, why_not_onednn
from decider.plan.pack import Pack
from decider.plan.packs import PackCost, PackLimits, iter_packs, plan_packs
from decider.plan.tables import PackShape
from decider.run import measure
from decider.run.backbone_check import check_backbone, check_trees
from decider.run.device import Pick
from decider.run.executor import Logits, by_row
from decider.run.forward import on_device
from decider.run.graphs import CudaCapturer, WorkCapturer
from decider.run.pack_forward import read_back_forward, states_at_slots, static_forward, why_not_static
from decider.run.pack_fp8 import check_fp8_packs, in_fp8, where_fp8_gains
from decider.run.pack_statics import Lane, PackGraphs
from decider.run.pack_warmup import warm_up
from decider.run.stats import GridStats, PackedReport
from decider.run.warmup import Clock, Say
from decider.tokens.rows import Row


@dataclass(frozen=True, slots=True)
class _Job:
    """A pack to run, and which of the call's rows its rows are."""

    pack: Pack
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A pack whose copies and replay are queued."""

    job: _Job
    lane: Lane
    graphs: PackGraphs
    """Kept until its logits have come, though the executor be closed meanwhile."""


class PackedExecutor:
    """Satisfies `Executor` for the families that `decider.backbone` knows, on any device. Any thread may call it.

    Without a `capturer`, and before `warmup`, every pack runs eagerly.
    """

    def __init__(
        self,
        backbone: Backbone,
        head: LabelHead,
        limits: PackLimits,
        picks: Sequence[Pick] = (),
        *,
        capturer: WorkCapturer | None = None,
    ) -> None:
        self._backbone: Backbone | None = backbone
        self._head = head
        self._picks = tuple(picks)
        # Without graphs, nothing needs padding.
        self._wanted = self._limits = limits if capturer is not None else replace(limits, ladder=())
        self._capturer = capturer
        self._cost: PackCost | None = None
        self._graphs: PackGraphs | None = None
        self._device = torch.device(backbone.device)
        # All that calls queue is on one stream, whichever thread calls: graphs share memory, and static buffers.
        self._stream: torch.cuda.Stream | None = None
        if self._device.type == "cuda":
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        if self._device.type == "cpu":
            # glibc gives freed blocks back to the system until one so large was freed once, and a layer then faults the
            # same pages in again at every operation.
            torch.empty(_LARGEST_MMAP_BYTES, dtype=torch.uint8)
        self._report = PackedReport(
            str(backbone.device),
            str(backbone.dtype).removeprefix("torch."),
            backbone.spec.family,
            limits.max_tokens,
            self._picks,
            graphs=(),
            sealed=False,
            warmup_s=None,
            pool_bytes=None,
        )
        self._stats = GridStats()
        self._lock = threading.Lock()

    @property
    def stats(self) -> GridStats:
        """Counts up to now."""
        return self._stats

    def describe(self) -> PackedReport:
        """What runs, where, in which precision, what is captured, and which choices were made."""
        return self._report

    def warmup(self, say: Say) -> None:
        """Capture both families of every size of the ladder, check each graph, and drop those that are no gain.

        `say` gets lines of progress. Without a capturer it does nothing. A second call starts again. Raises EngineError
        after the seal, and what `warm_up` raises.
        """
        with self._lock, self._on_stream(), on_device(self._device):
            backbone = self._open()
            if self._report.sealed:
                raise EngineError("the engine is sealed; nothing is captured any more, so make a new one")
            if self._capturer is None:
                return
            assert self._wanted.ladder, "nothing to capture"
            self._graphs, self._cost, self._limits = None, None, self._wanted
            self._report = replace(self._report, graphs=(), picks=self._picks)
            # What loading left in the cache is given back below, and would be counted off the graphs' own memory.
            measure.release_cache(self._device)
            reserved = measure.reserved_bytes(self._device)
            forward = (static_forward if self._stream is not None else read_back_forward)(backbone, self._head)
            warmed = warm_up(backbone, self._head, forward, self._wanted, self._capturer, say)
            self._graphs, self._limits, self._cost = warmed.graphs, warmed.limits, warmed.cost
            self._stats += GridStats(captures=warmed.n_captures)
            self._report = replace(
                self._report,
                picks=(*self._picks, warmed.pick),
                graphs=tuple(sorted(warmed.graphs.captured, reverse=True)),
                warmup_s=warmed.seconds,
                pool_bytes=None if reserved is None else (measure.reserved_bytes(self._device) or 0) - reserved,
            )

    def seal(self) -> None:
        """From now on nothing is captured. Calling it again does nothing."""
        with self._lock:
            self._open()
            self._report = replace(self._report, sealed=True)

    def close(self) -> None:
        """Drop graphs and model. `describe` and `stats` still answer; rows raise EngineError."""
        with self._lock:
            try:
                if self._stream is not None:
                    # A graph does not keep the weights that it reads, and packs may be in flight.
                    self._stream.synchronize()
            finally:
                self._backbone = self._graphs = self._capturer = None
                self._report = replace(self._report, graphs=())
            measure.release_cache(self._device)

    def _open(self) -> Backbone:
        if self._backbone is None:
            raise EngineError("this engine is closed; make a new one")
        return self._backbone

    def _on_stream(self) -> AbstractContextManager[object]:
        """Its device is then the current one too."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    @torch.inference_mode()
    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        """See `Executor`. Rows have at most the model's positions. The arrays are the caller's own."""
        results: dict[int, Logits] = {}
        spoilt: list[int] = []
        with self._on_stream():
            packs = iter_packs(rows, self._limits, self._cost)
            with closing(self._run(_Job(pack, pack.rows) for pack in packs)) as done:
                for job, logits in done:
                    found = by_row(logits, job.rows, rows)
                    results.update(found)
                    # Siblings kept apart from the start take a product for each, up to 1.15 times the forward.
                    if len(job.rows) > 1 and self._spreads(job.pack) and not np.isfinite(logits).all():
                        spoilt += [index for index, one in found.items() if not np.isfinite(one).all()]
            with closing(self._run(self._alone(rows, index) for index in spoilt)) as done:
                for job, logits in done:
                    results.update(by_row(logits, job.rows, rows))
        return [results[index] for index in range(len(rows))]

    def forwards(self, rows: Sequence[Row]) -> list[tuple[int, PackShape | None]]:
        """(tokens with padding, the captured shape or None for an eager one) of each pack that `rows` run in."""
        graphs = self._graphs
        planned = []
        for pack in plan_packs(rows, self._limits, self._cost):
            shape = None if graphs is None else graphs.shape_of(pack)
            planned.append((pack.n_tokens if shape is None else shape.n_tokens, shape))
        return planned

    @torch.inference_mode()
    def replay_ms(self, shape: PackShape, *, repeats: int = 20) -> float | None:
        """Median milliseconds of `repeats` replays of a captured shape, with the pack it ran last; None without one."""
        with self._lock, self._on_stream():
            self._open()
            if self._graphs is None or shape not in self._graphs.captured:
                return None
            replay = self._graphs.captured[shape].graph.replay
            return measure.milliseconds(self._device, replay, repeats=repeats, enough_ms=math.inf)

    def score_shared(self, rows: Sequence[Row], *, gate: bool = True) -> list[Logits] | None:  # noqa: ARG002
        """`label_logits`: a pack shares whatever can be shared, so there is nothing to gate and nothing declined."""
        return self.label_logits(rows)

    def why_not_shared(self, rows: Sequence[Row], *, gate: bool = True) -> str | None:  # noqa: ARG002
        """None: see `score_shared`."""
        return None

    def _spreads(self, pack: Pack) -> bool:
        """Whether what is not finite in one row may reach another: in a tile of attention too, as graphs have them."""
        return pack.n_branches > 0 or self._graphs is not None

    def _alone(self, rows: Sequence[Row], index: int) -> _Job:
        [pack] = plan_packs([rows[index]], self._limits)
        return _Job(pack, (index,))

    def _run(self, jobs: Iterator[_Job]) -> Generator[tuple[_Job, Logits]]:
        """Each job with its logits [slots, labels], which are its own until the next one is asked for."""
        flights: deque[_Flight] = deque()
        try:
            for job in jobs:
                graphs = self._graphs
                shape = None if graphs is None else graphs.shape_of(job.pack)
                if graphs is None or shape is None:
                    yield job, self._eager(job.pack)
                    continue
                # Only who has no pack in flight may wait for others to land.
                lane = graphs.free_lane(blocks=not flights)
                while lane is None:
                    yield from self._fetch(flights)
                    lane = graphs.free_lane(blocks=not flights)
                flights.append(self._depart(job, lane, graphs, shape))
            while flights:
                yield from self._fetch(flights)
        finally:
            # Left behind by an error, or by a caller that asked for no more: others may have the lanes.
            for flight in flights:
                flight.graphs.land(flight.lane)

    def _depart(self, job: _Job, lane: Lane, graphs: PackGraphs, shape: PackShape) -> _Flight:
        """Write and queue a pack. The lane comes back if that fails."""
        captured = graphs.captured[shape]
        try:
            lane.write(job.pack, shape)
            with self._lock:
                self._open()
                lane.upload(captured.statics)
                captured.graph.replay()
                lane.download(captured.statics, len(job.pack.slots))
                self._stats += _count(job.pack, shape)
        except BaseException:
            if self._stream is not None:
                # Behind what was queued there may be no event.
                self._stream.synchronize()
            graphs.land(lane)
            raise
        return _Flight(job, lane, graphs)

    def _fetch(self, flights: deque[_Flight]) -> Iterator[tuple[_Job, Logits]]:
        """The oldest flight's logits, when they have come. Its lane is free when the next is asked for."""
        flight = flights.popleft()
        try:
            yield flight.job, flight.lane.read(len(flight.job.pack.slots))
        finally:
            flight.graphs.land(flight.lane)

    def _eager(self, pack: Pack) -> Logits:
        with self._lock, on_device(self._device):
            logits: Logits = self._head(states_at_slots(self._open(), pack)).cpu().numpy()
            self._stats += _count(pack, None)
        return logits


def packed_executor(
    loaded: LoadedModel,
    head: LabelHead,
    limits: PackLimits,
    *,
    prepack: bool = True,
    fp8: bool = False,
    say: Say = lambda _: None,
) -> PackedExecutor:
    """An executor over a backbone made from `loaded`, whose trees and answers were checked.

    On CUDA, and with a ladder, it is warmed up, `say` gets its progress, and sealed. `prepack` lays weights out for
    oneDNN where that can be done. `fp8` puts products in e4m3 from the tokens on where they gain; it wants a ladder.
    Raises ModelError for a model without a native backbone, or for one that answers differently; DeviceError as
    `check_trees`; what `check_fp8_packs`, `in_fp8` and `PackedExecutor.warmup` raise.
    """
    if fp8:
        check_fp8_packs(torch.device(loaded.device), loaded.module.dtype)
        assert limits.ladder, "from which of its sizes on is to be measured"
    backbone, pick = _backbone(loaded, prepack=prepack)
    picks, capturer = [pick], None
    if backbone.device.type == "cuda" and limits.ladder:
        refusal = why_not_static(backbone.spec, backbone.device, backbone.dtype)
        if refusal is None:
            capturer = CudaCapturer(backbone.device)
        else:
            picks.append(Pick("graphs of packs", "none, eager", refusal))
    executor = PackedExecutor(backbone, head, limits, picks, capturer=capturer)
    check_backbone(executor, loaded, head)
    check_trees(backbone, loaded)
    if fp8:
        with on_device(torch.device(loaded.device)):
            coarse = in_fp8(backbone, loaded)
            check_trees(coarse, loaded)
            clock = Clock(say)
            backbone, pick = where_fp8_gains(backbone, coarse, limits.ladder, CudaCapturer(backbone.device))
            clock.lap(f"{pick.name}: {pick.value}; {pick.reason}")
        executor = PackedExecutor(backbone, head, limits, (*picks, pick), capturer=capturer)
    if capturer is not None:
        executor.warmup(say)
        executor.seal()
        if not fp8:
            # How far whole answers in FP8 are from the model's own says how deep it is, and nothing of faults.
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


def _count(pack: Pack, shape: PackShape | None) -> GridStats:
    trunks = {span.parent for span in pack.spans if span.parent is not None}
    return GridStats(
        forwards=1,
        replays=int(shape is not None),
        eager_forwards=int(shape is None),
        eager_rows=len(pack.rows) if shape is None else 0,
        unbucketed_rows=len(pack.rows) if pack.oversize else 0,
        real_tokens=pack.n_real_tokens,
        padded_tokens=pack.n_tokens if shape is None else shape.n_tokens,
        shared_calls=len(trunks),
        shared_rows=pack.n_branches,
    )
