"""Writes a pack into static tables.

It refuses to know devices: what it writes is host memory, which somebody copies. Trap: the block still holds the pack
before. Every element of every table is written each time, surplus ones too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decider.plan.pack import PADDING_ID, Pack
from decider.plan.tables import CHUNK_TOKENS, PADDING_TOKENS, TILE_TOKENS, StaticTables, n_states

SmallTable = NDArray[np.int32]
HostTables = StaticTables[SmallTable]


class _Spans(NamedTuple):
    """Spans of the tables, real and padding, int32 [used] each."""

    starts: SmallTable
    lengths: SmallTable
    parents: SmallTable
    """−1 without."""


def fill(tables: HostTables, pack: Pack) -> None:
    """Write `pack`, which the tables' capacity holds. Its own padding is left out: the tables are padded anew."""
    assert tables.capacity.holds(pack), (tables.capacity, pack.n_real_tokens, pack.n_real_spans, len(pack.slots))
    spans = _spans(pack, tables.n_tokens)
    n_real = pack.n_real_tokens
    n_padding = tables.n_tokens - n_real
    tables.ids[:n_real] = pack.ids[:n_real]
    tables.ids[n_real:] = PADDING_ID
    tables.positions[:n_real] = pack.positions[:n_real]
    tables.positions[n_real:] = np.arange(n_padding) % PADDING_TOKENS
    tables.slots[: len(pack.slots)] = pack.slots
    tables.slots[len(pack.slots) :] = 0
    tables.own_start[:] = np.repeat(spans.starts, spans.lengths)
    n_used = len(spans.starts)
    tables.offsets[:n_used] = spans.starts
    tables.offsets[n_used:] = tables.n_tokens
    trunk_starts = np.where(spans.parents < 0, 0, spans.starts[spans.parents])
    trunk_stops = np.where(spans.parents < 0, 0, (spans.starts + spans.lengths)[spans.parents])
    if tables.is_tree:
        tables.trunk_start[:] = np.repeat(trunk_starts, spans.lengths)
        tables.trunk_stop[:] = np.repeat(trunk_stops, spans.lengths)
        tables.parents[:n_used] = spans.parents
        tables.parents[n_used:] = -1
    _fill_look_back(tables.look_back, spans, trunk_starts, trunk_stops)
    _fill_tiles(tables.tiles, tables.own_start, spans, trunk_starts, trunk_stops, pack)
    if len(tables.rest_offsets):
        _fill_passes(tables, spans, n_states(pack))


def _spans(pack: Pack, n_tokens: int) -> _Spans:
    real = pack.spans[: pack.n_real_spans]
    starts = np.array([span.start for span in real], np.int32)
    parents = np.array([-1 if span.parent is None else span.parent for span in real], np.int32)
    starts = np.concatenate((starts, np.arange(pack.n_real_tokens, n_tokens, PADDING_TOKENS, dtype=np.int32)))
    parents = np.concatenate((parents, np.full(len(starts) - len(parents), -1, np.int32)))
    return _Spans(starts, np.diff(starts, append=np.int32(n_tokens)), parents)


def _fill_look_back(table: SmallTable, spans: _Spans, trunk_starts: SmallTable, trunk_stops: SmallTable) -> None:
    """As `Pack.look_back`: only the first tokens of a span look back beyond it."""
    n_taps = table.shape[1]
    tokens = np.arange(len(table), dtype=np.int32)
    for column in range(n_taps):
        np.subtract(tokens, column + 1, out=table[:, column])
    for nth in range(n_taps):
        longer = np.flatnonzero(spans.lengths > nth)
        # A distance beyond the span's start, counted from the trunk's end; without a trunk, both of its ends are 0.
        outside = trunk_stops[longer, None] - np.arange(1, n_taps - nth + 1, dtype=np.int32)
        outside[outside < trunk_starts[longer, None]] = -1
        table[spans.starts[longer] + nth, nth:] = outside


def _fill_tiles(
    table: SmallTable,
    own_start: SmallTable,
    spans: _Spans,
    trunk_starts: SmallTable,
    trunk_stops: SmallTable,
    pack: Pack,
) -> None:
    # Runs of neighbours that see the same trunk: trunks, the branches of each of them, padding.
    n_real, n_trunks = pack.n_real_spans, pack.n_trunks
    branches = spans.parents[n_trunks:n_real]
    turns = n_trunks + np.flatnonzero(np.diff(branches, prepend=np.int32(-1)))
    heads = np.array([0, *turns, *range(n_real, min(n_real + 1, len(spans.starts)))])
    firsts = spans.starts[heads]
    counts = -(-np.diff(firsts, append=np.int32(len(own_start))) // TILE_TOKENS)
    run = np.repeat(np.arange(len(heads)), counts)
    number = np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = firsts[run] + TILE_TOKENS * number
    stop = np.minimum(start + TILE_TOKENS, np.append(firsts[1:], len(own_start))[run])
    trunk_start, trunk_stop = trunk_starts[heads][run], trunk_stops[heads][run]
    first_key = own_start[start]
    rows = np.stack((start, stop, first_key, trunk_start, trunk_stop), axis=1)
    # The longest work first, so that none of it is left when all else is done.
    order = np.argsort(-(stop - first_key + trunk_stop - trunk_start), kind="stable")
    table[: len(rows)] = rows[order]
    table[len(rows) :] = 0


def _fill_passes(tables: HostTables, spans: _Spans, n_first: int) -> None:
    if tables.is_tree:
        stop = int(spans.starts[n_first]) if n_first < len(spans.starts) else tables.n_tokens
        _fill_pass(
            tables.first_offsets,
            tables.first_chunks,
            tables.first_chunk_offsets,
            spans.starts[:n_first],
            spans.lengths[:n_first],
            stop,
        )
        rest = spans.parents[n_first:]
        # The first pass has a sequence more than it may have trunks.
        empty = len(tables.first_offsets) - 2
        tables.rest_parents[: len(rest)] = np.where(rest < 0, empty, rest)
        tables.rest_parents[len(rest) :] = empty
    _fill_pass(
        tables.rest_offsets,
        tables.rest_chunks,
        tables.rest_chunk_offsets,
        spans.starts[n_first:],
        spans.lengths[n_first:],
        tables.n_tokens,
    )


def _fill_pass(
    offsets: SmallTable,
    chunks: SmallTable,
    chunk_offsets: SmallTable,
    starts: SmallTable,
    lengths: SmallTable,
    stop: int,
) -> None:
    """Sequences of these `starts` and `lengths`, then empty ones at `stop`."""
    n = len(starts)
    offsets[:n] = starts
    offsets[n:] = stop
    counts = -(-lengths // CHUNK_TOKENS)
    chunk_offsets[0] = 0
    np.cumsum(counts, out=chunk_offsets[1 : n + 1])
    n_chunks = chunk_offsets[n]
    chunk_offsets[n + 1 :] = n_chunks
    assert n_chunks <= len(chunks), (n_chunks, len(chunks))
    chunks[:n_chunks, 0] = np.repeat(np.arange(n), counts)
    chunks[:n_chunks, 1] = np.arange(n_chunks) - np.repeat(chunk_offsets[:n], counts)
    chunks[n_chunks:] = (len(offsets) - 2, 0)
