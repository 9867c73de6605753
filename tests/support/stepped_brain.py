"""A fake engine that runs a pack only when a test says so; what scheduler tests send to it, and ask of a scheduler."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fake_brain import FakeBrain, fake_scores

from decider.questions.request import Request, make_request
from decider.questions.types import Choice, Noul, Score
from decider.serve.brain import Brain, RowScores
from decider.serve.scheduler import SILENT, Observer, QueueLimits, Scheduler
from decider.tokens.rows import Row

MIXED = make_request(
    "My card was charged twice for order 4417.",
    {
        "team": Choice("Which team?", {"billing": "charges", "technical": None, "sales": None}),
        "severity": Score("How severe?", ["none", "mild", "severe"]),
        "urgent": Noul("Is it urgent?"),
    },
)


def ask(state: str, n_questions: int = 1) -> Request:
    """A request of so many independent questions, a row each."""
    return make_request(state, {f"q{index}": Noul(f"Is it {index}?") for index in range(n_questions)})


@dataclass(eq=False)
class SteppedBrain(FakeBrain):
    """`score` waits for `let_run`; `wait_for_pack` waits until it is reached."""

    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    allowed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def score(self, rows: Sequence[Row], temperatures: Sequence[Sequence[float]]) -> Sequence[RowScores]:
        self.entered.release()
        assert self.allowed.acquire(timeout=60), "a test left its engine waiting"
        return super().score(rows, temperatures)

    def wait_for_pack(self) -> None:
        assert self.entered.acquire(timeout=10), "no pack came"

    def let_run(self, n_packs: int = 1) -> None:
        self.allowed.release(n_packs)


@dataclass(slots=True)
class FakeClock:
    """A clock that a test sets."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Seen:
    """An observer that keeps what it is told."""

    packs: list[tuple[int, int, float]] = field(default_factory=list)
    plans: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    drops: list[tuple[str, int]] = field(default_factory=list)

    def packed(self, n_rows: int, n_tokens: int, run_s: float) -> None:
        self.packs.append((n_rows, n_tokens, run_s))

    def planned(self, plan_s: float) -> None:
        self.plans.append(plan_s)

    def queued(self, queue_s: float) -> None:
        self.waits.append(queue_s)

    def dropped(self, reason: str, n_rows: int) -> None:
        self.drops.append((reason, n_rows))


@asynccontextmanager
async def scheduling(
    brain: Brain,
    limits: QueueLimits | None = None,
    *,
    observer: Observer = SILENT,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[Scheduler]:
    """A scheduler that runs; stopped at the end."""
    arguments = {} if clock is None else {"clock": clock}
    scheduler = Scheduler(brain, QueueLimits() if limits is None else limits, observer=observer, **arguments)
    scheduler.start()
    try:
        yield scheduler
    finally:
        if isinstance(brain, SteppedBrain):
            brain.let_run(10_000)
        scheduler.stop()


def run(test: Coroutine[object, object, None]) -> None:
    """A test of half a minute at most, on an event loop of its own."""
    asyncio.run(asyncio.wait_for(test, 30))


async def until_pack(brain: SteppedBrain) -> None:
    await asyncio.to_thread(brain.wait_for_pack)


def is_empty(scheduler: Scheduler) -> bool:
    load = scheduler.load
    return (load.requests, load.rows, load.tokens, load.waiting) == (0, 0, 0, 0)


def is_ready(scheduler: Scheduler) -> bool:
    """Of a scheduler whose health changes beside the test: a type checker takes an attribute for settled."""
    return scheduler.health.ready


def alone(request: Request) -> dict[str, object]:
    """The wire answer of a request that is scored by itself."""
    brain = FakeBrain()
    prepared = brain.prepare(request)
    scores = [fake_scores(row, own) for row, own in zip(prepared.rows, prepared.temperatures, strict=True)]
    return prepared.read(scores).to_wire()
