"""How fast the engine is, from the packs that it ran: when one is overdue, and how long a queue takes.

It refuses to know clocks and queues. Trap: the two uses want different numbers. An engine that is called dead too early
costs answers, so a pack's time is predicted high. A queue that is thought shorter than it is serves everyone just as
his deadline passes, one that is thought longer turns callers away; so the time of waiting is a mean, of full packs.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

MIN_LIMIT_S = 2.0
LIMIT_FACTOR = 3.0
WEIGHT = 0.2
"""Of the newest pack in a running mean."""
FIRST_PACK_S = 20.0
"""Before anything was measured: a first forward loads code, lays out weights and compiles kernels."""
FIRST_TOKEN_S = 0.02
"""Before anything was measured: 2 billion parameters in float32 take about this on one old core."""
SETTLED_PACKS = 16
"""The first packs load and compile; what they took says little."""
FULL_SHARE = 0.5
"""A pack counts as full from this share of its budget on."""


@dataclass(slots=True)
class Pace:
    """Running estimates of engines that are alike. Any thread may write."""

    pack_tokens: int
    """The budget of a pack."""
    pack_s: float | None = None
    """Mean seconds of a pack; None before the first."""
    token_s: float = 0.0
    """Mean of a pack's seconds a token."""
    longest_row_tokens: int = 0
    n_packs: int = 0
    full_token_s: float = 0.0
    """Mean of the seconds a token of full packs, or the least of others where that is less: a queue makes full ones."""
    n_engines: int = 1
    """How many run packs at once."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def learn(self, n_tokens: int, longest_row_tokens: int, run_s: float) -> None:
        """A pack of `n_tokens` took `run_s`."""
        with self._lock:
            self._learn(n_tokens, longest_row_tokens, run_s)

    def _learn(self, n_tokens: int, longest_row_tokens: int, run_s: float) -> None:
        token_s = run_s / n_tokens
        self.n_packs += 1
        # Others read while this writes, and with a pack's time they divide by this.
        self.longest_row_tokens = max(self.longest_row_tokens, longest_row_tokens)
        if self.pack_s is None:
            self.token_s, self.full_token_s, self.pack_s = token_s, token_s, run_s
        else:
            self.token_s += WEIGHT * (token_s - self.token_s)
            if token_s < self.full_token_s or n_tokens >= FULL_SHARE * self.pack_tokens:
                self.full_token_s += WEIGHT * (token_s - self.full_token_s)
            self.pack_s += WEIGHT * (run_s - self.pack_s)

    def predict_s(self, n_tokens: int, longest_row_tokens: int, *, is_first: bool = False) -> float:
        """Seconds of a pack, rather too many.

        The larger of the mean pack and of its tokens at the mean pace. Attention to a row longer than any before may
        cost as much more a token as the row is longer. Of an engine's first one (`is_first`) other packs say little.
        """
        if self.pack_s is None or is_first:
            return FIRST_PACK_S + FIRST_TOKEN_S * n_tokens
        growth = max(1.0, longest_row_tokens / self.longest_row_tokens)
        return max(self.pack_s, n_tokens * self.token_s * growth)

    def limit_s(self, n_tokens: int, longest_row_tokens: int, *, is_first: bool = False) -> float:
        """Seconds after which a pack counts as stuck."""
        return max(MIN_LIMIT_S, LIMIT_FACTOR * self.predict_s(n_tokens, longest_row_tokens, is_first=is_first))

    @property
    def is_settled(self) -> bool:
        """Whether enough was measured to tell a caller that his request can never be done in time."""
        return self.n_packs >= SETTLED_PACKS

    def engine_s(self, n_tokens: int) -> float:
        """Seconds that so many tokens take on one engine, in full packs; 0 before the first pack."""
        return n_tokens * self.full_token_s

    def wait_s(self, n_tokens: int) -> float:
        """Seconds that so many queued tokens take, in full packs on all engines; 0 before the first pack."""
        return self.engine_s(n_tokens) / self.n_engines
