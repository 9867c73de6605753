"""Rows with a common start: the start once, its cache forked, and only the suffixes as rows.

It refuses to know graphs and buckets: it runs eagerly, and where it declines the caller runs full rows. Trap: rows that
share nothing are the caller's to group. Given two requests at once it finds no common start, and declines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from decider.errors import ConfigError, EngineError
from decider.model.head import LabelHead
from decider.model.load import LoadedModel
from decider.plan.buckets import Grid, Shape
from decider.plan.cost import CostModel
from decider.plan.sharing import PrefixCost, fork_widths, shared_ms, suffix_chunks, suffix_shape, worth_sharing
from decider.run.executor import Logits, by_row
from decider.run.measure import free_bytes
from decider.run.prefix.cache import CachedDecoder, Prefix, cached_decoder
from decider.run.prefix.fork import fork_cache
from decider.run.prefix.groups import common_prefix
from decider.run.prefix.prices import measure_prices
from decider.run.prefix.probe import CacheSize, probe
from decider.run.stats import GridStats
from decider.tokens.rows import Row

# What the probe and the prices run at the least, one behind the other.
LEAST_POSITIONS = 64


@dataclass(frozen=True, slots=True)
class PrefixLimits:
    """When a prefix is too short, and how much of it is forked at a time. Raises ConfigError for a limit below 1."""

    min_prefix_tokens: int = 64
    fork_bytes: int = 8 * 2**30
    """Most bytes of one fork; it also takes at most half of the device's free memory."""
    suffix_tokens: int = 65_536
    """Most padded suffix tokens of one forward; a single row is never refused for it."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{field.name} is {value!r:.60}; it must be a whole number of at least 1")


@dataclass(frozen=True, slots=True)
class _Plan:
    """A call that is to be shared."""

    prefix_tokens: int
    chunks: tuple[tuple[int, ...], ...]
    """Indices of rows, those of longer suffixes first."""
    shapes: tuple[Shape, ...]
    """The padded (rows, tokens) of each chunk's suffixes."""

    @property
    def fork_rows(self) -> int:
        """Rows of all forks, with those that only fill a width."""
        return sum(width for width, _ in self.shapes)

    @property
    def suffix_tokens(self) -> int:
        """Padded tokens of all suffixes."""
        return sum(width * length for width, length in self.shapes)


