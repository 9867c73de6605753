"""Newton's method within bounds, for the few parameters of a calibration.

It refuses to know what it minimises. SciPy has no minimiser that takes second derivatives and ends exactly on a bound;
tests hold this one to SciPy's results. Trap: it finds the valley it starts in.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from decider.decisions import Float64Array

MOST_STEPS = 100
LARGEST_STEP = 1.0
"""In each parameter; they are logarithms, or of that order."""
SMALLEST_STEP = 1e-5
"""The last one that is taken. It leaves an error of its square's order, as each step of Newton's does near the end."""
NOTHING = 1e-15
"""A gradient that is rounding."""

Evaluate = Callable[[Float64Array], tuple[float, Float64Array, Float64Array]]
"""Parameters [d] → value, gradient [d], second derivatives [d, d]."""


def minimise(evaluate: Evaluate, start: Float64Array, lower: Float64Array, upper: Float64Array) -> Float64Array:
    """The parameters [d] of a least value within the bounds, downhill from `start`; finite whatever the values do.

    Projected Newton steps (Bertsekas, 1982) by the absolute curvatures, halved until the value falls.
    """
    x = np.clip(start, lower, upper)
    value, gradient, hessian = evaluate(x)
    for _ in range(MOST_STEPS):
        free = ~((x <= lower) & (gradient > 0) | (x >= upper) & (gradient < 0))
        if not free.any() or np.abs(gradient[free]).max() <= NOTHING:
            break
        step = np.zeros_like(x)
        step[free] = _step(gradient[free], hessian[np.ix_(free, free)])
        ahead = np.clip(x + step, lower, upper)
        if np.abs(ahead - x).max() <= SMALLEST_STEP:
            return np.asarray(ahead)
        there = evaluate(ahead)
        while there[0] > value:
            step /= 2
            ahead = np.clip(x + step, lower, upper)
            if np.abs(ahead - x).max() <= SMALLEST_STEP:
                return x
            there = evaluate(ahead)
        x, (value, gradient, hessian) = ahead, there
    return x


def _step(gradient: Float64Array, hessian: Float64Array) -> Float64Array:
    """Downhill whatever the curvature; no component beyond `LARGEST_STEP`."""
    bends, axes = np.linalg.eigh(hessian)
    bends = np.maximum(np.abs(bends), np.finfo(np.float64).tiny ** 0.5)
    step = -axes @ ((axes.T @ gradient) / bends)
    return np.asarray(step * min(1.0, LARGEST_STEP / np.abs(step).max()))
