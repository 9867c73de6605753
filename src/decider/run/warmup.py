"""Before the seal: is there room, capture every shape, compare each graph with eager, and measure prices.

It refuses to know requests and plans. Trap: graphs share a pool, so a graph that was sound may be broken by a later
capture. Compare only when all are captured, on rows that none of them has seen; what eager gives on those rows is
computed before each capture, where it also tunes the kernels.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from decider.errors import DeviceError, EngineError, first_line
from decider.plan.buckets import Grid, Shape
from decider.plan.cost import CostModel
from decider.run import measure
from decider.run.forward import Forward
from decider.run.graphs import Captured, Capturer, Statics

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far logits are from others, as a share of the root mean square of all ‖slot‖."""

    typical: float
    """The root mean square over the slots."""
    worst: float
    """Of one slot. Of thousands of slots of random tokens, one is far off where nothing is wrong."""

    def is_within(self, allowed: Difference) -> bool:
        """Whether neither figure is larger than that of `allowed`."""
        return self.typical <= allowed.typical and self.worst <= allowed.worst

    def __str__(self) -> str:
        """As messages name it."""
        return f"{self.typical:.2g} of a slot's logits, and {self.worst:.2g} at the worst"


# What a graph may be off its eager forward. Libraries choose other kernels under capture, so sums differ in order, and
# each layer adds to that. The worst slot of a trained model (30 layers, bfloat16, 4,032 random tokens on an H200) was
# off by 0.1. A slot that is read at a wrong place is off by about 1.4.
GRAPH_TOLERANCE = {
    torch.float64: Difference(1e-9, 5e-9),
    torch.float32: Difference(1e-3, 5e-3),
    torch.float16: Difference(2e-2, 0.1),
    torch.bfloat16: Difference(0.1, 0.5),
}
# Fused layers leave out roundings to bfloat16 between their operations. A rounding that falls the other way before a
# quantisation to three bits moves its value by a sixteenth, and every layer adds to that: single logits were off by
# 0.41 of the largest (24 layers, random weights, 32 × 256 on an H200).
FP8_TOLERANCE = Difference(0.7, 0.7)

# Kernel nodes and their arguments, outside the pool: a round figure above what 2,000 kernels take.
GRAPH_BYTES = 16 * 2**20
# The shared pool holds one working set of the largest shape; warm-up calls and eager checks hold another beside it.
WORKING_SETS = 2
# Tokens of the row whose memory is measured, and of the longest row that is timed on a CPU.
PROBE_TOKENS = 2048
CPU_TIMED_TOKENS = 256
PROGRESS_EVERY = 8
# Pinned blocks are kept by powers of two. This one holds the ids of two million padded tokens.
LARGEST_PINNED = 16 * 2**20


