"""An engine that raises, runs out of memory, hangs or ends: callers hear at once, and health tells the truth.

Refuses to wait for real seconds. Trap: limits are judged by the scheduler's clock, which these tests set, while the
watchdog looks every tenth of a real second.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest
from fake_brain import FakeBrain
from stepped_brain import FakeClock, Seen, SteppedBrain, ask, is_empty, is_ready, run, scheduling, until_pack

from decider.errors import EngineError, sticky
from decider.serve.brain import RowScores
from decider.serve.loop import MAX_FAULTS, Running
from decider.serve.pace import FIRST_PACK_S, FIRST_TOKEN_S, MIN_LIMIT_S, Pace
from decider.serve.scheduler import QueueLimits, Scheduler
from decider.serve.watchdog import Watchdog
from decider.tokens.rows import Row


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


def not_finite() -> EngineError:
    error = EngineError("the model returned a non-finite logit among 2 options")
    error.__cause__ = FloatingPointError("not finite")
    return error


def has(rows: Sequence[Row], text: bytes) -> bool:
    return any(text in bytes(each for each in row.ids if each < 256) for row in rows)


class AcceleratorError(RuntimeError):
    """Named as torch's."""


@pytest.mark.parametrize("make", [not_finite, lambda: EngineError("out of memory in a forward")])
def test_one_request_that_cannot_be_run_costs_no_other_its_answers(make: Callable[[], EngineError]) -> None:
    async def test() -> None:
        brain, seen = SteppedBrain(), Seen()
        brain.fault = lambda rows: make() if has(rows, b"poison") else None
        async with scheduling(brain, observer=seen) as scheduler:
            first = asyncio.create_task(scheduler.answer(ask("first")))
            await until_pack(brain)
            tasks = [
                asyncio.create_task(scheduler.answer(ask("poison" if index == 5 else f"good {index}")))
                for index in range(12)
            ]
            await asyncio.sleep(0.01)
            brain.let_run(10_000)
            outcomes = await asyncio.gather(first, *tasks, return_exceptions=True)
            for index, outcome in enumerate(outcomes):
                assert isinstance(outcome, EngineError) == (index == 6), (index, outcome)
            assert scheduler.health.ready
            assert is_empty(scheduler)
        assert len(brain.packs[1]) == 12
        # By halves: far fewer forwards than one a request.
        assert len(brain.packs) <= 2 + 2 * 4
        assert len(seen.packs) == 2

    run(test())


@pytest.mark.parametrize(
    "error", [EngineError("broken"), RuntimeError("broken"), MemoryError("broken"), AssertionError("broken")]
)
def test_a_fault_reaches_every_caller_of_the_pack_and_the_engine_goes_on(error: Exception) -> None:
    async def test() -> None:
        brain = FakeBrain(fault=lambda _rows: error)
        async with scheduling(brain) as scheduler:
            with pytest.raises(EngineError, match="broken") as caught:
                await scheduler.answer(ask("s", 3))
            assert caught.value.status == 503
            brain.fault = None
            assert (await scheduler.answer(ask("s", 3))).n_rows == 3
            assert scheduler.health.ready
            assert is_empty(scheduler)

    run(test())


def test_faults_in_a_row_end_the_loop_for_good() -> None:
    async def test() -> None:
        brain = FakeBrain(fault=lambda _rows: MemoryError("broken"))
        async with scheduling(brain) as scheduler:
            for _ in range(MAX_FAULTS):
                assert scheduler.health.ready
                with pytest.raises(EngineError, match="broken"):
                    await scheduler.answer(ask("s"))
            # The thread says so, and ends a moment later.
            await until(lambda: scheduler.health.fatal and not scheduler.health.alive)
            health = scheduler.health
            assert not health.ready
            assert f"{MAX_FAULTS} packs in a row" in health.reason
            brain.fault = None
            with pytest.raises(EngineError, match="engine is down"):
                await scheduler.answer(ask("s"))
            assert is_empty(scheduler)

    run(test())


def test_a_pack_that_works_forgives_the_faults_before_it() -> None:
    async def test() -> None:
        brain = FakeBrain()
        async with scheduling(brain) as scheduler:
            for index in range(3 * MAX_FAULTS):
                brain.fault = None if index % MAX_FAULTS == 0 else lambda _rows: RuntimeError("broken")
                await asyncio.gather(scheduler.answer(ask("s")), return_exceptions=True)
            assert scheduler.health.ready

    run(test())


