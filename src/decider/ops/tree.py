"""The shape of one pack as the operations see it: its spans as plain integers, its tables as tensors on the device.

It refuses to know models and heads, and plans nothing but how an operation walks through a pack. Trap: all of it is
made once for a pack and read by every layer. An operation that makes index tensors of its own pays for them some
thirty times, and on a card waits for them each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decider.plan.pack import Pack, Span

RUN_ROWS = 64
"""Queries that attend at once. Measured by `benchmarks/ops_cpu.py`: shorter runs lose to the number of calls, longer
ones to keys that a mask hides and to scores that no longer fit a cache."""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring tokens that attend at once: a piece of one span, or short branches of one trunk."""

    start: int
    stop: int
    keys: tuple[tuple[int, int], ...]
    """Ranges of the pack that are seen: all that its first token sees, then the run itself."""
    bias: Tensor
    """float32 [tokens of the run, tokens of the run]: added to scores, −∞ where a token (row) does not see another."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Spans of like lengths whose states are computed at once, padded on the right."""

    rows: Tensor
    """int64 [spans, longest]: tokens of the pack; behind a span's end its own last one."""
    real: Tensor
    """bool [spans, longest]: false behind a span's end."""
    parents: Tensor | None
    """int64 [spans]: each branch's trunk, as its place among the spans of all batches before; None for roots."""


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A pack of N tokens on one device."""

    spans: tuple[Span, ...]
    """Trunks, then branches in the order of their trunks, then at most one span of padding; without gaps."""
    longest_row: int
    """Tokens of the longest row: a trunk, or a trunk and a branch."""
    positions: Tensor
    """int64 [N]: each token's place in its own row."""
    look_back: Tensor
    """int64 [N, taps − 1]: the tokens before each one in its own row, the nearest first; −1 before the start."""
    slots: Tensor
    """int64 [n_slots]: tokens whose logits are read."""
    runs: tuple[Run, ...]
    """For attention; together all tokens, in their order."""
    heads: Tensor
    """int64, rising: tokens that look back at others than those before them in the pack."""
    batches: tuple[Batch, ...]
    """For states: roots (trunks and padding), then branches."""
    order: Tensor
    """int64 [N]: each token's place in the batches, flattened and joined."""

    @property
    def n_tokens(self) -> int:
        """N, with padding."""
        return self.positions.shape[0]


def tree_of(pack: Pack, device: torch.device, n_taps: int) -> Tree:
    """The tables of `pack` on `device`, for a convolution of `n_taps` taps, the current token's among them.

    `n_taps` is 1 for a model without convolutions.
    """
    assert n_taps >= 1, n_taps
    look_back = pack.look_back(n_taps - 1)
    neighbours = np.arange(pack.n_tokens)[:, None] - np.arange(1, n_taps)
    batches, order = _batches(pack, device)
    return Tree(
        spans=pack.spans,
        longest_row=max(
            span.length + (0 if span.parent is None else pack.spans[span.parent].length) for span in pack.spans
        ),
        positions=_tensor(pack.positions, device),
        look_back=_tensor(look_back, device),
        slots=_tensor(pack.slots, device),
        runs=tuple(_runs(pack.spans, device)),
        heads=_tensor(np.flatnonzero((look_back != neighbours).any(axis=1)), device),
        batches=batches,
        order=_tensor(order, device),
    )


def _tensor(table: NDArray[np.int64] | NDArray[np.bool_], device: torch.device) -> Tensor:
    return torch.tensor(table, device=device)


def _runs(spans: Sequence[Span], device: torch.device) -> Iterator[Run]:
    causal = torch.full((RUN_ROWS, RUN_ROWS), -torch.inf, device=device).triu_(1)
    for members in _neighbours(spans):
        first, last = members[0], members[-1]
        trunk = () if first.parent is None else ((spans[first.parent].start, _stop(spans[first.parent])),)
        tokens = _stop(last) - first.start
        if len(members) > 1:
            numbers = np.repeat(np.arange(len(members)), [span.length for span in members])
            strangers = _tensor(numbers[:, None] != numbers, device)
            bias = causal[:tokens, :tokens].masked_fill(strangers, -torch.inf)
            yield Run(first.start, _stop(last), _joined((*trunk, (first.start, _stop(last)))), bias)
            continue
        n_runs = -(-tokens // RUN_ROWS)
        edges = [first.start + tokens * number // n_runs for number in range(n_runs + 1)]
        for start, stop in pairwise(edges):
            bias = causal[: stop - start, : stop - start]
            yield Run(start, stop, _joined((*trunk, (first.start, stop))), bias)


def _neighbours(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """As many branches of one trunk as fit a run; each other span alone.

    A hidden key still takes part, with the weight 0, so a NaN in its value is seen. Roots stay alone, which costs
    little; branches do not, and whoever reads a NaN behind a trunk cannot tell whose it is.
    """
    members: list[Span] = []
    for span in spans:
        if members and (
            span.parent is None or span.parent != members[0].parent or _stop(span) - members[0].start > RUN_ROWS
        ):
            yield members
            members = []
        members.append(span)
    if members:
        yield members


def _stop(span: Span) -> int:
    return span.start + span.length


def _joined(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Two ranges that touch as one, which needs no copy."""
    if len(ranges) == 2 and ranges[0][1] == ranges[1][0]:
        return ((ranges[0][0], ranges[1][1]),)
    return ranges


def _batches(pack: Pack, device: torch.device) -> tuple[tuple[Batch, ...], NDArray[np.int64]]:
    """Roots, then branches, each by the power of two above their length, so that padding never doubles the work."""
    by_size: dict[tuple[bool, int], list[int]] = {}
    for index, span in enumerate(pack.spans):
        by_size.setdefault((span.parent is not None, (span.length - 1).bit_length()), []).append(index)
    batches: list[Batch] = []
    places: dict[int | None, int] = {}
    order, base = np.empty(pack.n_tokens, np.int64), 0
    for (is_branch, _), members in sorted(by_size.items()):
        starts = np.array([pack.spans[index].start for index in members])[:, None]
        lengths = np.array([pack.spans[index].length for index in members])[:, None]
        steps = np.arange(lengths.max())
        rows, real = starts + np.minimum(steps, lengths - 1), steps < lengths
        order[rows[real]] = base + np.flatnonzero(real)
        base += rows.size
        parents = np.array([places[pack.spans[index].parent] for index in members]) if is_branch else None
        if not is_branch:
            places.update({index: len(places) + number for number, index in enumerate(members)})
        batches.append(
            Batch(
                _tensor(rows, device),
                _tensor(real, device),
                None if parents is None else _tensor(parents, device),
            )
        )
    return tuple(batches), order
