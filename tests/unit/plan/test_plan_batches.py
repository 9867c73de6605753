"""Batch plans against a search of all plans. Trap: prices here are whole numbers, so that sums compare exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decider.plan.batches import Batch, plan_batches
from decider.plan.buckets import Grid
from decider.plan.cost import CostModel

GRID = Grid()
SMALL = Grid(lengths=(4, 8, 16), batches=(1, 2, 4), token_budget=48, long_multiple=4)
"""Shapes (1 | 2 | 4, 4 | 8) and (1 | 2, 16); eager at 20 and 24 two rows a chunk, from 28 on one."""

LINEAR = CostModel(5, 1)
DEAR_LAUNCH = CostModel(100, 1)
NOISY = CostModel(3, 2, {(1, 4): 9, (2, 4): 30, (4, 4): 8, (1, 8): 7, (2, 8): 31, (4, 8): 40, (1, 16): 50, (2, 16): 20})
"""Falls with the batch and with the length in places, as no real device does."""


def total(plan: Sequence[Batch], cost: CostModel) -> float:
    return sum(cost.price(batch.width, batch.length) for batch in plan)


def group_price(lengths: Sequence[int], grid: Grid, cost: CostModel) -> float:
    """The cheapest single forward of all these rows; infinite if none holds them."""
    longest = max(lengths)
    if min(lengths) > grid.lengths[-1]:
        padded = grid.pad_len(longest)
        fits = len(lengths) == 1 or len(lengths) * padded <= grid.token_budget
        return cost.price(len(lengths), padded) if fits else float("inf")
    shapes = [(b, t) for b, t in grid.graph_shapes() if b >= len(lengths) and t >= longest]
    return min((cost.price(*shape) for shape in shapes), default=float("inf"))


def least_total(lengths: Sequence[int], grid: Grid, cost: CostModel) -> float:
    """The least total price over every partition of the rows into groups, contiguous or not."""
    n = len(lengths)
    prices = [0.0] * (1 << n)
    least = [0.0] * (1 << n)
    for mask in range(1, 1 << n):
        prices[mask] = group_price([lengths[row] for row in range(n) if mask >> row & 1], grid, cost)
        first = mask & -mask
        others = part = mask ^ first
        least[mask] = prices[mask]
        while part:
            least[mask] = min(least[mask], least[part] + prices[first | (others ^ part)])
            part = (part - 1) & others
    return least[-1]


def naive(lengths: Sequence[int], grid: Grid) -> Iterator[tuple[int, int]]:
    """The plan per length: the smallest captured batch that holds the rows, else the widest until the rest fits."""
    buckets = [grid.pad_len(length) for length in lengths]
    for length in sorted(set(buckets)):
        n_left = buckets.count(length)
        while n_left > 0:
            batches = grid.batches_at(length)
            batch = min((batch for batch in batches if batch >= n_left), default=batches[-1])
            yield batch, length
            n_left -= batch


def seen(plan: Sequence[Batch], lengths: Sequence[int]) -> list[tuple[int, int, bool, list[int]]]:
    return [(batch.length, batch.width, batch.captured, [lengths[row] for row in batch.rows]) for batch in plan]


@pytest.mark.parametrize("cost", [LINEAR, DEAR_LAUNCH, NOISY])
def test_every_small_plan_is_the_cheapest_of_all(cost: CostModel) -> None:
    for n in range(7):
        for lengths in combinations_with_replacement((4, 8, 16), n):
            assert total(plan_batches(lengths, SMALL, cost), cost) == least_total(lengths, SMALL, cost), lengths


@pytest.mark.parametrize("cost", [LINEAR, DEAR_LAUNCH])
def test_every_small_plan_of_long_rows_is_the_cheapest_of_all(cost: CostModel) -> None:
    for n in range(6):
        for lengths in combinations_with_replacement((8, 17, 24, 28, 60), n):
            short = [length for length in lengths if length <= 16]
            long = [length for length in lengths if length > 16]
            least = least_total(short, SMALL, cost) + least_total(long, SMALL, cost)
            assert total(plan_batches(lengths, SMALL, cost), cost) == least, lengths


@st.composite
def noisy_costs(draw: st.DrawFn) -> CostModel:
    shapes = st.dictionaries(st.sampled_from(SMALL.graph_shapes()), st.integers(1, 60))
    return CostModel(draw(st.integers(1, 40)), draw(st.integers(1, 3)), draw(shapes))


@given(lengths=st.lists(st.integers(1, 16), max_size=7), cost=noisy_costs())
@settings(deadline=None)
def test_a_plan_is_the_cheapest_whatever_was_measured(lengths: list[int], cost: CostModel) -> None:
    assert total(plan_batches(lengths, SMALL, cost), cost) == least_total(lengths, SMALL, cost)


ROWS = st.lists(st.integers(1, 12_000) | st.integers(1, 600), max_size=90)
COSTS = st.builds(CostModel, st.integers(1, 3000), st.integers(1, 3))


@given(lengths=ROWS, cost=COSTS)
def test_every_row_runs_once_in_a_forward_that_holds_it(lengths: list[int], cost: CostModel) -> None:
    plan = plan_batches(lengths, GRID, cost)
    assert sorted(row for batch in plan for row in batch.rows) == list(range(len(lengths)))
    captured_shapes = set(GRID.graph_shapes())
    for batch in plan:
        own = [lengths[row] for row in batch.rows]
        assert max(own) <= batch.length
        assert len(own) <= batch.width
        if batch.captured:
            assert (batch.width, batch.length) in captured_shapes
        else:
            assert min(own) > GRID.lengths[-1]
            assert batch.width == len(own)
            assert batch.length == GRID.pad_len(max(own))
            assert batch.width == 1 or batch.width * batch.length <= GRID.token_budget


@given(lengths=st.lists(st.integers(1, 8192) | st.integers(1, 600), max_size=90), cost=COSTS)
def test_a_plan_never_costs_more_than_the_naive_one(lengths: list[int], cost: CostModel) -> None:
    assert total(plan_batches(lengths, GRID, cost), cost) <= sum(cost.price(*shape) for shape in naive(lengths, GRID))


@given(data=st.data(), lengths=ROWS, cost=COSTS)
def test_the_order_of_rows_changes_only_the_indices(data: st.DataObject, lengths: list[int], cost: CostModel) -> None:
    shuffled = data.draw(st.permutations(lengths))
    assert seen(plan_batches(shuffled, GRID, cost), shuffled) == seen(plan_batches(lengths, GRID, cost), lengths)


def test_rows_come_longest_first_and_equal_ones_in_the_order_given() -> None:
    plan = plan_batches([5, 9000, 300, 5, 20_000, 300], GRID, CostModel(1, 1))
    assert [row for batch in plan for row in batch.rows] == [4, 1, 2, 5, 0, 3]


def test_no_rows_need_no_forward() -> None:
    assert plan_batches([], GRID, LINEAR) == ()


def shapes(plan: Sequence[Batch]) -> list[tuple[int, int]]:
    return [(batch.width, batch.length) for batch in plan]


def test_17_rows_are_split_where_that_is_cheaper() -> None:
    rows = [256] * 17
    assert sorted(shapes(plan_batches(rows, GRID, CostModel(4, 0.01)))) == [(1, 256), (16, 256)]
    assert shapes(plan_batches(rows, GRID, CostModel(1000, 0.01))) == [(32, 256)]
    assert shapes(plan_batches(rows, GRID, CostModel(4, 0.01, {(32, 256): 40}))) == [(32, 256)]


def test_more_rows_than_the_widest_batch_run_in_chunks() -> None:
    plan = plan_batches([1000] * 70, GRID, CostModel(10, 0.01))
    assert sorted(shapes(plan)) == [(2, 1024), (4, 1024), (32, 1024), (32, 1024)]


def test_a_short_row_takes_the_free_place_of_a_longer_batch() -> None:
    plan = plan_batches([50, 200, 200, 200], GRID, CostModel(4, 0.01))
    assert plan == (Batch(length=256, width=4, rows=(1, 2, 3, 0), captured=True),)


def test_a_row_is_promoted_to_a_longer_bucket_only_where_that_was_measured_faster() -> None:
    assert shapes(plan_batches([50], GRID, CostModel(4, 0.01))) == [(1, 64)]
    assert shapes(plan_batches([50], GRID, CostModel(4, 0.01, {(1, 128): 2}))) == [(1, 128)]
    assert shapes(plan_batches([50], GRID, CostModel(4, 0.01, {(1, 64): 2, (1, 128): 2}))) == [(1, 64)]


def test_at_equal_cost_the_narrower_forward_goes_first() -> None:
    assert shapes(plan_batches([50], GRID, CostModel(4, 0.01, {(1, 64): 5, (2, 64): 5}))) == [(1, 64)]


def test_mixed_lengths_are_merged_where_a_launch_costs_more_than_padding() -> None:
    rows = [60, 120, 250, 500]
    assert shapes(plan_batches(rows, GRID, CostModel(0.5, 0.01))) == [(1, 512), (1, 256), (1, 128), (1, 64)]
    assert shapes(plan_batches(rows, GRID, CostModel(100, 0.01))) == [(4, 512)]


def test_long_rows_run_eagerly_in_chunks_within_the_token_budget() -> None:
    plan = plan_batches([9000, 100, 9000, 9000, 40_000, 9000], GRID, CostModel(4, 0.01))
    assert plan[0] == Batch(length=40_960, width=1, rows=(4,), captured=False)
    assert sorted(batch.width for batch in plan[1:-1]) == [2, 2]
    assert {batch.length for batch in plan[1:-1]} == {9216}
    assert plan[-1] == Batch(length=128, width=1, rows=(1,), captured=True)


def test_an_eager_chunk_has_no_place_but_its_rows() -> None:
    cheap_when_wide = CostModel(4, 0.01, {(2, 9216): 1})
    assert shapes(plan_batches([9000, 20_000], GRID, cheap_when_wide)) == [(1, 20_480), (1, 9216)]
