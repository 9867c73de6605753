"""The scheduler with a fake engine: answers, turns, and limits.

Refuses to measure speed. Trap: the engine's thread runs beside the test; what must come in an order waits for a step.
"""

from __future__ import annotations

import asyncio
import time

import pytest
from fake_brain import FakeBrain
from stepped_brain import MIXED, Seen, SteppedBrain, alone, ask, is_empty, run, scheduling, until_pack

from decider.errors import ConfigError, OverloadError, QuestionError, TooLargeError
from decider.questions.request import Request, make_request
from decider.questions.types import Choice, Noul, Score
from decider.serve.admission import Admission, Held
from decider.serve.scheduler import QueueLimits
from decider.serve.small import INLINE_CHARACTERS, is_small

LONE = make_request("Any state", {"only": Choice("Which?", ["one"])})


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
