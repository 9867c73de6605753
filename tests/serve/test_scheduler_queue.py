"""The ring of requests and the pack that is chosen next: costs, turns, newcomers, and those who leave.

Refuses to start a thread. Trap: a pack counts shared starts once, so its tokens are not the sum of its rows.
"""

from __future__ import annotations

import asyncio

import pytest
from fake_brain import FakeBrain, pack_tokens
from hypothesis import given, settings
from hypothesis import strategies as st
from stepped_brain import ask

from decider.serve.job import Job, Pack, Work
from decider.serve.rowqueue import RowQueue

BRAIN = FakeBrain()


def job(state: str, n_questions: int = 1, loop: asyncio.AbstractEventLoop | None = None) -> Job:
    request = ask(state, n_questions)
    # The queue asks nothing of a loop or a future.
    made = Job(request, loop, None, 0.0, None)  # type: ignore[arg-type]
    made.work = Work(BRAIN.prepare(request))
    return made


def add(queue: RowQueue, one: Job) -> None:
    assert one.work is not None
    queue.add(one, one.work)


def take(queue: RowQueue) -> Pack:
    pack = queue.take(wait=False)
    assert pack is not None
    return pack


def jobs(pack: Pack) -> list[Job]:
    return [claim.job for claim in pack.claims]


def test_rows_of_a_request_pay_for_their_state_once_in_each_pack() -> None:
    work = job("s" * 100, 4).work
    assert work is not None
    rows = work.prepared.rows
    assert work.cost(0, 4) == work.prepared.n_tokens == pack_tokens(rows)
    assert work.cost(1, 3) == pack_tokens(rows[1:3])
    assert work.cost(2, 3) == len(rows[2].ids)
    for room in range(work.prepared.n_tokens + 3):
        stop = work.fit(1, room)
        assert stop == 1 or work.cost(1, stop) <= room
        assert stop == 4 or work.cost(1, stop + 1) > room


def test_a_part_is_wasteful_if_it_costs_less_than_twice_the_state_it_makes_run_again() -> None:
    work = job("s" * 200, 20).work
    assert work is not None
    for stop in range(1, 20):
        state = len(work.prepared.rows[stop].ids) - work.prepared.added_tokens[stop]
        assert work.is_wasteful(stop) == (work.cost(0, stop) < 2 * state), stop
    assert [work.is_wasteful(stop) for stop in (1, 19)] == [True, False]
    assert not work.is_wasteful(20)


def test_a_large_request_is_spread_over_packs_within_the_budget() -> None:
    queue = RowQueue(500)
    large = job("s" * 100, 40)
    add(queue, large)
    taken = []
    while (pack := queue.take(wait=False)) is not None:
        assert pack.n_tokens <= 500
        taken += [(claim.start, claim.stop) for claim in pack.claims]
        assert pack.n_rows == sum(stop - start for start, stop in taken[-1:])
    assert taken[0][0] == 0
    assert [stop for _, stop in taken[:-1]] == [start for start, _ in taken[1:]]
    assert taken[-1][1] == 40
    assert len(queue) == 0


def test_a_row_over_the_budget_goes_alone() -> None:
    queue = RowQueue(100)
    long, short = job("s" * 400), job("t")
    add(queue, long)
    add(queue, short)
    assert jobs(take(queue)) == [long]
    assert jobs(take(queue)) == [short]


@pytest.mark.parametrize("planned", [False, True])
def test_a_newcomer_is_in_the_next_pack_although_a_large_request_has_claimed_it_all(planned: bool) -> None:
    queue = RowQueue(2048)
    large, small = job("s" * 300, 1000), job("t" * 50, 3)
    add(queue, large)
    take(queue)
    if planned:
        queue.plan()
    add(queue, small)
    pack = take(queue)
    assert small in jobs(pack)
    assert sum(claim.stop - claim.start for claim in pack.claims if claim.job is small) == 3
    # The large one loses no more than that takes.
    assert pack.n_tokens > 2048 - 100
    assert pack.n_tokens <= 2048


