"""Several engines behind one queue: answers as of one, work on all, and the end of one costs what it held alone.

Refuses to wait for real seconds. Trap: which engine takes a pack is a race; a test that needs one of them holds both.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from fake_brain import FakeBrain
from stepped_brain import MIXED, FakeClock, SteppedBrain, alone, ask, is_empty, is_ready, run, scheduling, until_pack

from decider.errors import EngineError, OverloadError
from decider.serve.job import Timed
from decider.serve.metrics import Metrics
from decider.serve.pace import FIRST_PACK_S, MIN_LIMIT_S, Pace
from decider.serve.scheduler import QueueLimits, Scheduler
from decider.serve.stats import Stats

TWO = ("one", "two")
PACKS = QueueLimits(pack_tokens=120)
"""A few rows a pack."""


class AcceleratorError(RuntimeError):
    """Named as torch's."""


@dataclass(eq=False)
class Gate:
    """Before each pack of each device: it is told of, and waits until it is let through."""

    entered: dict[str, threading.Semaphore] = field(
        default_factory=lambda: {name: threading.Semaphore(0) for name in TWO}
    )
    allowed: dict[str, threading.Semaphore] = field(
        default_factory=lambda: {name: threading.Semaphore(0) for name in TWO}
    )
    error: dict[str, BaseException] = field(default_factory=dict)

    def __call__(self, device: str) -> None:
        self.entered[device].release()
        assert self.allowed[device].acquire(timeout=60), "a test left an engine waiting"
        if device in self.error:
            raise self.error[device]

    async def both_run(self) -> None:
        for name in TWO:
            assert await asyncio.to_thread(self.entered[name].acquire, timeout=10), f"no pack came to {name}"

    def open(self, *names: str) -> None:
        for name in names or TWO:
            self.allowed[name].release(10_000)


@contextmanager
def gated() -> Iterator[tuple[FakeBrain, Gate]]:
    gate = Gate()
    try:
        yield FakeBrain(devices=TWO, before=gate), gate
    finally:
        gate.open()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


async def where_only_two_runs(scheduler: Scheduler, gate: Gate) -> list[asyncio.Task[Timed]]:
    """Eight requests, of which the engine two holds its own, and the engine one has answered the others."""
    tasks = [asyncio.create_task(scheduler.answer(ask(f"{index} " * 40))) for index in range(8)]
    await gate.both_run()
    gate.open("one")
    await until(lambda: scheduler.load.waiting == 0 and scheduler.load.running_rows < 2)
    return tasks


def test_answers_are_those_of_one_engine_and_both_work() -> None:
    async def test() -> None:
        brain = FakeBrain(devices=TWO, delay_s=0.002)
        requests = [ask(f"state {index} " * (1 + index % 7), 1 + index % 5) for index in range(150)]
        async with scheduling(brain, PACKS) as scheduler:
            stats = Stats(brain, scheduler, Metrics())
            timed = await asyncio.gather(*(scheduler.answer(request, deadline_s=25) for request in requests))
            assert is_empty(scheduler)
            load = scheduler.load
        assert [each.answers.to_wire() for each in timed] == [alone(request) for request in requests]
        shares = Counter(device for device, _ in brain.ran_on)
        assert min(shares[name] for name in TWO) > len(brain.ran_on) / 4, shares
        # Every row once, and counted where it ran.
        ran = Counter(row.id_bytes for _, rows in brain.ran_on for row in rows)
        assert ran == Counter(row.id_bytes for request in requests for row in brain.prepare(request).rows)
        assert {each.name: each.packs for each in load.engines} == shares
        assert stats.device_counters()["device_packs"] == stats.device_counters()["device_engine_forwards"] == shares
        assert sum(each.rows for each in load.engines) == sum(ran.values())
        assert all(each.works and each.busy_s > 0 for each in load.engines)

    run(test())


def test_one_request_of_many_packs_runs_on_both_at_once() -> None:
    async def test() -> None:
        with gated() as (brain, gate):
            async with scheduling(brain, PACKS) as scheduler:
                request = ask("a state", 40)
                task = asyncio.create_task(scheduler.answer(request))
                # The second engine slept when the rows came; the first wakes it for what it leaves.
                await gate.both_run()
                load = scheduler.load
                assert load.running_tokens == sum(each.running_tokens for each in load.engines)
                assert all(each.running_rows > 0 for each in load.engines)
                gate.open()
                assert (await task).answers.to_wire() == alone(request)

    run(test())