def test_a_caller_cannot_end_the_loop_with_text_that_the_model_has_no_number_for() -> None:
    async def test() -> None:
        brain = FakeBrain(fault=lambda _rows: not_finite())
        async with scheduling(brain) as scheduler:
            for _ in range(3 * MAX_FAULTS):
                with pytest.raises(EngineError, match="non-finite"):
                    await scheduler.answer(ask("s"))
            assert scheduler.health.ready
            # Nor with a row over the pack's budget, for which there may be no memory.
            brain.fault = lambda _rows: EngineError("out of memory in a forward")
            for _ in range(3 * MAX_FAULTS):
                with pytest.raises(EngineError, match="memory"):
                    await scheduler.answer(ask("s" * 3000))
            assert scheduler.health.ready

    run(test())


@pytest.mark.parametrize(
    "error",
    [
        AcceleratorError("an illegal memory access was encountered"),
        RuntimeError("CUDA error: unspecified launch failure"),
        SystemExit(1),
        KeyboardInterrupt(),
    ],
)
def test_what_cannot_be_recovered_from_ends_the_loop_at_once_and_fails_everybody(error: BaseException) -> None:
    async def test() -> None:
        brain = SteppedBrain(fault=lambda _rows: error)
        async with scheduling(brain) as scheduler:
            running = asyncio.create_task(scheduler.answer(ask("s")))
            await until_pack(brain)
            large = asyncio.create_task(scheduler.answer(ask("t" * 3000, 40)))
            small = asyncio.create_task(scheduler.answer(ask("u")))
            await until(lambda: scheduler.load.waiting == 2)
            brain.let_run()
            for task in (running, large, small):
                with pytest.raises(EngineError):
                    await task
            assert scheduler.health.fatal
            assert not scheduler.health.ready
            assert is_empty(scheduler)
            with pytest.raises(EngineError, match="engine is down"):
                await scheduler.answer(ask("s"))
        assert len(brain.packs) == 1

    run(test())


def test_a_sticky_fault_is_found_behind_the_errors_that_it_caused() -> None:
    error = EngineError("out of memory in a forward")
    assert sticky(error) is None
    error.__cause__ = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert sticky(error) is not None
    error.__cause__ = MemoryError("out of memory")
    assert sticky(error) is None


def test_an_engine_that_hangs_fails_everybody_at_once_and_is_ready_again_when_it_moves() -> None:
    async def test() -> None:
        clock, brain = FakeClock(), SteppedBrain()
        async with scheduling(brain, clock=clock) as scheduler:
            running = asyncio.create_task(scheduler.answer(ask("s")))
            await until_pack(brain)
            waiting = asyncio.create_task(scheduler.answer(ask("t", 3)))
            await until(lambda: scheduler.load.waiting == 1)
            assert is_ready(scheduler)
            clock.now += 3 * (FIRST_PACK_S + FIRST_TOKEN_S * 2048)
            # Health is judged when it is asked for, the callers at the watchdog's next look.
            assert not is_ready(scheduler)
            for task in (running, waiting):
                with pytest.raises(EngineError, match="does not move"):
                    await asyncio.wait_for(task, 2)
            with pytest.raises(EngineError, match="no request is taken now"):
                await scheduler.answer(ask("u"))
            assert not scheduler.health.fatal
            assert scheduler.health.alive
            assert is_empty(scheduler)
            brain.let_run(100)
            await until(lambda: scheduler.health.ready)
            assert (await scheduler.answer(ask("v", 2))).n_rows == 2
        # What waited was never run.
        assert [len(pack) for pack in brain.packs] == [1, 2]

    run(test())


def test_a_hang_without_end_is_fatal() -> None:
    async def test() -> None:
        clock, brain = FakeClock(), SteppedBrain()
        async with scheduling(brain, clock=clock) as scheduler:
            task = asyncio.create_task(scheduler.answer(ask("s")))
            await until_pack(brain)
            clock.now += 1e6
            with pytest.raises(EngineError):
                await asyncio.wait_for(task, 2)
            await until(lambda: scheduler.health.fatal)

    run(test())


def test_a_thread_that_is_gone_is_noticed() -> None:
    async def test() -> None:
        brain = FakeBrain()
        async with scheduling(brain) as scheduler:
            # As if it had ended without a word.
            scheduler._queue.stop()
            await until(lambda: scheduler.health.fatal)
            assert "gone" in scheduler.health.reason

    run(test())


