"""The gate and the chunks of shared prefixes. Trap: at equal tokens, launches and the fork decide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.plan.cost import CostModel
from decider.plan.sharing import MARGIN, PrefixCost, pays, shared_ms, suffix_chunks, worth_sharing

# A card with graphs: a replay has next to no launch price, eager forwards have a large one.
CARD = PrefixCost(
    full=CostModel(1.0, 0.015),
    prefix=CostModel(30.0, 0.015),
    suffix=CostModel(40.0, 0.015),
    fork=CostModel(0.2, 0.0005),
)
# A processor: launches are small beside tokens.
PROCESSOR = PrefixCost(
    full=CostModel(10.0, 1.5), prefix=CostModel(10.0, 1.5), suffix=CostModel(10.0, 1.5), fork=CostModel(1.0, 0.02)
)
prices = st.floats(1e-6, 1e3)
costs = st.builds(
    PrefixCost, **{name: st.builds(CostModel, prices, prices) for name in ("full", "prefix", "suffix", "fork")}
)
counts = st.integers(1, 5000)


def test_a_shared_call_costs_a_prefix_forks_forwards_and_suffixes() -> None:
    assert shared_ms(300, 200, 5, CARD, n_forwards=2) == pytest.approx(34.5 + 5 * 0.35 + 80.0 + 3.0)


def test_a_short_prefix_is_not_shared_where_launches_decide() -> None:
    assert not worth_sharing(300, 5 * 40, 5, CARD)
    assert worth_sharing(6000, 16 * 40, 16, CARD)


def test_a_processor_shares_even_a_short_prefix() -> None:
    assert worth_sharing(300, 5 * 40, 5, PROCESSOR)
    assert not worth_sharing(2, 2 * 40, 2, PROCESSOR)


def test_further_forwards_can_turn_the_answer() -> None:
    assert worth_sharing(1500, 16 * 40, 16, CARD, n_forwards=1)
    assert not worth_sharing(1500, 16 * 40, 16, CARD, n_forwards=16)


def test_the_price_of_the_full_rows_own_plan_wins() -> None:
    price = MARGIN * shared_ms(300, 200, 5, CARD, n_forwards=1)
    assert worth_sharing(300, 200, 5, CARD, full_ms=price * 1.001)
    assert not worth_sharing(300, 200, 5, CARD, full_ms=price)
    assert not worth_sharing(6000, 640, 16, CARD, full_ms=1.0)


def test_a_gain_of_less_than_a_tenth_is_no_promise() -> None:
    assert not pays(100.0, 109.0)
    assert pays(100.0, 111.0)
    price = shared_ms(300, 200, 5, CARD, n_forwards=1)
    assert not worth_sharing(300, 200, 5, CARD, full_ms=1.09 * price)


@given(counts, counts, counts, costs)
def test_sharing_is_never_chosen_where_full_rows_are_promised_faster(
    prefix: int, suffix: int, n_rows: int, cost: PrefixCost
) -> None:
    padded = n_rows * suffix
    full_ms = cost.full.launch_ms + (n_rows * prefix + padded) * cost.full.token_ms
    if worth_sharing(prefix, padded, n_rows, cost):
        assert shared_ms(prefix, padded, n_rows, cost, n_forwards=1) < full_ms


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 200), st.integers(1, 9))
def test_chunks_hold_every_row_once_within_both_bounds(lengths: list[int], max_tokens: int, max_rows: int) -> None:
    chunks = suffix_chunks(lengths, max_tokens=max_tokens, max_rows=max_rows)
    assert sorted(index for chunk in chunks for index in chunk) == list(range(len(lengths)))
    for chunk in chunks:
        assert 1 <= len(chunk) <= max_rows
        assert lengths[chunk[0]] == max(lengths[index] for index in chunk)
        assert len(chunk) == 1 or len(chunk) * lengths[chunk[0]] <= max_tokens


def test_chunks_are_as_wide_as_the_bounds_allow() -> None:
    assert suffix_chunks([5, 9, 5, 5, 5], max_tokens=18, max_rows=3) == ((1, 0), (2, 3, 4))
    assert suffix_chunks([30, 2], max_tokens=18, max_rows=3) == ((0,), (1,))
    assert suffix_chunks([], max_tokens=18, max_rows=3) == ()


def test_counts_that_contradict_each_other_are_our_bug() -> None:
    with pytest.raises(AssertionError):
        worth_sharing(10, 1, 2, CARD)
    with pytest.raises(AssertionError):
        worth_sharing(0, 5, 2, CARD)
    with pytest.raises(AssertionError):
        suffix_chunks([1], max_tokens=1, max_rows=0)
