"""Writes a pack into static tables.

It refuses to know devices: what it writes is host memory, which somebody copies. Trap: the block still holds the pack
before. Every element of every table is written each time, surplus ones too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby
from operator import itemgetter

import numpy as np

from decider.plan.pack import NOWHERE, PADDING_ID, Pack, SmallTable, Span, span_tables, write_look_back
from decider.plan.tables import CHUNK_TOKENS, PADDING_TOKENS, TILE_TOKENS, StaticTables, n_states

HostTables = StaticTables[SmallTable]

# A tile is (first, behind the last, first key, first and behind the last token of the trunk).
_LESS_WORK = np.array((0, -1, 1, 1, -1), np.int32)


def fill(tables: HostTables, pack: Pack) -> None:
    """Write `pack`, which the tables' capacity holds. Its own padding is left out: the tables are padded anew."""
    assert tables.capacity.holds(pack), (tables.capacity, pack.n_real_tokens, pack.n_real_spans, len(pack.slots))
    n_tokens, n_real, n_slots = tables.n_tokens, pack.n_real_tokens, len(pack.slots)
    padding = [Span(at, min(PADDING_TOKENS, n_tokens - at), None) for at in range(n_real, n_tokens, PADDING_TOKENS)]
    spans = [*pack.spans[: pack.n_real_spans], *padding]
    n_used = len(spans)
    columns = span_tables(spans)
    tables.ids[:n_real] = pack.ids[:n_real]
    tables.ids[n_real:] = PADDING_ID
    tables.slots[:n_slots] = pack.slots
    tables.slots[n_slots:] = 0
    own_start = columns.starts.repeat(columns.lengths)
    tables.own_start[:] = own_start
    tables.positions[:n_real] = pack.positions[:n_real]
    tables.positions[n_real:] = np.arange(n_real, n_tokens) - own_start[n_real:]
    tables.offsets[:n_used] = columns.starts
    tables.offsets[n_used:] = n_tokens
    if tables.is_tree:
        tables.trunk_start[:] = columns.trunk_starts.repeat(columns.lengths)
        tables.trunk_stop[:] = columns.trunk_stops.repeat(columns.lengths)
        tables.parents[:n_used] = [-1 if parent is None else parent for _, _, parent in spans]
        tables.parents[n_used:] = -1
    _fill_tiles(tables.tiles, own_start, spans, pack.n_real_spans)
    if len(tables.rest_offsets):
        write_look_back(tables.look_back, columns)
        _fill_passes(tables, spans, n_states(pack))


def _fill_tiles(table: SmallTable, own_start: SmallTable, spans: Sequence[Span], n_real: int) -> None:
    # Runs of neighbours that see the same trunk: trunks, the branches of each of them, padding.
    heads = [next(run) for _, run in groupby(spans[:n_real], key=itemgetter(2))]
    heads += spans[n_real : n_real + 1]
    trunks = [NOWHERE if head.parent is None else spans[head.parent] for head in heads]
    stops = [*(head.start for head in heads[1:]), len(own_start)]
    pieces = [range(head.start, stop, TILE_TOKENS) for head, stop in zip(heads, stops, strict=True)]
    ends = [(stop, trunk.start, trunk.start + trunk.length) for stop, trunk in zip(stops, trunks, strict=True)]
    start = np.array([*chain.from_iterable(pieces)], np.int32)
    rows = np.empty((len(start), 5), np.int32)
    rows[:, 0] = start
    rows[:, 2] = own_start[start]
    rows[:, (1, 3, 4)] = np.array(ends, np.int32).repeat([*map(len, pieces)], axis=0)
    np.minimum(rows[:, 1], start + TILE_TOKENS, out=rows[:, 1])
    # The longest work first, so that none of it is left when all else is done.
    order = (rows @ _LESS_WORK).argsort(kind="stable")
    table[: len(rows)] = rows[order]
    table[len(rows) :] = 0


def _fill_passes(tables: HostTables, spans: Sequence[Span], n_first: int) -> None:
    first, rest = spans[:n_first], spans[n_first:]
    if tables.is_tree:
        _fill_pass(tables.first_offsets, tables.first_chunks, first, rest[0].start if rest else tables.n_tokens)
        # The first pass has a sequence more than it may have trunks.
        empty = len(tables.first_offsets) - 2
        tables.rest_parents[: len(rest)] = [empty if parent is None else parent for _, _, parent in rest]
        tables.rest_parents[len(rest) :] = empty
    _fill_pass(tables.rest_offsets, tables.rest_chunks, rest, tables.n_tokens)


def _fill_pass(offsets: SmallTable, chunks: SmallTable, spans: Sequence[Span], stop: int) -> None:
    """Sequences of `spans`, then empty ones at `stop`."""
    n = len(spans)
    offsets[:n] = [start for start, _, _ in spans]
    offsets[n:] = stop
    counts = [-(-length // CHUNK_TOKENS) for _, length, _ in spans]
    n_chunks = sum(counts)
    assert n_chunks <= len(chunks), (n_chunks, len(chunks))
    chunks[:n_chunks, 0] = np.arange(n).repeat(counts)
    chunks[:n_chunks, 1] = [chunk for count in counts for chunk in range(count)]
    chunks[n_chunks:] = (len(offsets) - 2, 0)
