"""Whether confidences come true: reliability bins, the expected calibration error, and the error of chance alone.

A confidence is any float64 [N] in [0, 1] and a `hit` whether its event came: the likeliest option's probability and
whether it is right (top-label calibration), or P(yes) and whether yes is right. It refuses to know which. Two rules:

- equal width: bin b of B is (b/B, (b+1)/B], the first with 0 too. So do Guo et al. (2017) and scikit-learn's
  `calibration_curve`. torchmetrics closes the other end, which gives confidences of exactly 1 a bin of their own.
- equal mass: bin ⌊B · r / N⌋, r being how many confidences are lower. Equal confidences share a bin, so bins may be
  larger than N/B, or empty.

Trap: the ECE of a perfect model is above 0, the more so the fewer decisions; `noise_floor` says how far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decider.decisions import BoolArray, Float64Array, IntArray

N_BINS = 15
FLOOR_DRAWS = 200
FLOOR_QUANTILE = 0.95
_CHUNK = 1 << 18
"""Uniform numbers held at once."""


@dataclass(frozen=True, slots=True)
class Binning:
    """Which bin each confidence is in, and the bins' ends [B]."""

    of: IntArray
    """[N], from 0."""
    low: Float64Array
    high: Float64Array
    """Equal width: the edges. Equal mass: the least and the greatest confidence in the bin, 0 in an empty one."""

    @property
    def n_bins(self) -> int:
        """B."""
        return len(self.low)


@dataclass(frozen=True, slots=True)
class Reliability:
    """The bins of a reliability diagram; arrays [B]. Both means are 0 in an empty bin."""

    low: Float64Array
    high: Float64Array
    n: IntArray
    confidence: Float64Array
    """Mean confidence."""
    frequency: Float64Array
    """Share of hits: the accuracy, or how often yes was right."""


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """The ECE of a perfectly calibrated model with these very confidences, by chance alone."""

    mean: float
    high: float
    """Its 95 % quantile: an ECE below it is no evidence of miscalibration."""
    draws: int


def equal_width(confidence: Float64Array, n_bins: int = N_BINS) -> Binning:
    """Bins of width 1/`n_bins`: (low, high], the first one closed."""
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    return Binning(np.searchsorted(edges[1:-1], confidence, side="left"), edges[:-1], edges[1:])


def equal_mass(confidence: Float64Array, n_bins: int = N_BINS) -> Binning:
    """Bins of N/`n_bins` decisions each, but that equal confidences are in one bin: the one their first falls in."""
    ordered = np.sort(confidence)
    of = np.searchsorted(ordered, confidence, side="left") * n_bins // max(len(confidence), 1)
    # Bins follow confidence, so each is a run of the sorted ones.
    ends = np.cumsum(np.bincount(of, minlength=n_bins))
    starts = np.concatenate([[0], ends[:-1]])
    low, high = np.zeros(n_bins), np.zeros(n_bins)
    filled = ends > starts
    low[filled], high[filled] = ordered[starts[filled]], ordered[ends[filled] - 1]
    return Binning(of, low, high)


def reliability(binning: Binning, confidence: Float64Array, hit: BoolArray) -> Reliability:
    """Count, mean confidence and share of hits, bin by bin."""
    n = np.bincount(binning.of, minlength=binning.n_bins)
    some = np.maximum(n, 1)
    return Reliability(
        low=binning.low,
        high=binning.high,
        n=n,
        confidence=np.bincount(binning.of, confidence, binning.n_bins) / some,
        frequency=np.bincount(binning.of, hit, binning.n_bins) / some,
    )


def ece(binning: Binning, confidence: Float64Array, hit: BoolArray) -> float | None:
    """Expected calibration error Σ_b n_b/N · |share of hits − mean confidence| (Naeini et al. 2015); None of none."""
    if not len(confidence):
        return None
    gaps = np.bincount(binning.of, confidence - hit, binning.n_bins)
    return float(np.abs(gaps).sum() / len(confidence))


def noise_floor(
    confidence: Float64Array, binnings: Sequence[Binning], *, seed: int, draws: int = FLOOR_DRAWS
) -> tuple[NoiseFloor, ...]:
    """The floor of each binning's ECE, by simulation: hits drawn as Bernoulli(confidence), `draws` times.

    The same hits for every binning. The order of decisions does not matter. There must be a decision.
    """
    n = len(confidence)
    assert n, "no decisions"
    order = np.argsort(confidence, kind="stable")
    ordered = confidence[order].astype(np.float32)
    bins = np.stack([binning.of[order] for binning in binnings])
    # Bins follow confidence, so that every binning's bins are runs of these segments.
    starts = np.concatenate([[0], 1 + np.flatnonzero((bins[:, 1:] != bins[:, :-1]).any(axis=0))])
    rng = np.random.Generator(np.random.SFC64(seed))
    uniform = np.empty((max(1, _CHUNK // n), n), dtype=np.float32)
    hits = np.empty((draws, len(starts)))
    for first in range(0, draws, len(uniform)):
        rows = hits[first : first + len(uniform)]
        rng.random(dtype=np.float32, out=uniform)
        np.add.reduceat((uniform < ordered)[: len(rows)], starts, axis=1, out=rows)
    gaps = np.add.reduceat(confidence[order], starts) - hits
    floors = []
    for row, binning in zip(bins, binnings, strict=True):
        within = row[starts][:, None] == np.arange(binning.n_bins)
        errors = np.abs(gaps @ within).sum(axis=1) / n
        floors.append(NoiseFloor(float(errors.mean()), float(np.quantile(errors, FLOOR_QUANTILE)), draws))
    return tuple(floors)
