"""Answering only what is sure: the error among the most confident decisions, and the area under that curve.

A confidence is float64 [N], higher is surer; `correct` bool [N]. It refuses to choose a threshold. Equal confidences
are in no order, so every figure is the mean over all orders of them, which has a closed form.

Trap: at low coverage the curve is the fate of a few decisions; it starts at the error of the single surest one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decider.decisions import BoolArray, Float64Array

CURVE_POINTS = 200


@dataclass(frozen=True, slots=True)
class RiskCoverage:
    """The error among the surest share of the decisions; arrays [K], coverage ascending to 1."""

    coverage: Float64Array
    risk: Float64Array
    """1 less the accuracy of what is answered."""


def risk_coverage(confidence: Float64Array, correct: BoolArray, points: int = CURVE_POINTS) -> RiskCoverage:
    """The curve at every k of N decisions, or at `points` evenly spaced ones, the first and the last with them.

    Within equal confidences the expected number of errors grows evenly, so the expected risk at k needs no order.
    """
    n = len(confidence)
    if not n:
        return RiskCoverage(np.zeros(0), np.zeros(0))
    ks = np.unique(np.linspace(1, n, min(n, points)).round().astype(np.int64))
    sizes, errors = tied(confidence, correct)
    # np.interp runs straight from the errors above a group of equals to those at its end.
    expected = np.interp(ks, np.append(0, np.cumsum(sizes)), np.append(0, np.cumsum(errors)))
    return RiskCoverage(ks / n, expected / ks)


def aurc(confidence: Float64Array, correct: BoolArray) -> float | None:
    """Area under the risk-coverage curve: the mean over k = 1 … N of the error among the k surest; None of none.

    Geifman and El-Yaniv (2017), equal confidences by expectation. Lower is better.
    """
    if not len(confidence):
        return None
    sizes, errors = tied(confidence, correct)
    return float(areas(sizes[:, None], errors[:, None])[0])


def excess_aurc(confidence: Float64Array, correct: BoolArray) -> float | None:
    """The AURC less that of an order with every error last: what the ranking alone costs; in [0, 1], None of none."""
    own = aurc(confidence, correct)
    best = aurc(correct.astype(np.float64), correct)
    return None if own is None or best is None else max(0.0, own - best)


def tied(confidence: Float64Array, correct: BoolArray) -> tuple[Float64Array, Float64Array]:
    """Decisions and errors at each distinct confidence, the surest first; both [G]."""
    distinct, group = np.unique(confidence, return_inverse=True)
    sizes = np.bincount(group, minlength=len(distinct))[::-1].astype(np.float64)
    errors = np.bincount(group[~correct], minlength=len(distinct))[::-1].astype(np.float64)
    return sizes, errors


def areas(sizes: Float64Array, errors: Float64Array) -> Float64Array:
    """The AURC of each column of groups of equals, the surest first: whole numbers [G, R] → [R]. No column is empty.

    A group of t decisions and e errors behind k others with E errors adds Σⱼ (E + j·e/t) / (k + j) over j = 1 … t,
    which is e + (E − k·e/t) · (H(k + t) − H(k)) with H the harmonic numbers.
    """
    after, wrong_after = np.cumsum(sizes, axis=0), np.cumsum(errors, axis=0)
    before, wrong_before = after - sizes, wrong_after - errors
    harmonic = np.append(0.0, np.cumsum(1.0 / np.arange(1, int(after[-1].max()) + 1)))
    spans = harmonic[after.astype(np.int64)] - harmonic[before.astype(np.int64)]
    shares = errors / np.maximum(sizes, 1)
    return np.asarray((errors + (wrong_before - before * shares) * spans).sum(axis=0) / after[-1])
