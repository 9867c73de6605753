"""The scheduler with a fake engine: deadlines, what is refused for them at the door, and callers who leave.

Refuses to measure speed. Trap: a pace that a test sets is unlearned by the packs that run after it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field

import pytest
from fake_brain import FakeBrain
from stepped_brain import MIXED, Seen, SteppedBrain, ask, is_empty, run, scheduling, until_pack

from decider.errors import OverloadError, TooLargeError
from decider.questions.request import Request, make_request
from decider.questions.types import Score
from decider.serve.admission import Estimate
from decider.serve.brain import Prepared
from decider.serve.patience import PATIENCE
from decider.serve.scheduler import QueueLimits


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
