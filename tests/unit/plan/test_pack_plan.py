"""Plans of packs: nothing lost, bounds held, the rule kept. Trap: whole prices, as their sums are exact."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_rows import n_tokens, partitions, read_back, row, ticks

from decider.errors import ConfigError
from decider.plan.pack import Pack, Span
from decider.plan.packs import LADDER, PackCost, PackLimits, plan_packs
from decider.plan.trunks import find_groups
from decider.tokens.rows import Row

SMALL = PackLimits(max_tokens=16, max_sequences=5, max_slots=6, ladder=(4, 8, 12, 16))
EXACT = PackLimits(max_tokens=16, max_sequences=5, max_slots=6)
WIDE = PackLimits(max_tokens=10_000, max_sequences=10_000, max_slots=10_000)
LINE = PackCost({4: 7, 8: 11, 12: 15, 16: 19})
"""3 a pack and 1 a token."""


def limits_of(*ladder: int) -> PackLimits:
    return PackLimits(max_tokens=ladder[-1], max_sequences=99, max_slots=99, ladder=ladder)


all_limits = st.builds(
    lambda ladder, exact, sequences, slots: PackLimits(
        max(ladder), sequences, slots, () if exact else tuple(sorted(ladder))
    ),
    st.sets(st.integers(1, 40), min_size=1, max_size=5),
    st.booleans(),
    st.integers(1, 9),
    st.integers(1, 9),
)
costs = st.none() | st.builds(PackCost, st.dictionaries(st.integers(1, 40), st.integers(1, 30), min_size=1, max_size=6))


def fits(one: Row, limits: PackLimits) -> bool:
    return len(one.ids) <= limits.max_tokens and len(one.slots) <= limits.max_slots


@settings(deadline=None)
@given(rows=ticks, limits=all_limits, cost=costs)
def test_every_row_is_in_one_pack_as_it_was(rows: list[Row], limits: PackLimits, cost: PackCost | None) -> None:
    found: dict[int, Row] = {}
    for pack in plan_packs(rows, limits, cost):
        back = read_back(pack, rows)
        assert not back.keys() & found.keys()
        found |= back
    assert found == dict(enumerate(rows))


@settings(deadline=None)
@given(rows=ticks, limits=all_limits, cost=costs)
def test_bounds_hold_and_only_a_row_beyond_them_is_oversize(
    rows: list[Row], limits: PackLimits, cost: PackCost | None
) -> None:
    for pack in plan_packs(rows, limits, cost):
        own = [rows[index] for index in pack.rows]
        assert pack.n_real_spans <= limits.max_sequences
        assert pack.oversize == (not all(fits(one, limits) for one in own))
        if not pack.oversize:
            assert pack.n_tokens == limits.padded(pack.n_real_tokens) <= limits.max_tokens
            assert len(pack.slots) <= limits.max_slots
            continue
        assert pack.n_tokens == pack.n_real_tokens
        assert pack.n_trunks == 1
        if pack.n_branches:
            assert pack.n_real_tokens - pack.spans[0].length <= limits.max_tokens
            assert len(pack.slots) <= limits.max_slots


@settings(deadline=None)
@given(rows=ticks, limits=all_limits, cost=costs)
def test_rows_of_a_trunk_are_parted_only_where_a_pack_cannot_hold_them(
    rows: list[Row], limits: PackLimits, cost: PackCost | None
) -> None:
    pack_of = {index: pack for pack in plan_packs(rows, limits, cost) for index in pack.rows}
    for group in find_groups(rows):
        n_spans = len(group.rows) + (group.trunk_tokens > 0)
        n_slots = sum(len(rows[index].slots) for index in group.rows)
        packs = {id(pack_of[index]) for index in group.rows}
        if (
            n_tokens(group, rows) <= limits.max_tokens
            and n_spans <= limits.max_sequences
            and n_slots <= limits.max_slots
        ):
            assert len(packs) == 1


@settings(deadline=None)
@given(rows=ticks, limits=all_limits, cost=costs)
def test_sharing_never_adds_tokens(rows: list[Row], limits: PackLimits, cost: PackCost | None) -> None:
    packs = plan_packs(rows, limits, cost)
    assert sum(pack.n_real_tokens for pack in packs) <= sum(len(one.ids) for one in rows)
    for pack in packs:
        parents = [span.parent for span in pack.spans]
        assert all(parents.count(trunk) != 1 for trunk in range(pack.n_trunks))


def shapes(packs: Sequence[Pack]) -> list[tuple[int, bool, list[tuple[int, tuple[int, ...]]]]]:
    """What a device sees of packs, without their order: lengths of trunks and of their branches."""
    seen = []
    for pack in packs:
        trees = []
        for trunk in range(pack.n_trunks):
            branches = sorted(span.length for span in pack.spans if span.parent == trunk)
            trees.append((pack.spans[trunk].length, tuple(branches)))
        seen.append((pack.n_tokens, pack.oversize, sorted(trees)))
    return sorted(seen)


def sizes(packs: Sequence[Pack]) -> list[tuple[int, bool, int, int, int, int]]:
    """What packs take of a device. Trees that take the same room may change places."""
    return sorted(
        (pack.n_tokens, pack.oversize, pack.n_real_tokens, pack.n_trunks, pack.n_branches, len(pack.slots))
        for pack in packs
    )


@settings(deadline=None)
@given(rows=ticks, data=st.data(), limits=all_limits, cost=costs)
def test_the_order_of_rows_changes_only_the_order(
    rows: list[Row], data: st.DataObject, limits: PackLimits, cost: PackCost | None
) -> None:
    shuffled = data.draw(st.permutations(rows))
    assert sizes(plan_packs(shuffled, limits, cost)) == sizes(plan_packs(rows, limits, cost))


def test_no_order_of_rows_changes_the_packs() -> None:
    rows = [ask(1), ask(2, 2), ask(3, state=STATE[:5]), ask(4, 4, state=STATE[:5]), alone(5), alone(5)]
    for limits in (EXACT, SMALL, limits_of(8, 24)):
        expected = sizes(plan_packs(rows, limits, LINE))
        assert all(sizes(plan_packs(order, limits, LINE)) == expected for order in permutations(rows))


def test_questions_first_are_read_once_for_all_states() -> None:
    questions = (tuple(range(200, 300)), tuple(range(300, 400)))
    rows = [ask(n, state=question) for n in range(16) for question in questions]
    (pack,) = plan_packs(rows, WIDE)
    assert pack.n_tokens == 2 * (100 + 16)
    assert read_back(pack, rows) == dict(enumerate(rows))


def test_no_rows_need_no_pack() -> None:
    assert plan_packs([], SMALL, LINE) == ()
    assert plan_packs([], EXACT) == ()


STATE = tuple(range(100, 108))


def ask(*question: int, state: tuple[int, ...] = STATE) -> Row:
    return row(*state, *question, prefix=len(state))


def test_requests_share_a_pack_and_a_trunk_runs_once() -> None:
    (pack,) = plan_packs([ask(1), ask(2, 3), row(5, 6, prefix=1)], SMALL, LINE)
    assert pack.spans == (Span(0, 8, None), Span(8, 2, None), Span(10, 1, 0), Span(11, 2, 0), Span(13, 3, None))
    assert pack.rows == (2, 0, 1)


def test_without_a_ladder_a_pack_has_its_exact_length() -> None:
    (pack,) = plan_packs([ask(1), ask(2, 3), row(5, 6, prefix=1)], EXACT)
    assert pack.n_tokens == pack.n_real_tokens == 13


def test_groups_of_a_pack_come_in_the_order_of_their_rows() -> None:
    (pack,) = plan_packs([alone(2), alone(5), alone(3)], SMALL)
    assert pack.rows == (0, 1, 2)


def test_a_request_over_the_budget_is_split_by_branches_and_keeps_its_trunk() -> None:
    rows = [ask(1), ask(2, 2, 2), ask(3, 3, 3), ask(4, 4), ask(5, 5), ask(6)]
    packs = plan_packs(rows, EXACT)
    assert shapes(packs) == [(12, False, [(8, (1, 1, 2))]), (16, False, [(8, (2, 3, 3))])]
    assert sorted(pack.rows for pack in packs) == [(0, 4, 5), (1, 2, 3)]


def test_one_branch_left_over_is_a_full_row() -> None:
    packs = plan_packs([ask(*[1] * 4), ask(*[2] * 4), ask(*[3] * 4)], EXACT)
    assert shapes(packs) == [(12, False, [(12, ())]), (16, False, [(8, (4, 4))])]


def test_branches_are_split_by_the_slots_and_sequences_of_a_pack() -> None:
    rows = [row(*STATE, 1, 1, prefix=8, n_slots=2)] * 3
    assert shapes(plan_packs(rows, PackLimits(99, 9, 4))) == [(10, False, [(10, ())]), (12, False, [(8, (2, 2))])]
    assert shapes(plan_packs(rows, PackLimits(99, 3, 9))) == [(10, False, [(10, ())]), (12, False, [(8, (2, 2))])]
    assert shapes(plan_packs(rows, PackLimits(99, 2, 9))) == [
        (10, False, [(10, ())]),
        (20, False, [(10, ()), (10, ())]),
    ]


def test_a_row_over_the_ladder_runs_alone_at_its_exact_length() -> None:
    packs = plan_packs([row(*range(17), prefix=0), row(1, prefix=0), row(2, prefix=0)], SMALL, LINE)
    assert shapes(packs) == [(4, False, [(1, ()), (1, ())]), (17, True, [(17, ())])]


def test_a_trunk_over_the_ladder_runs_once_for_its_branches() -> None:
    long = tuple(range(100, 120))
    rows = [ask(n, n, n, n, n, n, state=long) for n in range(4)] + [row(1, prefix=0)]
    packs = plan_packs(rows, SMALL, LINE)
    assert shapes(packs) == [(4, False, [(1, ())]), (32, True, [(20, (6, 6))]), (32, True, [(20, (6, 6))])]


def test_a_shorter_row_of_an_oversize_trunk_keeps_to_the_ladder() -> None:
    rows = [row(1, *[2] * 20, prefix=1), row(1, *[3] * 5, prefix=1), row(1, *[4] * 5, prefix=1)]
    assert shapes(plan_packs(rows, SMALL, LINE)) == [(12, False, [(1, (5, 5))]), (21, True, [(21, ())])]


def test_a_row_of_too_many_slots_runs_alone() -> None:
    packs = plan_packs([row(1, 2, 3, prefix=0, n_slots=3), row(4, prefix=0)], PackLimits(16, 9, 2, (8, 16)), None)
    assert shapes(packs) == [(3, True, [(3, ())]), (8, False, [(1, ())])]


def alone(length: int) -> Row:
    return row(*range(length), prefix=0)


def test_a_pack_is_cut_where_two_buckets_cost_less_than_one() -> None:
    rows = [alone(8), alone(2)]
    steep = PackCost({4: 2, 8: 10, 12: 30, 16: 31})
    assert shapes(plan_packs(rows, limits_of(4, 8, 12, 16), steep)) == [(4, False, [(2, ())]), (8, False, [(8, ())])]
    assert shapes(plan_packs(rows, limits_of(4, 8, 12, 16), LINE)) == [(12, False, [(2, ()), (8, ())])]
    assert shapes(plan_packs(rows, limits_of(4, 8, 12, 16))) == [(12, False, [(2, ()), (8, ())])]


def test_a_pack_is_not_cut_for_nothing() -> None:
    even = PackCost({8: 10, 16: 20})
    assert shapes(plan_packs([alone(8), alone(8)], limits_of(8, 16), even)) == [(16, False, [(8, ()), (8, ())])]


@pytest.mark.parametrize("trees_first", [True, False])
def test_of_parts_with_equal_tokens_those_of_more_spans_and_slots_go_first(trees_first: bool) -> None:
    trees = [row(start, *range(7), n, prefix=8) for start in (50, 60) for n in (8, 9)]
    full = [alone(10), alone(10)]
    rows = [*trees, *full] if trees_first else [*full, *trees]
    tree, single = (8, (1, 1)), (10, ())
    assert shapes(plan_packs(rows, PackLimits(20, 4, 9))) == [(20, False, [tree, single])] * 2
    many, few = row(*range(10), prefix=0, n_slots=3), alone(10)
    rows = [many, many, few, few] if trees_first else [few, few, many, many]
    assert [len(pack.slots) for pack in plan_packs(rows, PackLimits(20, 9, 4))] == [4, 4]


def test_a_pack_may_be_cut_into_very_many() -> None:
    rows = [row(number, 3, prefix=0) for number in range(1200)]
    packs = plan_packs(rows, WIDE, PackCost({2: 1, 4: 2.001, 6: 3.1, 10_000: 5010}))
    assert [pack.rows for pack in packs] == [(number,) for number in range(1200)]


def price(packs: Sequence[Pack], cost: PackCost) -> float:
    return sum(cost.price(pack.n_tokens) for pack in packs)


def least_cut(lengths: Sequence[int], limits: PackLimits, cost: PackCost) -> float:
    """The least price over every way to cut a pack into runs, by halves that each save."""
    whole = cost.price(limits.padded(sum(lengths)))
    halves = [
        cost.price(limits.padded(sum(lengths[:cut]))) + cost.price(limits.padded(sum(lengths[cut:])))
        for cut in range(1, len(lengths))
    ]
    if not halves or min(halves) >= whole:
        return whole
    cut = halves.index(min(halves)) + 1
    return least_cut(lengths[:cut], limits, cost) + least_cut(lengths[cut:], limits, cost)


int_costs = st.builds(PackCost, st.fixed_dictionaries({size: st.integers(1, 60) for size in (8, 16, 24, 32)}))


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 10), min_size=1, max_size=8), cost=int_costs)
def test_a_pack_costs_no_more_than_its_halves(lengths: list[int], cost: PackCost) -> None:
    limits = limits_of(8, 16, 24, 32)
    rows = list(map(alone, lengths))
    packs = plan_packs(rows, limits, cost)
    uncut = plan_packs(rows, limits)
    assert price(packs, cost) <= price(uncut, cost)
    falling = [sorted((len(rows[index].ids) for index in pack.rows), reverse=True) for pack in uncut]
    assert price(packs, cost) == sum(least_cut(own, limits, cost) for own in falling)
    for pack in packs:
        own = sorted((len(rows[index].ids) for index in pack.rows), reverse=True)
        assert least_cut(own, limits, cost) == cost.price(pack.n_tokens)


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 16), min_size=1, max_size=6))
def test_packs_are_few(lengths: list[int]) -> None:
    """First-fit decreasing needs at most 11/9 of the fewest bins and 6/9 (Dósa 2007)."""
    fewest = min(len(parts) for parts in partitions(lengths) if all(sum(part) <= 16 for part in parts))
    n_packs = len(plan_packs(list(map(alone, lengths)), limits_of(16)))
    assert 9 * n_packs <= 11 * fewest + 6


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 16), min_size=1, max_size=6), launch=st.integers(0, 12))
def test_a_plan_is_near_the_cheapest_of_all(lengths: list[int], launch: int) -> None:
    limits = limits_of(4, 8, 12, 16)
    cost = PackCost({size: launch + size for size in limits.ladder})
    ways = (
        sum(cost.price(limits.padded(sum(part))) for part in parts)
        for parts in partitions(lengths)
        if all(sum(part) <= 16 for part in parts)
    )
    assert price(plan_packs(list(map(alone, lengths)), limits, cost), cost) <= 1.25 * min(ways)


def test_a_price_is_on_a_line_between_measured_sizes() -> None:
    cost = PackCost({10: 4.0, 20: 6.0, 40: 16.0})
    assert [cost.price(n) for n in (1, 10, 15, 20, 30, 40, 80)] == [4.0, 4.0, 5.0, 6.0, 11.0, 16.0, 32.0]


def test_prices_never_fall_and_a_size_slower_than_the_next_is_not_worth_capturing() -> None:
    cost = PackCost({64: 3.0, 128: 5.0, 192: 4.0, 256: 4.0, 320: 6.0})
    assert [cost.price(n) for n in (64, 128, 160, 192, 256, 320)] == [3.0, 4.0, 4.0, 4.0, 4.0, 6.0]
    assert cost.worth_capturing() == (64, 256, 320)


@settings(deadline=None)
@given(measured=st.dictionaries(st.integers(1, 99), st.integers(1, 99), min_size=1), n=st.integers(1, 150))
def test_prices_rise_and_worthless_sizes_change_none(measured: dict[int, int], n: int) -> None:
    cost = PackCost(measured)
    assert cost.price(n) <= cost.price(n + 1)
    assert all(cost.price(size) <= taken for size, taken in measured.items())
    kept = cost.worth_capturing()
    assert kept[-1] == max(measured)
    for size in measured:
        bucket = min(other for other in kept if other >= size)
        assert cost.price(bucket) == cost.price(size)


def test_measured_prices_are_a_copy_that_cannot_be_changed() -> None:
    measured = {8: 9.5}
    cost = PackCost(measured)
    measured[8] = 1.0
    assert cost.price(8) == 9.5
    with pytest.raises(TypeError):
        cost.measured[8] = 1.0  # type: ignore[index]


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ({}, r"^no size of a pack was measured; measure at least one$"),
        ({8: 0.0}, r"^the forward of 8 tokens took 0\.0 ms; both must be above 0 and finite, so measure again$"),
        ({8: float("nan")}, r"^the forward of 8 tokens took nan ms"),
        ({8: float("inf")}, r"^the forward of 8 tokens took inf ms"),
        ({8: True}, r"^the forward of 8 tokens took True ms"),
        ({0: 1.0}, r"^the forward of 0 tokens took 1\.0 ms"),
    ],
)
def test_a_price_that_is_no_time_is_refused(measured: dict[int, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PackCost(measured)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_tokens": 0}, r"^max_tokens is 0; it must be a whole number, at least 1$"),
        ({"max_sequences": 2.5}, r"^max_sequences is 2\.5; "),
        ({"max_slots": True}, r"^max_slots is True; "),
        ({"ladder": [8, 16]}, r"^ladder is \[8, 16\]; it must be a tuple of whole numbers above 0 that rise$"),
        ({"ladder": (8, 8, 16)}, r"^ladder is \(8, 8, 16\); "),
        ({"ladder": (0, 16)}, r"^ladder is \(0, 16\); "),
        ({"ladder": (8, 12)}, r"^the last bucket of ladder is 12 and max_tokens is 16; they must be equal"),
    ],
)
def test_bad_limits_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PackLimits(**{"max_tokens": 16, "max_sequences": 9, "max_slots": 9, **wrong})


@pytest.mark.parametrize(("n", "padded"), [(1, 64), (64, 64), (65, 128), (705, 832), (8192, 8192), (8193, 8193)])
def test_a_pack_is_padded_to_the_next_bucket_of_the_ladder(n: int, padded: int) -> None:
    assert limits_of(*LADDER).padded(n) == padded
    assert PackLimits(8192, 9, 9).padded(n) == n


def test_the_ladder_wastes_at_most_a_fifth_above_its_even_steps() -> None:
    assert len(LADDER) == 28
    assert all(upper <= 1.2 * lower or upper - lower <= 128 for lower, upper in pairwise(LADDER))
