"""Whether a request that comes now would be through in time.

It refuses to know requests: tokens and seconds are enough. Trap: a pace that was measured while the machine was busy
with something else must not keep callers away for good, so whoever finds the house empty is let in, and measures anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from decider.serve.loop import EngineLoop
from decider.serve.pace import Pace
from decider.serve.rowqueue import RowQueue

PATIENCE = 0.8
"""Of its deadline: a request that would be through only after this much is refused at once. The rest is for newcomers
who are served before it, and for packs that take longer than the mean."""
MIN_RETRY_S, MAX_RETRY_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Judges by the pace, and by what waits and runs."""

    pace: Pace
    queue: RowQueue
    engine: EngineLoop
    clock: Callable[[], float]

    def allows(self, tokens: int, left_s: float, *, others_tokens: int, unread_tokens: int) -> bool:
        """Whether a request of `tokens` may wait, with `left_s` to its deadline.

        `others_tokens` are in the house, running or not; those of `unread_tokens` are still being tokenised, and come
        before it.
        """
        if left_s <= 0:
            return False
        # Exact only where it may matter: a large request ahead takes turns with a small one.
        if not others_tokens or self.pace.wait_s(others_tokens + tokens) <= PATIENCE * left_s:
            return True
        waiting = unread_tokens + self.queue.ahead_tokens(tokens)
        return self._running_s() + self.pace.wait_s(waiting + tokens) <= PATIENCE * left_s

    def retry_s(self, house_tokens: int) -> float:
        """When a caller should come again: what is in the house now has run by then."""
        return min(MAX_RETRY_S, max(MIN_RETRY_S, self.pace.wait_s(house_tokens)))

    def _running_s(self) -> float:
        """What the pack that runs still takes."""
        running = self.engine.running
        if running is None:
            return 0.0
        return max(0.0, running.began_s + self.pace.wait_s(running.n_tokens) - self.clock())
