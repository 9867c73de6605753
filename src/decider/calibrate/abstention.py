"""The threshold on the largest probability above which answers are wrong at most at an asked rate.

It refuses to know models, configs and prediction sets. What is promised, for each error rate α by itself: with
probability at least 1 − δ over the draw of the calibration sample, P(wrong | answered) ≤ α. Not promised: the share of
*all* decisions that are answered and wrong, which is smaller, and anything for one sample that was drawn badly (the δ).

Trap: a grid of thresholds made of the tested decisions' own probabilities depends on them. Which threshold is the first
bad one then does too, and the tests are no longer those of fixed hypotheses; so a tenth of the sample places the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from decider.calibrate.conformal import ROUNDING
from decider.decisions import BoolArray, Float64Array, IntArray
from decider.errors import MissingDependencyError

PLACING = 10
"""One decision in so many places the grid and is not tested."""
FIRST_SURE = 0.99
"""The first threshold has, as surely as this, enough tested decisions above it to pass. Higher up, a grid that happens
to lie a little off would end the sequence at its start."""


def accept_thresholds(
    largest: Float64Array, wrong: BoolArray, error_rates: Sequence[float], *, confidence: float, seed: int = 0
) -> tuple[float | None, ...]:
    """One threshold an error rate (ascending): answer where the largest probability is at least it; None: never.

    `largest` [n] is each decision's largest probability, `wrong` [n] whether that option is not the right one; n
    independent draws from what is to come. Fixed-sequence testing (Angelopoulos, Bates, Candès, Jordan & Lei, "Learn
    then Test", 2021) of "the risk among the answered is above α", from the highest threshold down, stopping at the
    first that is not rejected. The p-value is exact: the errors of a fixed threshold are binomial given how many are
    answered (Geifman & El-Yaniv 2017, who bound over all thresholds at once). With confidence 1 − δ nothing is
    accepted that is worse than α, however the risk depends on the threshold.

    Thresholds do not ascend with the error rate: a smaller one accepts no more than a larger one, which keeps each
    promise, since every threshold above an accepted one was accepted too. Raises MissingDependencyError.
    """
    try:
        from scipy.special import bdtr, betaincinv
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "thresholds for abstaining need scipy; install it with: pip install '.[eval]'"
        ) from error
    delta = 1 - confidence
    order = np.random.default_rng(seed).permutation(len(largest))
    placing, tested = np.split(order, [len(order) // PLACING])
    grid = _grid(largest[placing])
    answered, errors = _outcomes(largest[tested], wrong[tested], grid)
    # The share of all decisions above the r-th of m grid points is Beta(r, m + 1 − r).
    points = np.arange(1, len(placing) + 1)
    surely_tested = betaincinv(points, points[::-1], 1 - FIRST_SURE) * len(tested)
    rates = np.asarray(error_rates, dtype=np.float64)
    rejected = bdtr(errors[None], answered[None], rates[:, None]) <= delta

    accepted: list[float | None] = []
    lowest = len(grid)
    for row in reversed(range(len(rates))):
        # With fewer, (1 − α)ⁿ > δ: not even without an error would they pass.
        fewest = math.ceil(math.log(delta) / math.log1p(-rates[row]))
        first = int(np.searchsorted(surely_tested, fewest))
        stops = np.flatnonzero(~rejected[row, first:])
        end = first + int(stops[0]) if len(stops) else len(grid)
        lowest = min(lowest, end) if min(lowest, end) > first else 0
        accepted.append(float(grid[lowest - 1]) if lowest else None)
    return tuple(reversed(accepted))


def _grid(placing: Float64Array) -> Float64Array:
    """Thresholds to test, descending; the last answers everything."""
    return np.append(np.maximum(np.sort(placing)[::-1] - ROUNDING, 0.0), 0.0)


def _outcomes(largest: Float64Array, wrong: BoolArray, grid: Float64Array) -> tuple[IntArray, IntArray]:
    """How many decisions each threshold answers, and how many of these are wrong."""
    order = np.argsort(largest, kind="stable")
    errors_below = np.concatenate([[0], np.cumsum(wrong[order])])
    below = np.searchsorted(largest[order], grid, side="left")
    return len(largest) - below, errors_below[-1] - errors_below[below]