def test_a_newcomer_comes_before_long_rows_of_one_that_was_served_but_puts_it_off_only_once() -> None:
    queue = RowQueue(500)
    large = job("s" * 600, 5)
    add(queue, large)
    assert jobs(take(queue)) == [large]
    queue.plan()
    first, second = job("t" * 40), job("u" * 40)
    add(queue, first)
    assert jobs(take(queue)) == [first]
    queue.plan()
    add(queue, second)
    assert jobs(take(queue)) == [large]
    queue.plan()
    third = job("v" * 40)
    add(queue, third)
    # `second` waited for one pack of the large one, which was served by it and gives way again.
    assert set(jobs(take(queue))) == {second, third}
    queue.plan()
    add(queue, fourth := job("w" * 40))
    assert jobs(take(queue)) == [fourth]


@pytest.mark.parametrize("length", [300, 450, 490, 600])
@pytest.mark.parametrize("planned", [False, True])
def test_a_small_request_does_not_wait_for_the_long_rows_of_several_callers(length: int, planned: bool) -> None:
    """Whether they fit beside each other, leave no room, or are longer than a pack."""
    queue = RowQueue(500)
    long = [job(letter * length) for letter in "abcdefgh"]
    for each in long:
        add(queue, each)
    first = jobs(take(queue))
    if planned:
        queue.plan()
    add(queue, small := job("t" * 40))
    after = [jobs(take(queue)) for _ in range(3)]
    assert small in after[0]
    # Who was put off is next, and nobody is forgotten.
    assert long[len(first)] in after[0] + after[1]
    while (pack := queue.take(wait=False)) is not None:
        after.append(jobs(pack))
    assert {one for pack in (first, *after) for one in pack} == {*long, small}


@pytest.mark.parametrize("planned", [False, True])
def test_a_stream_of_small_requests_puts_a_long_row_off_only_once(planned: bool) -> None:
    queue = RowQueue(500)
    long = [job(letter * 600) for letter in "abc"]
    for each in long:
        add(queue, each)
    order = []
    for _ in range(6):
        if planned:
            queue.plan()
        add(queue, job("t" * 40))
        order.append(any(one in long for one in jobs(take(queue))))
    assert order == [False, True] * 3


def test_a_small_request_that_comes_last_is_put_beside_the_first() -> None:
    queue = RowQueue(2048)
    middle = [job(letter * 950) for letter in "abcd"]
    for each in middle:
        add(queue, each)
    add(queue, small := job("t" * 90))
    assert jobs(take(queue))[0] is middle[0]
    assert len(queue) == 3
    assert small not in queue._ring


def test_requests_share_a_pack_and_the_rest_goes_to_who_can_use_it() -> None:
    queue = RowQueue(1000)
    one, other, small = job("s" * 60, 100), job("t" * 60, 100), job("u" * 60, 1)
    for each in (one, other, small):
        add(queue, each)
    take(queue)
    pack = take(queue)
    shares = {claim.job: claim.tokens for claim in pack.claims}
    assert shares.keys() >= {one, other}
    assert min(shares[one], shares[other]) > 400
    assert pack.n_tokens > 950


@pytest.mark.parametrize("planned", [False, True])
def test_no_part_of_a_request_is_run_that_is_mostly_a_state_to_be_run_again(planned: bool) -> None:
    queue = RowQueue(1100)
    gone = job("x" * 900)
    if not planned:
        add(queue, gone)
    long = [job(letter * 500, 3) for letter in "abc"]
    middle, small = job("d" * 100, 3), job("e")
    for each in (*long, middle, small):
        add(queue, each)
    queue.drop(gone)
    packs = []
    while (pack := queue.take(wait=False)) is not None:
        packs.append(pack)
    assert sorted(claim.stop - claim.start for pack in packs for claim in pack.claims) == [1, 3, 3, 3, 3]
    # The small ones fit in beside the first.
    assert set(jobs(packs[0])) == {long[0], middle, small}
    assert len(packs) == 3


