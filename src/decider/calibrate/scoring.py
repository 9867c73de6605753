"""Held-out figures with standard errors that know which decisions belong together, and the rule that picks one of many.

It refuses to know what is compared. Trap: the questions of one item are read from one text and err together; errors
that took them for independent would be too small, so every error here is one over items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decider.decisions import BoolArray, Float64Array, IntArray

N_BINS = 15
"""Of equal width, (low, high], the first with 0, as `decider eval` has them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over decisions and its standard error, which is infinite for a single item."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of several candidates is taken."""

    index: int
    best: int
    """The one of the least mean NLL."""
    excess: tuple[Estimate, ...]
    """Each one's mean NLL over the best one's, with the error of the paired difference."""


def estimate(values: Float64Array, items: IntArray) -> Estimate:
    """The mean of `values` [N], its error by the sums over `items` [N] (linearised, clusters as drawn at random)."""
    mean = float(values.mean())
    sums = np.bincount(items, values - mean)
    n_items = int(np.count_nonzero(np.bincount(items)))
    if n_items < 2:
        return Estimate(mean, math.inf)
    return Estimate(mean, math.sqrt(float(sums @ sums) * n_items / (n_items - 1)) / len(values))


def ece(confidence: Float64Array, hit: BoolArray, items: IntArray) -> Estimate:
    """Expected calibration error of `confidence` [N] in `hit` [N]; its error by the delta method.

    The ECE is the mean of confidence − hit, each with the sign of its bin's sum. The error takes the signs as known,
    which is true of bins that are clearly off; a perfect model's ECE is all chance, and this error too small for it.
    """
    bins = np.searchsorted(np.linspace(0, 1, N_BINS + 1)[1:-1], confidence, side="left")
    gaps = confidence - hit
    signs = np.sign(np.bincount(bins, gaps, N_BINS))
    return estimate(signs[bins] * gaps, items)


def choose(
    nll: Sequence[Float64Array], parameters: Sequence[int], items: IntArray, allowed: Sequence[bool] | None = None
) -> Choice:
    """The candidate of the fewest `parameters` whose mean NLL is within one standard error of the best one's.

    `nll` is [N] a candidate, over the same decisions; the error is that of the paired difference. Of equally many
    parameters the least NLL decides. Those that are not `allowed` are neither taken nor the best one. The
    one-standard-error rule of Breiman et al. (1984), paired.
    """
    means = [float(values.mean()) for values in nll]
    candidates = [index for index in range(len(nll)) if allowed is None or allowed[index]]
    best = min(candidates, key=means.__getitem__)
    excess = tuple(estimate(values - nll[best], items) for values in nll)
    within = [index for index in candidates if index == best or excess[index].value <= excess[index].error]
    return Choice(min(within, key=lambda index: (parameters[index], means[index])), best, excess)
