"""Split conformal prediction: the threshold at which a set of options holds the right one at an asked rate.

It refuses to know models, configs and how a set is read out (`decider.selective`), whose two additions it counts in:
a set always holds the likeliest option, and a Score's is closed to a range of levels.

Trap: the rank is taken among n + 1 scores, the new one included, so ⌈(n + 1)(1 − α)⌉ and not ⌈n(1 − α)⌉. One rank less
is invisible on a large sample and breaks the promise on every one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from decider.decisions import Float64Array, IntArray

ROUNDING = 1e-11
"""What a threshold gives away, so that equal probabilities stay equal where they were computed in another order: the
vectorised ones agree with those of `Decider.ask` to 1e-12. It can only enlarge a set."""
EVERY_OPTION = 1.0


def nonconformity(probabilities: Float64Array, gold: IntArray, *, as_range: bool) -> Float64Array:
    """The least threshold at which a decision's set holds the right option; float64 [N], in [0, 1].

    `probabilities` is [N, W] with 0 beyond a decision's options, `gold` the index of the right one. The score is
    1 − p(gold) (LAC; Sadinle, Lei & Wasserman 2019), and 0 where gold is the likeliest, the first of equals, since that
    one is in every set. `as_range`: sets are closed to contiguous ranges, so a level is in as soon as one at least as
    far from the likeliest is; this is the score of these nested sets (Gupta, Kuchibhotla & Ramdas 2022).
    """
    rows = np.arange(len(gold))
    reached = probabilities[rows, gold]
    likeliest = probabilities.argmax(axis=1)
    if as_range:
        from_below = np.maximum.accumulate(probabilities, axis=1)
        from_above = np.maximum.accumulate(probabilities[:, ::-1], axis=1)[:, ::-1]
        reached = np.where(gold < likeliest, from_below[rows, gold], from_above[rows, gold])
    return np.where(gold == likeliest, 0.0, 1.0 - reached)


def rank(n: int, error_rate: float) -> int:
    """⌈(n + 1)(1 − α)⌉, which of n ascending scores is the threshold; n + 1 where no score is high enough.

    α is the decimal number that `error_rate` is written as: in binary, 100 · 0.29 is less than 29.
    """
    return math.ceil((n + 1) * (1 - Fraction(str(error_rate))))


def least_error_rate(n: int) -> float:
    """The smallest error rate at which n decisions leave out any option: 1 / (n + 1)."""
    return 1 / (n + 1)


def fewest_decisions(error_rate: float) -> int:
    """The least n at which sets leave out any option at `error_rate`: ⌈1/α⌉ − 1."""
    return math.ceil(1 / Fraction(str(error_rate))) - 1


def set_thresholds(scores: Float64Array, error_rates: Sequence[float]) -> tuple[float, ...]:
    """One threshold an error rate: option i is in the set where 1 − pᵢ ≤ it; 1.0, every option, where n is too small.

    `scores` [n] of decisions exchangeable with those to come. A new score is at most the threshold with probability at
    least 1 − α over sample and decision; without ties at most 1 − α + 1/(n + 1) (Vovk, Gammerman & Shafer 2005; Lei et
    al. 2018). Nothing is randomised, so ties only add to it.
    """
    ascending = np.sort(scores)
    ranks = [rank(len(ascending), error_rate) for error_rate in error_rates]
    return tuple(
        EVERY_OPTION if k > len(ascending) else min(EVERY_OPTION, float(ascending[k - 1]) + ROUNDING) for k in ranks
    )


def class_thresholds(
    scores: Float64Array, classes: Sequence[str], error_rates: Sequence[float]
) -> dict[str, tuple[int, tuple[float, ...]]]:
    """`set_thresholds` within each class of right answers, by name, with its number of decisions.

    The promise then holds for each class by itself (Mondrian; Vovk 2012). A class without decisions is not in it, and
    has to be in every set. `scores` are not to count ranges in: a range depends on the other levels' thresholds.
    """
    names, members, counts = np.unique(np.asarray(classes, dtype=object), return_inverse=True, return_counts=True)
    grouped = np.split(scores[np.argsort(members, kind="stable")], np.cumsum(counts)[:-1])
    return {str(name): (len(own), set_thresholds(own, error_rates)) for name, own in zip(names, grouped, strict=True)}
