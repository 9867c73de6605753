"""Packs that a graph is checked on: spans of many lengths, the same ones in every run.

It refuses to know models and devices. Trap: a graph that has kept a number of the pack it was captured with is right on
that pack. So there are two of each shape, which differ in all of their tables.
"""

from __future__ import annotations

import random

from decider.plan.pack import Group, Pack, make_pack
from decider.plan.tables import PackShape
from decider.tokens.rows import Row

LEAST_TOKENS = 24
"""Of a shape that a pack of several spans fits in."""


def probe(shape: PackShape, vocab: int) -> Pack:
    """A pack of `shape`, nearly full: in a tree two trunks with branches, and in any a few rows alone."""
    n = shape.n_tokens
    assert n >= LEAST_TOKENS, shape
    draw = random.Random(str(shape))
    rows: list[Row] = []
    groups: list[Group] = []

    def add(trunk: int, *branches: int) -> None:
        start = draw.choices(range(vocab), k=trunk)
        first = len(rows)
        for length in branches or (0,):
            ids = (*start, *draw.choices(range(vocab), k=length))
            home = trunk if length else 0
            slots = tuple(sorted({(home + len(ids)) // 2, len(ids) - 1}))
            rows.append(Row(ids, slots, (2,) * len(slots), home))
        groups.append(Group(tuple(range(first, len(rows))), trunk if branches else 0))

    if shape.is_tree:
        add(n // 3, n // 8, 1, n // 16)
        add(max(1, n // 24), n // 8, n // 12)
        add(n // 8)
    else:
        add(n // 2)
        add(n // 4)
        add(1)
        add(n // 8)
    return make_pack(rows, groups, n_tokens=None)


def least(shape: PackShape) -> Pack:
    """The smallest pack of the family."""
    if shape.is_tree:
        return make_pack([Row((0, 0), (1,), (2,), 1)], [Group((0,), 1)], n_tokens=None)
    return make_pack([Row((0,), (0,), (2,), 0)], [Group((0,), 0)], n_tokens=None)
