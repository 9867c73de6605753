"""Which rows share a trunk, against every way to share. Trap: starts that are alike by chance count as alike."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_rows import n_tokens, partitions, row, ticks

from decider.plan.pack import Group
from decider.plan.trunks import find_groups
from decider.tokens.rows import Row


def test_neighbours_with_equal_starts_are_a_group() -> None:
    rows = [row(1, 2, 3, 4, prefix=3), row(1, 2, 3, 5, 6, prefix=3), row(1, 2, 4, 4, prefix=3), row(7, prefix=0)]
    assert find_groups(rows) == [Group((0, 1), 3), Group((2,), 0), Group((3,), 0)]
    assert find_groups([rows[0], rows[2], rows[1]]) == [Group((0,), 0), Group((1,), 0), Group((2,), 0)]
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


def test_a_row_goes_with_the_longest_start_before_it() -> None:
    long, short, other = row(1, 2, 3, 4, 9, prefix=4), row(1, 2, 8, prefix=2), row(1, 2, 5, 6, 7, prefix=4)
    assert find_groups([short, long, short]) == [Group((0, 1, 2), 2)]
    # Beside the short one alone, `other` could share its start; a longer one has been seen that it has not.
    assert find_groups([long, short, other]) == [Group((0, 1), 2), Group((2,), 0)]
    assert find_groups([long, long, short, long]) == [Group((0, 1, 3), 4), Group((2,), 0)]


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
def test_neighbours_with_equal_starts_are_never_parted(rows: list[Row]) -> None:
    group_of = {index: group for group in find_groups(rows) for index in group.rows}
    for index in range(1, len(rows)):
        one, other = rows[index - 1], rows[index]
        if 0 < reach(one) == reach(other) and one.ids[: reach(one)] == other.ids[: reach(one)]:
            assert group_of[index - 1] is group_of[index]


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


@settings(deadline=None)
@given(starts=st.lists(st.integers(1, 12), min_size=1, max_size=8), data=st.data())
def test_the_order_of_questions_changes_only_the_indices(starts: list[int], data: st.DataObject) -> None:
    def seen(rows: Sequence[Row]) -> list[tuple[int, list[int]]]:
        groups = find_groups(rows)
        return sorted((group.trunk_tokens, sorted(len(rows[index].ids) for index in group.rows)) for group in groups)

    rows = [row(*range(start), 99, prefix=start) for start in starts]
    assert seen(data.draw(st.permutations(rows))) == seen(rows)
