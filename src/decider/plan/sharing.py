"""Rows with a common prefix: how their suffixes are chunked, and whether sharing beats full rows.

It refuses to know devices, caches and token ids; prices come from a measurement. Trap: sharing looks cheap by its
tokens and is not. It adds a forward, runs without graphs, copies the cache for every row, and each row still attends to
all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from decider.plan.buckets import Grid, Shape
from decider.plan.cost import CostModel

# Full rows must be promised to take this much longer than sharing, because both prices are lines through few points.
MARGIN = 1.1
# Rows of the widest fork on a grid. Every row of a fork has states of its own, 19 MB for Qwen3.5-2B, and warm-up runs
# the widest.
WIDEST_FORK = 64


@dataclass(frozen=True, slots=True)
class PrefixCost:
    """Measured prices of both ways; only their launch and token prices are used."""

    full: CostModel
    """Full rows: a forward, and each of its tokens."""
    prefix: CostModel
    """The prefix: its one forward with a cache, and each of its tokens."""
    suffix: CostModel
    """Suffixes: each forward, and each padded token of all rows."""
    fork: CostModel
    """What one *row* of a fork adds: its copied states, and each token of the prefix, copied and attended to."""


def worth_sharing(
    prefix_tokens: int,
    suffix_tokens: int,
    n_rows: int,
    cost: PrefixCost,
    *,
    n_forwards: int = 1,
    full_ms: float | None = None,
) -> bool:
    """Does running the prefix once promise to be faster, by `MARGIN`, than `n_rows` full rows?

    `suffix_tokens` counts the padded tokens of all suffixes together, which run in `n_forwards`. `full_ms` is the price
    of the full rows' own plan, which is right for graphs and padding; without it they count as one forward that pads
    nothing, the cheapest there could be without a graph.
    """
    assert prefix_tokens >= 1, prefix_tokens
    assert suffix_tokens >= n_rows >= n_forwards >= 1, (suffix_tokens, n_rows, n_forwards)
    if full_ms is None:
        full_ms = _line(cost.full, n_rows * prefix_tokens + suffix_tokens)
    return pays(shared_ms(prefix_tokens, suffix_tokens, n_rows, cost, n_forwards=n_forwards), full_ms)


def pays(sharing_ms: float, full_ms: float) -> bool:
    """Does `full_ms` for full rows exceed `sharing_ms` by more than `MARGIN`?"""
    return MARGIN * sharing_ms < full_ms


def shared_ms(prefix_tokens: int, suffix_tokens: int, n_rows: int, cost: PrefixCost, *, n_forwards: int) -> float:
    """Milliseconds of sharing, by its prices; arguments as in `worth_sharing`."""
    return (
        _line(cost.prefix, prefix_tokens)
        + n_rows * _line(cost.fork, prefix_tokens)
        + n_forwards * cost.suffix.launch_ms
        + suffix_tokens * cost.suffix.token_ms
    )


def suffix_chunks(lengths: Sequence[int], *, max_tokens: int, max_rows: int) -> tuple[tuple[int, ...], ...]:
    """Indices of `lengths` in chunks, longest first: each at most `max_rows` rows and `max_tokens` padded tokens.

    A row longer than `max_tokens` is a chunk of its own.
    """
    assert max_rows >= 1, max_rows
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    chunks = []
    while order:
        width = max(1, min(max_rows, max_tokens // lengths[order[0]]))
        chunks.append(tuple(order[:width]))
        order = order[width:]
    return tuple(chunks)


def fork_widths(grid: Grid) -> tuple[int, ...]:
    """The rows of a suffix forward on a `grid`: its batches, doubled on to `WIDEST_FORK`."""
    widths = list(grid.batches)
    while 2 * widths[-1] <= WIDEST_FORK:
        widths.append(2 * widths[-1])
    return tuple(widths)


def suffix_shape(n_rows: int, n_tokens: int, *, grid: Grid | None, room: int) -> Shape:
    """The padded (rows, tokens) of a suffix forward; exact without a `grid`.

    With one the rows are one of its `fork_widths`, and the tokens those of its ladder, at most the `room` that the
    model has positions for behind the prefix. So a device meets few shapes, all of them known.
    """
    assert 1 <= n_tokens <= room, (n_tokens, room)
    if grid is None:
        return n_rows, n_tokens
    return next(width for width in fork_widths(grid) if width >= n_rows), min(grid.pad_len(n_tokens), room)


def _line(price: CostModel, n_tokens: int) -> float:
    return price.launch_ms + n_tokens * price.token_ms
