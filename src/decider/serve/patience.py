"""Whether a request that comes now would be through in time, and whether one that was not ever could be.

It refuses to know what is asked: tokens and seconds do. Trap: a pace that was measured while the machine was busy
with something else must not keep callers away for good, so whoever finds the house empty is let in, and measures anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from decider.errors import TooLargeError
from decider.serve.job import Job
from decider.serve.loop import Running
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
    running: Callable[[], Sequence[Running | None]]
    """What each engine runs now."""
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

    def in_vain(self, job: Job) -> TooLargeError | None:
        """What a request is told at its deadline, which nobody was before, if by a settled pace it takes longer than
        that; None if it may try again.
        """
        if job.deadline_s is None or job.work is None or not self.pace.is_settled:
            return None
        n_tokens, deadline_s = job.work.prepared.n_tokens, job.deadline_s - job.began_s
        needed_s = self.pace.wait_s(n_tokens)
        if needed_s <= deadline_s:
            return None
        return TooLargeError(
            f"{n_tokens:,} tokens are too many tokens for this server's pace: they take about {needed_s:.3g} s, over "
            f"the deadline of {deadline_s:.3g} s (deadline_s, x-deadline-ms); shorten the state or ask fewer questions"
        )

    def _running_s(self) -> float:
        """What still passes until an engine is free."""
        free_s = [
            0.0 if each is None else each.began_s + self.pace.engine_s(each.n_tokens) - self.clock()
            for each in self.running()
        ]
        return max(0.0, min(free_s, default=0.0))
