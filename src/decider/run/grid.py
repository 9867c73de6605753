"""The grid executor: rows padded into (batch, length) buckets, one graph a bucket, all captured before the seal.

It refuses to know questions and probabilities, and how graphs are made. Trap: after `seal()` nothing may be captured,
compiled or tuned for a request. What no graph fits runs eagerly and is counted; it never makes a new graph.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace

import torch

from decider.errors import ConfigError, EngineError
from decider.model.head import LabelHead
from decider.model.load import LoadedModel
from decider.plan.batches import Batch, plan_batches
from decider.plan.buckets import Grid, Shape
from decider.plan.cost import CostModel
from decider.plan.sharing import pays
from decider.run import measure, warmup
from decider.run.device import Pick
from decider.run.executor import Logits
from decider.run.forward import on_device
from decider.run.graphs import Captured, Capturer, allocate_statics
from decider.run.options import GridOptions
from decider.run.prefix.groups import prefix_groups
from decider.run.prefix.shared import PrefixLimits, SharedPrefix
from decider.run.runner import Runner
from decider.run.staging import Job, place
from decider.run.stats import GridReport, GridStats
from decider.run.variant import Variant, make_variant
from decider.run.warmup import Clock, Say
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
    Raises what `make_variant` raises for the options.
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
        options: GridOptions | None = None,
        limits: PrefixLimits | None = None,
    ) -> None:
        self._head = head
        self._device = torch.device(loaded.device)
        self._max_positions = loaded.max_positions
        self._grid = bounded(grid, loaded.max_positions)
        if capturer is None and self._device.type == "cpu":
            # A forward there has no places but its rows, so any number of them is worth a price of its own.
            self._grid = replace(self._grid, batches=tuple(range(1, grid.batches[-1] + 1)))
        self._capturer = capturer
        self._say = say
        self._limits = limits or PrefixLimits()
        implementation = str(loaded.module.config._attn_implementation)
        self._attention = attention or Pick("attention", implementation, "as the model was loaded")
        self._options = options or GridOptions()
        self._variant: Variant | None = make_variant(loaded, head, self._options, captures=capturer is not None)
        self._report = GridReport(
            loaded.device, loaded.dtype, (self._attention, *self._variant.picks), (), False, None, None, None, None
        )
        self._captured: dict[Shape, Captured] = {}
        self._cost = UNMEASURED
        self._prefix: SharedPrefix | None = None
        self._stats = GridStats()
        self._lock = threading.Lock()

    @property
    def grid(self) -> Grid:
        """The ladders, without lengths that the model has no positions for."""
        return self._grid

    @property
    def stats(self) -> GridStats:
        """Counts up to now."""
        return self._stats if self._prefix is None else self._stats + self._prefix.stats

    def describe(self) -> GridReport:
        """What is captured, where, at which prices, and what was chosen and why."""
        return self._report

    @torch.inference_mode()
    def replay_ms(self, shape: Shape, *, repeats: int = 20) -> float | None:
        """Median milliseconds of `repeats` replays of a captured shape, measured now; None if it is not captured."""
        with self._lock, on_device(self._device):
            self._open()
            if shape not in self._captured:
                return None
            replay = self._captured[shape].graph.replay
            return measure.milliseconds(self._device, replay, repeats=repeats, enough_ms=math.inf)

    def plan(self, rows: Sequence[Row]) -> tuple[Batch, ...]:
        """The batches that `rows` run in as full rows."""
        return plan_batches([len(row.ids) for row in rows], self._grid, self._cost)

    @torch.inference_mode()
    def warmup(self, shapes: Sequence[Shape] | None = None) -> None:
        """Capture `shapes` (default: the whole grid), check each graph against eager, measure prices.

        Without a capturer only prices are measured. A second call starts again. Raises EngineError after the seal or
        for a graph that fails its check, ConfigError for a shape off the grid, DeviceError without enough memory.
        """
        with self._lock:
            variant = self._open()
            if self._report.sealed:
                raise EngineError("the engine is sealed; nothing is captured any more, so make a new one")
            todo = self._to_capture(shapes)
            reserved, clock = measure.reserved_bytes(self._device), Clock(self._say)
            with on_device(self._device), variant.policy.pinned():
                self._captured, self._prefix = {}, None
                self._report = replace(self._report, graphs=())
                self._cost = warmup.time_eager(variant.forward, self._grid, self._device)
                clock.lap("timed eager forwards")
                if self._capturer is not None and todo:
                    self._capture(variant, todo, self._capturer, clock)
                # What captures left in the cache belongs to their stream, which nothing runs on again.
                measure.release_cache(self._device)
                if self._options.share_prefixes:
                    self._prefix = self._share_prefixes(variant)
                if self._device.type == "cuda":
                    warmup.warm_pinned()
                clock.lap("timed shared prefixes")
            self._report = replace(
                self._report,
                picks=(self._attention, *variant.picks, _pick_prefix(self._prefix)),
                graphs=tuple(self._captured),
                launch_ms=self._cost.launch_ms,
                token_ms=self._cost.token_ms,
                warmup_s=clock.total_s,
                pool_bytes=None if reserved is None else (measure.reserved_bytes(self._device) or 0) - reserved,
            )

    def seal(self) -> None:
        """From now on nothing is captured or compiled. Calling it again does nothing."""
        with self._lock:
            variant = self._open()
            if variant.compiled is not None:
                variant.compiled.seal()
            self._report = replace(self._report, sealed=True)

    def close(self) -> None:
        """Drop the graphs, their memory and the model. `describe` and `stats` still answer; rows raise EngineError."""
        with self._lock:
            self._stats = self.stats
            self._captured, self._prefix, self._variant, self._capturer = {}, None, None, None
            self._report = replace(self._report, graphs=())
            measure.release_cache(self._device)

    def _open(self) -> Variant:
        if self._variant is None:
            raise EngineError("this engine is closed; make a new one")
        return self._variant

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

    def _capture(self, variant: Variant, todo: Sequence[Shape], capturer: Capturer, clock: Clock) -> None:
        free = measure.free_bytes(self._device)
        if free is not None:
            each = warmup.bytes_per_token(variant.forward, self._grid, self._device)
            warmup.check_memory(todo, bytes_per_token=each, free=free, device=self._device)
        weight = self._head.weight
        module = variant.loaded.module
        vocab = module.config.get_text_config().vocab_size
        captured, expected = warmup.capture_all(
            todo,
            forward=variant.compiled or variant.forward,
            eager=variant.forward,
            capturer=capturer,
            allocate=lambda shape: allocate_statics(
                shape, labels=weight.shape[0], logits_dtype=weight.dtype, device=self._device
            ),
            vocab=vocab,
            device=self._device,
            say=self._say,
        )
        self._stats += GridStats(captures=len(captured))
        clock.lap(f"captured {len(captured)} graphs")
        replays = warmup.verify(
            captured,
            expected,
            vocab=vocab,
            dtype=module.dtype,
            tolerance=warmup.FP8_TOLERANCE if self._options.fp8 else warmup.GRAPH_TOLERANCE[module.dtype],
            device=self._device,
        )
        self._cost = replace(self._cost, measured=replays)
        self._captured = captured
        clock.lap(f"checked {len(captured)} graphs against eager forwards")

    def _share_prefixes(self, variant: Variant) -> SharedPrefix:
        ladder = None if self._device.type == "cpu" else self._grid
        prefix = SharedPrefix(variant.loaded, self._head, self._limits, ladder)
        prefix.measure(replace(self._cost, measured={}))
        return prefix

    @torch.inference_mode()
    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        """See `Executor`. Rows have at most the model's positions. The arrays are the caller's own.

        Neighbouring rows with a common reusable start share it where that is promised to be faster than full rows.
        """
        if not rows:
            return []
        with self._lock, on_device(self._device):
            variant = self._open()
            results = self._run_shared(variant, rows)
            rest = [index for index in range(len(rows)) if index not in results]
            if rest:
                results.update(zip(rest, self._run_rows(variant, [rows[index] for index in rest]), strict=True))
            return [results[index] for index in range(len(rows))]

    @torch.inference_mode()
    def score_shared(self, rows: Sequence[Row], *, gate: bool = True) -> list[Logits] | None:
        """`label_logits` by the common prefix of all `rows`, or None where it declines; `why_not_shared` says why.

        `gate=False` shares whatever can be shared, whether it pays or not; it is for verification and measurement.
        """
        with self._lock, on_device(self._device):
            variant = self._open()
            if self._prefix is None:
                return None
            with variant.policy.pinned():
                return self._prefix.label_logits(rows, full_ms=self._price(rows), gate=gate)

    def why_not_shared(self, rows: Sequence[Row], *, gate: bool = True) -> str | None:
        """Why `score_shared` would decline `rows`, in a few words; None if it would run them."""
        with self._lock, on_device(self._device):
            self._open()
            if self._prefix is None:
                return "the engine was not warmed up" if self._options.share_prefixes else "share_prefixes is off"
            return self._prefix.why_not(rows, full_ms=self._price(rows), gate=gate)

    def _jobs(self, rows: Sequence[Row]) -> list[Job]:
        """The forwards that `rows` run in as full rows."""
        return [
            place(
                batch,
                rows,
                captured=self._captured,
                device_type=self._device.type,
                max_positions=self._max_positions,
            )
            for batch in self.plan(rows)
        ]

    def _price(self, rows: Sequence[Row]) -> float:
        """Milliseconds of `rows` as full rows, in the shapes that run."""
        return sum(self._cost.price(*job.shape) for job in self._jobs(rows))

    def _run_shared(self, variant: Variant, rows: Sequence[Row]) -> dict[int, Logits]:
        """The logits of the rows that are better shared, by their index."""
        results: dict[int, Logits] = {}
        if self._prefix is None or self._prefix.refusal is not None:
            return results
        groups = prefix_groups(rows, self._limits.min_prefix_tokens)
        with variant.policy.pinned():
            for group, full_ms in zip(groups, self._full_ms(self._prefix, rows, groups), strict=True):
                logits = self._prefix.label_logits([rows[index] for index in group], full_ms=full_ms)
                if logits is not None:
                    results.update(zip(group, logits, strict=True))
        return results

    def _full_ms(self, prefix: SharedPrefix, rows: Sequence[Row], groups: Sequence[range]) -> list[float]:
        """What each group costs as full rows; 0 for all if the groups together add less than sharing them takes.

        In a batch with others, rows may cost less than alone: what they add to it is their price. That is asked once,
        of all groups that look better shared, because a plan of all rows for each group would be quadratic.
        """
        members = [[rows[index] for index in group] for group in groups]
        alone = [self._price(own) for own in members]
        wanted = [
            place
            for place, (own, full_ms) in enumerate(zip(members, alone, strict=True))
            if prefix.why_not(own, full_ms=full_ms) is None
        ]
        shared = {index for place in wanted for index in groups[place]}
        # A group that is the whole call adds what it costs alone.
        if not shared or (len(wanted) == 1 and len(shared) == len(rows)):
            return alone
        added_ms = self._price(rows) - self._price([row for index, row in enumerate(rows) if index not in shared])
        if pays(sum(prefix.shared_ms(members[place]) for place in wanted), added_ms):
            return alone
        return [0.0] * len(groups)

    def _run_rows(self, variant: Variant, rows: Sequence[Row]) -> list[Logits]:
        longest = max(len(row.ids) for row in rows)
        assert longest <= self._max_positions, (longest, self._max_positions)
        runner = Runner(self._device, self._grid, self._head, variant.forward, variant.policy, self._captured)
        results, stats = runner.run(self._jobs(rows), rows)
        self._stats += stats
        return results


def _pick_prefix(prefix: SharedPrefix | None) -> Pick:
    if prefix is None:
        return Pick("shared prefix", "off", "share_prefixes is off")
    if prefix.refusal is not None:
        return Pick("shared prefix", "off", prefix.refusal)
    return Pick("shared prefix", "by cost", "measured at warm-up: run once where that promises to beat full rows")
