"""Which rows share a trunk, against every way to share. Trap: starts that are alike by chance count as alike."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_rows import n_tokens, partitions, row, ticks

from decider.plan.pack import Group
from decider.plan.trunks import find_groups
from decider.tokens.rows import Row


def test_rows_with_equal_starts_are_a_group_wherever_they_are() -> None:
    rows = [row(1, 2, 3, 4, prefix=3), row(1, 2, 3, 5, 6, prefix=3), row(1, 2, 4, 4, prefix=3), row(7, prefix=0)]
    assert find_groups(rows) == [Group((0, 1), 3), Group((2,), 0), Group((3,), 0)]
    assert find_groups([rows[0], rows[2], rows[3], rows[1]]) == [Group((0, 3), 3), Group((1,), 0), Group((2,), 0)]
    assert find_groups([]) == []


def test_rows_without_a_reusable_start_share_nothing() -> None:
    assert find_groups([row(1, 2, prefix=0), row(1, 2, prefix=0)]) == [Group((0,), 0), Group((1,), 0)]
    assert find_groups([row(1, 2, prefix=0), row(1, 2, prefix=1), row(1, 3, prefix=1)]) == [
        Group((0,), 0),
        Group((1, 2), 1),
    ]


def test_a_slot_is_never_in_a_trunk() -> None:
    whole = Row((1, 2, 3), (1, 2), (2, 2), 3)
    assert find_groups([whole, whole]) == [Group((0, 1), 1)]
    at_once = Row((1, 2, 3), (0, 2), (2, 2), 3)
    assert find_groups([at_once, at_once]) == [Group((0,), 0), Group((1,), 0)]


def test_a_cut_state_shares_a_shorter_trunk() -> None:
    rows = [row(1, 2, 3, 4, 9, prefix=4), row(1, 2, 3, 9, prefix=3), row(1, 2, 3, 4, 8, prefix=4)]
    assert find_groups(rows) == [Group((0, 1, 2), 3)]
    assert find_groups(rows[1:]) == [Group((0, 1), 3)]


def test_a_trunk_is_not_shortened_where_that_costs_tokens() -> None:
    long = tuple(range(100))
    rows = [row(*long, 1, prefix=100), row(*long[:10], 2, prefix=10), row(*long, 3, prefix=100)]
    assert find_groups(rows) == [Group((0, 2), 100), Group((1,), 0)]
    assert find_groups([*rows, rows[1]]) == [Group((0, 2), 100), Group((1, 3), 10)]


def test_a_start_is_a_trunk_of_whatever_begins_with_it() -> None:
    long, short, other = row(1, 2, 3, 4, 9, prefix=4), row(1, 2, 8, prefix=2), row(1, 2, 5, 6, 7, prefix=4)
    assert find_groups([short, long, short]) == [Group((0, 1, 2), 2)]
    assert find_groups([long, short, other]) == [Group((0, 1, 2), 2)]
    # What two rows have in common is no trunk unless it is the whole start of one.
    assert find_groups([long, other]) == [Group((0,), 0), Group((1,), 0)]
    assert find_groups([long, long, short, long]) == [Group((0, 1, 3), 4), Group((2,), 0)]
    assert find_groups([long, short, long, other, long]) == [Group((0, 2, 4), 4), Group((1, 3), 2)]


def test_a_start_beside_another_is_not_below_it() -> None:
    rows = [row(1, 9, prefix=1), row(1, 2, 9, prefix=2), row(1, 2, 3, 9, prefix=3), row(1, 4, 9, prefix=2)]
    assert find_groups([*rows[1:], rows[3]]) == [Group((0, 1), 2), Group((2, 3), 2)]
    assert find_groups(rows) == [Group((0, 1, 2, 3), 1)]


def test_starts_within_one_another_may_be_many() -> None:
    rows = [row(*range(n), 99, prefix=n) for n in range(1, 1500)]
    groups = find_groups(rows)
    assert sum(len(group.rows) for group in groups) == len(rows)
    assert sum(n_tokens(group, rows) for group in groups) < sum(len(one.ids) for one in rows) / 10


def test_ids_are_compared_whole() -> None:
    assert find_groups([row(1, 1, 5, prefix=2), row(1 + 2**32, 1, 5, prefix=2)]) == [Group((0,), 0), Group((1,), 0)]


def test_a_row_without_a_slot_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="asks nothing"):
        find_groups([Row((1, 2), (), (), 1)])


def reach(one: Row) -> int:
    return min(one.prefix_tokens, one.slots[0])


@settings(deadline=None)
@given(rows=ticks)
def test_groups_share_a_start_before_every_slot(rows: list[Row]) -> None:
    groups = find_groups(rows)
    assert sorted(index for group in groups for index in group.rows) == list(range(len(rows)))
    assert groups == sorted(groups)
    for group in groups:
        assert list(group.rows) == sorted(group.rows)
        if group.trunk_tokens:
            assert len(group.rows) > 1
            assert group.trunk_tokens == min(reach(rows[index]) for index in group.rows)
            assert len({rows[index].ids[: group.trunk_tokens] for index in group.rows}) == 1
        else:
            assert len(group.rows) == 1


@settings(deadline=None)
@given(rows=ticks)
def test_rows_with_equal_starts_are_never_parted(rows: list[Row]) -> None:
    group_of = {index: group for group in find_groups(rows) for index in group.rows}
    seen: dict[tuple[int, ...], int] = {}
    for index, one in enumerate(rows):
        if reach(one):
            first = seen.setdefault(one.ids[: reach(one)], index)
            assert group_of[first] is group_of[index]


def least_tokens(rows: Sequence[Row]) -> int:
    """The fewest tokens of any way to put `rows` into groups, each with the start of its shortest reach as a trunk."""
    starts = [one.ids[: reach(one)] for one in rows]

    def tokens(part: Sequence[int]) -> float:
        trunk = min((starts[index] for index in part), key=len)
        if any(starts[index][: len(trunk)] != trunk for index in part):
            return math.inf
        return n_tokens(Group(tuple(part), len(trunk)), rows)

    return int(min(sum(map(tokens, parts)) for parts in partitions(range(len(rows)))))


few_starts = st.lists(st.lists(st.integers(0, 1), max_size=4), max_size=7)


@settings(deadline=None)
@given(starts=few_starts)
def test_no_other_groups_leave_fewer_tokens(starts: list[list[int]]) -> None:
    rows = [row(*start, 9, prefix=len(start)) for start in starts]
    assert sum(n_tokens(group, rows) for group in find_groups(rows)) == least_tokens(rows)


def test_every_tree_of_four_short_starts_is_shared_best() -> None:
    short = [start for length in (1, 2, 3) for start in itertools.product((0, 1), repeat=length)]
    for starts in itertools.combinations_with_replacement(short, 4):
        rows = [row(*start, 9, prefix=len(start)) for start in starts]
        assert sum(n_tokens(group, rows) for group in find_groups(rows)) == least_tokens(rows)


@settings(deadline=None)
@given(starts=st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_cut_states_share_so_that_no_other_way_leaves_fewer_tokens(starts: list[int]) -> None:
    rows = [row(*range(start), 99, prefix=start) for start in starts]
    planned = sum(n_tokens(group, rows) for group in find_groups(rows))
    ways = (
        sum(n_tokens(Group(tuple(part), min(starts[index] for index in part)), rows) for part in parts)
        for parts in partitions(range(len(rows)))
    )
    assert planned == min(ways)


def members(rows: Sequence[Row]) -> list[tuple[int, list[tuple[int, ...]]]]:
    groups = find_groups(rows)
    return sorted((group.trunk_tokens, sorted(rows[index].ids for index in group.rows)) for group in groups)


@settings(deadline=None)
@given(rows=ticks, data=st.data())
def test_the_order_of_rows_changes_only_the_indices(rows: list[Row], data: st.DataObject) -> None:
    assert members(data.draw(st.permutations(rows))) == members(rows)


def test_no_order_of_five_rows_changes_more_than_the_indices() -> None:
    rows = [
        row(1, 2, 5, prefix=2),
        row(1, 2, 6, prefix=2),
        row(1, 2, 3, 7, prefix=3),
        row(1, 4, 8, prefix=2),
        row(1, 9, prefix=1),
    ]
    for drawn in itertools.combinations_with_replacement(rows, 5):
        assert len({str(members(order)) for order in itertools.permutations(drawn)}) == 1
