"""What an executor did and what it is, as typed values.

It refuses to count by itself; the executor adds. Trap: `padded_tokens` counts all tokens that ran, the real ones too,
so the padded share is 1 − real_tokens / padded_tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import add, attrgetter, sub

from decider.plan.buckets import Shape
from decider.plan.tables import PackShape
from decider.run.device import Pick


@dataclass(frozen=True, slots=True)
class GridStats:
    """Counts since the executor was made; warm-up counts captures only. The difference of two is also one."""

    captures: int = 0
    forwards: int = 0
    """Replays, eager forwards and shared forwards."""
    replays: int = 0
    eager_forwards: int = 0
    eager_rows: int = 0
    """Rows in eager forwards, those above the ladder included."""
    unbucketed_rows: int = 0
    """Rows longer than the last bucket that ran as full rows."""
    real_tokens: int = 0
    padded_tokens: int = 0
    """Tokens that ran: the real ones, and the padding of rows and of whole places."""
    shared_calls: int = 0
    """Groups of rows whose common prefix was run once."""
    shared_rows: int = 0
    shared_forwards: int = 0
    """Forwards of prefixes and of suffixes; no graph runs them."""
    declined_calls: int = 0
    """Groups of rows with a common prefix that ran as full rows."""
    unknown_tensors: int = 0
    """Tensors of a cache under a name that is not known, forked because they hold a batch of 1; counted once a fork."""

    def __add__(self, other: GridStats) -> GridStats:
        return GridStats(*map(add, _counts(self), _counts(other)))

    def __sub__(self, other: GridStats) -> GridStats:
        return GridStats(*map(sub, _counts(self), _counts(other)))


_counts: Callable[[GridStats], tuple[int, ...]] = attrgetter(*(field.name for field in fields(GridStats)))


@dataclass(frozen=True, slots=True)
class GridReport:
    """What is captured, on what, at which prices the plans are made, and what was chosen and why."""

    device: str
    dtype: str
    picks: tuple[Pick, ...]
    """The attention implementation and its back ends, the options, and whether prefixes are shared."""
    graphs: tuple[Shape, ...]
    """Captured (batch, length) shapes, largest first; none where the device has no graphs."""
    sealed: bool
    launch_ms: float | None
    """Fixed milliseconds of an eager forward, measured at warm-up; None before it."""
    token_ms: float | None
    """Milliseconds of one more padded token of an eager forward; None before warm-up."""
    warmup_s: float | None
    """Seconds that warm-up took; None before it."""
    pool_bytes: int | None
    """Device memory that warm-up added, graphs and working memory; None before it and off CUDA."""

    def __str__(self) -> str:
        """One line."""
        how = f"{len(self.graphs)} graphs" if self.graphs else "no graphs, eager"
        state = "sealed" if self.sealed else "open"
        chosen = ", ".join(f"{pick.name} {pick.value}" for pick in self.picks)
        return f"grid: {how}, {state}, {self.dtype} on {self.device}; {chosen}"


@dataclass(frozen=True, slots=True)
class PackedReport:
    """What runs packs, and what was chosen and why."""

    device: str
    dtype: str
    family: str
    """The family of the native backbone."""
    max_tokens: int
    """Tokens of a pack; a longer row is a pack of its own."""
    picks: tuple[Pick, ...]
    graphs: tuple[PackShape, ...]
    """Captured shapes, largest first; none where the device has no graphs."""
    sealed: bool
    warmup_s: float | None
    """Seconds that warm-up took; None where there was none."""
    pool_bytes: int | None
    """Device memory that warm-up added, graphs, tables and working memory; None before it and off CUDA."""

    def __str__(self) -> str:
        """One line."""
        graphs = f"{len(self.graphs)} graphs, {'sealed' if self.sealed else 'open'}, " if self.graphs else ""
        packs = f"{graphs}packs of {self.max_tokens:,} tokens"
        return f"packed: {self.family} backbone, {packs}, {self.dtype} on {self.device}"


@dataclass(frozen=True, slots=True)
class ReferenceReport:
    """The reference executor has no choices."""

    device: str
    dtype: str

    def __str__(self) -> str:
        """One line."""
        return f"reference: one row at a time, eager, {self.dtype} on {self.device}"


@dataclass(frozen=True, slots=True)
class EngineState:
    """One of the engines behind a model, each with weights and graphs of its own."""

    name: str
    """Its device's, with #2 and so on where several engines are on one."""
    report: GridReport | PackedReport | ReferenceReport
    stats: GridStats
    fault: str | None
    """Why its device takes no more rows, where another takes them; None while it works."""