class Clock:
    """Says how long each stage of a warm-up took."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._began = self._last = time.perf_counter()

    def lap(self, what: str) -> None:
        """`what` was done since the lap before."""
        now = time.perf_counter()
        self._say(f"{what} ({now - self._last:.1f} s)")
        self._last = now

    @property
    def total_s(self) -> float:
        """Seconds up to the last lap."""
        return self._last - self._began


def check_memory(shapes: Sequence[Shape], *, bytes_per_token: float, free: int, device: torch.device) -> None:
    """Raise DeviceError, naming the buckets to drop, if capturing `shapes` wants more than `free` bytes.

    A working set is taken for linear in padded tokens, which holds for attention that keeps no score matrix.
    """
    room = free - GRAPH_BYTES * len(shapes)
    most_tokens = max(0, int(room / (WORKING_SETS * bytes_per_token)))
    too_large = [f"{batch} × {length}" for batch, length in shapes if batch * length > most_tokens]
    if too_large:
        wanted = WORKING_SETS * bytes_per_token * max(batch * length for batch, length in shapes) + free - room
        more = f" and {len(too_large) - 6} more" if len(too_large) > 6 else ""
        raise DeviceError(
            f"capturing {len(shapes)} graphs takes about {wanted / 2**30:.1f} GiB and {device} has {free / 2**30:.1f} "
            f"free; drop the buckets (rows × tokens) {', '.join(too_large[:6])}{more}, all those above "
            f"{most_tokens:,} padded tokens, or free memory"
        )


def bytes_per_token(forward: Forward, grid: Grid, device: torch.device) -> float:
    """Measured working memory of one padded token, from a single row of about `PROBE_TOKENS`. CUDA only."""
    n_tokens = min(PROBE_TOKENS, grid.lengths[-1])
    ids, slots = _zeros((1, n_tokens), device)
    return max(1, measure.peak_bytes(device, lambda: forward(ids, slots))) / n_tokens


@torch.inference_mode()
def capture_all(
    shapes: Sequence[Shape],
    *,
    forward: Forward,
    eager: Forward,
    capturer: Capturer,
    allocate: Callable[[Shape], Statics],
    vocab: int,
    device: torch.device,
    say: Say,
) -> tuple[dict[Shape, Captured], dict[Shape, torch.Tensor]]:
    """Capture `forward` in `shapes`, in the order given; beside each graph, what `eager` gives on its random rows.

    Raises DeviceError without room, EngineError for what cannot be captured.
    """
    captured: dict[Shape, Captured] = {}
    expected: dict[Shape, torch.Tensor] = {}
    statics = {shape: allocate(shape) for shape in shapes}
    # A graph of another engine that is collected during a capture would break it.
    gc.collect()
    began = time.perf_counter()
    for count, shape in enumerate(shapes, start=1):
        own = statics[shape]
        try:
            fill(own, vocab)
            capturer.run(eager, own)
            expected[shape] = own.logits.clone()
            # A graph that baked in what it was captured with has seen zeros, and fails on the random rows.
            for buffer in (own.ids, own.slots, own.logits):
                buffer.zero_()
            if forward is not eager:
                capturer.run(forward, own)
            captured[shape] = Captured(own, capturer.capture(forward, own))
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                f"{device} ran out of memory at {bucket(shape)}, graph {count} of {len(shapes)}; "
                "drop it and larger ones, or free memory"
            ) from error
        except RuntimeError as error:
            raise EngineError(
                f"{bucket(shape)} cannot be captured: {first_line(error):.160}; use the reference executor"
            ) from error
        tell_captured(count, len(shapes), began, device, say)
    return captured, expected


def tell_captured(count: int, of: int, began: float, device: torch.device, say: Say) -> None:
    """Now and then a line on how far the capture is; `began` is on `time.perf_counter`."""
    if count % PROGRESS_EVERY == 0 or count in (1, of):
        rate = count / max(1e-9, time.perf_counter() - began)
        say(f"captured {count}/{of} graphs, {rate:.1f} a second{measure.reserved_line(device)}")


def fill(statics: Statics, vocab: int) -> None:
    """Random rows and slots, the same ones for the same shape."""
    batch, length = statics.ids.shape
    generator = torch.Generator().manual_seed(batch * 2**32 + length)
    statics.ids.copy_(torch.randint(vocab, (batch, length), generator=generator))
    statics.slots.copy_(torch.randint(batch * length, statics.slots.shape, generator=generator))


@torch.inference_mode()
def verify(
    captured: Mapping[Shape, Captured],
    expected: Mapping[Shape, torch.Tensor],
    *,
    vocab: int,
    dtype: torch.dtype,
    tolerance: Difference,
    device: torch.device,
) -> dict[Shape, float]:
    """Replay each graph on its random rows, compare its whole output with `expected`, and give its milliseconds.

    Raises EngineError that names the bucket if they are not finite, or further apart than `tolerance`, as
    `slot_difference` has it.
    """
    replay_ms: dict[Shape, float] = {}
    for shape, one in captured.items():
        logits, eager = one.statics.logits, expected[shape]
        fill(one.statics, vocab)
        replay_ms[shape] = measure.milliseconds(device, one.graph.replay)
        if not bool((eager.isfinite() & logits.isfinite()).all()):
            raise EngineError(
                f"{bucket(shape)} gives logits that are not finite on random rows; the weights or the precision "
                f"({dtype}) are at fault"
            )
        difference = slot_difference(logits, eager)
        if not difference.is_within(tolerance):
            raise EngineError(
                f"the graph of {bucket(shape)} differs from its eager forward by {difference} (allowed: {tolerance}); "
                "drop this bucket and report it"
            )
    return replay_ms


def warm_pinned(n_engines: int = 1) -> None:
    """Give torch's cache of pinned host memory, which all engines share, blocks of every size that calls may want.

    As many calls as there are engines may run at once. CUDA only.
    """
    # Two a call, at a time: it stages its ids in one block and takes its logits in another.
    for power in range(9, LARGEST_PINNED.bit_length()):
        _ = [torch.empty(2**power, dtype=torch.uint8, pin_memory=True) for _ in range(2 * n_engines)]


def slot_difference(logits: torch.Tensor, expected: torch.Tensor) -> Difference:
    """How far `logits` [slots, labels] are from `expected`: ‖Δ‖ of slots over the root mean square of all ‖expected‖.

    Each slot's logits are taken from their mean, because a shift that all labels share changes no probability.
    """
    ours, theirs = (each.double() - each.double().mean(dim=1, keepdim=True) for each in (logits, expected))
    size = theirs.square().sum(dim=1).mean().sqrt().clamp_min(1e-6)
    off = (ours - theirs).norm(dim=1) / size
    return Difference(float(off.square().mean().sqrt()), float(off.max()))


def time_eager(forward: Forward, grid: Grid, device: torch.device) -> CostModel:
    """Launch and token price of eager forwards, from a short and a long single row."""
    long = min(CPU_TIMED_TOKENS, grid.lengths[-1]) if device.type == "cpu" else grid.lengths[-1]
    short = max(1, long // 8)
    short_ms, long_ms = (_time_row(forward, n_tokens, device) for n_tokens in (short, long))
    token_ms = max(measure.LEAST_MS, (long_ms - short_ms) / max(1, long - short))
    return CostModel(launch_ms=max(measure.LEAST_MS, short_ms - short * token_ms), token_ms=token_ms)


def _time_row(forward: Forward, n_tokens: int, device: torch.device) -> float:
    ids, slots = _zeros((1, n_tokens), device)
    forward(ids, slots)
    return measure.milliseconds(device, lambda: forward(ids, slots))


def bucket(shape: Shape) -> str:
    """How messages name a shape."""
    return f"the bucket of {shape[0]} × {shape[1]} (rows × tokens)"


def _zeros(shape: Shape, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(shape, dtype=torch.int64, device=device), torch.zeros(1, dtype=torch.int64, device=device)
