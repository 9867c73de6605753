"""An engine's thread: pack after pack, as long as there are any, and what becomes of a pack that fails.

It refuses to know requests' callers and answers. Trap: it hands a finished pack over only after it has taken the next,
and never waits for whoever reads it.

Faults: EngineError in a pack of several requests (out of memory, a logit that is not finite) is narrowed down by
halves, so that only those fail who cause it. Any other exception fails its pack at once. After `MAX_FAULTS` failures
in a row without a pack that worked, and at once after one that CUDA does not recover from or that would end the
thread, the loop is over: only a new process has that device again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from decider.errors import EngineError, first_line, sticky
from decider.serve.brain import RowScores, Score
from decider.serve.job import Claim, Job, Pack
from decider.serve.pace import Pace
from decider.serve.rowqueue import RowQueue

MAX_FAULTS = 3


@dataclass(frozen=True, slots=True)
class Finished:
    """A pack that ran."""

    results: Sequence[tuple[Claim, Sequence[RowScores] | EngineError]]
    began_s: float
    run_s: float


@dataclass(frozen=True, slots=True)
class Running:
    """The forward that runs now."""

    n_rows: int
    n_tokens: int
    began_s: float
    limit_s: float
    """Seconds after which it counts as stuck."""


class Ran(NamedTuple):
    """What a loop did since it was made."""

    packs: int
    rows: int
    tokens: int
    busy_s: float


class LoopOverError(EngineError):
    """The engine cannot go on."""


class EngineLoop:
    """One thread. `finished` and `over` are called on it, and must not block."""

    def __init__(
        self,
        score: Score,
        queue: RowQueue,
        pace: Pace,
        clock: Callable[[], float],
        *,
        pack_tokens: int,
        packed: Callable[[int, int, float], None],
        finished: Callable[[Finished], None],
        over: Callable[[str], None],
    ) -> None:
        self._scores_of = score
        self._queue = queue
        self._pace = pace
        self._clock = clock
        self._pack_tokens = pack_tokens
        self._packed = packed
        self._finished = finished
        self._over = over
        self._faults = 0
        self._thread = threading.Thread(target=self._main, name="decider-engine", daemon=True)
        self._is_given_up = False
        # Set as a whole, so that any thread may read them.
        self.running: Running | None = None
        self.held: frozenset[Job] = frozenset()
        """The requests with rows in packs that were taken and are not handed over."""
        self.ran = Ran(0, 0, 0, 0.0)

    def start(self) -> None:
        """Run packs from now on."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread, which ends once its queue is stopped and its pack has run."""
        self._thread.join(timeout_s)

    def give_up(self) -> None:
        """Take no more packs. A forward that hangs may end all the same, and its scores are not handed over then."""
        self._is_given_up = True

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _main(self) -> None:
        try:
            pack = self._take()
            while pack is not None:
                done = self._run(pack)
                # The next pack was chosen while this one ran; whoever waits for this one is told while that one runs.
                pack = self._take(beside=pack)
                self._finished(done)
                self.held = _jobs(pack)
                if pack is None:
                    pack = self._take()
        except LoopOverError as error:
            self._over(str(error))
        except BaseException as error:  # noqa: BLE001 - a thread that ended in silence would leave callers waiting
            self._over(f"the engine's thread ended by {type(error).__name__}: {first_line(error)}")

    def _take(self, *, beside: Pack | None = None) -> Pack | None:
        """The next pack; while the one `beside` it is not handed over, without waiting for one."""
        self._check_given_up()
        pack = self._queue.take(wait=beside is None)
        self.held = _jobs(beside) | _jobs(pack)
        # Whoever gives this loop up looks at `held` after that; so the flag is read after it was set.
        self._check_given_up()
        return pack

    def _check_given_up(self) -> None:
        if self._is_given_up:
            raise LoopOverError("it came back too late")

    def _run(self, pack: Pack) -> Finished:
        began = self._clock()
        results: list[tuple[Claim, Sequence[RowScores] | EngineError]] = []
        self._run_claims(pack.claims, results)
        run_s = self._clock() - began
        ran = self.ran
        self.ran = Ran(ran.packs + 1, ran.rows + pack.n_rows, ran.tokens + pack.n_tokens, ran.busy_s + run_s)
        self._packed(pack.n_rows, pack.n_tokens, run_s)
        return Finished(results, began, run_s)

    def _run_claims(
        self, claims: Sequence[Claim], results: list[tuple[Claim, Sequence[RowScores] | EngineError]]
    ) -> None:
        try:
            scores = self._score(claims)
        except LoopOverError:
            raise
        except EngineError as error:
            if len(claims) > 1:
                middle = len(claims) // 2
                self._run_claims(claims[:middle], results)
                self._run_claims(claims[middle:], results)
                return
            self._count(error, claims)
            results.append((claims[0], error))
            return
        except Exception as error:  # noqa: BLE001 - it goes to every caller of the pack
            self._count(error, claims)
            # An exception of its own for each, since raising one writes into it.
            told = f"the engine failed ({type(error).__name__}: {first_line(error)}); try again"
            results += [(claim, EngineError(told)) for claim in claims]
            return
        self._faults = 0
        start = 0
        for claim in claims:
            stop = start + claim.stop - claim.start
            results.append((claim, scores[start:stop]))
            start = stop

    def _score(self, claims: Sequence[Claim]) -> Sequence[RowScores]:
        rows = [row for claim in claims for row in claim.work.prepared.rows[claim.start : claim.stop]]
        temperatures = [each for claim in claims for each in claim.work.prepared.temperatures[claim.start : claim.stop]]
        n_tokens, longest = sum(claim.tokens for claim in claims), max(len(row.ids) for row in rows)
        began, limit_s = self._clock(), self._pace.limit_s(n_tokens, longest, is_first=not self.ran.packs)
        self.running = Running(len(rows), n_tokens, began, limit_s)
        try:
            scores = self._scores_of(rows, temperatures)
        except Exception as error:
            if (reason := sticky(error)) is not None:
                raise LoopOverError(f"{reason}; the process has to be started anew") from error
            raise
        finally:
            self.running = None
        assert len(scores) == len(rows), (len(scores), len(rows))
        # A forward that hung says little about the next; what is learned of it is bounded.
        self._pace.learn(n_tokens, longest, min(self._clock() - began, limit_s))
        return scores

    def _count(self, error: BaseException, claims: Sequence[Claim]) -> None:
        """Raises LoopOverError where so many faults in a row mean that nothing works any more."""
        # Neither says that the engine is broken: the model gives no number for this text, or the text is too long.
        is_callers = isinstance(error.__cause__, FloatingPointError) or any(
            claim.tokens > self._pack_tokens for claim in claims
        )
        self._faults += not is_callers
        if self._faults >= MAX_FAULTS:
            raise LoopOverError(
                f"{self._faults} packs in a row failed, the last by {type(error).__name__}: {first_line(error)}"
            ) from error


def _jobs(pack: Pack | None) -> frozenset[Job]:
    return frozenset() if pack is None else frozenset(claim.job for claim in pack.claims)
