"""Temperatures by the mean NLL: one for all, one a type, one a count of options, or between two by familiarity.

Every decision weighs the same, whatever its type, task and number of options. It refuses to know which form is worth
it; `fit` compares them held out. Trap: with every answer right the NLL falls until T is 0, and answers of a model at
chance have the least NLL at an infinite T. The first is no estimate and must not be taken; the second rightly flattens
what says nothing. So a fit says on which bound it ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from decider.calibrate.likelihood import Likelihood
from decider.calibrate.newton import minimise
from decider.decisions import Float64Array, IntArray
from decider.tokens.calibration import OptionTemperature

BOUNDS = (0.05, 20.0)
"""No fitted temperature lies outside."""
Bound = Literal["lower", "upper"]
LOWEST, HIGHEST = (math.log(bound) for bound in BOUNDS)
NODES = np.linspace(LOWEST, HIGHEST, 13)
"""Logarithms of the temperatures that are looked at first; 1 is in the middle."""
FLAT = 1e-12
"""Differences of a mean NLL that say nothing."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """One temperature."""

    temperature: float
    error: float
    """Standard error of ln T (the sandwich estimate); infinite where the data say nothing of it, or on a bound."""
    bound: Bound | None
    """Which of `BOUNDS` it lies on."""


@dataclass(frozen=True, slots=True)
class FittedLine:
    """A temperature for each count of options."""

    line: OptionTemperature
    bound: Bound | None
    """Which of `BOUNDS` the temperature of the fewest or the most options lies on; the lower one if both do."""


@dataclass(frozen=True, slots=True)
class FittedPair:
    """Two temperatures, between which it goes linearly with familiarity."""

    familiar: float
    unfamiliar: float
    bound: Bound | None
    """Which of `BOUNDS` one of them lies on; the lower one if both do."""


def fit_scalar(data: Likelihood, near: float | None = None) -> Fitted:
    """The temperature of the least mean NLL, to 1e-6 and better; `data` is not empty.

    The search starts `near` a temperature, else at the best of `NODES`: an NLL of isolated levels may have more than
    one valley. 1 where every temperature is as good as another.
    """
    if near is None:
        means = np.array([data.read(math.exp(-node)).nll.mean() for node in NODES])
        if np.ptp(means) <= FLAT:
            return Fitted(1.0, math.inf, bound=None)
        # Of equals the one nearest to T = 1.
        best = NODES[means <= means.min() + FLAT]
        start = best[np.argmin(np.abs(best))]
    else:
        start = math.log(near)
    slopes = bends = np.zeros(0)

    def evaluate(x: Float64Array) -> tuple[float, Float64Array, Float64Array]:
        nonlocal slopes, bends
        beta = math.exp(-x[0])
        curve = data.curve(beta)
        # By ln T.
        slopes, bends = -beta * curve.slope, beta * beta * curve.bend + beta * curve.slope
        return float(curve.nll.mean()), slopes.mean(keepdims=True), bends.mean().reshape(1, 1)

    log = float(minimise(evaluate, np.array([start]), np.array([LOWEST]), np.array([HIGHEST]))[0])
    if log in (LOWEST, HIGHEST):
        return Fitted(BOUNDS[log == HIGHEST], math.inf, "upper" if log == HIGHEST else "lower")
    bend = float(bends.sum())
    return Fitted(math.exp(log), math.sqrt(float(slopes @ slopes)) / bend if bend > 0 else math.inf, bound=None)


def fit_line(data: Likelihood, counts: IntArray, near: tuple[float, float]) -> FittedLine:
    """T(n) = max(min, a + b · ln n) of the least mean NLL, near temperatures of the fewest and of the most options.

    `counts` [N] are `option_counts`, at least two different ones. Both temperatures lie within `BOUNDS`, and the lower
    one is `min`: a count that was not seen gets no temperature below those that were, and so T(n) > 0 for every n.
    """
    places = np.log(np.maximum(counts, 2))
    first, last = float(places.min()), float(places.max())
    assert first < last, first
    low, high, bound = _ends(data, (places - first) / (last - first), near)
    b = (high - low) / (last - first)
    return FittedLine(OptionTemperature(low - b * first, b, min(low, high)), bound)


def fit_pair(data: Likelihood, familiarity: Float64Array, near: tuple[float, float]) -> FittedPair:
    """The temperatures at a `familiarity` [N] of 1 and of 0 of the least mean NLL, near `near`, within `BOUNDS`."""
    unfamiliar, familiar, bound = _ends(data, familiarity, near[::-1])
    return FittedPair(familiar, unfamiliar, bound)


def _ends(data: Likelihood, share: Float64Array, near: tuple[float, float]) -> tuple[float, float, Bound | None]:
    """The temperatures at a `share` [N] of 0 and of 1, linear in it between them, and which bound one of them is on."""

    def evaluate(x: Float64Array) -> tuple[float, Float64Array, Float64Array]:
        # The ends' temperatures are e^x.
        ends = np.exp(x)
        parts = np.stack([(1 - share) * ends[0], share * ends[1]])
        beta = 1 / parts.sum(axis=0)
        curve = data.curve(beta)
        slope = -(beta**2) * curve.slope
        bend = beta**4 * curve.bend + 2 * beta**3 * curve.slope
        gradient = parts @ slope
        hessian = (parts * bend) @ parts.T + np.diag(gradient)
        return float(curve.nll.mean()), gradient / len(data), hessian / len(data)

    ends = minimise(evaluate, np.log(near), np.full(2, LOWEST), np.full(2, HIGHEST))
    bound: Bound | None = "lower" if (ends == LOWEST).any() else "upper" if (ends == HIGHEST).any() else None
    low, high = (float(end) for end in np.clip(np.exp(ends), *BOUNDS))
    return low, high, bound
