"""Before the seal: capture every shape of packs, compare each graph with the eager forward, and drop what is no gain.

It refuses to know requests. Trap: graphs share a pool, so a graph that was sound may be broken by a later capture.
Compare only when all are captured, on packs that none of them was captured with.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from decider.backbone.decoder import Backbone
from decider.errors import DeviceError, EngineError, first_line
from decider.model.head import LabelHead
from decider.plan.pack import Pack
from decider.plan.packs import PackCost, PackLimits
from decider.plan.tables import PackShape, capacity_of
from decider.run import measure
from decider.run.device import Pick
from decider.run.graphs import WorkCapturer
from decider.run.pack_forward import PackForward, for_shape, states_at_slots
from decider.run.pack_probe import least, probe
from decider.run.pack_statics import CapturedPack, Lane, PackGraphs, PackStatics, allocate_pack_statics
from decider.run.warmup import (
    FP8_TOLERANCE,
    GRAPH_BYTES,
    GRAPH_TOLERANCE,
    WORKING_SETS,
    Clock,
    Say,
    slot_difference,
    tell_captured,
)

N_LANES = 2
"""One pack runs while the next is written."""


@dataclass(frozen=True, slots=True)
class Warmed:
    """What a warm-up leaves behind."""

    graphs: PackGraphs
    limits: PackLimits
    """With the ladder of the sizes that were kept."""
    cost: PackCost
    pick: Pick
    """What was dropped, and why."""
    n_captures: int
    seconds: float


def shapes_of(limits: PackLimits) -> list[PackShape]:
    """Both families of every size, the largest first: the others then fit in its memory."""
    return [PackShape(n_tokens, is_tree) for n_tokens in reversed(limits.ladder) for is_tree in (True, False)]


@dataclass(frozen=True, slots=True)
class _Stage:
    """What the steps of one warm-up share."""

    backbone: Backbone
    head: LabelHead
    forward: PackForward
    capturer: WorkCapturer
    statics: Mapping[PackShape, PackStatics]
    lanes: tuple[Lane, ...]

    @property
    def device(self) -> torch.device:
        return self.backbone.device

    def work(self, shape: PackShape) -> Callable[[], object]:
        """What the graph of `shape` does."""
        own = self.statics[shape]
        return lambda: own.logits.copy_(self.forward(own.tables))

    def checked(self, shape: PackShape) -> Pack:
        """The pack that the graph of `shape` is checked on."""
        return probe(shape, self.backbone.spec.vocab)

    def put(self, pack: Pack, shape: PackShape) -> None:
        """Copy `pack` to where the graph of `shape` reads."""
        lane = self.lanes[0]
        # The copy before may still read the lane.
        lane.wait()
        lane.write(pack, shape)
        lane.upload(self.statics[shape])
        lane.download(self.statics[shape], 0)

    def precision(self, shape: PackShape) -> object:
        """Equal for shapes whose forwards multiply in the same dtypes."""
        coarse = self.backbone.coarse
        return coarse and (coarse.taken(shape.n_tokens), coarse.taken(self.statics[shape].tables.capacity.n_slots))

    def eagerly(self, pack: Pack, shape: PackShape, by: PackShape | None) -> Tensor:
        """Logits [slots of the pack, labels] by the plain forward in the precision of `shape`, or by what the graph of
        the shape `by` does."""
        if by is None:
            return self.head(states_at_slots(for_shape(self.backbone, self.statics[shape].tables.capacity), pack))
        self.put(pack, by)
        self.capturer.warm(self.work(by))
        return self.statics[by].logits[: len(pack.slots)].clone()


@torch.inference_mode()
def warm_up(
    backbone: Backbone, head: LabelHead, forward: PackForward, limits: PackLimits, capturer: WorkCapturer, say: Say
) -> Warmed:
    """Capture `forward` in every shape of `limits`.

    Raises DeviceError without enough memory, EngineError for what cannot be captured and for a graph that gives other
    answers than the eager forward.
    """
    clock = Clock(say)
    shapes = shapes_of(limits)
    statics = {
        shape: allocate_pack_statics(
            capacity_of(shape),
            backbone.spec.taps,
            labels=head.weight.shape[0],
            logits_dtype=head.weight.dtype,
            device=backbone.device,
        )
        for shape in shapes
    }
    lanes = tuple(Lane(statics, backbone.spec.taps) for _ in range(N_LANES))
    stage = _Stage(backbone, head, forward, capturer, statics, lanes)
    # A graph of another engine that is collected during a capture would break it.
    gc.collect()
    if backbone.device.type == "cuda":
        _check_memory(stage, shapes)
    captured, expected = _capture(stage, shapes, say)
    clock.lap(f"captured {len(captured)} graphs of packs")
    times = _verify(stage, captured, expected)
    clock.lap(f"checked {len(captured)} graphs against eager forwards")
    kept, pick = _worth(times)
    # What captures and checks left in the cache belongs to their streams.
    measure.release_cache(backbone.device)
    graphs = PackGraphs({shape: captured[shape] for shape in kept}, lanes)
    sizes = sorted({shape.n_tokens for shape in kept})
    cost = PackCost({n: max(times[PackShape(n, tree)] for tree in (False, True)) for n in sizes})
    limits = PackLimits(limits.max_tokens, limits.max_sequences, limits.max_slots, tuple(sizes))
    return Warmed(graphs, limits, cost, pick, len(captured), clock.total_s)


def _capture(
    stage: _Stage, shapes: list[PackShape], say: Say
) -> tuple[dict[PackShape, CapturedPack], dict[PackShape, Tensor]]:
    """A graph a shape; beside each, what an eager forward gives on the pack it will be checked with.

    The plain forward, which launches many times as much as kernels do, says so for the largest size of each power of
    two (and precision, where products choose it by their rows). For the sizes below, what that one's graph does,
    eagerly: the graph itself is compared with the plain forward.
    """
    captured: dict[PackShape, CapturedPack] = {}
    judges: dict[tuple[int, bool, object], PackShape] = {}
    expected: dict[PackShape, Tensor] = {}
    began = time.perf_counter()
    for count, shape in enumerate(shapes, start=1):
        work = stage.work(shape)
        try:
            pack = stage.checked(shape)
            octave = shape.n_tokens.bit_length(), shape.is_tree, stage.precision(shape)
            expected[shape] = stage.eagerly(pack, shape, judges.get(octave))
            judges.setdefault(octave, shape)
            for each in (pack, least(shape)):
                stage.put(each, shape)
                stage.capturer.warm(work)
            captured[shape] = CapturedPack(stage.statics[shape], stage.capturer.record(work))
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                f"{stage.device} ran out of memory at {shape}, graph {count} of {len(shapes)}; shorten the ladder of "
                "packs, or free memory"
            ) from error
        except RuntimeError as error:
            raise EngineError(
                f"a pack ({shape}) cannot be captured: {first_line(error):.160}; use --executor grid"
            ) from error
        tell_captured(count, len(shapes), began, stage.device, say)
    return captured, expected


def _verify(
    stage: _Stage, captured: Mapping[PackShape, CapturedPack], expected: Mapping[PackShape, Tensor]
) -> dict[PackShape, float]:
    """Replay each graph on its pack, compare it with `expected`, and give its milliseconds."""
    tolerance = GRAPH_TOLERANCE[stage.backbone.dtype] if stage.backbone.coarse is None else FP8_TOLERANCE
    times: dict[PackShape, float] = {}
    for shape, one in captured.items():
        pack = stage.checked(shape)
        stage.put(pack, shape)
        times[shape] = measure.milliseconds(stage.device, one.graph.replay)
        logits, eager = one.statics.logits, expected[shape]
        # The whole buffer: a number that is not one behind a pack's slots would reach them in another pack.
        if not bool(logits.isfinite().all() & eager.isfinite().all()):
            raise EngineError(
                f"a pack ({shape}) gives logits that are not finite on random rows; the weights or the precision "
                f"({stage.backbone.dtype}) are at fault"
            )
        difference = slot_difference(logits[: len(pack.slots)], eager)
        if not difference.is_within(tolerance):
            raise EngineError(
                f"the graph of a pack ({shape}) differs from its eager forward by {difference} (allowed: {tolerance}); "
                "use --executor grid and report it"
            )
    return times


def _worth(times: Mapping[PackShape, float]) -> tuple[list[PackShape], Pick]:
    """The shapes to keep: those of a family that are faster than its next larger one."""
    kept = [
        PackShape(n_tokens, is_tree)
        for is_tree in (False, True)
        for n_tokens in PackCost(
            {each.n_tokens: ms for each, ms in times.items() if each.is_tree == is_tree}
        ).worth_capturing()
    ]
    dropped = sorted(set(times) - set(kept))
    if not dropped:
        reason = "each is faster than the next larger one"
    else:
        reason = f"no faster than the next larger one, and dropped: {_listed(map(str, dropped))}"
    return kept, Pick("graphs of packs", f"{len(kept)} of {len(times)}", reason)


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "")


def _check_memory(stage: _Stage, shapes: list[PackShape]) -> None:
    """Raise DeviceError if the largest shape's working set, measured on a small one, is more than there is room for."""
    free = measure.free_bytes(stage.device)
    assert free is not None
    shape = next((each for each in shapes if each.n_tokens <= 2048), shapes[-1])
    stage.put(stage.checked(shape), shape)
    work = stage.work(shape)
    bytes_per_token = measure.peak_bytes(stage.device, lambda: stage.capturer.warm(work)) / shape.n_tokens
    wanted = int(WORKING_SETS * bytes_per_token * shapes[0].n_tokens) + GRAPH_BYTES * len(shapes)
    if wanted > free:
        raise DeviceError(
            f"capturing {len(shapes)} graphs of packs of up to {shapes[0].n_tokens:,} tokens takes about "
            f"{wanted / 2**30:.1f} GiB and {stage.device} has {free / 2**30:.1f} free; shorten the ladder of packs, or "
            "free memory"
        )
