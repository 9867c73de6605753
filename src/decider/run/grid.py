"""The grid executor: rows padded into (batch, length) buckets, one graph a bucket, all captured before the seal.

It refuses to know questions and probabilities, and how graphs are made. Trap: after `seal()` nothing may be captured,
compiled or tuned for a request. What no graph fits runs eagerly and is counted; it never makes a new graph.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from decider.errors import ConfigError, EngineError
from decider.model.head import LabelHead
from decider.model.load import LoadedModel
from decider.plan.batches import plan_batches
from decider.plan.buckets import Grid, Shape
from decider.plan.cost import CostModel
from decider.run import measure, warmup
from decider.run.device import Pick
from decider.run.executor import Logits
from decider.run.forward import make_forward, on_device
from decider.run.graphs import Captured, Capturer, allocate_statics
from decider.run.staging import Job, Staged, place, stage
from decider.run.stats import GridReport, GridStats
from decider.run.warmup import Say
from decider.tokens.rows import Row

# Prices until warm-up measures them: a 2-billion-parameter model on one H200 takes 5.4 ms for 64 tokens and 0.01 ms for
# each further one. Only their ratio matters to a plan.
UNMEASURED = CostModel(launch_ms=5.0, token_ms=0.01)


def bounded(grid: Grid, max_positions: int) -> Grid:
    """`grid` without lengths that the model has no positions for; only `max_positions` itself if none is left."""
    return replace(grid, lengths=tuple(n for n in grid.lengths if n <= max_positions) or (max_positions,))


class GridExecutor:
    """Satisfies `Executor` for any causal language model that `load_module` can load. Any thread may call it.

    Without a `capturer` (CPU, MPS) the same plans run eagerly. `attention` says how the model was loaded and why.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        head: LabelHead,
        grid: Grid,
        capturer: Capturer | None,
        say: Say,
        *,
        attention: Pick | None = None,
    ) -> None:
        self._loaded = loaded
        self._head = head
        self._device = torch.device(loaded.device)
        self._grid = bounded(grid, loaded.max_positions)
        if capturer is None and self._device.type == "cpu":
            # A forward there has no places but its rows, so any number of them is worth a price of its own.
            self._grid = replace(self._grid, batches=tuple(range(1, grid.batches[-1] + 1)))
        self._capturer = capturer
        self._say = say
        implementation = str(loaded.module.config._attn_implementation)
        self._attention = attention or Pick("attention", implementation, "as the model was loaded")
        self._forward = make_forward(loaded, head)
        self._captured: dict[Shape, Captured] = {}
        self._cost = UNMEASURED
        self._sealed = False
        self._stats = GridStats()
        self._lock = threading.Lock()

    @property
    def stats(self) -> GridStats:
        """Counts up to now."""
        return self._stats

    @property
    def report(self) -> GridReport:
        """What is captured, where, and at which prices."""
        measured = self._cost is not UNMEASURED
        return GridReport(
            device=self._loaded.device,
            dtype=self._loaded.dtype,
            attention=self._attention,
            graphs=tuple(self._captured),
            sealed=self._sealed,
            launch_ms=self._cost.launch_ms if measured else None,
            token_ms=self._cost.token_ms if measured else None,
        )

    def describe(self) -> str:
        """One line: what runs, where, and in which precision."""
        return str(self.report)

    @torch.inference_mode()
    def warmup(self, shapes: Sequence[Shape] | None = None) -> None:
        """Capture `shapes` (default: the whole grid), check each graph against eager, measure prices.

        Without a capturer only prices are measured. A second call starts again. Raises EngineError after the seal or
        for a graph that fails its check, ConfigError for a shape off the grid, DeviceError without enough memory.
        """
        with self._lock, on_device(self._device):
            if self._sealed:
                raise EngineError("the engine is sealed; nothing is captured any more, so make a new one")
            todo = self._to_capture(shapes)
            self._captured = {}
            self._cost = warmup.time_eager(self._forward, self._grid, self._device)
            if self._capturer is not None and todo:
                self._capture(todo, self._capturer)

    def seal(self) -> None:
        """From now on nothing is captured. Calling it again does nothing."""
        with self._lock:
            self._sealed = True

    def _to_capture(self, shapes: Sequence[Shape] | None) -> list[Shape]:
        possible = self._grid.graph_shapes()
        wanted = possible if shapes is None else shapes
        unknown = [shape for shape in wanted if shape not in possible]
        if unknown:
            raise ConfigError(
                f"{warmup.bucket(unknown[0])} is not on the grid of {len(possible)} shapes up to "
                f"{self._grid.lengths[-1]:,} tokens a row; choose from `Grid.graph_shapes()`"
            )
        return [shape for shape in possible if shape in set(wanted)]

    def _capture(self, todo: Sequence[Shape], capturer: Capturer) -> None:
        free = measure.free_bytes(self._device)
        if free is not None:
            each = warmup.bytes_per_token(self._forward, self._grid, self._device)
            warmup.check_memory(todo, bytes_per_token=each, free=free, device=self._device)
        captured = warmup.capture_all(
            todo,
            forward=self._forward,
            capturer=capturer,
            allocate=lambda shape: allocate_statics(
                shape,
                labels=self._head.weight.shape[0],
                logits_dtype=self._head.weight.dtype,
                device=self._device,
            ),
            device=self._device,
            say=self._say,
        )
        self._stats += GridStats(captures=len(captured))
        vocab = self._loaded.module.config.get_text_config().vocab_size
        warmup.verify(captured, forward=self._forward, vocab=vocab, dtype=self._loaded.module.dtype)
        self._cost = replace(self._cost, measured=warmup.time_replays(captured, self._device))
        self._captured = captured
        self._say(f"checked {len(captured)} graphs against eager forwards")

    @torch.inference_mode()
    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        """See `Executor`. Rows have at most the model's positions. The arrays are the caller's own."""
        if not rows:
            return []
        longest = max(len(row.ids) for row in rows)
        assert longest <= self._loaded.max_positions, (longest, self._loaded.max_positions)
        with self._lock, on_device(self._device):
            plan = plan_batches([len(row.ids) for row in rows], self._grid, self._cost)
            jobs = [
                place(
                    batch,
                    rows,
                    captured=self._captured,
                    device_type=self._device.type,
                    max_positions=self._loaded.max_positions,
                )
                for batch in plan
            ]
            return self._run(jobs, rows)

    def _run(self, jobs: Sequence[Job], rows: Sequence[Row]) -> list[Logits]:
        on_cuda = self._device.type == "cuda"
        staged = stage(jobs, rows, pinned=on_cuda)
        weight = self._head.weight
        n_slots = sum(job.n_slots for job in jobs)
        out = torch.empty(n_slots, weight.shape[0], dtype=weight.dtype, pin_memory=on_cuda)
        start = 0
        for job, tensors in zip(jobs, staged, strict=True):
            logits = self._replay(job, tensors) if job.replays else self._eager(tensors)
            # Copied before the next replay overwrites it; the copy is queued on the stream that the replay is on.
            out[start : start + job.n_slots].copy_(logits[: job.n_slots], non_blocking=on_cuda)
            start += job.n_slots
            self._stats += self._count(job, rows)
        if on_cuda:
            torch.cuda.current_stream().synchronize()
        results: list[Logits | None] = [None] * len(rows)
        start = 0
        for row in (row for job in jobs for row in job.rows):
            stop = start + len(rows[row].slots)
            results[row] = out[start:stop].numpy().copy()
            start = stop
        return [result for result in results if result is not None]

    def _replay(self, job: Job, tensors: Staged) -> Tensor:
        captured = self._captured[job.shape]
        on_cuda = self._device.type == "cuda"
        captured.statics.ids.copy_(tensors.ids, non_blocking=on_cuda)
        captured.statics.slots.copy_(tensors.slots, non_blocking=on_cuda)
        captured.graph.replay()
        return captured.statics.logits

    def _eager(self, tensors: Staged) -> Tensor:
        if self._device.type == "cuda":
            ids, slots = (each.to(self._device, non_blocking=True) for each in (tensors.ids, tensors.slots))
        else:
            ids = tensors.ids.to(self._device)
            # Metal has read a host index tensor after it was freed; this one is made on the device.
            slots = torch.tensor(tensors.slots.tolist(), dtype=torch.int64, device=self._device)
        return self._forward(ids, slots)

    def _count(self, job: Job, rows: Sequence[Row]) -> GridStats:
        lengths = [len(rows[row].ids) for row in job.rows]
        return GridStats(
            forwards=1,
            replays=int(job.replays),
            eager_forwards=int(not job.replays),
            eager_rows=0 if job.replays else len(lengths),
            unbucketed_rows=sum(self._grid.t_bucket(length) is None for length in lengths),
            real_tokens=sum(lengths),
            padded_tokens=job.shape[0] * job.shape[1],
        )
