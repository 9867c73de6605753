"""Rows into forwards: the cheapest plan there is, over captured shapes and, above the ladder, eager chunks.

It refuses to know tokens and devices; a row is its length. Trap: the best plan is not a plan per length. A short row
may ride in the free place of a longer batch, so no bucket can be planned on its own.

**The problem.** A forward of shape (B, T) costs c(B, T) and holds up to B rows of at most T tokens. Cover all n
rows at the least total cost.

**Longest rows first loses nothing.** Take any plan. Order its forwards by falling T and deal the rows into them anew,
longest first, filling each forward before the next. The rows fit: say a forward of length T is reached with k rows
dealt. The forwards before it are full, so they have k places, and in the given plan they held at most k rows. That
plan thus had at least n − k rows in forwards no longer than T. So at least n − k rows are no longer than T, and the
rows still to be dealt are the n − k shortest. A forward that stays empty drops out. Hence some optimal plan deals the
sorted rows in runs.

**So a recursion over the sorted rows is exact.** A forward that starts at row i must be as long as row i, and takes a
run:

    f[n] = 0,    f[i] = min over (B, T) with T ≥ bucket(row i) of c(B, T) + f[min(n, i + B)]

Every value is the cost of a plan that can be run, and the optimal plan above is among those compared. For one B only
the cheapest such T counts (the row's own bucket, unless a longer one was measured to be faster), so the work is rows
× batches. Nothing more is asked of c; it may even fall with B or T, as noise makes it.

**Eager chunks** have no free places: B is the number of rows, and dealing keeps it. The same argument holds, as a chunk
never gets longer by it: it stays within the token budget and, at prices that rise with T, costs no more. B is one of
the ladder's batches, as kernels are tuned for each number of rows. A row that a bucket holds never joins a chunk, which
would take it out of the captured set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from decider.plan.buckets import Grid
from decider.plan.cost import CostModel

Offer = tuple[int, int, float]
"""(batch, length, price in milliseconds) of one forward that could be run."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward of `width` rows of `length` padded tokens; `rows` index the planned lengths, longest first.

    A `captured` one runs in the graph (width, length), where places after its rows are padding. An eager one has no
    places but its rows.
    """

    length: int
    width: int
    rows: tuple[int, ...]
    captured: bool

    def __post_init__(self) -> None:
        assert 1 <= len(self.rows) <= self.width, self
        assert self.captured or len(self.rows) == self.width, self


def plan_batches(lengths: Sequence[int], grid: Grid, cost: CostModel) -> tuple[Batch, ...]:
    """The cheapest plan for rows of `lengths` tokens (each at least 1): every row in one batch; () for no rows.

    Longest rows come first, rows of equal length in the order given. At equal cost the narrower forward goes first.
    So the same lengths in another order give the same plan but for the indices.
    """
    assert all(length >= 1 for length in lengths), min(lengths)
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    n_long = sum(length > grid.lengths[-1] for length in lengths)
    long, short = order[:n_long], order[n_long:]
    return (
        *_deal(long, _eager_offers([lengths[row] for row in long], grid, cost), captured=False),
        *_deal(short, _captured_offers([lengths[row] for row in short], grid, cost), captured=True),
    )


def _captured_offers(lengths: Sequence[int], grid: Grid, cost: CostModel) -> list[Sequence[Offer]]:
    """For each row, the captured forwards that may start with it: the cheapest of each batch."""
    by_bucket: dict[int | None, Sequence[Offer]] = {}
    cheapest: dict[int, Offer] = {}
    # From long to short, so that `cheapest` spans all longer forwards; a batch captured there is captured here too.
    for length in reversed(grid.lengths):
        for batch in grid.batches_at(length):
            price = cost.price(batch, length)
            if batch not in cheapest or price <= cheapest[batch][2]:
                cheapest[batch] = (batch, length, price)
        by_bucket[length] = tuple(cheapest.values())
    return [by_bucket[grid.t_bucket(length)] for length in lengths]


def _eager_offers(lengths: Sequence[int], grid: Grid, cost: CostModel) -> list[Sequence[Offer]]:
    """For each row of falling `lengths`, the eager forwards that may start with it: one a batch of the ladder."""
    offers: list[Sequence[Offer]] = []
    for n_before, n_tokens in enumerate(lengths):
        length = grid.pad_len(n_tokens)
        widest = min(grid.max_rows(length), len(lengths) - n_before)
        offers.append([(width, length, cost.price(width, length)) for width in grid.batches if width <= widest])
    return offers


def _deal(rows: Sequence[int], offers: Sequence[Sequence[Offer]], *, captured: bool) -> list[Batch]:
    """Deal `rows` in runs at the least total price; a run that starts at place i is one of `offers[i]`."""
    widest = max((batch for row_offers in offers for batch, _, _ in row_offers), default=0)
    # A run may reach past the last row, where nothing is left to pay.
    rest = [0.0] * (len(rows) + widest)
    chosen = [row_offers[0] for row_offers in offers]
    for start in range(len(rows) - 1, -1, -1):
        least = float("inf")
        for offer in offers[start]:
            total = offer[2] + rest[start + offer[0]]
            if total < least:
                least, chosen[start] = total, offer
        rest[start] = least
    batches = []
    start = 0
    while start < len(rows):
        width, length, _ = chosen[start]
        batches.append(Batch(length, width, tuple(rows[start : start + width]), captured))
        start += width
    return batches
