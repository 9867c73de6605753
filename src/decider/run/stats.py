"""What the grid executor did and what it is, as typed values.

It refuses to count by itself; the executor adds. Trap: `padded_tokens` counts all tokens that ran, the real ones too,
so the padded share is 1 − real_tokens / padded_tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from decider.plan.buckets import Shape
from decider.run.device import Pick


@dataclass(frozen=True, slots=True)
class GridStats:
    """Counts since the executor was made. Forwards are replays and eager forwards; warm-up counts captures only."""

    captures: int = 0
    forwards: int = 0
    replays: int = 0
    eager_forwards: int = 0
    eager_rows: int = 0
    """Rows that no graph ran, those above the ladder included."""
    unbucketed_rows: int = 0
    """Rows longer than the last bucket."""
    real_tokens: int = 0
    padded_tokens: int = 0
    """Tokens that ran: the real ones, and the padding of rows and of whole places."""

    def __add__(self, other: GridStats) -> GridStats:
        return GridStats(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class GridReport:
    """What is captured, on what, and at which prices the plans were made."""

    device: str
    dtype: str
    attention: Pick
    """The attention implementation, and why it was chosen."""
    graphs: tuple[Shape, ...]
    """Captured (batch, length) shapes, largest first; none where the device has no graphs."""
    sealed: bool
    launch_ms: float | None
    """Fixed milliseconds of an eager forward, measured at warm-up; None before it."""
    token_ms: float | None
    """Milliseconds of one more padded token of an eager forward; None before warm-up."""

    def __str__(self) -> str:
        """One line."""
        how = f"{len(self.graphs)} graphs" if self.graphs else "no graphs, eager"
        state = "sealed" if self.sealed else "open"
        return f"grid: {how}, {state}, {self.attention.value} attention, {self.dtype} on {self.device}"
