"""A pack's spans as integer tables of a fixed size, the contents of which change from pack to pack.

It refuses to know kernels. Trap: the surplus of a table is not nothing. It is work on a span that exists, the padding
or an empty one behind the last, so that no kernel reads a number which means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decider.plan.pack import Pack, Table, read_only

CHUNK_TOKENS = 64
"""Tokens of a span that the gated delta rule takes at a time."""


def offsets(pack: Pack, n_spans: int) -> Table:
    """[n_spans + 1]: where each span starts, then N: `n_spans` spans, of which the surplus is empty.

    `n_spans` is at least the pack's spans, with padding.
    """
    assert len(pack.spans) <= n_spans, (len(pack.spans), n_spans)
    table = np.full(n_spans + 1, pack.n_tokens, np.int64)
    table[: len(pack.spans)] = [span.start for span in pack.spans]
    return read_only(table)


def parents(pack: Pack, n_spans: int) -> Table:
    """[n_spans]: the trunk of each branch, as an index of the spans; -1 for trunks, padding and surplus."""
    assert len(pack.spans) <= n_spans, (len(pack.spans), n_spans)
    table = np.full(n_spans, -1, np.int64)
    table[: len(pack.spans)] = [-1 if span.parent is None else span.parent for span in pack.spans]
    return read_only(table)


def chunk_capacity(n_tokens: int, n_spans: int) -> int:
    """The most chunks that at most `n_spans` spans of together `n_tokens` tokens can have."""
    n_spans = min(n_spans, n_tokens)
    return n_spans + (n_tokens - n_spans) // CHUNK_TOKENS


def chunk_table(pack: Pack, spans: Sequence[int], n_pairs: int) -> Table:
    """[n_pairs, 2]: (span, chunk) for every chunk of `spans`, in their order; chunks of a span count from 0.

    Surplus pairs are chunk 0 of the padding. A pack without padding names the span behind its last instead, which is
    empty, and of which `offsets` must hold one. `n_pairs` is at least the chunks of `spans`; see `chunk_capacity`.
    """
    counts = np.array([-(-pack.spans[index].length // CHUNK_TOKENS) for index in spans], np.int64)
    n_chunks = int(counts.sum())
    assert n_chunks <= n_pairs, (n_chunks, n_pairs)
    table = np.zeros((n_pairs, 2), np.int64)
    table[:n_chunks, 0] = np.repeat(np.array(spans, np.int64), counts)
    table[:n_chunks, 1] = np.arange(n_chunks) - np.repeat(np.cumsum(counts) - counts, counts)
    table[n_chunks:, 0] = pack.n_real_spans
    return read_only(table)