class SharedPrefix:
    """Runs rows of one model by their common prefix, where that is possible and pays.

    Making one runs a few short forwards; a model whose cache fails them is never shared, and `refusal` says why. With a
    `grid`, suffixes are padded to its ladders. One call at a time, under the caller's lock and with its device current.
    """

    def __init__(self, loaded: LoadedModel, head: LabelHead, limits: PrefixLimits, grid: Grid | None = None) -> None:
        self._loaded = loaded
        self._head = head
        self._limits = limits
        self._grid = grid
        self._device = torch.device(loaded.device)
        self._cost: PrefixCost | None = None
        self._stats = GridStats()
        self._ready: tuple[CachedDecoder, CacheSize] | None = None
        self._refusal: str | None = None
        if loaded.max_positions < LEAST_POSITIONS:
            self._refusal = f"the model has {loaded.max_positions} positions, too few to try its cache on"
            return
        try:
            decoder = cached_decoder(loaded)
            self._ready = decoder, probe(decoder, head)
        except EngineError as error:
            self._refusal = str(error)

    @property
    def refusal(self) -> str | None:
        """Why this model is never shared; None where it can be."""
        return self._refusal

    @property
    def stats(self) -> GridStats:
        """Counts up to now."""
        return self._stats

    @property
    def cost(self) -> PrefixCost | None:
        """Prices of the gate; None before they are measured or given."""
        return self._cost

    def set_cost(self, cost: PrefixCost) -> None:
        """Gate by these prices from now on."""
        self._cost = cost

    @torch.inference_mode()
    def measure(self, full: CostModel) -> None:
        """Measure the prices of sharing beside those of full rows, and run each width of a fork once.

        Does nothing for a model that is never shared.
        """
        if self._ready is None:
            return
        decoder, size = self._ready
        self._cost = measure_prices(decoder, full)
        if self._grid is None:
            return
        n_tokens = self._grid.lengths[0]
        if 2 * n_tokens > self._loaded.max_positions:
            return
        prefix = decoder.run_prefix(torch.zeros(1, n_tokens, dtype=torch.int64, device=self._device))
        for width in fork_widths(self._grid):
            if width * size.row_bytes(2 * n_tokens) <= self._budget():
                ids = torch.zeros(width, n_tokens, dtype=torch.int64, device=self._device)
                decoder.run_suffixes(ids, fork_cache(prefix.cache, width).cache, n_tokens)

    @torch.inference_mode()
    def label_logits(
        self, rows: Sequence[Row], *, full_ms: float | None = None, gate: bool = True
    ) -> list[Logits] | None:
        """One array [slots, labels] a row, in the order given and the caller's own; None if it declines.

        `full_ms` is the price of the full rows' own plan, as `worth_sharing` takes it. `gate=False` shares whatever can
        be shared, also where it does not pay and below `min_prefix_tokens`; it is for verification and measurement.
        """
        plan = self._plan(rows, full_ms, gate=gate)
        if isinstance(plan, str):
            self._stats += GridStats(declined_calls=1)
            return None
        assert self._ready is not None
        decoder, _ = self._ready
        ids = torch.tensor([rows[0].ids[: plan.prefix_tokens]], device=self._device)
        prefix = decoder.run_prefix(ids)
        self._stats += GridStats(
            forwards=1,
            shared_calls=1,
            shared_rows=len(rows),
            shared_forwards=1,
            real_tokens=plan.prefix_tokens,
            padded_tokens=plan.prefix_tokens,
        )
        logits = [
            self._run_chunk(decoder, prefix, [rows[index] for index in chunk], shape)
            for chunk, shape in zip(plan.chunks, plan.shapes, strict=True)
        ]
        order = (index for chunk in plan.chunks for index in chunk)
        results = by_row(torch.cat(logits).cpu().numpy(), order, rows)
        return [results[index] for index in range(len(rows))]

    def shared_ms(self, rows: Sequence[Row]) -> float:
        """The promised milliseconds of sharing `rows`, for which `why_not` is None."""
        plan = self._plan(rows, None, gate=False)
        assert isinstance(plan, _Plan), plan
        assert self._cost is not None
        return shared_ms(
            plan.prefix_tokens, plan.suffix_tokens, plan.fork_rows, self._cost, n_forwards=len(plan.shapes)
        )

    def why_not(self, rows: Sequence[Row], *, full_ms: float | None = None, gate: bool = True) -> str | None:
        """Why `label_logits` would decline `rows`, in a few words; None if it would run them."""
        plan = self._plan(rows, full_ms, gate=gate)
        return plan if isinstance(plan, str) else None

    def _plan(self, rows: Sequence[Row], full_ms: float | None, *, gate: bool) -> _Plan | str:
        if self._ready is None:
            return self._refusal or ""
        if len(rows) < 2:
            return "one row shares its prefix with nothing"
        n_prefix = common_prefix(rows)
        least = self._limits.min_prefix_tokens if gate else 1
        if n_prefix < least:
            return f"a common prefix of {n_prefix} tokens is below min_prefix_tokens ({least})"
        lengths = [len(row.ids) - n_prefix for row in rows]
        room = self._loaded.max_positions - n_prefix
        longest = suffix_shape(1, max(lengths), grid=self._grid, room=room)[1]
        most_rows = self._budget() // self._ready[1].row_bytes(n_prefix + longest)
        if most_rows < 1:
            return f"a fork of one row does not fit the budget of {self._budget():,} bytes"
        if self._grid is not None:
            # What is padded to the next width must fit too.
            most_rows = max(width for width in fork_widths(self._grid) if width <= most_rows)
        chunks = suffix_chunks(lengths, max_tokens=self._limits.suffix_tokens, max_rows=most_rows)
        shapes = tuple(suffix_shape(len(chunk), lengths[chunk[0]], grid=self._grid, room=room) for chunk in chunks)
        plan = _Plan(n_prefix, chunks, shapes)
        if gate:
            if self._cost is None:
                return "prices are not measured yet"
            if not worth_sharing(
                n_prefix, plan.suffix_tokens, plan.fork_rows, self._cost, n_forwards=len(shapes), full_ms=full_ms
            ):
                return "full rows are faster"
        return plan

    def _budget(self) -> int:
        free = free_bytes(self._device)
        return self._limits.fork_bytes if free is None else min(self._limits.fork_bytes, free // 2)

    def _run_chunk(self, decoder: CachedDecoder, prefix: Prefix, rows: Sequence[Row], shape: Shape) -> Tensor:
        """Logits [slots, labels] of all slots of `rows`, padded to `shape`."""
        start = prefix.n_tokens
        width, length = shape
        suffixes = [row.ids[start:] for row in rows]
        # Padding lies behind every slot of its row, and all layers are causal, so any token will do.
        padded = [(*suffix, *(0,) * (length - len(suffix))) for suffix in suffixes]
        padded += [(0,) * length] * (width - len(rows))
        places: list[int] = []
        for place, row in enumerate(rows):
            assert row.slots[0] >= start, (row.slots, start)
            places.extend(place * length + slot - start for slot in row.slots)
        fork = fork_cache(prefix.cache, width)
        hidden = decoder.run_suffixes(torch.tensor(padded, device=self._device), fork.cache, start)
        self._stats += GridStats(
            forwards=1,
            shared_forwards=1,
            real_tokens=sum(map(len, suffixes)),
            padded_tokens=width * length,
            unknown_tensors=len(fork.unknown),
        )
        return self._head(hidden.flatten(0, 1).index_select(0, torch.tensor(places, device=self._device)))
