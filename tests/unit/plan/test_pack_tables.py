"""Fixed-size tables of packs, read back token by token.

Refuses to know kernels. Trap: a block holds the pack before, so every table is filled over what another pack left, and
over numbers that mean nothing.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_rows import row, ticks

from decider.plan.fill import HostTables, fill
from decider.plan.pack import PADDING_ID, Group, Pack, make_pack
from decider.plan.packs import PackLimits, plan_packs
from decider.plan.tables import (
    CHUNK_TOKENS,
    PADDING_TOKENS,
    TILE_TOKENS,
    Capacity,
    PackShape,
    block_ints,
    capacity_of,
    chunk_capacity,
    n_states,
    tables_over,
)
from decider.tokens.rows import Row

GARBAGE = 2**30


def made(
    pack: Pack,
    n_tokens: int,
    *,
    is_tree: bool = True,
    n_taps: int = 4,
    before: Pack | None = None,
    capacity: Capacity | None = None,
) -> HostTables:
    capacity = capacity or capacity_of(PackShape(n_tokens, is_tree))
    block = np.full(block_ints(capacity, n_taps), GARBAGE, np.int32)
    tables = tables_over(block, capacity, n_taps)
    for each in [] if before is None else [before]:
        fill(tables, each)
    fill(tables, pack)
    return tables


def spans_of(tables: HostTables) -> list[tuple[int, int, int]]:
    """(start, stop, parent) of the spans that are not empty."""
    edges = tables.offsets.tolist()
    parents = tables.parents.tolist() if tables.is_tree else [-1] * (len(edges) - 1)
    return [(a, b, parent) for a, b, parent in zip(edges, edges[1:], parents, strict=False) if b > a]


def check(tables: HostTables, pack: Pack, n_taps: int) -> None:
    n_real, n = pack.n_real_tokens, tables.n_tokens
    assert tables.ids.tolist() == [*pack.ids[:n_real].tolist(), *[PADDING_ID] * (n - n_real)]
    assert tables.positions[:n_real].tolist() == pack.positions[:n_real].tolist()
    assert tables.slots[: len(pack.slots)].tolist() == pack.slots.tolist()
    assert not tables.slots[len(pack.slots) :].any()
    spans = spans_of(tables)
    real = [
        (s.start, s.start + s.length, -1 if s.parent is None else s.parent) for s in pack.spans[: pack.n_real_spans]
    ]
    assert spans[: len(real)] == real
    padding = spans[len(real) :]
    assert all(0 < b - a <= PADDING_TOKENS and parent == -1 for a, b, parent in padding)
    assert [start for start, _, _ in spans] == [0, *(stop for _, stop, _ in spans[:-1])]
    assert tables.offsets[-2:].tolist() == [n, n]
    seen = _check_tokens(tables, spans, n_taps)
    assert tables.look_back[:n_real].tolist() == pack.look_back(n_taps - 1)[:n_real].tolist()
    _check_tiles(tables, seen)
    if n_taps > 1:
        _check_passes(tables, spans, n_states(pack))


def _check_tokens(tables: HostTables, spans: list[tuple[int, int, int]], n_taps: int) -> list[set[int]]:
    seen = []
    for start, stop, parent in spans:
        trunk = [] if parent < 0 else list(range(*spans[parent][:2]))
        own = [*trunk, *range(start, stop)]
        for token in range(start, stop):
            place = own.index(token)
            assert tables.positions[token] == place
            assert tables.look_back[token].tolist() == [
                own[place - back] if back <= place else -1 for back in range(1, n_taps)
            ]
            assert tables.own_start[token] == start
            if tables.is_tree:
                ends = (trunk[0], trunk[-1] + 1) if trunk else (0, 0)
                assert (tables.trunk_start[token], tables.trunk_stop[token]) == ends
            seen.append(set(own[: place + 1]))
    return seen


def _check_tiles(tables: HostTables, seen: list[set[int]]) -> None:
    met: list[int] = []
    work = []
    for start, stop, first_key, trunk_start, trunk_stop in tables.tiles.tolist():
        assert 0 <= stop - start <= TILE_TOKENS
        met += range(start, stop)
        work.append(stop - first_key + trunk_stop - trunk_start)
        trunk = set(range(trunk_start, trunk_stop))
        for token in range(start, stop):
            keys = {key for key in range(first_key, token + 1) if key >= tables.own_start[token]} | trunk
            assert keys == seen[token]
    assert sorted(met) == list(range(tables.n_tokens))
    assert work == sorted(work, reverse=True)


def _check_passes(tables: HostTables, spans: list[tuple[int, int, int]], n_first: int) -> None:
    rest = read_pass(tables.rest_offsets, tables.rest_chunks)
    if not tables.is_tree:
        assert len(tables.first_offsets) == len(tables.rest_parents) == 0
        assert rest == [(a, b) for a, b, _ in spans]
        return
    first = read_pass(tables.first_offsets, tables.first_chunks)
    assert first + rest == [(a, b) for a, b, _ in spans]
    assert len(first) == n_first
    empty = len(tables.first_offsets) - 2
    wanted = [empty if parent < 0 else parent for _, _, parent in spans[n_first:]]
    assert tables.rest_parents.tolist() == wanted + [empty] * (len(tables.rest_parents) - len(wanted))


def read_pass(
    offsets: np.ndarray[tuple[int], np.dtype[np.int32]],
    chunks: np.ndarray[tuple[int, int], np.dtype[np.int32]],
) -> list[tuple[int, int]]:
    """The sequences that are not empty, of which all chunks are listed; the others are nowhere behind the last."""
    edges = offsets.tolist()
    sequences = list(pairwise(edges))
    found = [(a, b) for a, b in sequences if b > a]
    assert sequences[: len(found)] == found
    assert edges[-1] == edges[-2]
    listed = [(n, chunk) for n, (a, b) in enumerate(found) for chunk in range(-(-(b - a) // CHUNK_TOKENS))]
    assert chunks.tolist() == [list(pair) for pair in listed] + [[len(sequences) - 1, 0]] * (len(chunks) - len(listed))
    return found


@settings(deadline=None, max_examples=60)
@given(rows=ticks, n_taps=st.sampled_from([1, 2, 4]), room=st.integers(0, 150))
def test_every_table_says_what_the_pack_says(rows: list[Row], n_taps: int, room: int) -> None:
    before = make_pack([row(*range(40), prefix=0)], [Group((0,), 0)], n_tokens=None)
    for pack in plan_packs(rows, PackLimits(200, 30, 100)):
        n_tokens = pack.n_real_tokens + room
        for is_tree in [True] if pack.n_branches else [False, True]:
            small = before if before.n_tokens <= n_tokens else None
            capacity = Capacity(PackShape(n_tokens, is_tree), 30, 15 if is_tree else 0, 100)
            tables = made(pack, n_tokens, n_taps=n_taps, before=small, capacity=capacity)
            check(tables, pack, n_taps)


def long_pack(*lengths: int, branches: int, branch_tokens: int) -> Pack:
    """The first of the trunks has branches."""
    rows = [row(*range(lengths[0]), *[1000 + n] * branch_tokens, prefix=lengths[0]) for n in range(branches)]
    rows += [row(*range(length), prefix=0) for length in lengths[1:]]
    groups = [Group(tuple(range(branches)), lengths[0]), *(Group((branches + n,), 0) for n in range(len(lengths) - 1))]
    return make_pack(rows, groups, n_tokens=None)


@pytest.mark.parametrize(
    "pack",
    [
        long_pack(64, branches=1, branch_tokens=64),
        long_pack(65, 1, 130, branches=3, branch_tokens=63),
        long_pack(1, 64, 64, branches=29, branch_tokens=1),
        long_pack(300, 40, branches=5, branch_tokens=40),
    ],
)
@pytest.mark.parametrize("room", [0, 1, 256, 600])
def test_long_spans(pack: Pack, room: int) -> None:
    for n_taps in (1, 4):
        tables = made(pack, pack.n_real_tokens + room, n_taps=n_taps)
        check(tables, pack, n_taps)


def test_a_full_shape_of_the_most_sequences_fits() -> None:
    """Trunks with branches as many as allowed, each of two; then single rows; no padding."""
    capacity = capacity_of(PackShape(512, is_tree=True))
    n_shared, n_single = capacity.n_states, capacity.n_sequences - 3 * capacity.n_states
    assert (n_shared, n_single) == (10, 2)
    long = 512 - 3 * n_shared - (n_single - 1)
    rows = [row(number, 7, prefix=1) for number in range(n_shared) for _ in range(2)]
    rows += [row(*[3] * (long if number == 0 else 1), prefix=0) for number in range(n_single)]
    groups = [Group((2 * number, 2 * number + 1), 1) for number in range(n_shared)]
    groups += [Group((2 * n_shared + number,), 0) for number in range(n_single)]
    pack = make_pack(rows, groups, n_tokens=None)
    assert (pack.n_tokens, pack.n_real_spans, n_states(pack)) == (512, capacity.n_sequences, n_shared)
    check(made(pack, 512), pack, 4)


def test_what_a_shape_holds() -> None:
    capacity = Capacity(PackShape(128, is_tree=True), n_sequences=4, n_states=1, n_slots=5)
    fits = long_pack(60, 20, branches=2, branch_tokens=20)
    assert capacity.holds(fits)
    assert not capacity.holds(long_pack(60, 29, branches=2, branch_tokens=20))
    assert not capacity.holds(long_pack(60, 2, 2, branches=2, branch_tokens=20))
    assert not Capacity(PackShape(128, is_tree=True), 4, 1, 2).holds(fits)
    assert not Capacity(PackShape(128, is_tree=False), 4, 0, 5).holds(fits)
    padded = make_pack([row(*range(100), prefix=0)], [Group((0,), 0)], n_tokens=200)
    assert capacity.holds(padded)
    check(made(padded, 128), padded, 4)


def test_trunks_with_branches_come_first_in_a_planned_pack() -> None:
    rows = [row(*range(9), prefix=0), *(row(*range(20, 30), n, prefix=10) for n in range(2)), row(5, 6, prefix=0)]
    [pack] = plan_packs(rows, PackLimits(100, 30, 100))
    assert n_states(pack) == 1
    assert pack.rows == (0, 3, 1, 2)


def test_tables_lie_apart_and_on_lines_of_the_cache() -> None:
    capacity = capacity_of(PackShape(192, is_tree=True))
    block = np.zeros(block_ints(capacity, 4), np.int32)
    tables = tables_over(block, capacity, 4)
    views = [getattr(tables, field.name) for field in fields(tables)[1:]]
    for number, view in enumerate(views, start=1):
        assert (view.__array_interface__["data"][0] - block.__array_interface__["data"][0]) % 128 == 0
        assert not view.any()
        view[...] = number
    for number, view in enumerate(views, start=1):
        assert (view == number).all()


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


def test_padding_of_a_pack_is_no_span_of_it() -> None:
    """It lies behind the branches and has no trunk; a plan of fixed sizes makes it."""
    rows = [row(1, 2, index, prefix=2) for index in range(3, 6)]
    group = [Group((0, 1, 2), 2)]
    bare, padded = (make_pack(rows, group, n_tokens=n_tokens) for n_tokens in (None, 60))
    assert n_states(padded) == n_states(bare) == 1
    for left, right in zip(_arrays(made(bare, 64)), _arrays(made(padded, 64)), strict=True):
        np.testing.assert_array_equal(left, right)


def _arrays(tables: HostTables) -> list[np.ndarray]:
    return [getattr(tables, field.name) for field in fields(tables) if field.name != "capacity"]
