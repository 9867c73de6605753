"""Where a captured pack is read and written, and how packs come and go: one copy up, one copy down, both pinned.

It refuses to know models and plans. Trap: a copy from pinned memory is queued, and reads it later. A lane is written
again only after its event, which lies behind all that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decider.plan.fill import HostTables, fill
from decider.plan.pack import Pack
from decider.plan.tables import Capacity, PackShape, StaticTables, block_ints, tables_over
from decider.run.executor import Logits
from decider.run.graphs import Graph


@dataclass(frozen=True, slots=True)
class PackStatics:
    """Buffers at fixed addresses: what a graph reads and where it writes."""

    block: Tensor
    """int32, all tables in one."""
    tables: StaticTables[Tensor]
    """Views of `block`."""
    logits: Tensor
    """[slots, labels], float32, or float64 for such a model. Behind a pack's own slots they mean nothing."""


@dataclass(frozen=True, slots=True)
class CapturedPack:
    """One graph with its buffers; as long as this lives, both do."""

    statics: PackStatics
    graph: Graph


def allocate_pack_statics(
    capacity: Capacity, n_taps: int, *, labels: int, logits_dtype: torch.dtype, device: torch.device
) -> PackStatics:
    """Zeroed buffers of one shape."""
    block = torch.zeros(block_ints(capacity, n_taps), dtype=torch.int32, device=device)
    logits = torch.zeros(capacity.n_slots, labels, dtype=logits_dtype, device=device)
    return PackStatics(block, tables_over(block, capacity, n_taps), logits)


class Lane:
    """Host memory for one pack on its way, of any of the shapes it is made for; one pack at a time.

    `write` → `upload` → (the graph) → `download` → `read`. Uploads and downloads are queued on the current stream.
    """

    def __init__(self, statics: Mapping[PackShape, PackStatics], n_taps: int) -> None:
        assert statics
        some = next(iter(statics.values())).logits
        self._on_cuda = some.is_cuda
        n_ints = max(len(each.block) for each in statics.values())
        n_slots = max(len(each.logits) for each in statics.values())
        self._block = torch.zeros(n_ints, dtype=torch.int32, pin_memory=self._on_cuda)
        self._logits = torch.zeros(n_slots, some.shape[1], dtype=some.dtype, pin_memory=self._on_cuda)
        self._ints: NDArray[np.int32] = self._block.numpy()
        self._answers: Logits = self._logits.numpy()
        self._tables: dict[PackShape, HostTables] = {
            shape: tables_over(self._ints, each.tables.capacity, n_taps) for shape, each in statics.items()
        }
        self._uploads = {shape: self._block[: len(each.block)] for shape, each in statics.items()}
        # It waits without sleeping, which answers some 50 µs sooner; other threads may run meanwhile.
        self._done = torch.cuda.Event() if self._on_cuda else None  # type: ignore[no-untyped-call]

    def write(self, pack: Pack, shape: PackShape) -> None:
        """Fill the tables of `shape`, which holds `pack`."""
        fill(self._tables[shape], pack)

    def upload(self, statics: PackStatics) -> None:
        """Queue the copy of what was written for the shape of `statics`."""
        statics.block.copy_(self._uploads[statics.tables.capacity.shape], non_blocking=self._on_cuda)

    def download(self, statics: PackStatics, n_slots: int) -> None:
        """Queue the copy of the first `n_slots` logits, and mark the end of all that this lane has queued."""
        self._logits[:n_slots].copy_(statics.logits[:n_slots], non_blocking=self._on_cuda)
        if self._done is not None:
            self._done.record()

    def wait(self) -> None:
        """Until all that was queued before the last `download` is done; at once if nothing was."""
        if self._done is not None:
            self._done.synchronize()

    def read(self, n_slots: int) -> Logits:
        """[n_slots, labels] of the last `download`, when it has come: a view, until the lane is written again."""
        self.wait()
        return self._answers[:n_slots]


class PackGraphs:
    """Everything captured, and the lanes of packs to it. Any thread may use it."""

    def __init__(self, captured: Mapping[PackShape, CapturedPack], lanes: Iterable[Lane]) -> None:
        self.captured = captured
        self._rising = {tree: sorted(each for each in captured if each.is_tree == tree) for tree in (False, True)}
        self._free: SimpleQueue[Lane] = SimpleQueue()
        for lane in lanes:
            self._free.put(lane)

    def free_lane(self, *, blocks: bool) -> Lane | None:
        """A lane that no pack is in; None if there is none, unless `blocks`, which waits for one."""
        try:
            return self._free.get(block=blocks)
        except Empty:
            return None

    def land(self, lane: Lane) -> None:
        """Give `lane` back when its last pack is through."""
        try:
            lane.wait()
        finally:
            self._free.put(lane)

    def shape_of(self, pack: Pack) -> PackShape | None:
        """The smallest captured shape of the pack's family that holds it; None if none does."""
        for shape in self._rising[pack.n_branches > 0]:
            if shape.n_tokens >= pack.n_real_tokens and self.captured[shape].statics.tables.capacity.holds(pack):
                return shape
        return None