def test_who_leaves_is_struck_from_the_pack_that_was_chosen_and_makes_room() -> None:
    queue = RowQueue(300)
    gone, waiting = job("s" * 200), job("t" * 200)
    add(queue, gone)
    add(queue, waiting)
    assert queue.drop(gone) == 1
    assert queue.drop(gone) == 0
    assert jobs(take(queue)) == [waiting]
    assert queue.take(wait=False) is None


def test_a_running_request_that_leaves_is_dropped_from_its_next_row_on() -> None:
    queue = RowQueue(300)
    large = job("s" * 100, 50)
    add(queue, large)
    pack = take(queue)
    queue.plan()
    assert queue.drop(large) == 50 - pack.n_rows
    assert queue.take(wait=False) is None
    assert len(queue) == 0


def test_ahead_counts_no_more_of_each_than_the_newcomer_would_take() -> None:
    queue = RowQueue(300)
    large, small = job("s" * 100, 500), job("t")
    add(queue, large)
    add(queue, small)
    assert small.work is not None
    assert queue.ahead_tokens(10) == 20
    assert queue.ahead_tokens(1000) == 1000 + small.work.prepared.n_tokens
    # One that has no place in a pack beside them comes after those who fit into one.
    middle = job("s" * 100, 2)
    assert middle.work is not None
    add(queue, middle)
    assert queue.ahead_tokens(100) == 100 + small.work.prepared.n_tokens + middle.work.prepared.n_tokens


def test_planning_is_reported() -> None:
    told: list[float] = []
    queue = RowQueue(300, told.append)
    add(queue, job("s"))
    take(queue)
    assert len(told) == 1
    assert told[0] > 0


def test_after_stop_nothing_is_taken() -> None:
    queue = RowQueue(300)
    add(queue, job("s"))
    queue.stop()
    assert queue.take(wait=True) is None


SIZES = st.tuples(st.integers(1, 400), st.integers(1, 12))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), SIZES), st.tuples(st.sampled_from(["drop", "plan", "take"]), st.integers(0, 9))
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_every_row_runs_once_and_in_order_unless_it_was_dropped(steps: list[tuple[str, object]]) -> None:
    queue = RowQueue(256)
    alive: list[Job] = []
    progress: dict[Job, int] = {}
    waited: dict[Job, int] = {}

    def check(pack: Pack) -> None:
        assert pack.n_tokens == sum(claim.tokens for claim in pack.claims)
        assert pack.n_tokens <= 256 or pack.n_rows == 1
        assert len(set(jobs(pack))) == len(pack.claims)
        for claim in pack.claims:
            assert claim.job in alive
            assert claim.start == progress[claim.job] < claim.stop
            assert claim.tokens == claim.work.cost(claim.start, claim.stop)
            progress[claim.job] = claim.stop
        served = set(jobs(pack))
        for each in [each for each in alive if progress[each] < each.work.n_rows]:  # type: ignore[union-attr]
            waited[each] = 0 if each in served else waited[each] + 1
            # Each pack serves the first of the ring, so nobody waits longer than all before him take.
            assert waited[each] <= 2 * len(alive) + 1

    for name, argument in steps:
        if name == "add":
            assert isinstance(argument, tuple)
            new = job("s" * argument[0], argument[1])
            alive.append(new)
            progress[new] = waited[new] = 0
            add(queue, new)
        elif name == "drop" and alive:
            assert isinstance(argument, int)
            gone = alive.pop(argument % len(alive))
            assert gone.work is not None
            assert queue.drop(gone) == gone.work.n_rows - progress[gone]
        elif name == "plan":
            queue.plan()
        elif name == "take" and (pack := queue.take(wait=False)) is not None:
            check(pack)
    while (pack := queue.take(wait=False)) is not None:
        check(pack)
    assert all(progress[each] == each.work.n_rows for each in alive)  # type: ignore[union-attr]
