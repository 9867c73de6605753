"""Whether one run is better than another on the same decisions, or only luckier: paired tests, intervals, Holm.

Decisions are paired by key. Accuracy is tested by McNemar's exact test; NLL, Brier and ECE by a sign-flip permutation
test: were the runs alike, swapping their answers to an item would be as likely as not. Both are two-sided. Intervals
are the paired bootstrap's. Items are swapped and resampled whole, for the reason `bootstrap` gives, and dealt into
blocks as there, which costs a permutation test nothing but power. McNemar's test knows no items, so where an item has
several questions accuracy is tested by sign flips too; `Paired.test` says which it was.

It refuses runs over different data, and to say which run to use. Trap: with an infinite NLL in either run a mean
difference is infinite or undefined; that row has no test, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import numpy as np

from decider.decisions import BoolArray, Float64Array, IntArray
from decider.errors import ConfigError, MissingDependencyError
from decider.evaluate.bins import Binning, ece, equal_width
from decider.evaluate.bootstrap import Interval, Resamples, eces, interval, mean_interval, resample, units_of

FLIPS = 10_000
_CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class Scored:
    """What one run answered, decision by decision; arrays [N]."""

    name: str
    """How faults call the run: its file's name."""
    data_sha256: str
    keys: tuple[str, ...]
    gold: IntArray
    n_options: IntArray
    correct: BoolArray
    confidence: Float64Array
    nll: Float64Array
    brier: Float64Array


@dataclass(frozen=True, slots=True)
class Paired:
    """One figure of both runs. Numbers that are infinite, or undefined, are None."""

    figure: str
    """`accuracy`, `nll`, `brier` or `ece` (15 bins of equal width)."""
    first: float | None
    second: float | None
    difference: float | None
    """Second less first."""
    low: float | None
    """The difference's 95 % interval; None where there are fewer than two items."""
    high: float | None
    p: float | None
    p_holm: float | None
    """Corrected for all of the comparison's tests."""
    test: str
    """Which test `p` is of, or why there is none."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs on the same decisions."""

    first: str
    second: str
    decisions: int
    items: int
    units: int
    """What was swapped and resampled: the items, or blocks of them."""
    resamples: int
    flips: int
    first_alone_right: int
    second_alone_right: int
    figures: tuple[Paired, ...]

    def as_json(self) -> dict[str, object]:
        """Fields by name, ready for `json.dumps(…, allow_nan=False)`."""
        return {**asdict(self), "figures": [asdict(figure) for figure in self.figures]}


def compare(first: Scored, second: Scored, clusters: IntArray, *, seed: int) -> Comparison:
    """Pair the decisions of two runs and test every difference. `clusters` [N] numbers the item of each of `first`.

    Raises ConfigError if the runs are not over the same data, or over none; MissingDependencyError without scipy.
    """
    order = _pairing(first, second)
    n = len(order)
    assert clusters.shape == (n,), (clusters.shape, n)
    before, after = first, _ordered(second, order)
    drawn = resample(clusters, seed=seed)
    unit, n_units = units_of(clusters, np.random.default_rng(seed))
    signs = _Signs(unit, n_units, seed)
    items = len(np.unique(clusters))
    rows = [
        _accuracy(before, after, drawn, signs if items < n else None),
        _mean("nll", before.nll, after.nll, drawn, signs),
        _mean("brier", before.brier, after.brier, drawn, signs),
        _ece(before, after, drawn, signs),
    ]
    corrected = iter(holm([row.p for row in rows if row.p is not None]))
    return Comparison(
        first=first.name,
        second=second.name,
        decisions=n,
        items=items,
        units=n_units,
        resamples=0 if drawn is None else drawn.weights.shape[1],
        flips=FLIPS,
        first_alone_right=int((before.correct & ~after.correct).sum()),
        second_alone_right=int((~before.correct & after.correct).sum()),
        figures=tuple(row if row.p is None else replace(row, p_holm=next(corrected)) for row in rows),
    )


def mcnemar(first: BoolArray, second: BoolArray) -> float:
    """Exact two-sided p that one run is as often right alone as the other: binomial at 1/2; 1 if neither ever is.

    Raises MissingDependencyError without scipy.
    """
    try:
        from scipy.stats import binomtest  # type: ignore[attr-defined]
    except ImportError as error:
        raise MissingDependencyError(
            "comparing runs needs scipy, which is not installed; run, in a checkout: pip install '.[eval]'"
        ) from error
    alone, others = int((first & ~second).sum()), int((~first & second).sum())
    return float(binomtest(alone, alone + others, 0.5).pvalue) if alone + others else 1.0


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's (1979) step-down correction: the chance of any false finding among them stays below the level."""
    corrected = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        corrected[index] = largest
    return tuple(corrected)


@dataclass(frozen=True, slots=True)
class _Signs:
    """±1 for each unit, drawn `FLIPS` times, a chunk at a time and the same at every use."""

    unit: IntArray
    n_units: int
    seed: int

    def p(self, gaps: Float64Array, middle: Float64Array | None = None) -> float:
        """Two-sided p of Σ of `gaps` [N]; with `middle` [B], gaps are [N, B] and the figure is Σ|m + g| − Σ|m − g|.

        What was observed counts as one of the draws, so that p is never 0, nor smaller than it should be.
        """
        columns = gaps.reshape(len(gaps), -1).T
        sums = np.stack([np.bincount(self.unit, column, self.n_units) for column in columns], axis=1)
        observed = _swapped(sums.sum(axis=0)[None], middle)[0]
        rng = np.random.default_rng(self.seed)
        # The order of a sum moves its last bits, which must not break the tie of a draw with what was observed.
        least = abs(observed) - 1e-12 * (np.abs(sums).sum() + (0.0 if middle is None else np.abs(middle).sum()))
        as_far = 0
        for _ in range(0, FLIPS, _CHUNK):
            signs = 2.0 * rng.integers(0, 2, (_CHUNK, self.n_units), dtype=np.int8) - 1.0
            as_far += int((np.abs(_swapped(signs @ sums, middle)) >= least).sum())
        return (1 + as_far) / (1 + FLIPS)