def test_a_device_that_fails_for_good_costs_its_own_pack_and_the_other_goes_on() -> None:
    async def test() -> None:
        with gated() as (brain, gate):
            gate.error["two"] = AcceleratorError("CUDA error: an illegal memory access was encountered")
            async with scheduling(brain, PACKS) as scheduler:
                stats = Stats(brain, scheduler, Metrics())
                tasks = [asyncio.create_task(scheduler.answer(ask(f"{index} " * 40))) for index in range(8)]
                await gate.both_run()
                n_held = sum(each.running_rows for each in scheduler.load.engines if each.name == "two")
                assert (scheduler._pace.n_engines, len(scheduler._crew.running)) == (2, 2)
                gate.open("two")
                await until(lambda: sum(task.done() for task in tasks) == n_held)
                assert scheduler.load.requests == 8 - n_held
                assert (scheduler._pace.n_engines, len(scheduler._crew.running)) == (1, 1)
                gate.open("one")
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
                lost = [each for each in outcomes if isinstance(each, BaseException)]
                assert len(lost) == n_held > 0
                for each in lost:
                    assert isinstance(each, EngineError)
                    assert "two is down: the device failed for good" in str(each)
                assert [each.answers.to_wire() for each in outcomes if not isinstance(each, BaseException)] == [
                    alone(ask(f"{index} " * 40))
                    for index, each in enumerate(outcomes)
                    if not isinstance(each, BaseException)
                ]
                # What comes later goes to the other, and is told nothing.
                assert (await scheduler.answer(MIXED)).answers.to_wire() == alone(MIXED)
                health = scheduler.health
                assert (health.alive, health.ready, health.fatal, [*health.lost]) == (True, True, False, ["two"])
                assert stats.device_gauges()["device_up"] == {"one": 1.0, "two": 0.0}
                assert stats.device_counters()["device_packs"]["two"] == 0
                assert is_empty(scheduler)
                gate.error["one"] = AcceleratorError("CUDA error: unspecified launch failure")
                with pytest.raises(EngineError, match=r"two: .*one: the device failed for good"):
                    await scheduler.answer(ask("last"))
                assert scheduler.health.fatal
                with pytest.raises(EngineError, match="no request is taken now"):
                    await scheduler.answer(ask("later"))

    run(test())


def test_a_request_of_a_hung_device_fails_and_its_scores_that_come_late_are_nobodys() -> None:
    async def test() -> None:
        clock = FakeClock()
        with gated() as (brain, gate):
            async with scheduling(brain, PACKS, clock=clock) as scheduler:
                tasks = await where_only_two_runs(scheduler, gate)
                clock.now = 10_000.0
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
                lost = [each for each in outcomes if isinstance(each, BaseException)]
                assert 0 < len(lost) < 8
                assert all("does not move" in str(each) or "two is down" in str(each) for each in lost)
                await until(lambda: "two" in scheduler.health.lost)
                assert is_ready(scheduler)
                n_before = len(brain.ran_on)
                gate.open("two")
                await until(lambda: len(brain.ran_on) > n_before)
                # It came back, too late: it takes nothing more, and its end is told as it was.
                for _ in range(5):
                    assert (await scheduler.answer(ask("on"))).n_rows == 1
                assert {device for device, _ in brain.ran_on[n_before + 1 :]} == {"one"}
                assert "over its limit" in scheduler.health.lost["two"]
                assert is_empty(scheduler)

    run(test())


def test_a_stalled_device_is_back_when_it_moves() -> None:
    async def test() -> None:
        clock = FakeClock()
        with gated() as (brain, gate):
            async with scheduling(brain, PACKS, clock=clock) as scheduler:
                tasks = await where_only_two_runs(scheduler, gate)
                limit_s = max(each.limit_s for each in scheduler._crew.running if each is not None)
                clock.now = 1.5 * limit_s
                await asyncio.gather(*tasks, return_exceptions=True)
                assert is_ready(scheduler)
                assert [each.works for each in scheduler.load.engines] == [True, False]
                gate.open("two")
                await until(lambda: all(each.works for each in scheduler.load.engines))
                assert not scheduler.health.lost

    run(test())


