"""Runs planned jobs, each by its graph or eagerly, and brings the label logits back to the host.

It refuses to plan, to capture and to lock. Trap: graphs write into static buffers that the next replay overwrites, and
copies to the host are only queued. Nothing that leaves here is a view of either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from decider.model.head import LabelHead
from decider.ops.attention import AttentionPolicy
from decider.plan.buckets import Grid, Shape
from decider.run.executor import Logits, by_row
from decider.run.forward import Forward
from decider.run.graphs import Captured
from decider.run.staging import Job, Staged, stage
from decider.run.stats import GridStats
from decider.tokens.rows import Row


@dataclass(frozen=True, slots=True)
class Runner:
    """What a job needs to run. One call at a time, with the device current, under inference mode."""

    device: torch.device
    grid: Grid
    head: LabelHead
    forward: Forward
    """Uncompiled."""
    policy: AttentionPolicy
    captured: Mapping[Shape, Captured]

    def run(self, jobs: Sequence[Job], rows: Sequence[Row]) -> tuple[list[Logits], GridStats]:
        """The logits of `rows` in their order, arrays of the caller's own; and what it took."""
        on_cuda = self.device.type == "cuda"
        staged = stage(jobs, rows, pinned=on_cuda)
        weight = self.head.weight
        n_slots = sum(job.n_slots for job in jobs)
        out = torch.empty(n_slots, weight.shape[0], dtype=weight.dtype, pin_memory=on_cuda)
        stats = GridStats()
        start = 0
        for job, tensors in zip(jobs, staged, strict=True):
            logits = self._replay(job, tensors) if job.replays else self._eager(tensors)
            # Copied before the next replay overwrites it; the copy is queued on the stream that the replay is on.
            out[start : start + job.n_slots].copy_(logits[: job.n_slots], non_blocking=on_cuda)
            start += job.n_slots
            stats += self._count(job, rows)
        if on_cuda:
            torch.cuda.current_stream().synchronize()
        results = by_row(out.numpy(), (row for job in jobs for row in job.rows), rows)
        return [results[row] for row in range(len(rows))], stats

    def _replay(self, job: Job, tensors: Staged) -> Tensor:
        captured = self.captured[job.shape]
        on_cuda = self.device.type == "cuda"
        captured.statics.ids.copy_(tensors.ids, non_blocking=on_cuda)
        captured.statics.slots.copy_(tensors.slots, non_blocking=on_cuda)
        captured.graph.replay()
        return captured.statics.logits

    def _eager(self, tensors: Staged) -> Tensor:
        if self.device.type == "cuda":
            ids, slots = (each.to(self.device, non_blocking=True) for each in (tensors.ids, tensors.slots))
        else:
            ids = tensors.ids.to(self.device)
            # Metal has read a host index tensor after it was freed; this one is made on the device.
            slots = torch.tensor(tensors.slots.tolist(), dtype=torch.int64, device=self.device)
        with self.policy.pinned():
            return self.forward(ids, slots)

    def _count(self, job: Job, rows: Sequence[Row]) -> GridStats:
        lengths = [len(rows[row].ids) for row in job.rows]
        return GridStats(
            forwards=1,
            replays=int(job.replays),
            eager_forwards=int(not job.replays),
            eager_rows=0 if job.replays else len(lengths),
            unbucketed_rows=sum(self.grid.t_bucket(length) is None for length in lengths),
            real_tokens=sum(lengths),
            padded_tokens=job.shape[0] * job.shape[1],
        )
