"""A scheduler's life: not started, drained, stopped, and handed from one event loop to the next.

Refuses engines that fail. Trap: the engine's thread outlives the event loop that started it.
"""

from __future__ import annotations

import asyncio

import pytest
from fake_brain import FakeBrain
from stepped_brain import MIXED, SteppedBrain, ask, is_empty, is_ready, run, scheduling, until_pack

from decider.errors import EngineError
from decider.serve.scheduler import QueueLimits, Scheduler, Timed


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