def test_a_caller_that_leaves_and_a_deadline_drop_waiting_rows_only() -> None:
    async def test() -> None:
        with gated() as (brain, gate):
            async with scheduling(brain, PACKS) as scheduler:
                first = [asyncio.create_task(scheduler.answer(ask(f"{index} " * 40))) for index in range(8)]
                await gate.both_run()
                leaving = asyncio.create_task(scheduler.answer(ask("leaving", 30)))
                late = asyncio.create_task(scheduler.answer(ask("late", 30), deadline_s=0.05))
                await asyncio.sleep(0.01)
                leaving.cancel()
                with pytest.raises(OverloadError, match="deadline"):
                    await late
                gate.open()
                assert all(each.n_rows == 1 for each in await asyncio.gather(*first))
                with pytest.raises(asyncio.CancelledError):
                    await leaving
                assert (await scheduler.answer(MIXED)).answers.to_wire() == alone(MIXED)
                assert is_empty(scheduler)

    run(test())


def test_stop_tells_whoever_waits_and_ends_every_thread() -> None:
    async def test() -> None:
        with gated() as (brain, gate):
            async with scheduling(brain, PACKS) as scheduler:
                tasks = [asyncio.create_task(scheduler.answer(ask(f"{index} " * 40))) for index in range(8)]
                await gate.both_run()
                stopping = asyncio.create_task(asyncio.to_thread(scheduler.stop))
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
                assert all(isinstance(each, EngineError) and "stopped" in str(each) for each in outcomes)
                await until(lambda: scheduler._crew._is_stopped)
                gate.error = dict.fromkeys(TWO, AcceleratorError("CUDA error: unspecified launch failure"))
                gate.open()
                await stopping
                assert not scheduler.health.alive
                # How engines end from now on is no news.
                assert not scheduler.health.fatal
                assert not scheduler.health.lost

    run(test())


def test_a_pack_that_was_handed_over_is_not_in_an_engines_hands() -> None:
    async def test() -> None:
        brain = SteppedBrain()
        async with scheduling(brain, PACKS) as scheduler:
            tasks = [asyncio.create_task(scheduler.answer(ask(f"{index} " * 40))) for index in range(3)]
            await until_pack(brain)
            brain.let_run()
            await until_pack(brain)
            await until(lambda: any(task.done() for task in tasks))
            [loop] = scheduler._crew._loops.values()
            assert len(loop.held) == 1
            assert not any(job.done for job in loop.held)
            brain.let_run(10)
            await asyncio.gather(*tasks)
            await until(lambda: not loop.held)

    run(test())


def test_twice_as_many_engines_make_the_queue_half_as_long() -> None:
    pace = Pace(2048, n_engines=2)
    pace.learn(2048, 100, 1.0)
    assert pace.wait_s(4096) == pytest.approx(1.0)
    assert pace.engine_s(4096) == pytest.approx(2.0)
    # An engine that never ran may compile: the others' pace is no limit for it.
    assert pace.limit_s(64, 64) == pytest.approx(max(MIN_LIMIT_S, 3.0))
    assert pace.limit_s(64, 64, is_first=True) > FIRST_PACK_S


def test_a_newcomer_waits_for_the_engine_that_is_free_first() -> None:
    async def test() -> None:
        clock = FakeClock()
        with gated() as (brain, gate):
            async with scheduling(brain, PACKS, clock=clock) as scheduler:
                scheduler._pace.learn(120, 60, 1.2)
                assert scheduler._patience._running_s() == 0
                tasks = [asyncio.create_task(scheduler.answer(ask(f"{index} " * 40))) for index in range(8)]
                await gate.both_run()
                running = [each for each in scheduler._crew.running if each is not None]
                sizes = [each.n_tokens for each in running]
                # Neither has run before, whatever the pace is.
                assert all(each.limit_s > FIRST_PACK_S for each in running)
                assert len(sizes) == 2
                assert scheduler._patience._running_s() == pytest.approx(min(sizes) / 100)
                gate.open("one")
                await until(lambda: scheduler.load.waiting == 0 and None in scheduler._crew.running)
                assert scheduler._patience._running_s() == 0
                gate.open()
                await asyncio.gather(*tasks)

    run(test())
