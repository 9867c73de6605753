"""What the threads of a crew leave for each other to read, when a step of one falls between two steps of another.

Refuses to race: each test puts the other thread's step where it hurts. Trap: most of the time nothing falls there, so a
test that only runs often proves nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from fake_brain import FakeBrain, fake_scores
from stepped_brain import FakeClock, ask

from decider.serve.brain import RowScores
from decider.serve.crew import Crew
from decider.serve.job import Claim, Job, Pack, Work
from decider.serve.loop import EngineLoop, Finished
from decider.serve.pace import FIRST_PACK_S, Pace
from decider.serve.rowqueue import RowQueue
from decider.tokens.rows import Row

TWO = ("one", "two")


def pack_of(state: str, loop: asyncio.AbstractEventLoop) -> Pack:
    request = ask(state)
    work = Work(FakeBrain().prepare(request))
    job = Job(request, loop, loop.create_future(), 0.0, None, work=work)
    return Pack((Claim(job, work, 0, work.n_rows, work.left_tokens),), work.n_rows, work.left_tokens)


class Packs:
    """A queue that gives these packs, then None as one that was stopped; `taking` is called with the number of each."""

    def __init__(self, *packs: Pack) -> None:
        self.packs = list(packs)
        self.n_given = 0
        self.taking: Callable[[int], None] = lambda _: None

    def take(self, *, wait: bool) -> Pack | None:  # noqa: ARG002
        self.n_given += 1
        self.taking(self.n_given)
        return self.packs.pop(0) if self.packs else None


@dataclass(eq=False)
class Looped:
    """A loop over `Packs`, what it ran and handed over, and what it held where it was over."""

    packs: Packs
    clock: FakeClock = field(default_factory=FakeClock)
    pace: Pace = field(default_factory=lambda: Pace(120))
    scoring: Callable[[], None] = lambda: None
    ran: list[int] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    held: list[set[Job]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loop = EngineLoop(
            self.score,
            cast("RowQueue", self.packs),
            self.pace,
            self.clock,
            pack_tokens=120,
            packed=lambda *_: None,
            finished=self.finished.append,
            over=lambda _: self.held.append(set(self.loop.held)),
        )

    def score(self, rows: Sequence[Row], temperatures: Sequence[Sequence[float]]) -> Sequence[RowScores]:
        self.ran.append(len(rows))
        self.scoring()
        return [fake_scores(row, own) for row, own in zip(rows, temperatures, strict=True)]

    def run(self) -> None:
        self.loop.start()
        self.loop.join(10)
        assert not self.loop.is_alive


@pytest.fixture
def two_packs() -> Iterator[tuple[Pack, Pack]]:
    events = asyncio.new_event_loop()
    yield pack_of("first", events), pack_of("second", events)
    events.close()


def test_a_loop_that_is_given_up_while_it_takes_hands_nothing_over_and_says_what_it_holds(
    two_packs: tuple[Pack, Pack],
) -> None:
    looped = Looped(Packs(*two_packs))
    looped.packs.taking = lambda nth: looped.loop.give_up() if nth == 2 else None
    looped.run()
    # Who gave it up may have looked before it took the second; this tells the rest.
    assert looped.held == [{claim.job for pack in two_packs for claim in pack.claims}]
    assert (looped.ran, looped.finished) == ([1], [])


def test_a_loop_that_was_given_up_in_a_forward_takes_nothing_more(two_packs: tuple[Pack, Pack]) -> None:
    looped = Looped(Packs(*two_packs))
    looped.scoring = looped.loop.give_up
    looped.run()
    assert (looped.packs.n_given, looped.ran, looped.finished) == (1, [1], [])
    assert looped.held == [{claim.job for claim in two_packs[0].claims}]


def test_what_is_learned_of_a_forward_that_hung_is_bounded(two_packs: tuple[Pack, Pack]) -> None:
    looped = Looped(Packs(two_packs[0]))
    limit_s = looped.pace.limit_s(two_packs[0].n_tokens, 1, is_first=True)
    looped.scoring = lambda: setattr(looped.clock, "now", 1000 * limit_s)
    looped.run()
    assert looped.pace.pack_s == pytest.approx(limit_s)


def crew_of(lost: list[tuple[str, Collection[Job] | None]], clock: FakeClock, pace: Pace | None = None) -> Crew:
    return Crew(
        FakeBrain(devices=TWO),
        RowQueue(120),
        pace or Pace(120),
        clock,
        pack_tokens=120,
        packed=lambda *_: None,
        finished=lambda _: None,
        lost=lambda message, jobs: lost.append((message, jobs)),
    )


def test_the_last_end_is_read_as_a_whole() -> None:
    crew = crew_of([], FakeClock())
    found: list[str | None] = []

    class Slow(dict[str, str]):
        """Whoever asks does so when the last engine's end is noted, and that of all is not."""

        def setdefault(self, name: str, reason: str = "") -> str:
            super().setdefault(name, reason)
            asking.start()
            asking.join(0.2)
            return reason

    asking = threading.Thread(target=lambda: found.append(crew.why_not_ready()))
    crew._over("one", "burnt")
    crew._ends = Slow(crew._ends)
    crew._over("two", "gone")
    asking.join(10)
    assert found == ["the engine is down: one: burnt; two: gone"]


def test_how_many_are_left_is_noted_by_one_end_after_the_other() -> None:
    noted: list[bool] = []

    class Noting(Pace):
        """Two ends at once, each with its own count, must not write in the other's order."""

        __slots__ = ()

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "n_engines" and value == 1 and crew is not None:
                noted.append(crew._lock.locked())

    crew: Crew | None = None
    pace = Noting(120)
    crew = crew_of([], FakeClock(), pace)
    crew._over("one", "burnt")
    assert (pace.n_engines, noted) == (1, [True])


def test_where_all_engines_stall_every_request_is_told() -> None:
    lost: list[tuple[str, Collection[Job] | None]] = []
    crew = crew_of(lost, FakeClock())
    crew.start()
    crew._stalled("one", "slow")
    crew._stalled("two", "slow as well")
    assert [jobs for _, jobs in lost] == [frozenset(), None]
    assert crew.why_not_ready() == "slow"
    crew._moves("two")
    assert crew.why_not_ready() is None
    crew.stop()
    crew._loops["one"]._queue.stop()
    crew.join(10)
    assert not crew.is_alive


def test_a_pace_can_be_read_at_any_moment_of_being_written_by_one_at_a_time() -> None:
    limits: list[float] = []

    class Read(Pace):
        """Another engine, which ran before, asks after every step."""

        __slots__ = ()

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if getattr(self, "n_packs", 0):
                assert self._lock.locked(), "two that write at once would lose what one of them learned"
                limits.append(self.limit_s(10, 10))

    pace = Read(120)
    pace.learn(100, 50, 1.0)
    assert limits[0] > FIRST_PACK_S
    assert limits[-1] == pytest.approx(3.0)
