"""The scheduler with a fake engine: answers, turns, limits, deadlines, callers who leave, and the way out.

Refuses to measure speed. Trap: the engine's thread runs beside the test; what must come in an order waits for a step.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field

import pytest
from fake_brain import FakeBrain, fake_scores
from stepped_brain import Seen, SteppedBrain, ask, scheduling

from decider.errors import ConfigError, EngineError, OverloadError, QuestionError, TooLargeError
from decider.questions.request import Request, make_request
from decider.questions.types import Choice, Noul, Score
from decider.serve.admission import Admission, Estimate, Held
from decider.serve.brain import Prepared
from decider.serve.patience import PATIENCE
from decider.serve.scheduler import QueueLimits, Scheduler, Timed
from decider.serve.small import INLINE_CHARACTERS, is_small

MIXED = make_request(
    "My card was charged twice for order 4417.",
    {
        "team": Choice("Which team?", {"billing": "charges", "technical": None, "sales": None}),
        "severity": Score("How severe?", ["none", "mild", "severe"]),
        "urgent": Noul("Is it urgent?"),
    },
)
LONE = make_request("Any state", {"only": Choice("Which?", ["one"])})


def run(test: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


async def until_pack(brain: SteppedBrain) -> None:
    await asyncio.to_thread(brain.wait_for_pack)


def is_empty(scheduler: Scheduler) -> bool:
    load = scheduler.load
    return (load.requests, load.rows, load.tokens, load.waiting) == (0, 0, 0, 0)


def is_ready(scheduler: Scheduler) -> bool:
    return scheduler.health.ready


def alone(request: Request) -> dict[str, object]:
    """The wire answer of a request that is scored by itself."""
    brain = FakeBrain()
    prepared = brain.prepare(request)
    scores = [fake_scores(row, own) for row, own in zip(prepared.rows, prepared.temperatures, strict=True)]
    return prepared.read(scores).to_wire()


def test_answers_are_those_of_the_request_alone_whatever_runs_beside_it() -> None:
    async def test() -> None:
        large, pooled = ask("s" * 50, 300), ask("t" * 5000, 3)
        requests = [MIXED, large, pooled, *(ask("u" * n, 1 + n % 7) for n in range(1, 60))]
        async with scheduling(FakeBrain(), QueueLimits(pack_tokens=512)) as scheduler:
            for _ in range(2):
                timed = await asyncio.gather(*map(scheduler.answer, requests))
                for request, one in zip(requests, timed, strict=True):
                    assert one.answers.to_wire() == alone(request)
            assert is_empty(scheduler)
            assert scheduler.load.admitted == scheduler.load.answered == 2 * len(requests)

    run(test())


def test_times_and_counts_come_with_the_answers_and_to_the_observer() -> None:
    async def test() -> None:
        seen = Seen()
        async with scheduling(FakeBrain(delay_s=0.02), observer=seen) as scheduler:
            timed = await scheduler.answer(MIXED)
            assert (timed.n_rows, timed.n_tokens) == (3, FakeBrain().prepare(MIXED).n_tokens)
            assert timed.run_s >= 0.02
            assert timed.prepare_s > 0
            assert seen.waits == [timed.queue_s]
        assert [each[:2] for each in seen.packs] == [(3, timed.n_tokens)]
        assert seen.packs[0][2] >= 0.02
        assert len(seen.plans) == 1
        assert seen.drops == []

    run(test())


def test_a_request_without_rows_needs_no_engine_run() -> None:
    async def test() -> None:
        brain = FakeBrain()
        async with scheduling(brain) as scheduler:
            timed = await scheduler.answer(LONE)
            assert timed.answers.choice("only").choice == "one"
            assert timed.n_rows == 0
            assert is_empty(scheduler)
        assert brain.packs == []

    run(test())


def test_a_small_request_waits_for_no_more_than_one_pack_of_a_large_one() -> None:
    async def test() -> None:
        brain = SteppedBrain()
        async with scheduling(brain) as scheduler:
            large = asyncio.create_task(scheduler.answer(ask("s" * 200, 1000)))
            await until_pack(brain)
            brain.let_run()
            await until_pack(brain)
            # The second pack runs, and the third is all the large one's.
            await asyncio.sleep(0.01)
            small = asyncio.create_task(scheduler.answer(ask("small", 2)))
            await asyncio.sleep(0.01)
            brain.let_run()
            await until_pack(brain)
            assert not small.done()
            brain.let_run()
            timed = await small
            assert timed.n_rows == 2
            assert not large.done()
            n_packs = len(brain.packs)
            assert n_packs <= 4
            brain.let_run(10_000)
            assert (await large).n_rows == 1000

    run(test())


def test_the_engine_is_busy_while_work_is_there() -> None:
    async def test() -> None:
        brain = FakeBrain(delay_s=0.01)
        async with scheduling(brain) as scheduler:
            began = time.monotonic()
            await scheduler.answer(ask("s" * 30, 400))
            took = time.monotonic() - began
        assert len(brain.packs) >= 5
        assert took < 0.01 * len(brain.packs) + 0.5

    run(test())


def test_input_faults_are_the_callers_and_leave_nothing_behind() -> None:
    async def test() -> None:
        unknown = make_request("s", {"q": Noul("?")}, model="other")
        unknown_and_large = make_request("s" * 5000, {"q": Noul("?")}, model="other")
        async with scheduling(FakeBrain()) as scheduler:
            for request in (unknown, unknown_and_large):
                with pytest.raises(QuestionError, match="unknown model"):
                    await scheduler.answer(request, deadline_s=5)
                assert is_empty(scheduler)
            assert scheduler.load.failed == scheduler.load.admitted == 2
            assert (await scheduler.answer(MIXED)).n_rows == 3

    run(test())


@pytest.mark.parametrize(
    ("limits", "request_", "words"),
    [
        (QueueLimits(max_row_tokens=50), ask("s" * 60), "max_row_tokens"),
        (QueueLimits(max_request_tokens=500), ask("s" * 60, 40), "max_request_tokens"),
        (QueueLimits(max_rows=39), ask("s" * 60, 40), "max_queued_rows"),
    ],
)
def test_what_could_never_run_is_too_large(limits: QueueLimits, request_: Request, words: str) -> None:
    async def test() -> None:
        brain = FakeBrain()
        async with scheduling(brain, limits) as scheduler:
            with pytest.raises(TooLargeError, match=words):
                await scheduler.answer(request_)
            assert is_empty(scheduler)
        assert brain.packs == []

    run(test())


@pytest.mark.parametrize(
    ("limits", "n_fitting"),
    [(QueueLimits(max_requests=3), 3), (QueueLimits(max_rows=12), 3), (QueueLimits(max_tokens=800), 3)],
)
def test_a_full_queue_refuses_and_says_when_to_come_again(limits: QueueLimits, n_fitting: int) -> None:
    async def test() -> None:
        brain = SteppedBrain()
        request = ask("s" * 30, 4)
        assert 800 / 4 < brain.prepare(request).n_tokens <= 800 / 3
        async with scheduling(brain, limits) as scheduler:
            waiting = [asyncio.create_task(scheduler.answer(request)) for _ in range(n_fitting)]
            await asyncio.sleep(0.01)
            with pytest.raises(OverloadError, match="queue is full") as caught:
                await scheduler.answer(request)
            assert 1 <= caught.value.retry_after_s <= 30
            assert caught.value.status == 429
            assert scheduler.load.requests == n_fitting
            brain.let_run(100)
            await asyncio.gather(*waiting)
            assert (await scheduler.answer(request)).n_rows == 4
            assert is_empty(scheduler)

    run(test())


def test_a_queue_that_outlasts_the_deadline_is_refused_at_once() -> None:
    async def test() -> None:
        brain = SteppedBrain()
        async with scheduling(brain) as scheduler:
            # A pack of these took a second, as the pace has it.
            scheduler._pace.learn(1000, 500, 1.0)
            waiting = [asyncio.create_task(scheduler.answer(ask("s" * 900, 3))) for _ in range(8)]
            await until_pack(brain)
            while scheduler.load.rows < 24:
                await asyncio.sleep(0.005)
            with pytest.raises(OverloadError, match="longer than the deadline"):
                await scheduler.answer(ask("s" * 900, 3), deadline_s=2.0)
            # One that is small waits for little of each.
            small = asyncio.create_task(scheduler.answer(ask("s"), deadline_s=5.0))
            await asyncio.sleep(0.01)
            brain.let_run(100)
            assert (await small).n_rows == 1
            await asyncio.gather(*waiting)

    run(test())


def test_a_large_request_ahead_does_not_make_the_queue_too_long_for_a_small_one() -> None:
    async def test() -> None:
        brain = SteppedBrain()
        async with scheduling(brain) as scheduler:
            scheduler._pace.learn(1000, 500, 1.0)
            large = asyncio.create_task(scheduler.answer(ask("s" * 100, 1000)))
            await until_pack(brain)
            # The pack that runs takes two seconds, and what it leaves of the large one a minute.
            small = asyncio.create_task(scheduler.answer(ask("s"), deadline_s=4.0))
            await asyncio.sleep(0.01)
            assert not small.done()
            brain.let_run(1000)
            assert (await small).n_rows == 1
            await large

    run(test())


def test_the_queue_is_judged_by_true_tokens_as_soon_as_they_are_known() -> None:
    async def test() -> None:
        brain, seen = SteppedBrain(), Seen()
        async with scheduling(brain, observer=seen) as scheduler:
            scheduler._pace.learn(2048, 500, 2.0)
            request = ask("s" * 900)
            guessed, true = scheduler._estimate.of(request), brain.prepare(request).n_tokens
            assert guessed < true / 2
            waiting = asyncio.create_task(scheduler.answer(request))
            await until_pack(brain)
            # Through after two of them, which by the guess is soon enough.
            deadline_s = 2 * true / 1024 / PATIENCE
            with pytest.raises(OverloadError, match="longer than the deadline"):
                await scheduler.answer(request, deadline_s=0.95 * deadline_s)
            assert seen.drops == [("full", 0)]
            accepted = asyncio.create_task(scheduler.answer(request, deadline_s=1.2 * deadline_s))
            await asyncio.sleep(0.05)
            assert not accepted.done()
            # What was learned from three is believed at the door, before a text is read.
            for _ in range(100):
                scheduler._estimate.learn(request, true)
            with pytest.raises(OverloadError, match="longer than the deadline"):
                await scheduler.answer(request, deadline_s=1.2 * deadline_s)
            assert len(seen.drops) == 1
            brain.let_run(10)
            await asyncio.gather(waiting, accepted)
            assert is_empty(scheduler)

    run(test())


def test_one_request_of_long_questions_does_not_make_all_others_look_large() -> None:
    estimate, request = Estimate(), ask("s" * 400)
    before = estimate.of(request)
    estimate.learn(request, 1_000_000)
    assert estimate.of(request) <= 1.2 * before
    for _ in range(200):
        estimate.learn(request, before // 2)
    assert estimate.of(request) == pytest.approx(before / 2, rel=0.05)


def test_texts_that_are_still_being_read_count_as_waiting() -> None:
    async def test() -> None:
        brain = FakeBrain(prepare_s=0.2)
        async with scheduling(brain, QueueLimits(prepare_threads=1)) as scheduler:
            scheduler._pace.learn(2048, 500, 2.0)
            reading = [asyncio.create_task(scheduler.answer(ask("s" * 8000))) for _ in range(2)]
            await asyncio.sleep(0.05)
            with pytest.raises(OverloadError, match="longer than the deadline"):
                await scheduler.answer(ask("s" * 8000), deadline_s=5.0)
            await asyncio.gather(*reading)
            assert is_empty(scheduler)

    run(test())


def test_alone_a_request_is_let_in_however_slow_the_engine_was() -> None:
    async def test() -> None:
        async with scheduling(FakeBrain()) as scheduler:
            scheduler._pace.learn(100, 50, 1000.0)
            assert (await scheduler.answer(MIXED, deadline_s=1.0)).n_rows == 3

    run(test())


def test_what_no_pack_can_finish_in_time_is_given_up_before_its_deadline() -> None:
    async def test() -> None:
        brain, seen = SteppedBrain(), Seen()
        async with scheduling(brain, observer=seen) as scheduler:
            running = asyncio.create_task(scheduler.answer(ask("r")))
            await until_pack(brain)
            late = asyncio.create_task(scheduler.answer(ask("s"), deadline_s=1.0))
            await asyncio.sleep(0.05)
            began = time.monotonic()
            scheduler._pace.learn(2048, 50, 2048.0)
            with pytest.raises(OverloadError, match="deadline passed"):
                await late
            assert time.monotonic() - began < 0.9
            assert seen.drops == [("deadline", 1)]
            brain.let_run(1)
            await running
            assert is_empty(scheduler)

    run(test())


@pytest.mark.parametrize(("n_packs", "token_s", "kind"), [
    (16, 0.01, TooLargeError), (15, 0.01, OverloadError), (16, 0.0001, OverloadError)
])  # fmt: skip
def test_what_takes_longer_than_its_deadline_alone_is_not_told_to_come_again(
    n_packs: int, token_s: float, kind: type[Exception]
) -> None:
    """Once the pace is settled. It was let in all the same, and measured anew."""

    async def test() -> None:
        brain, seen = SteppedBrain(), Seen()
        async with scheduling(brain, observer=seen) as scheduler:
            for _ in range(n_packs):
                scheduler._pace.learn(2048, 500, 2048 * token_s)
            with pytest.raises(kind, match="deadline") as told:
                await scheduler.answer(ask("s" * 900), deadline_s=0.3)
            assert seen.drops == [("deadline", 1)]
            assert is_empty(scheduler)
            if kind is TooLargeError:
                assert "(deadline_s, x-deadline-ms)" in str(told.value)
            brain.let_run()

    run(test())


def test_who_is_not_alone_is_told_to_come_again() -> None:
    async def test() -> None:
        brain = SteppedBrain()
        async with scheduling(brain) as scheduler:
            for _ in range(20):
                scheduler._pace.learn(2048, 500, 1e-3)
            first = asyncio.create_task(scheduler.answer(ask("s" * 900)))
            await until_pack(brain)
            second = asyncio.create_task(scheduler.answer(ask("s" * 900), deadline_s=0.2))
            await asyncio.sleep(0.01)
            for _ in range(20):
                scheduler._pace.learn(2048, 500, 5000.0)
            with pytest.raises(OverloadError):
                await second
            brain.let_run(2)
            await first

    run(test())


def test_a_request_of_several_packs_is_told_the_time_of_all_of_them() -> None:
    async def test() -> None:
        async with scheduling(FakeBrain(delay_s=0.05), QueueLimits(pack_tokens=300)) as scheduler:
            timed = await scheduler.answer(ask("s" * 100, 12))
            assert timed.run_s > 0.05 * timed.n_tokens / 300

    run(test())


@pytest.mark.parametrize("deadline_s", [0.0, -1.0])
def test_a_deadline_that_passed_before_is_refused(deadline_s: float) -> None:
    async def test() -> None:
        async with scheduling(FakeBrain()) as scheduler:
            with pytest.raises(OverloadError):
                await scheduler.answer(MIXED, deadline_s=deadline_s)
            assert is_empty(scheduler)

    run(test())


def test_a_deadline_drops_the_work_while_it_waits_and_while_it_runs() -> None:
    async def test() -> None:
        brain, seen = SteppedBrain(), Seen()
        async with scheduling(brain, observer=seen) as scheduler:
            running = asyncio.create_task(scheduler.answer(ask("r"), deadline_s=0.05))
            await until_pack(brain)
            waiting = asyncio.create_task(scheduler.answer(ask("w"), deadline_s=0.05))
            staying = asyncio.create_task(scheduler.answer(ask("t"), deadline_s=20))
            for task in (running, waiting):
                with pytest.raises(OverloadError, match="deadline passed"):
                    await task
            assert scheduler.load.requests == 1
            brain.let_run(2)
            assert (await staying).n_rows == 1
            assert is_empty(scheduler)
        # What waited never ran.
        assert [len(pack) for pack in brain.packs] == [1, 1]
        assert seen.drops == [("deadline", 1), ("deadline", 1)]

    run(test())


def test_an_answer_that_comes_after_its_deadline_is_no_answer() -> None:
    async def test() -> None:
        brain = FakeBrain()
        async with scheduling(brain) as scheduler:
            task = asyncio.create_task(scheduler.answer(MIXED, deadline_s=0.02))
            await asyncio.sleep(0)
            # The loop is held up, so that the timer and the answer are both due.
            time.sleep(0.1)
            with pytest.raises(OverloadError, match="deadline passed"):
                await task

    run(test())


@pytest.mark.parametrize("where", ["prepare", "queued", "chosen", "running", "read"])
def test_a_caller_who_leaves_takes_his_work_along(where: str) -> None:
    async def test() -> None:
        brain, seen = SteppedBrain(), Seen()
        hold = threading.Event()
        async with scheduling(brain, QueueLimits(prepare_threads=1, pack_tokens=100), observer=seen) as scheduler:
            blocked = None
            if where in ("queued", "chosen"):
                blocked = asyncio.create_task(scheduler.answer(ask("b" * 60)))
                await until_pack(brain)
                if where == "queued":
                    # Takes all of the next pack.
                    asyncio.create_task(scheduler.answer(ask("c" * 70))).add_done_callback(lambda task: task.result())
            if where == "prepare":
                scheduler._pool.submit(hold.wait)
            if where == "read":
                brain.let_run(100)
                scheduler._pool.submit(hold.wait)
            leaving = ask("l" * (3000 if where == "prepare" else 20), 2)
            if where == "read":
                # Small enough to be prepared on the loop, with too many rows to be read there.
                levels = Score("?", ["a", "b", "c", "d", "e"], isolated=True)
                leaving = make_request("l" * 20, {f"q{index}": levels for index in range(8)})
            task = asyncio.create_task(scheduler.answer(leaving))
            if where == "running":
                await until_pack(brain)
            await asyncio.sleep(0.05)
            assert not task.done()
            before = scheduler.load.requests
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert scheduler.load.requests == before - 1
            hold.set()
            brain.let_run(1000)
            if blocked is not None:
                await blocked
            await asyncio.sleep(0.05)
            assert (await scheduler.answer(ask("after"))).n_rows == 1
            assert is_empty(scheduler)
            load = scheduler.load
            assert load.admitted == load.answered + load.dropped
        rows = [bytes(row.ids) for pack in brain.packs for row in pack]
        ran = any(b"lllll" in row for row in rows)
        assert ran == (where in ("running", "read"))
        assert seen.drops[-1][0] == "left"

    run(test())


@dataclass(eq=False)
class SlowBrain(FakeBrain):
    """Counts what is prepared, which takes until a test says so."""

    n_prepared: int = 0
    may_prepare: threading.Event = field(default_factory=threading.Event)

    def prepare(self, request: Request) -> Prepared:
        self.n_prepared += 1
        assert self.may_prepare.wait(10)
        return super().prepare(request)


def test_who_leaves_while_his_text_is_read_is_not_queued_and_who_waits_for_that_is_not_read() -> None:
    async def test() -> None:
        brain = SlowBrain()
        async with scheduling(brain, QueueLimits(prepare_threads=1)) as scheduler:
            tasks = [asyncio.create_task(scheduler.answer(ask("s" * 3000))) for _ in range(3)]
            while not brain.n_prepared:
                await asyncio.sleep(0.005)
            for task in tasks[:2]:
                task.cancel()
            await asyncio.gather(*tasks[:2], return_exceptions=True)
            assert scheduler.load.requests == 1
            brain.may_prepare.set()
            assert (await tasks[2]).n_rows == 1
            assert brain.n_prepared == 2
            assert is_empty(scheduler)
        assert len(brain.packs) == 1

    run(test())


def test_admission_counts_what_is_held_and_refuses_a_debt() -> None:
    admission = Admission(QueueLimits(max_requests=2, max_rows=10, max_tokens=100))
    nothing = Held(0, 0, 0)
    assert admission.has_room(nothing, Held(1, 10, 1000))
    admission.change(nothing, Held(1, 4, 60))
    assert admission.has_room(nothing, Held(1, 6, 40))
    assert not admission.has_room(nothing, Held(1, 7, 40))
    assert not admission.has_room(nothing, Held(1, 6, 41))
    assert not admission.has_room(nothing, Held(2, 0, 0))
    assert admission.has_room(Held(1, 4, 60), Held(1, 10, 100))
    admission.change(Held(1, 4, 60), nothing)
    with pytest.raises(AssertionError):
        admission.change(Held(1, 0, 0), nothing)


@pytest.mark.parametrize("name", ["max_requests", "pack_tokens", "prepare_threads"])
def test_limits_are_at_least_one(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0"):
        QueueLimits(**{name: 0})


def test_drain_finishes_what_was_admitted_and_takes_nothing_more() -> None:
    async def test() -> None:
        brain = SteppedBrain()
        async with scheduling(brain) as scheduler:
            assert is_ready(scheduler)
            waiting = [asyncio.create_task(scheduler.answer(ask("s", 2))) for _ in range(3)]
            await asyncio.sleep(0.01)
            drained = asyncio.create_task(scheduler.drain(10))
            await asyncio.sleep(0.01)
            assert not is_ready(scheduler)
            assert scheduler.health.alive
            assert not scheduler.health.fatal
            with pytest.raises(EngineError, match="shutting down"):
                await scheduler.answer(MIXED)
            brain.let_run(100)
            assert await drained
            assert all(task.done() for task in waiting)
            assert [(await task).n_rows for task in waiting] == [2, 2, 2]
            assert await scheduler.drain(0.01)

    run(test())


def test_drain_says_when_it_was_not_done_in_time_and_stop_fails_the_rest() -> None:
    async def test() -> None:
        brain = SteppedBrain()
        async with scheduling(brain) as scheduler:
            task = asyncio.create_task(scheduler.answer(MIXED))
            await until_pack(brain)
            assert not await scheduler.drain(0.05)
            brain.let_run()
            scheduler.stop()
            outcome = (await asyncio.gather(task, return_exceptions=True))[0]
            assert isinstance(outcome, (Timed, EngineError))
            assert is_empty(scheduler)
            assert not scheduler.health.alive
            assert not scheduler.health.fatal

    run(test())


def test_a_scheduler_that_was_not_started_says_so() -> None:
    async def test() -> None:
        scheduler = Scheduler(FakeBrain(), QueueLimits())
        assert not scheduler.health.ready
        with pytest.raises(EngineError, match="not started"):
            await scheduler.answer(MIXED)
        assert is_empty(scheduler)
        scheduler.stop()

    run(test())


def test_one_scheduler_serves_one_event_loop_after_the_other() -> None:
    brain = FakeBrain()
    scheduler = Scheduler(brain, QueueLimits())
    scheduler.start()
    try:
        first = asyncio.run(scheduler.answer(MIXED))
        second = asyncio.run(scheduler.answer(MIXED))
    finally:
        scheduler.stop()
    assert first.answers.to_wire() == second.answers.to_wire()


def test_a_loop_that_was_closed_does_not_stop_the_engine() -> None:
    brain = SteppedBrain()
    scheduler = Scheduler(brain, QueueLimits())
    scheduler.start()

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(scheduler.answer(MIXED), 0.05)

    try:
        asyncio.run(leave())
        brain.let_run(100)
        assert asyncio.run(scheduler.answer(MIXED)).n_rows == 3
        assert is_empty(scheduler)
    finally:
        scheduler.stop()


def test_only_short_text_is_prepared_on_the_loop() -> None:
    assert is_small(MIXED)
    assert is_small(ask("s" * 400))
    assert not is_small(ask("s" * (INLINE_CHARACTERS + 1)))
    assert not is_small(ask("s", 9))
    assert not is_small(make_request("s", {"q": Noul("long" * 150)}))
    assert not is_small(make_request("s", {"q": Choice("?", {"a": "long" * 150, "b": None})}))
    assert not is_small(make_request("s", {"q": Score("?", ["long" * 150, "b"])}))
    assert not is_small(make_request("s", {"q": Choice("?", {"a": {"deep": "json"}, "b": None})}))
    assert not is_small(make_request("s", {"q": Noul({"json": "text"})}))
