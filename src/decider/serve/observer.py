"""What the scheduler tells whoever counts.

It refuses to count. Trap: calls come from the event loop's thread and from the engine's; they must be short and must
not raise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Observer(Protocol):
    """Told as things happen; `serve.metrics` is one."""

    def packed(self, n_rows: int, n_tokens: int, run_s: float) -> None:
        """A pack ran, whether it worked or failed."""
        ...

    def planned(self, plan_s: float) -> None:
        """A pack was chosen."""
        ...

    def queued(self, queue_s: float) -> None:
        """A request reached the engine after `queue_s`."""
        ...

    def dropped(self, reason: str, n_rows: int) -> None:
        """A request of `n_rows` (0 where it was not tokenised yet) will not be answered: `left`, `deadline`, `fault`,
        `stopped`, `input` or `full`."""
        ...


class Silent:
    """An observer that does nothing."""

    def packed(self, n_rows: int, n_tokens: int, run_s: float) -> None:
        """See `Observer`."""

    def planned(self, plan_s: float) -> None:
        """See `Observer`."""

    def queued(self, queue_s: float) -> None:
        """See `Observer`."""

    def dropped(self, reason: str, n_rows: int) -> None:
        """See `Observer`."""


SILENT = Silent()


@dataclass(frozen=True, slots=True)
class Health:
    """Whether to send requests here."""

    alive: bool
    """An engine's thread runs."""
    ready: bool
    """It runs and moves, and new requests are taken."""
    reason: str
    """Why it is not ready; empty if it is."""
    fatal: bool
    """It will never be ready again: end the process, so that its supervisor starts a new one."""
    lost: Mapping[str, str]
    """Why engines are down for good, by name; while another works the server is ready all the same."""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What one engine does, and did since the start."""

    name: str
    """Of the device."""
    works: bool
    reason: str
    """Why it does not; empty if it does."""
    running_rows: int
    running_tokens: int
    packs: int
    rows: int
    tokens: int
    busy_s: float
    """Seconds that its packs ran."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is in the house, and what has been."""

    requests: int
    """In the house: being tokenised, waiting, or running. With `rows` and `tokens`, what admission counts."""
    rows: int
    tokens: int
    waiting: int
    """Requests with rows that no pack has taken."""
    running_rows: int
    """Of the packs that run."""
    running_tokens: int
    admitted: int
    """Since the start, and so are the next; each admitted request is in one of the others, or in the house."""
    answered: int
    dropped: int
    """Left, or over their deadline."""
    failed: int
    """By a fault of the engine's, or of the request that tokenising found, or for want of room then."""
    refused: int
    """Not admitted."""
    engines: tuple[EngineLoad, ...]
