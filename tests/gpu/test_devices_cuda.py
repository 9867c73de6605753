"""Several engines behind one queue, on one card twice and on two cards: answers as of one engine, work on all, sealed.

Refuses to judge speed. Trap: a kernel that is launched while another card is current reads that one's memory, so every
way of asking is tried from threads of its own, in which card 0 is current.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from answer_numbers import numbers

from decider import Choice, Decider, Noul, Question, Score
from decider.questions.answered import Answers
from decider.questions.request import make_request
from decider.serve.brain import DeciderBrain
from decider.serve.scheduler import QueueLimits, Scheduler

pytestmark = pytest.mark.gpu

TinyFolder = Callable[[str], Path]

TWO_CARDS = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="this machine has no second card")
QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", {"billing": "charges", "technical": None, "sales": None}),
    "severity": Score("How severe?", ["none", "mild", "severe"]),
    "urgent": Noul("Is it urgent?"),
}
STATES = [f"My card was charged twice for order {index}. " * (1 + index % 5) for index in range(80)]
# Of probabilities; executors round differently by the size of a pack.
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.03}
HOW = [("grid", "float32", "llama"), ("packed", "bfloat16", "llama"), ("packed", "bfloat16", "qwen3_5")]


@dataclass(frozen=True, slots=True)
class One:
    """A model on one card, and what it answers to each of `STATES`."""

    folder: Path
    executor: str
    dtype: str
    answers: list[list[float]]

    def check(self, found: Iterable[Answers]) -> None:
        for ours, theirs in zip(found, self.answers, strict=True):
            np.testing.assert_allclose(numbers(ours), theirs, atol=TOLERANCE[self.dtype])


@pytest.fixture(scope="module", params=HOW, ids="-".join)
def one(request: pytest.FixtureRequest, tiny_folder: TinyFolder) -> One:
    executor, dtype, family = request.param
    folder = tiny_folder(family)
    with Decider(folder, device="cuda:0", executor=executor, dtype=dtype) as made:
        return One(folder, executor, dtype, [numbers(each) for each in made.ask_many(STATES, QUESTIONS)])


@pytest.mark.parametrize("devices", ["cuda:0,cuda:0", pytest.param("cuda:0,cuda:1", marks=TWO_CARDS)])
def test_two_engines_answer_as_one(one: One, devices: str) -> None:
    with Decider(one.folder, device=devices, executor=one.executor, dtype=one.dtype) as two:
        before = two.engines
        assert [each.report.device for each in before] == devices.split(",")
        assert all(each.stats.captures > 0 for each in before)

        # In one call, cut into parts.
        one.check(two.ask_many(STATES, QUESTIONS))

        # Each engine by itself, at the same time.
        asked = [two.prepare(make_request(state, QUESTIONS)) for state in STATES]
        found: dict[str, list[Answers]] = {}

        def ask_on(name: str) -> None:
            found[name] = [
                each.read_rows(two.score(each.rows, each.temperatures, engine=name), two.name) for each in asked
            ]

        threads = [threading.Thread(target=ask_on, args=(each.name,)) for each in before]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert [*sorted(found)] == sorted(each.name for each in before)
        for answers in found.values():
            one.check(answers)

        # Behind the scheduler's queue.
        async def all_at_once() -> list[Answers]:
            requests = [make_request(state, QUESTIONS) for state in STATES]
            return [
                timed.answers
                for timed in await asyncio.gather(*(scheduler.answer(each, deadline_s=60) for each in requests))
            ]

        scheduler = Scheduler(DeciderBrain(two), QueueLimits(pack_tokens=256))
        scheduler.start()
        try:
            one.check(asyncio.run(all_at_once()))
            assert all(each.packs > 0 and each.works for each in scheduler.load.engines)
        finally:
            scheduler.stop()

        for now, was in zip(two.engines, before, strict=True):
            ran = now.stats - was.stats
            assert ran.captures == 0
            assert ran.replays > 0
            assert "sealed" in str(now.report)
            assert now.fault is None


@TWO_CARDS
def test_all_cards_have_memory_of_their_own(tiny_folder: TinyFolder) -> None:
    before = [torch.cuda.memory_allocated(index) for index in range(2)]
    with Decider(tiny_folder("llama"), device="cuda:0,cuda:1", executor="grid", dtype="bfloat16") as two:
        added = [torch.cuda.memory_allocated(index) - was for index, was in enumerate(before)]
        assert min(added) > 0.8 * max(added) > 0
        assert len(two.engines) == 2
        assert torch.cuda.current_device() == 0
