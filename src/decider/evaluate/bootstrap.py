"""How far figures would move with other data of the same kind: percentile bootstrap intervals, seeded.

Items are resampled, not decisions: the questions of one item share its state, so their errors go together, and an
interval that took them for independent would be too narrow. Every figure here is made of sums over items, which a
resample weights. Two shortcuts keep 100,000 decisions quick:

- more items than `MAX_UNITS` are dealt at random into that many blocks, and blocks are resampled. A block's sum is a
  sum of independent items, so widths are right in the mean; the deal moves them by about 1/√(2 · `MAX_UNITS`) = 2.2 %,
  as the draw of `RESAMPLES` does;
- for ranks (AURC, AUROC), more distinct confidences than `MAX_CELLS` are merged with their neighbours into that many
  cells of equals, which moves the ends by less than 1 % of the width.

It refuses to know what a figure is good for. Trap: a resample adds the noise of sampling a second time, which an ECE
counts as error; so its interval lies too high for a model near its noise floor, and may be all above the ECE itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decider.decisions import BoolArray, Float64Array, IntArray
from decider.errors import MissingDependencyError
from decider.evaluate.bins import Binning
from decider.evaluate.selection import areas

LEVEL = 0.95
RESAMPLES = 1_000
MAX_UNITS = 1_000
MAX_CELLS = 256


@dataclass(frozen=True, slots=True)
class Interval:
    """The middle 95 % of a figure over resamples."""

    low: float
    high: float
    resamples: int
    """In how many the figure was defined."""
    units: int
    """How many units were resampled: the items, or `MAX_UNITS` blocks of them."""


@dataclass(frozen=True, slots=True)
class Resamples:
    """How often each unit comes in each resample."""

    unit: IntArray
    """[N], the unit of each decision."""
    weights: Float64Array
    """[units, resamples], whole numbers; every column sums to the number of units."""
    sizes: Float64Array
    """[resamples], the decisions in each."""

    def sums(self, values: Float64Array | BoolArray) -> Float64Array:
        """Σ of `values` [N] in each resample; [resamples]. Infinite where an infinite value is in it."""
        infinite = np.isinf(values)
        units = len(self.weights)
        total = np.bincount(self.unit, np.where(infinite, 0.0, values), units) @ self.weights
        if infinite.any():
            # By itself, since 0 · ∞ is no number.
            total[np.bincount(self.unit, infinite, units) @ self.weights > 0] = np.inf
        return np.asarray(total)

    def sums_by(self, cell: IntArray, n_cells: int, values: Float64Array | BoolArray) -> Float64Array:
        """Σ of `values` [N] by `cell` [N] in each resample; [n_cells, resamples].

        Raises MissingDependencyError without scipy.
        """
        try:
            from scipy.sparse import csr_array
        except ImportError as error:
            raise MissingDependencyError(
                "bootstrap intervals need scipy, which is not installed; run, in a checkout: pip install '.[eval]'"
            ) from error
        used = np.flatnonzero(values)
        shape = (n_cells, len(self.weights))
        table = csr_array((values[used].astype(np.float64), (cell[used], self.unit[used])), shape=shape)
        # A sparse product costs about ten times a dense one an entry.
        dense = len(used) > n_cells * len(self.weights) / 10
        return np.asarray((table.toarray() if dense else table) @ self.weights)


def units_of(clusters: IntArray, rng: np.random.Generator) -> tuple[IntArray, int]:
    """The unit of each decision, its cluster or a random block of clusters where there are too many; and how many.

    Depends on the clusters' numbers alone, not on the order of decisions.
    """
    distinct, cluster = np.unique(clusters, return_inverse=True)
    if len(distinct) <= MAX_UNITS:
        return np.asarray(cluster), len(distinct)
    block = rng.permutation(len(distinct)) * MAX_UNITS // len(distinct)
    return np.asarray(block[cluster]), MAX_UNITS


def resample(clusters: IntArray, *, seed: int, resamples: int = RESAMPLES) -> Resamples | None:
    """Draw `resamples` with replacement from the distinct `clusters` [N]; None where there are fewer than two.

    One draw serves every figure of the same decisions, and figures drawn together stay comparable.
    """
    rng = np.random.default_rng(seed)
    unit, n_units = units_of(clusters, rng)
    if n_units < 2:
        return None
    drawn = rng.integers(0, n_units, (n_units, resamples)) * resamples + np.arange(resamples)
    weights = np.bincount(drawn.ravel(), minlength=n_units * resamples).reshape(n_units, resamples).astype(np.float64)
    return Resamples(unit, weights, np.asarray(np.bincount(unit, minlength=n_units) @ weights))


def interval(figures: Float64Array, units: int) -> Interval | None:
    """The percentile interval of `figures` [resamples], NaN where one is undefined; None if all are.

    Its ends are figures of resamples, never between two, so that infinite ones do no harm.
    """
    defined = np.sort(figures[~np.isnan(figures)])
    n = len(defined)
    if not n:
        return None
    cut = int(n * (1 - LEVEL) / 2)
    return Interval(float(defined[cut]), float(defined[n - 1 - cut]), n, units)


def mean_interval(drawn: Resamples, values: Float64Array | BoolArray) -> Interval | None:
    """Of the mean of `values` [N]: an accuracy, NLL, Brier score, RPS or MAE."""
    return interval(drawn.sums(values) / drawn.sizes, len(drawn.weights))


def ece_interval(drawn: Resamples, binning: Binning, confidence: Float64Array, hit: BoolArray) -> Interval | None:
    """Of the ECE; the bins stay those of the data, as drawn. See the trap above."""
    return interval(eces(drawn, binning, confidence, hit), len(drawn.weights))


def eces(drawn: Resamples, binning: Binning, confidence: Float64Array, hit: BoolArray) -> Float64Array:
    """The ECE in each resample; [resamples]."""
    gaps = drawn.sums_by(binning.of, binning.n_bins, confidence - hit)
    return np.asarray(np.abs(gaps).sum(axis=0) / drawn.sizes)


def aurc_interval(drawn: Resamples, confidence: Float64Array, correct: BoolArray) -> Interval | None:
    """Of the AURC. A decision that comes twice in a resample ties with itself."""
    cell, n_cells = _cells(-confidence)
    sizes = drawn.sums_by(cell, n_cells, np.ones(len(cell), dtype=np.bool_))
    return interval(areas(sizes, drawn.sums_by(cell, n_cells, ~correct)), len(drawn.weights))


def auroc_interval(drawn: Resamples, p_yes: Float64Array, yes: BoolArray) -> Interval | None:
    """Of the AUROC, over the resamples with both answers in them; None if there is none."""
    cell, n_cells = _cells(p_yes)
    yeses, noes = drawn.sums_by(cell, n_cells, yes), drawn.sums_by(cell, n_cells, ~yes)
    wins = (yeses * (np.cumsum(noes, axis=0) - noes / 2)).sum(axis=0)
    pairs = yeses.sum(axis=0) * noes.sum(axis=0)
    figures = np.divide(wins, pairs, out=np.full_like(wins, np.nan), where=pairs > 0)
    return interval(figures, len(drawn.weights))


def _cells(values: Float64Array) -> tuple[IntArray, int]:
    """The rank of each value among the distinct ones, merged to at most `MAX_CELLS` cells of like count."""
    distinct, rank = np.unique(values, return_inverse=True)
    if len(distinct) <= MAX_CELLS:
        return np.asarray(rank), len(distinct)
    lower = np.searchsorted(np.sort(values), values, side="left")
    return np.asarray(lower * MAX_CELLS // len(values)), MAX_CELLS
