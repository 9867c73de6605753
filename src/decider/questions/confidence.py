"""How sure a distribution is: the two confidences of the wire, and the normalised-entropy certainty.

It refuses to know questions. Trap: probabilities come from a softmax and sum to 1 only nearly, so every result is
clamped to its stated range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def argmax(probabilities: Sequence[float]) -> int:
    """Index of the largest; the lowest one on a tie."""
    return max(range(len(probabilities)), key=probabilities.__getitem__)


def choice_confidence(probabilities: Sequence[float]) -> float:
    """(m − 1/n) / (1 − 1/n), with n options and m the largest probability; in [0, 1], and 1 when n = 1."""
    n = len(probabilities)
    return 1.0 if n == 1 else clamp((max(probabilities) - 1 / n) / (1 - 1 / n))


def score_confidence(probabilities: Sequence[float]) -> float:
    """max(0, 1 − Σ pᵢ·|i − k| / D), k the most likely of n levels and D = Σ |i − (n − 1)/2| / n; 1 when n = 1.

    In [0, 1]: D is the mean distance of a uniform distribution from the middle of the scale.
    """
    n = len(probabilities)
    if n == 1:
        return 1.0
    top = argmax(probabilities)
    spread = math.fsum(p * abs(level - top) for level, p in enumerate(probabilities))
    uniform_spread = math.fsum(abs(level - (n - 1) / 2) for level in range(n)) / n
    return clamp(1 - spread / uniform_spread)


def certainty(probabilities: Sequence[float]) -> float:
    """1 − H / ln n, with H the entropy in nats; in [0, 1], and 1 when n = 1."""
    n = len(probabilities)
    if n == 1:
        return 1.0
    entropy = -math.fsum(p * math.log(p) for p in probabilities if p > 0)
    return clamp(1 - entropy / math.log(n))


def clamp(value: float, high: float = 1.0) -> float:
    """`value`, or the nearer end of [0, `high`]."""
    return min(max(value, 0.0), high)
