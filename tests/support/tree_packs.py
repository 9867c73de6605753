"""Random packs with numbers for their tokens, and the same numbers row by row.

Refuses to know operations. Trap: every token has its own numbers, so a token taken from a wrong place shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from hypothesis import strategies as st
from torch import Tensor

from decider.ops.tree import Tree, tree_of
from decider.plan.pack import Group, Pack, make_pack
from decider.tokens.rows import Row

CPU = torch.device("cpu")

Shape = tuple[int, tuple[int, ...]]
"""Tokens of a trunk and of its branches."""


def shapes(longest: int = 90) -> st.SearchStrategy[list[Shape]]:
    """Some trunks, half of them too short for a convolution's taps, each with some branches or none."""
    tokens = st.one_of(st.integers(1, 4), st.integers(1, longest))
    return st.lists(st.tuples(tokens, st.lists(tokens, max_size=4).map(tuple)), min_size=1, max_size=4)


def pack_of(given: Sequence[Shape], padding: int = 0) -> Pack:
    """The pack of trunks and branches of these lengths, behind them `padding` tokens."""
    rows: list[Row] = []
    groups = []
    for trunk, branches in given:
        members = [Row((1,) * (trunk + tokens), (trunk + tokens - 1,), (2,), trunk) for tokens in branches or (0,)]
        # A single row may share nothing, but its start can be a trunk all the same.
        groups.append(Group(tuple(range(len(rows), len(rows) + len(members))), trunk if branches else 0))
        rows += members
    n_tokens = sum(trunk + sum(branches) for trunk, branches in given) + padding
    return make_pack(rows, groups, n_tokens=n_tokens)


def tree_for(given: Sequence[Shape], padding: int = 0, taps: int = 1) -> Tree:
    return tree_of(pack_of(given, padding), CPU, taps)


def full_rows(pack: Pack) -> list[tuple[list[int], int]]:
    """For each span its whole row, as tokens of the pack, and how many of them are its trunk's."""
    rows = []
    for span in pack.spans:
        trunk = [] if span.parent is None else [*_tokens(pack, span.parent)]
        rows.append(([*trunk, *range(span.start, span.start + span.length)], len(trunk)))
    return rows


def _tokens(pack: Pack, index: int) -> range:
    return range(pack.spans[index].start, pack.spans[index].start + pack.spans[index].length)


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def permuted(given: Sequence[Shape], order: Sequence[int], turn: int) -> tuple[list[Shape], list[int]]:
    """The same groups in another order, the branches of each rotated; and for each token its place before."""
    starts_of_trunks = [*accumulate((trunk for trunk, _ in given), initial=0)]
    starts_of_branches: list[list[int]] = []
    start = starts_of_trunks[-1]
    for _, branches in given:
        starts_of_branches.append([*accumulate(branches, initial=start)])
        start += sum(branches)
    found: list[Shape] = []
    trunks: list[int] = []
    tails: list[int] = []
    for index in order:
        trunk, branches = given[index]
        numbers = [(number + turn) % len(branches) for number in range(len(branches))]
        found.append((trunk, tuple(branches[number] for number in numbers)))
        trunks += range(starts_of_trunks[index], starts_of_trunks[index] + trunk)
        for number in numbers:
            first = starts_of_branches[index][number]
            tails += range(first, first + branches[number])
    return found, trunks + tails
