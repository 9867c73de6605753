"""What each token of a pack sees, as numbers of a few bytes a token and as blocks of 128, for attention by blocks.

It refuses to know devices and kernels. A token of the padding sees itself alone: as one long span, padding would cost
more than all that is real. Trap: a block that is not listed is never read, whatever the mask says of its tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decider.plan.pack import Pack, SmallTable, span_tables

BLOCK = 128
"""Tokens of a block's side; a pack has a whole number of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """A token q sees the token k where k ≤ q and (k ≥ `own_start[q]` or `trunk_start[q]` ≤ k < `trunk_stop[q]`)."""

    own_start: SmallTable
    """[N] the first token of each token's own span."""
    trunk_start: SmallTable
    """[N]"""
    trunk_stop: SmallTable
    """[N] 0, as the start is, where a token has no trunk."""
    counts: SmallTable
    """[N / BLOCK] how many blocks of keys a block of queries reads."""
    blocks: SmallTable
    """[N / BLOCK, N / BLOCK] which: the first `counts` of each line, rising."""


def sight_of(pack: Pack) -> Sight:
    """The sight of `pack`, whose padded tokens are a whole number of blocks."""
    assert pack.n_tokens % BLOCK == 0, pack.n_tokens
    starts, lengths, firsts, stops = span_tables(pack.spans)
    own_start = np.repeat(starts, lengths)
    own_start[pack.n_real_tokens :] = np.arange(pack.n_real_tokens, pack.n_tokens)
    real = slice(pack.n_real_spans)
    counts, blocks = _blocks(starts[real], lengths[real], firsts[real], stops[real], pack.n_tokens // BLOCK)
    return Sight(
        own_start=own_start,
        trunk_start=np.repeat(firsts, lengths),
        trunk_stop=np.repeat(stops, lengths),
        counts=counts,
        blocks=blocks,
    )


def _blocks(
    starts: SmallTable, lengths: SmallTable, firsts: SmallTable, stops: SmallTable, n_blocks: int
) -> tuple[SmallTable, SmallTable]:
    # A block of padding alone reads itself.
    read = np.eye(n_blocks, dtype=np.bool_)
    lines = np.arange(n_blocks)
    for start, length, first, stop in zip(
        starts.tolist(), lengths.tolist(), firsts.tolist(), stops.tolist(), strict=True
    ):
        top, bottom = start // BLOCK, (start + length - 1) // BLOCK
        # From the span's first block up to the diagonal.
        read[top : bottom + 1, top : bottom + 1] |= lines[top : bottom + 1, None] >= lines[None, top : bottom + 1]
        if stop:
            read[top : bottom + 1, first // BLOCK : (stop - 1) // BLOCK + 1] = True
    # Stable, so that the blocks that are read come first and rise.
    blocks = np.argsort(~read, axis=1, kind="stable").astype(np.int32)
    return read.sum(1, dtype=np.int32), blocks
