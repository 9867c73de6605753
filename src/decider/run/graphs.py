"""The seam between executors and CUDA graphs: the grid's static buffers, capturers, a graph to replay.

It refuses to know rows and plans. Trap: graphs share one memory pool, so a replay of any of them may overwrite whatever
another one allocated while it was captured. What goes in and out lives in `Statics`, allocated before the capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from decider.plan.buckets import Shape
from decider.run.forward import Forward, no_packed_sequences

# Slots of a graph at the least, so that a row with many questions still has one. They cost next to nothing: 64 rows of
# the label head.
LEAST_SLOTS = 64

Work = Callable[[], object]
"""What it gives is not looked at."""


@dataclass(frozen=True, slots=True)
class Statics:
    """Buffers at fixed addresses: what a graph reads and where it writes. Pad ids and unused slots are 0."""

    ids: Tensor
    """int64 [batch, length]."""
    slots: Tensor
    """int64 [capacity], positions in the flattened ids."""
    logits: Tensor
    """[capacity, labels], float32, or float64 for such a model."""


class Graph(Protocol):
    """One captured forward."""

    def replay(self) -> None:
        """Queue the forward: reads the statics it was captured with, and writes their logits."""
        ...


class Capturer(Protocol):
    """Makes graphs."""

    def run(self, forward: Forward, statics: Statics) -> None:
        """`statics.logits ← forward(statics.ids, statics.slots)` now, where graphs are captured."""
        ...

    def capture(self, forward: Forward, statics: Statics) -> Graph:
        """A graph of `statics.logits ← forward(statics.ids, statics.slots)`. Raises RuntimeError if it cannot."""
        ...


class WorkCapturer(Protocol):
    """Makes graphs of work that reads and writes buffers at fixed addresses, and gives nothing back."""

    def warm(self, work: Work) -> None:
        """`work` now, where graphs are captured."""
        ...

    def record(self, work: Work) -> Graph:
        """A graph of `work`. Raises RuntimeError if it cannot be captured."""
        ...


@dataclass(frozen=True, slots=True)
class Captured:
    """One graph with its buffers; as long as this lives, both do."""

    statics: Statics
    graph: Graph


def slot_capacity(batch: int) -> int:
    """How many slots one forward of `batch` rows may read inside a graph."""
    return max(LEAST_SLOTS, 4 * batch)


def allocate_statics(shape: Shape, *, labels: int, logits_dtype: torch.dtype, device: torch.device) -> Statics:
    """Zeroed buffers of one (batch, length) shape."""
    capacity = slot_capacity(shape[0])
    return Statics(
        ids=torch.zeros(shape, dtype=torch.int64, device=device),
        slots=torch.zeros(capacity, dtype=torch.int64, device=device),
        logits=torch.zeros(capacity, labels, dtype=logits_dtype, device=device),
    )


class CudaCapturer:
    """Captures on one side stream into one memory pool. Capture the largest shape first: the others then fit in it."""

    def __init__(self, device: torch.device) -> None:
        assert device.type == "cuda", device
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        # A pool that no graph uses is given up, and its handle cannot be captured into again; this graph keeps it.
        self._anchor = torch.cuda.CUDAGraph()
        self._kept = torch.zeros(1, device=device)
        with torch.cuda.device(device), self._capturing(self._anchor):
            self._kept.add_(1)

    def run(self, forward: Forward, statics: Statics) -> None:
        """See `Capturer`. The first run in a shape tunes its kernels and gives the stream's workspaces their memory."""
        with no_packed_sequences():
            self.warm(lambda: statics.logits.copy_(forward(statics.ids, statics.slots)))

    def capture(self, forward: Forward, statics: Statics) -> Graph:
        """See `Capturer`. `run` it in this shape before."""
        with no_packed_sequences():
            return self.record(lambda: statics.logits.copy_(forward(statics.ids, statics.slots)))

    def warm(self, work: Work) -> None:
        """See `WorkCapturer`."""
        with torch.cuda.device(self._device), self._on_side_stream():
            work()

    def record(self, work: Work) -> Graph:
        """See `WorkCapturer`. `warm` it before."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device), self._capturing(graph):
            work()
        return graph

    @contextmanager
    def _capturing(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        with self._on_side_stream():
            torch.cuda.synchronize()
            # Not `torch.cuda.graph`, which first gives all cached memory back to the driver: the next shape's run would
            # have to ask for it again. Other threads may allocate meanwhile; only this one is being captured.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                yield
            finally:
                graph.capture_end()

    @contextmanager
    def _on_side_stream(self) -> Iterator[None]:
        """After what the caller's stream has queued, and before what it queues next."""
        caller = torch.cuda.current_stream()
        self._stream.wait_stream(caller)
        # torch leaves its side stream current after a capture that fails; leaving this block brings `caller` back.
        with torch.cuda.stream(self._stream):
            yield
        caller.wait_stream(self._stream)
