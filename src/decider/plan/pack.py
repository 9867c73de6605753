"""A pack: several token sequences in one row of tokens, and where each of them starts, goes on and is read.

It refuses to know models, devices, limits and prices. Trap: a branch lies anywhere behind its trunk. Its positions go
on where the trunk ends and its first tokens look back into the trunk's tail; the token before it in the pack is a
stranger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decider.tokens.rows import ID_BYTES, Row

Table = NDArray[np.int64]
SmallTable = NDArray[np.int32]

PADDING_ID = 0
"""Any id of the vocabulary will do: padding is a sequence of its own, which nothing reads."""


class Span(NamedTuple):
    """Tokens of a pack that lie together: a trunk, a branch or the padding.

    A named tuple, as a tick makes hundreds of them and a frozen dataclass takes several times as long to make.
    """

    start: int
    """Its first token, as an index of the pack's ids."""
    length: int
    """Tokens, at least 1."""
    parent: int | None
    """A branch's trunk, as an index of the pack's spans; None for a trunk and for padding."""


NOWHERE = Span(0, 0, None)


class Group(NamedTuple):
    """Rows that share a trunk, as indices of the planned rows; or one row, which is a trunk as a whole."""

    rows: tuple[int, ...]
    trunk_tokens: int
    """Length of the start that the rows share, at least 1 and shorter than any of them; 0 for one row."""


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """One forward over N tokens: trunks, then branches in the order of their trunks, then at most one padding.

    A branch token sees its whole trunk and its own branch up to itself; any other token sees its own span up to itself.
    All tables are read-only.
    """

    ids: Table
    """[N] token ids; `PADDING_ID` in the padding."""
    positions: Table
    """[N] place of each token in its own row, from 0. A branch's go on where its trunk ends; padding's start at 0."""
    spans: tuple[Span, ...]
    """Without gaps from token 0 to N."""
    n_trunks: int
    """The first spans are the trunks, in a planned pack those with branches before the others."""
    n_real_tokens: int
    """Tokens of trunks and branches. Less than N if and only if the last span is padding."""
    slots: Table
    """[slots] where logits are read, as indices of `ids`, rising: those of `rows[0]`, then those of `rows[1]`, …"""
    rows: tuple[int, ...]
    """Which planned rows these are, in the order of the spans they end in; each has the slots of its `Row.slots`."""
    oversize: bool
    """Beyond every size that the limits allow: at its exact length, for no captured shape holds it."""

    @property
    def n_tokens(self) -> int:
        """N, with padding."""
        return len(self.ids)

    @property
    def n_real_spans(self) -> int:
        """Trunks and branches."""
        return len(self.spans) - (self.n_real_tokens < self.n_tokens)

    @property
    def n_branches(self) -> int:
        """Spans with a parent; 0 in a pack that is flat."""
        return self.n_real_spans - self.n_trunks

    def look_back(self, n_taps: int) -> Table:
        """[N, n_taps]: the 1st, 2nd, … token before each one in its own row, as indices of `ids`; -1 if there is none.

        A branch goes back into its trunk's tail.
        """
        table = np.empty((self.n_tokens, n_taps), np.int64)
        write_look_back(table, span_tables(self.spans))
        return read_only(table)


class SpanTables(NamedTuple):
    """Spans as int32 [spans] each."""

    starts: SmallTable
    lengths: SmallTable
    trunk_starts: SmallTable
    """The first token of each span's trunk; 0 without."""
    trunk_stops: SmallTable
    """Behind the last token of each span's trunk; 0 without."""


def span_tables(spans: Sequence[Span]) -> SpanTables:
    """Of `spans`, among which are the trunks of all its branches."""
    trunks = [NOWHERE if parent is None else spans[parent] for _, _, parent in spans]
    columns = (
        [start for start, _, _ in spans],
        [length for _, length, _ in spans],
        [start for start, _, _ in trunks],
        [start + length for start, length, _ in trunks],
    )
    return SpanTables(*np.array(columns, np.int32))


def write_look_back(table: NDArray[np.signedinteger], spans: SpanTables) -> None:
    """Write `Pack.look_back` into `table` [N, n_taps], contiguous, the tokens of which are those of `spans`."""
    n_tokens, n_taps = table.shape
    tokens = np.arange(n_tokens, dtype=np.int32)
    for place in range(n_taps):
        np.subtract(tokens, place + 1, out=table[:, place])
    # The nth token of a span, from 0, looks back beyond it in the column `nth` and in those behind.
    pairs = [(nth, column) for nth in range(n_taps) for column in range(nth, n_taps)]
    nth, column = np.array(pairs, np.int32).reshape(-1, 2).T
    # Counted from the trunk's end; without a trunk, both of its ends are 0.
    outside = spans.trunk_stops[:, None] - (column - nth + 1)
    outside[outside < spans.trunk_starts[:, None]] = -1
    inside = nth < spans.lengths[:, None]
    places = n_taps * spans.starts[:, None] + (n_taps * nth + column)
    table.reshape(-1)[places[inside]] = outside[inside]


def make_pack(rows: Sequence[Row], groups: Sequence[Group], *, n_tokens: int | None, oversize: bool = False) -> Pack:
    """The pack of `groups` of `rows`, at least one, padded to `n_tokens` in all; None for no padding."""
    ids = [rows[members[0]].id_bytes[: ID_BYTES * n_shared or None] for members, n_shared in groups]
    parents: list[int | None] = [None] * len(groups)
    n_before = [0] * len(groups)
    alone = [trunk for trunk, group in enumerate(groups) if not group.trunk_tokens]
    planned = [groups[trunk].rows[0] for trunk in alone]
    for trunk, (members, n_shared) in enumerate(groups):
        if n_shared:
            planned += members
            parents += [trunk] * len(members)
            n_before += [n_shared] * len(members)
    branches = zip(planned[len(alone) :], n_before[len(groups) :], strict=True)
    ids += [rows[index].id_bytes[ID_BYTES * n_shared :] for index, n_shared in branches]
    # The span that each row ends in.
    homes = [*alone, *range(len(groups), len(ids))]
    lengths = [len(piece) // ID_BYTES for piece in ids]
    n_real = sum(lengths)
    if n_tokens is not None and n_tokens != n_real:
        assert n_tokens > n_real, (n_tokens, n_real)
        assert PADDING_ID == 0
        ids.append(bytes(ID_BYTES * (n_tokens - n_real)))
        lengths.append(n_tokens - n_real)
        parents.append(None)
        n_before.append(0)
    starts = list(accumulate(lengths, initial=0))
    n_total = starts.pop()
    # Where position 0 of each span's row would lie in the pack.
    zeros = [start - before for start, before in zip(starts, n_before, strict=True)]
    slots = [zeros[home] + slot for home, index in zip(homes, planned, strict=True) for slot in rows[index].slots]
    positions = np.arange(n_total, dtype=np.int64)
    positions -= np.repeat(np.array(zeros, np.int64), lengths)
    return Pack(
        ids=np.frombuffer(b"".join(ids), np.int64),
        positions=read_only(positions),
        # What `Span` does, in half the time.
        spans=tuple(map(tuple.__new__, repeat(Span), zip(starts, lengths, parents, strict=True))),
        n_trunks=len(groups),
        n_real_tokens=n_real,
        slots=read_only(np.array(slots, np.int64)),
        rows=tuple(planned),
        oversize=oversize,
    )


def read_only(table: Table) -> Table:
    """`table` itself, which nobody can write to from now on."""
    table.setflags(write=False)
    return table
