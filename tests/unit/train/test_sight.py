"""What a token sees, as ranges and as blocks, is what the pack says it sees.

Refuses to run attention. Trap: a block that is not listed is lost without an error, so all that is seen must be listed.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from tree_packs import Shape, full_rows, pack_of, shapes

from decider.plan.pack import Pack
from decider.train.sight import BLOCK, sight_of
from decider.train.tables import BoolTable


def whole_blocks(shapes_given: list[Shape]) -> Pack:
    n_tokens = sum(trunk + sum(branches) for trunk, branches in shapes_given)
    return pack_of(shapes_given, padding=-n_tokens % BLOCK)


def seen_in(pack: Pack) -> BoolTable:
    """[N, N] by the pack's own words: each row's tokens up to itself; of the padding, a token itself."""
    seen = np.zeros((pack.n_tokens, pack.n_tokens), np.bool_)
    for tokens, n_trunk in full_rows(pack)[: pack.n_real_spans]:
        for place, token in enumerate(tokens):
            if place >= n_trunk:
                seen[token, tokens[: place + 1]] = True
    padding = np.arange(pack.n_real_tokens, pack.n_tokens)
    seen[padding, padding] = True
    return seen


@settings(max_examples=60, deadline=None)
@given(given_shapes=shapes(200))
def test_ranges_and_blocks_hold_what_each_token_sees(given_shapes: list[Shape]) -> None:
    pack = whole_blocks(given_shapes)
    sight, seen = sight_of(pack), seen_in(pack)
    q, k = np.arange(pack.n_tokens)[:, None], np.arange(pack.n_tokens)[None]
    in_trunk = (k >= sight.trunk_start[:, None]) & (k < sight.trunk_stop[:, None])
    assert np.array_equal((k <= q) & ((k >= sight.own_start[:, None]) | in_trunk), seen)

    n = pack.n_tokens // BLOCK
    needed = seen.reshape(n, BLOCK, n, BLOCK).any(axis=(1, 3))
    listed = np.zeros((n, n), np.bool_)
    for line, count in enumerate(sight.counts):
        blocks = sight.blocks[line, :count]
        assert np.all(np.diff(blocks) > 0)
        listed[line, blocks] = True
    assert np.array_equal(listed, needed)
    assert np.array_equal(np.sort(sight.blocks, axis=1), np.broadcast_to(np.arange(n), (n, n)))