def test_wrong_numbers_fail_their_caller_alone() -> None:
    class Short(FakeBrain):
        def score(self, rows: Sequence[Row], temperatures: Sequence[Sequence[float]]) -> Sequence[RowScores]:
            scores = super().score(rows, temperatures)
            return [(scores[0][0] * float("nan"),), *scores[1:]] if has(rows[:1], b"poison") else scores

    async def test() -> None:
        async with scheduling(Short()) as scheduler:
            with pytest.raises(AssertionError):
                await scheduler.answer(ask("poison"))
            assert (await scheduler.answer(ask("good"))).n_rows == 1
            assert is_empty(scheduler)

    run(test())


def test_the_watchdog_tells_each_change_once() -> None:
    class Engine:
        is_alive = True
        running: Running | None = None

    clock, engine, told = FakeClock(), Engine(), []
    watchdog = Watchdog(
        engine,  # type: ignore[arg-type]
        clock,
        stalled=lambda _reason: told.append("stalled"),
        moves=lambda: told.append("moves"),
        over=lambda _reason: told.append("over"),
    )
    assert watchdog.check()
    engine.running = Running(1, 10, 0.0, 2.0)
    clock.now = 2.0
    assert watchdog.check()
    assert told == []
    clock.now = 2.1
    assert watchdog.check()
    assert watchdog.check()
    assert told == ["stalled"]
    # The next forward has a limit of its own.
    engine.running = Running(1, 10, 2.05, 2.0)
    assert watchdog.check()
    assert watchdog.check()
    assert told == ["stalled", "moves"]
    clock.now = 30.0
    assert not watchdog.check()
    assert told == ["stalled", "moves", "over"]
    engine.is_alive = False
    assert not watchdog.check()
    assert told[-1] == "over"


def test_a_limit_follows_what_was_measured() -> None:
    pace = Pace(2048)
    assert pace.limit_s(100, 50) == pytest.approx(3 * (FIRST_PACK_S + FIRST_TOKEN_S * 100))
    assert pace.wait_s(10_000) == 0
    pace.learn(1000, 100, 0.5)
    # A pack takes no less than the mean one, and in proportion above it.
    assert pace.predict_s(10, 100) == pytest.approx(0.5)
    assert pace.predict_s(4000, 100) == pytest.approx(2.0)
    # Attention to a longer row.
    assert pace.predict_s(4000, 400) == pytest.approx(8.0)
    assert pace.limit_s(1000, 100) == MIN_LIMIT_S
    assert pace.limit_s(4000, 100) == pytest.approx(6.0)
    assert pace.wait_s(10_000) == pytest.approx(5.0)


def test_waiting_is_judged_by_full_packs_and_a_slower_engine_is_believed_in_time() -> None:
    pace = Pace(2048)
    pace.learn(2000, 100, 0.2)
    for _ in range(100):
        pace.learn(10, 10, 0.05)
    assert pace.wait_s(2000) == pytest.approx(0.2)
    for _ in range(60):
        pace.learn(2000, 100, 0.8)
    assert pace.wait_s(2000) == pytest.approx(0.8, rel=0.02)
    assert pace.predict_s(2000, 100) == pytest.approx(0.8, rel=0.01)


def test_small_packs_tell_of_waiting_until_there_are_full_ones() -> None:
    pace = Pace(2048)
    pace.learn(10, 10, 0.05)
    assert pace.wait_s(100) == pytest.approx(0.5)
    for _ in range(30):
        pace.learn(100, 10, 0.06)
    assert pace.wait_s(100) == pytest.approx(0.06, rel=0.05)


def test_stop_leaves_a_forward_that_hangs_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decider.serve.scheduler.STOP_S", 0.05)

    async def test() -> None:
        brain = FakeBrain(hold=threading.Event())
        scheduler = Scheduler(brain, QueueLimits())
        scheduler.start()
        task = asyncio.create_task(scheduler.answer(ask("s")))
        await until(lambda: bool(brain.packs))
        scheduler.stop()
        with pytest.raises(EngineError, match="stopped"):
            await task
        assert brain.hold is not None
        brain.hold.set()
        await until(lambda: not scheduler.health.alive)
        assert is_empty(scheduler)

    run(test())
