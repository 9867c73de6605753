"""One request on its way through the scheduler, and the rows of it that a pack has claimed.

It refuses to decide anything. Trap: a job is shared by two threads. The queue's fields belong to whoever holds the
queue's lock, all others to the event loop.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import accumulate

from decider.questions.answered import Answers
from decider.questions.request import Request
from decider.serve.admission import NOTHING, Held
from decider.serve.brain import Prepared, RowScores


@dataclass(frozen=True, slots=True)
class Timed:
    """Answers, and where their time went."""

    answers: Answers
    prepare_s: float
    """Rendering and tokenising, with the wait for a thread."""
    queue_s: float
    """From then until the first pack that holds a row of it began."""
    run_s: float
    """The packs that hold rows of it."""
    n_rows: int
    n_tokens: int
    """What its rows cost in one pack."""


class Work:
    """The rows of one request as packs are filled with them: which are claimed, and what any run of them costs.

    `next` belongs to the queue's lock.
    """

    __slots__ = ("_sums", "displaced", "n_rows", "next", "prepared")

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.n_rows = len(prepared.rows)
        self.next = 0
        """The first row that no pack has taken."""
        self.displaced = False
        """Made way for a newcomer since it was last served."""
        self._sums = list(accumulate(prepared.added_tokens, initial=0))

    def cost(self, start: int, stop: int) -> int:
        """Tokens of rows [start, stop) in a pack; the first of them brings its whole state."""
        return len(self.prepared.rows[start].ids) + self._sums[stop] - self._sums[start + 1]

    def fit(self, start: int, room_tokens: int) -> int:
        """The largest `stop` with which rows [start, stop) cost at most `room_tokens`; `start` if none fits."""
        most = room_tokens - len(self.prepared.rows[start].ids) + self._sums[start + 1]
        return max(start, bisect_right(self._sums, most) - 1)

    def is_wasteful(self, stop: int) -> bool:
        """Whether the rows up to `stop` cost less than what the next pack would run again to go on from there."""
        if stop == self.n_rows:
            return False
        row = self.prepared.rows[stop]
        return 2 * (len(row.ids) - self.prepared.added_tokens[stop]) > self.cost(self.next, stop)

    @property
    def left_tokens(self) -> int:
        """What the rows that no pack has taken cost."""
        return self.cost(self.next, self.n_rows) if self.next < self.n_rows else 0


@dataclass(slots=True, eq=False)
class Job:
    """A request in the house. `done` is set once, by whoever settles it."""

    request: Request
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Timed]
    began_s: float
    deadline_s: float | None
    """On the scheduler's clock."""
    is_alone: bool = False
    """It found the house empty."""
    held: Held = NOTHING
    """Of the house; changed together with `Admission`."""
    work: Work | None = None
    pooled: Future[Prepared] | Future[Answers] | None = None
    """Its last step on another thread."""
    timer: asyncio.TimerHandle | None = None
    queued_s: float = 0.0
    """When it was prepared, on the scheduler's clock."""
    queue_s: float = 0.0
    run_s: float = 0.0
    scores: list[RowScores | None] = field(default_factory=list)
    n_unscored: int = 0
    done: bool = False


@dataclass(slots=True, eq=False)
class Claim:
    """Rows [start, stop) of a job in one pack."""

    job: Job
    work: Work
    start: int
    stop: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Pack:
    """What goes to the engine at once."""

    claims: Sequence[Claim]
    n_rows: int
    n_tokens: int