def _swapped(gaps: Float64Array, middle: Float64Array | None) -> Float64Array:
    if middle is None:
        return np.asarray(gaps[:, 0])
    return np.asarray(np.abs(middle + gaps).sum(axis=1) - np.abs(middle - gaps).sum(axis=1))


def _accuracy(first: Scored, second: Scored, drawn: Resamples | None, signs: _Signs | None) -> Paired:
    before, after = first.correct.astype(np.float64), second.correct.astype(np.float64)
    if signs is None:
        p, test = mcnemar(first.correct, second.correct), "McNemar, exact"
    else:
        p, test = signs.p(after - before), "sign flips of items, since some have several questions"
    return _paired("accuracy", before.mean(), after.mean(), _ends(after - before, drawn), p, test)


def _mean(figure: str, before: Float64Array, after: Float64Array, drawn: Resamples | None, signs: _Signs) -> Paired:
    n_infinite = int((np.isinf(before) | np.isinf(after)).sum())
    if n_infinite:
        why = f"none, since the {figure.upper()} is infinite in one run or both (decisions: {n_infinite})"
        return _paired(figure, before.mean(), after.mean(), None, None, why)
    gaps = after - before
    return _paired(figure, before.mean(), after.mean(), _ends(gaps, drawn), signs.p(gaps), "sign flips of items")


def _ece(first: Scored, second: Scored, drawn: Resamples | None, signs: _Signs) -> Paired:
    runs = (first, second)
    bins = [equal_width(run.confidence) for run in runs]
    values = [ece(own, run.confidence, run.correct) for own, run in zip(bins, runs, strict=True)]
    assert values[0] is not None
    assert values[1] is not None
    columns = [_by_bin(own, run) for own, run in zip(bins, runs, strict=True)]
    p = signs.p((columns[1] - columns[0]) / 2, (columns[0] + columns[1]).sum(axis=0) / 2)
    ends = None
    if drawn is not None:
        each = [eces(drawn, own, run.confidence, run.correct) for own, run in zip(bins, runs, strict=True)]
        ends = interval(each[1] - each[0], len(drawn.weights))
    return _paired("ece", values[0], values[1], ends, p, "sign flips of items")


def _by_bin(binning: Binning, run: Scored) -> Float64Array:
    """[N, B]: confidence less correctness, in the column of the decision's bin; columns sum to what an ECE adds up."""
    table = np.zeros((len(run.keys), binning.n_bins))
    table[np.arange(len(run.keys)), binning.of] = run.confidence - run.correct
    return table


def _ends(gaps: Float64Array, drawn: Resamples | None) -> Interval | None:
    return None if drawn is None else mean_interval(drawn, gaps)


def _paired(figure: str, first: float, second: float, ends: Interval | None, p: float | None, test: str) -> Paired:
    values = [float(value) if math.isfinite(value) else None for value in (first, second)]
    difference = None if None in values else float(second - first)
    low, high = (None, None) if ends is None else (ends.low, ends.high)
    return Paired(figure, values[0], values[1], difference, low, high, p, None, test)


def _pairing(first: Scored, second: Scored) -> IntArray:
    """Where each of `first`'s decisions is in `second`."""
    for run in (first, second):
        if not run.keys:
            raise ConfigError(f"{run.name} holds no decisions, so there is nothing to compare; evaluate again")
        for before, key in pairwise(sorted(run.keys)):
            if before == key:
                raise ConfigError(f"{run.name} holds the decision {key!r:.80} twice; evaluate again")
    if first.data_sha256 != second.data_sha256:
        raise ConfigError(
            f"{first.name} and {second.name} were evaluated on different data files (SHA-256 {first.data_sha256:.12}… "
            f"and {second.data_sha256:.12}…); evaluate both on the same file"
        )
    at = {key: n for n, key in enumerate(second.keys)}
    for run, missing in ((second, set(first.keys) - at.keys()), (first, at.keys() - set(first.keys))):
        if missing:
            raise ConfigError(
                f"{run.name} lacks decisions of the other run (count: {len(missing)}, as {min(missing)!r:.80}); "
                "evaluate both on the same data"
            )
    order = np.fromiter((at[key] for key in first.keys), dtype=np.int64, count=len(first.keys))
    for what, one, other in (
        ("right answers", first.gold, second.gold),
        ("options", first.n_options, second.n_options),
    ):
        differ = np.flatnonzero(one != other[order])
        if len(differ):
            raise ConfigError(
                f"{first.name} and {second.name} differ in their {what} (decisions: {len(differ)}, as "
                f"{first.keys[differ[0]]!r:.80}); evaluate both on the same data"
            )
    return order


def _ordered(run: Scored, order: IntArray) -> Scored:
    return Scored(
        name=run.name,
        data_sha256=run.data_sha256,
        keys=tuple(run.keys[n] for n in order),
        gold=run.gold[order],
        n_options=run.n_options[order],
        correct=run.correct[order],
        confidence=run.confidence[order],
        nll=run.nll[order],
        brier=run.brier[order],
    )
