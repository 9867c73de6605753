"""Fixed-size tables of packs. Trap: a pack that fills its bucket has no padding for the surplus to point at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_rows import row

from decider.plan.pack import Group, Pack, Table, make_pack
from decider.plan.tables import CHUNK_TOKENS, chunk_capacity, chunk_table, offsets, parents

ROWS = [
    row(*range(64), *[1] * 65, prefix=64),
    row(*range(64), 2, prefix=64),
    row(*range(130), prefix=0),
]
GROUPS = [Group((0, 1), 64), Group((2,), 0)]
"""Trunks of 64 and 130 tokens, branches of 65 and 1: 260 in all."""


def make(n_tokens: int | None) -> Pack:
    return make_pack(ROWS, GROUPS, n_tokens=n_tokens)


def test_chunks_are_counted_in_their_span_and_surplus_is_the_padding() -> None:
    padded = make(320)
    assert chunk_table(padded, range(2), 6).tolist() == [[0, 0], [1, 0], [1, 1], [1, 2], [4, 0], [4, 0]]
    assert chunk_table(padded, range(2, 4), 3).tolist() == [[2, 0], [2, 1], [3, 0]]
    assert chunk_table(padded, [0, 4], 3).tolist() == [[0, 0], [4, 0], [4, 0]]
    assert chunk_table(padded, [], 1).tolist() == [[4, 0]]


def test_without_padding_surplus_is_an_empty_span_behind_the_last() -> None:
    full = make(None)
    assert len(full.spans) == 4
    assert chunk_table(full, range(2), 5).tolist()[-1] == [4, 0]
    assert offsets(full, 6).tolist() == [0, 64, 194, 259, 260, 260, 260]


def test_offsets_and_parents_of_surplus_spans() -> None:
    padded = make(320)
    assert offsets(padded, 5).tolist() == [0, 64, 194, 259, 260, 320]
    assert offsets(padded, 7).tolist() == [0, 64, 194, 259, 260, 320, 320, 320]
    assert parents(padded, 7).tolist() == [-1, -1, 0, 0, -1, -1, -1]


@pytest.mark.parametrize("table", [offsets(make(320), 7), parents(make(320), 7), chunk_table(make(320), [0], 2)])
def test_tables_are_int64_and_read_only(table: Table) -> None:
    assert table.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 1


def test_what_does_not_fit_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        chunk_table(make(320), range(2), 3)
    with pytest.raises(AssertionError):
        offsets(make(320), 4)
    with pytest.raises(AssertionError):
        parents(make(320), 4)


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 200), min_size=1, max_size=9))
def test_the_capacity_holds_every_pack(lengths: list[int]) -> None:
    n_chunks = sum(-(-length // CHUNK_TOKENS) for length in lengths)
    assert n_chunks <= chunk_capacity(sum(lengths), len(lengths))


@settings(deadline=None)
@given(n_tokens=st.integers(1, 500), n_spans=st.integers(1, 9))
def test_the_capacity_is_needed_by_the_worst_pack(n_tokens: int, n_spans: int) -> None:
    # As many spans as allowed, of which all but one have a single token.
    n_used = min(n_spans, n_tokens)
    lengths = [1] * (n_used - 1) + [n_tokens - n_used + 1]
    assert chunk_capacity(n_tokens, n_spans) == sum(-(-length // CHUNK_TOKENS) for length in lengths)
