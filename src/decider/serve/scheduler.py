"""From a request to its answers through one queue: admitted, prepared, put into packs, read, within its deadline.

It refuses to know HTTP and models. Trap: whatever happens to a request, it is settled once, by `_settle`, on the event
loop's thread: that takes its rows out of the queue, gives its admission back, and tells its caller, in one step.

Threads: the event loop admits and settles; a few threads prepare and read what is large; one an engine runs it; one
more looks whether that still moves. What they share is the queue, which has a lock, and flags that are set as a whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar, cast

from decider.errors import EngineError, InputError, OverloadError
from decider.questions.answered import Answers
from decider.questions.request import Request
from decider.serve.admission import NOTHING, Admission, Estimate, Held, QueueLimits
from decider.serve.brain import Brain, Prepared, RowScores
from decider.serve.crew import Crew
from decider.serve.job import Job, Timed, Work
from decider.serve.loop import Finished
from decider.serve.observer import SILENT, Health, Load, Observer
from decider.serve.pace import Pace
from decider.serve.patience import PATIENCE, Patience
from decider.serve.rowqueue import RowQueue
from decider.serve.small import INLINE_ROWS, is_small

__all__ = ["SILENT", "Health", "Load", "Observer", "QueueLimits", "Scheduler", "Timed"]

STOP_S = 5.0
"""How long `stop` waits for the packs that run."""

Result = TypeVar("Result")


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        # A loop that was closed has cancelled its tasks, which settled their requests.
        assert loop.is_closed()


class Scheduler:
    """One queue for many callers. `start` it once; `answer` from one event loop; `drain`, then `stop`.

    It closes nothing: the brain is its maker's, to be closed after `stop`.
    """

    def __init__(
        self,
        brain: Brain,
        limits: QueueLimits,
        *,
        observer: Observer = SILENT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.brain = brain
        self._limits = limits
        self._observer = observer
        self._clock = clock
        self._admission = Admission(limits)
        self._pace = Pace(limits.pack_tokens)
        self._estimate = Estimate()
        self._unread_tokens = 0
        """Of requests that are being tokenised, by estimate."""
        self._queue = RowQueue(limits.pack_tokens, observer.planned)
        self._pool = ThreadPoolExecutor(limits.prepare_threads, "decider-prepare")
        self._crew = Crew(
            brain,
            self._queue,
            self._pace,
            clock,
            pack_tokens=limits.pack_tokens,
            packed=observer.packed,
            finished=self._finished,
            lost=self._lost,
        )
        self._patience = Patience(self._pace, self._queue, lambda: self._crew.running, clock)
        self._live: set[Job] = set()
        self._emptied: asyncio.Event | None = None
        self._is_started = False
        self._is_draining = False
        self._is_stopped = False
        self._admitted = self._answered = self._dropped = self._failed = self._refused = 0

    def start(self) -> None:
        """Start the engines' threads, and those that watch them."""
        self._is_started = True
        self._crew.start()

    async def answer(self, request: Request, *, deadline_s: float | None = None) -> Timed:
        """The answers to `request`, within `deadline_s` from now; None waits as long as it takes.

        Cancelling drops the work wherever it is. Raises InputError's subclasses; OverloadError where there is no room,
        or the deadline passed; EngineError where the engine failed or takes nothing more.
        """
        job = self._begin(request, deadline_s)
        try:
            return await job.future
        finally:
            if not job.done:
                self._settle(job, None, "left")
            elif job.future.done() and not job.future.cancelled():
                # Told and left at the same moment: what was told counts as heard.
                job.future.exception()

    @property
    def health(self) -> Health:
        """Whether to send requests here, at this moment."""
        reason = self._why_not_ready()
        return Health(
            alive=self._crew.is_alive,
            ready=reason is None,
            reason=reason or "",
            fatal=self._crew.end is not None,
            lost=self._crew.ends,
        )

    @property
    def load(self) -> Load:
        """What is in the house, and what has been."""
        engines = self._crew.loads
        return Load(
            requests=self._admission.requests,
            rows=self._admission.rows,
            tokens=self._admission.tokens,
            waiting=len(self._queue),
            running_rows=sum(each.running_rows for each in engines),
            running_tokens=sum(each.running_tokens for each in engines),
            admitted=self._admitted,
            answered=self._answered,
            dropped=self._dropped,
            failed=self._failed,
            refused=self._refused,
            engines=engines,
        )

    async def drain(self, timeout_s: float) -> bool:
        """Take nothing more and wait for what was admitted; whether all of it was settled in time."""
        self._is_draining = True
        self._emptied = asyncio.Event()
        if not self._live:
            return True
        try:
            await asyncio.wait_for(self._emptied.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """End the threads; whoever still waits gets EngineError. A forward that hangs is left behind."""
        self._is_stopped = True
        self._fail("the server was stopped", "stopped", None)
        self._queue.stop()
        if self._is_started:
            self._crew.stop()
            self._crew.join(STOP_S)
        self._pool.shutdown(wait=False, cancel_futures=True)

    # The event loop's thread.

    def _begin(self, request: Request, deadline_s: float | None) -> Job:
        loop = asyncio.get_running_loop()
        now = self._clock()
        job = Job(request, loop, loop.create_future(), now, None if deadline_s is None else now + deadline_s)
        # First in, then the look at the flags: whoever sets one fails all that are in.
        self._live.add(job)
        try:
            self._admit(job)
        except (EngineError, OverloadError):
            self._live.discard(job)
            self._refused += 1
            raise
        if deadline_s is not None:
            job.timer = loop.call_later(PATIENCE * deadline_s, self._look, job)
        self._step(job, partial(self._prepare, job))
        return job

    def _prepare(self, job: Job) -> None:
        prepare = partial(self.brain.prepare, job.request)
        if is_small(job.request):
            self._enqueue(job, prepare())
        else:
            job.pooled = self._in_pool(job, prepare, self._enqueue)

    def _step(self, job: Job, step: Callable[[], None]) -> None:
        """What fails on the way fails for its caller alone."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - it is raised where the caller waits
            kinds = ((InputError, "input"), (OverloadError, "full"), (Exception, "fault"))
            self._settle(job, error, next(reason for kind, reason in kinds if isinstance(error, kind)))

    def _admit(self, job: Job) -> None:
        reason = self._why_not_ready()
        if reason is not None:
            raise EngineError(f"no request is taken now: {reason}; try again, or elsewhere")
        tokens = min(self._estimate.of(job.request), self._limits.max_request_tokens)
        if not self._admission.has_room(NOTHING, Held(1, 0, tokens)):
            raise self._overload("the queue is full")
        self._check_patience(job, tokens)
        job.is_alone = not self._admission.requests
        self._hold(job, Held(1, 0, tokens))
        self._admitted += 1

    def _check_patience(self, job: Job, tokens: int) -> None:
        """Raises OverloadError where a request of `tokens` that comes now would not be through in time."""
        if job.deadline_s is None:
            return
        left_s = job.deadline_s - self._clock()
        others = self._admission.tokens - job.held.tokens
        # What is being read when this one is read comes after it.
        unread = self._unread_tokens if job.held == NOTHING else 0
        if not self._patience.allows(tokens, left_s, others_tokens=others, unread_tokens=unread):
            raise self._overload(f"the queue is longer than the deadline, {max(0.0, left_s):.3g} s from now")

    def _hold(self, job: Job, held: Held) -> None:
        self._admission.change(job.held, held)
        if job.work is None:
            self._unread_tokens += held.tokens - job.held.tokens
        job.held = held

    def _in_pool(self, job: Job, work: Callable[[], Result], then: Callable[[Job, Result], None]) -> Future[Result]:
        if self._is_stopped:
            raise EngineError("the server was stopped")
        future = self._pool.submit(work)

        def done(ended: Future[Result]) -> None:
            if not ended.cancelled():
                _post(job.loop, self._from_pool, job, ended, then)

        future.add_done_callback(done)
        return future

    def _from_pool(self, job: Job, ended: Future[Result], then: Callable[[Job, Result], None]) -> None:
        if not job.done:
            self._step(job, lambda: then(job, ended.result()))

    def _enqueue(self, job: Job, prepared: Prepared) -> None:
        n_rows = len(prepared.rows)
        self._estimate.learn(job.request, prepared.n_tokens)
        self._limits.check(max((len(row.ids) for row in prepared.rows), default=0), n_rows, prepared.n_tokens)
        held = Held(1, n_rows, prepared.n_tokens)
        if not self._admission.has_room(job.held, held):
            raise self._overload("the queue is full")
        self._check_patience(job, prepared.n_tokens)
        self._hold(job, NOTHING)
        job.work = Work(prepared)
        self._hold(job, held)
        job.queued_s = self._clock()
        job.scores = [None] * n_rows
        job.n_unscored = n_rows
        if n_rows:
            self._queue.add(job, job.work)
        else:
            self._read(job)

    def _deliver(self, loop: asyncio.AbstractEventLoop, finished: Finished) -> None:
        for claim, scores in finished.results:
            job = claim.job
            # Rows of a request that left are not read.
            if job.done or job.loop is not loop:
                continue
            if isinstance(scores, EngineError):
                self._settle(job, scores, "fault")
                continue
            if claim.start == 0:
                job.queue_s = max(0.0, finished.began_s - job.queued_s)
                self._observer.queued(job.queue_s)
            job.run_s += finished.run_s
            job.scores[claim.start : claim.stop] = scores
            job.n_unscored -= claim.stop - claim.start
            if not job.n_unscored:
                self._step(job, partial(self._read, job))
        # While the next pack runs, the one after it is chosen.
        self._queue.plan()

    def _read(self, job: Job) -> None:
        assert job.work is not None
        read = partial(job.work.prepared.read, cast("list[RowScores]", job.scores))
        if job.work.n_rows > INLINE_ROWS:
            job.pooled = self._in_pool(job, read, self._answer)
        else:
            self._answer(job, read())

    def _answer(self, job: Job, answers: Answers) -> None:
        assert job.work is not None
        if job.deadline_s is not None and self._clock() > job.deadline_s:
            self._expire(job)
            return
        prepared = job.work.prepared
        timed = Timed(
            answers, job.queued_s - job.began_s, job.queue_s, job.run_s, len(prepared.rows), prepared.n_tokens
        )
        self._settle(job, timed, "")

    def _look(self, job: Job) -> None:
        """Give it up at its deadline, and where it still waits when no pack could be through with it in time."""
        assert job.deadline_s is not None
        left_s = job.deadline_s - self._clock()
        waits = job.work is not None and not self._queue.has_begun(job.work)
        needed_s = self._pace.wait_s(job.held.tokens) if waits else 0.0
        if left_s > needed_s:
            job.timer = job.loop.call_later(left_s - needed_s, self._look, job)
        else:
            self._expire(job)

    def _expire(self, job: Job) -> None:
        in_vain = self._patience.in_vain(job) if job.is_alone else None
        late = self._overload("the deadline passed before the answer was there")
        self._settle(job, in_vain or late, "deadline")

    def _settle(self, job: Job, outcome: Timed | BaseException | None, reason: str) -> None:
        """The one end of every admitted request. None: its caller is gone."""
        assert not job.done, "a request is settled once"
        job.done = True
        self._live.remove(job)
        if job.timer is not None:
            job.timer.cancel()
        if job.pooled is not None:
            job.pooled.cancel()
        if job.work is not None:
            self._queue.drop(job)
        self._hold(job, NOTHING)
        if isinstance(outcome, Timed):
            self._answered += 1
        else:
            self._observer.dropped(reason, 0 if job.work is None else job.work.n_rows)
            if reason in ("left", "deadline"):
                self._dropped += 1
            else:
                self._failed += 1
        if not job.future.done():
            if isinstance(outcome, Timed):
                job.future.set_result(outcome)
            elif outcome is not None:
                job.future.set_exception(outcome)
        if not self._live and self._emptied is not None:
            self._emptied.set()

    def _fail_live(
        self, loop: asyncio.AbstractEventLoop, message: str, reason: str, jobs: Collection[Job] | None
    ) -> None:
        for job in [job for job in self._live if job.loop is loop and (jobs is None or job in jobs)]:
            self._settle(job, EngineError(message), reason)

    # Any thread.

    def _finished(self, finished: Finished) -> None:
        for loop in {claim.job.loop for claim, _ in finished.results}:
            _post(loop, self._deliver, loop, finished)

    def _lost(self, message: str, jobs: Collection[Job] | None) -> None:
        self._fail(message, "fault", jobs)

    def _fail(self, message: str, reason: str, jobs: Collection[Job] | None) -> None:
        """Of all requests in the house those among `jobs`; None: all."""
        for loop in {job.loop for job in self._live.copy()}:
            _post(loop, self._fail_live, loop, message, reason, jobs)

    def _why_not_ready(self) -> str | None:
        if not self._is_started:
            return "the engine was not started"
        if self._is_stopped or self._is_draining:
            return "the server is shutting down"
        return self._crew.why_not_ready()

    def _overload(self, message: str) -> OverloadError:
        retry_s = self._patience.retry_s(self._admission.tokens)
        return OverloadError(f"{message}; try again in {retry_s:.0f} s", retry_after_s=retry_s)
