"""The tables of one pack, against rows read back from them. Trap: a flat pack proves little of a tree."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_rows import own_tokens, read_back, row, ticks

from decider.plan.pack import PADDING_ID, Group, Pack, Span, make_pack
from decider.plan.trunks import find_groups
from decider.tokens.rows import Row

ROWS = [row(1, 2, 3, 4, 5, prefix=3), row(8, 9, prefix=1), row(1, 2, 3, 6, prefix=3), row(1, 2, 3, 7, 7, 7, prefix=3)]
GROUPS = [Group((0, 2, 3), 3), Group((1,), 0)]


def test_trunks_come_first_then_branches_then_padding() -> None:
    pack = make_pack(ROWS, GROUPS, n_tokens=13)
    assert pack.ids.tolist() == [1, 2, 3, 8, 9, 4, 5, 6, 7, 7, 7, PADDING_ID, PADDING_ID]
    assert pack.positions.tolist() == [0, 1, 2, 0, 1, 3, 4, 3, 3, 4, 5, 0, 1]
    assert pack.spans == (
        Span(0, 3, None),
        Span(3, 2, None),
        Span(5, 2, 0),
        Span(7, 1, 0),
        Span(8, 3, 0),
        Span(11, 2, None),
    )
    assert (pack.n_tokens, pack.n_real_tokens) == (13, 11)
    assert (pack.n_trunks, pack.n_branches, pack.n_real_spans) == (2, 3, 5)
    assert pack.rows == (1, 0, 2, 3)
    assert pack.slots.tolist() == [4, 6, 7, 10]
    assert not pack.oversize


def test_a_branch_looks_back_into_its_trunk_and_nobody_into_a_neighbour() -> None:
    pack = make_pack(ROWS, GROUPS, n_tokens=13)
    none = -1
    assert pack.look_back(3).tolist() == [
        *([none, none, none], [0, none, none], [1, 0, none]),
        *([none, none, none], [3, none, none]),
        *([2, 1, 0], [5, 2, 1]),
        [2, 1, 0],
        *([2, 1, 0], [8, 2, 1], [9, 8, 2]),
        *([none, none, none], [11, none, none]),
    ]
    assert pack.look_back(0).shape == (13, 0)


@pytest.mark.parametrize("n_tokens", [None, 11])
def test_a_full_pack_has_no_padding(n_tokens: int | None) -> None:
    pack = make_pack(ROWS, GROUPS, n_tokens=n_tokens)
    assert pack.n_tokens == pack.n_real_tokens == 11
    assert pack.n_real_spans == len(pack.spans) == 5
    assert pack.n_branches == 3


def test_a_pack_too_short_for_its_rows_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        make_pack(ROWS, GROUPS, n_tokens=10)


def packed(rows: list[Row], n_padding: int) -> Pack:
    exact = make_pack(rows, find_groups(rows), n_tokens=None)
    return make_pack(rows, find_groups(rows), n_tokens=exact.n_tokens + n_padding) if n_padding else exact


@settings(deadline=None)
@given(rows=ticks.filter(bool), n_padding=st.integers(0, 9))
def test_rows_can_be_read_back(rows: list[Row], n_padding: int) -> None:
    pack = packed(rows, n_padding)
    assert read_back(pack, rows) == dict(enumerate(rows))
    assert sorted(pack.rows) == list(range(len(rows)))


@settings(deadline=None)
@given(rows=ticks.filter(bool), n_padding=st.integers(0, 9))
def test_spans_cover_the_pack_in_order(rows: list[Row], n_padding: int) -> None:
    pack = packed(rows, n_padding)
    starts = np.cumsum([0, *(span.length for span in pack.spans)])
    assert [span.start for span in pack.spans] == starts[:-1].tolist()
    assert starts[-1] == pack.n_tokens == len(pack.positions) == pack.n_real_tokens + n_padding
    assert min(span.length for span in pack.spans) >= 1
    parents = [span.parent for span in pack.spans]
    assert parents[: pack.n_trunks] == [None] * pack.n_trunks
    branches = [parent for parent in parents[pack.n_trunks : pack.n_real_spans] if parent is not None]
    assert branches == sorted(branches)
    assert len(branches) == pack.n_branches == pack.n_real_spans - pack.n_trunks
    assert not branches or branches[-1] < pack.n_trunks
    assert parents[pack.n_real_spans :] == [None] * (n_padding > 0)
    assert (np.diff(pack.slots) > 0).all()


@settings(deadline=None)
@given(rows=ticks.filter(bool), n_padding=st.integers(0, 9), n_taps=st.integers(0, 5))
def test_look_back_names_the_tokens_before_in_the_own_row(rows: list[Row], n_padding: int, n_taps: int) -> None:
    pack = packed(rows, n_padding)
    table = pack.look_back(n_taps)
    assert table.shape == (pack.n_tokens, n_taps)
    for span in pack.spans:
        own = own_tokens(pack, span)
        for place in range(len(own) - span.length, len(own)):
            before = own[max(0, place - n_taps) : place][::-1]
            assert table[own[place]].tolist() == before + [-1] * (n_taps - len(before))


@pytest.mark.parametrize("n_trunk", [1, 2, 3, 4])
def test_short_trunks_and_branches_of_one_token(n_trunk: int) -> None:
    rows = [row(*range(n_trunk), 7, prefix=n_trunk), row(*range(n_trunk), 8, prefix=n_trunk)]
    pack = make_pack(rows, find_groups(rows), n_tokens=None)
    assert pack.spans == (Span(0, n_trunk, None), Span(n_trunk, 1, 0), Span(n_trunk + 1, 1, 0))
    assert pack.positions[n_trunk:].tolist() == [n_trunk, n_trunk]
    tail = [*range(n_trunk - 1, -1, -1), -1, -1, -1][:3]
    assert pack.look_back(3)[n_trunk:].tolist() == [tail, tail]


def test_tables_are_int64_and_read_only() -> None:
    pack = make_pack(ROWS, GROUPS, n_tokens=13)
    values = (getattr(pack, field.name) for field in fields(pack))
    tables = [*(value for value in values if isinstance(value, np.ndarray)), pack.look_back(3)]
    assert len(tables) == 4
    for table in tables:
        assert table.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 1


def test_ids_reach_beyond_two_bytes() -> None:
    rows = [row(70_000, 4_000_000_000, prefix=1)]
    assert make_pack(rows, [Group((0,), 0)], n_tokens=None).ids.tolist() == [70_000, 4_000_000_000]
