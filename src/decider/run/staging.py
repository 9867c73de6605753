"""Planned batches to forwards: in which shape each runs, and its rows as padded tensors on the host.

It refuses to know models and prices. Trap: an asynchronous copy reads its source later. All tensors here are views of
one buffer, which the caller keeps until the device is done. On CUDA it is pinned; elsewhere copies must be blocking.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from decider.plan.batches import Batch
from decider.plan.buckets import Shape
from decider.run.graphs import slot_capacity
from decider.tokens.rows import Row

PAD_ID = 0


@dataclass(frozen=True, slots=True)
class Job:
    """One forward to run: which rows, in which padded shape, and whether a graph runs it."""

    rows: tuple[int, ...]
    shape: Shape
    """(places, tokens): at least as many as there are rows, and as the longest has tokens."""
    n_slots: int
    capacity: int
    """Length of the slot tensor; the entries after `n_slots` are 0."""
    replays: bool


@dataclass(frozen=True, slots=True)
class Staged:
    """The host tensors of one job."""

    ids: Tensor
    """int64, of the job's shape, padded on the right with `PAD_ID`."""
    slots: Tensor
    """int64 [capacity], positions in the flattened ids, rows in the job's order."""


def place(
    batch: Batch, rows: Sequence[Row], *, captured: Container[Shape], device_type: str, max_positions: int
) -> Job:
    """Run `batch` in its graph, or eagerly where there is none in `captured` or it has too few slots for its rows.

    No forward is longer than `max_positions`, though the multiple that long rows are padded to may be.
    """
    width, length = batch.width, min(batch.length, max_positions)
    n_slots = sum(len(rows[row].slots) for row in batch.rows)
    capacity = slot_capacity(width)
    if batch.captured and (width, length) in captured and n_slots <= capacity:
        return Job(batch.rows, (width, length), n_slots, capacity, replays=True)
    # Elsewhere buckets stay whole: Metal compiles for each shape it meets, CUDA kernels are tuned for numbers of rows.
    if device_type == "cpu":
        width, length = len(batch.rows), max(len(rows[row].ids) for row in batch.rows)
    return Job(batch.rows, (width, length), n_slots, n_slots, replays=False)


def stage(jobs: Sequence[Job], rows: Sequence[Row], *, pinned: bool) -> list[Staged]:
    """Fill one host buffer for all `jobs`; `Job.rows` index `rows`."""
    sizes = [(job.shape[0] * job.shape[1], job.capacity) for job in jobs]
    buffer = torch.zeros(sum(map(sum, sizes)), dtype=torch.int64, pin_memory=pinned)
    assert PAD_ID == 0
    staged = []
    start = 0
    for job, (n_ids, capacity) in zip(jobs, sizes, strict=True):
        ids = buffer[start : start + n_ids].view(job.shape)
        slots = buffer[start + n_ids : start + n_ids + capacity]
        start += n_ids + capacity
        _fill(ids, slots, [rows[row] for row in job.rows])
        staged.append(Staged(ids, slots))
    return staged


def _fill(ids: Tensor, slots: Tensor, rows: Sequence[Row]) -> None:
    id_array, slot_array = ids.numpy(), slots.numpy()
    length = ids.shape[1]
    n_slots = 0
    for place, row in enumerate(rows):
        id_array[place, : len(row.ids)] = row.id_array
        slot_array[n_slots : n_slots + len(row.slots)] = [place * length + slot for slot in row.slots]
        n_slots += len(row.slots)
