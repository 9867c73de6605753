"""Reliability bins: plain loops, scikit-learn and torchmetrics say the same, each by its own rule for edges.

Refuses models. Trap: torchmetrics closes a bin at its low end, so it is asked about the mirrored event, whose bins
close at the other.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from decider.decisions import BoolArray, Float64Array
from decider.evaluate import bins
from decider.evaluate.bins import Binning

EDGES = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1 / 15, 14 / 15, 0.5, 1 / 3]


def random_data(seed: int, n: int, *, ties: bool = False) -> tuple[Float64Array, BoolArray]:
    rng = np.random.default_rng(seed)
    confidence = rng.choice(EDGES, n) if ties else rng.random(n)
    return confidence, rng.random(n) < confidence**1.5


def width_bin(value: float, n_bins: int) -> int:
    edges = np.linspace(0, 1, n_bins + 1).tolist()
    return next(b for b in range(n_bins) if value <= edges[b + 1])


def ece_by_loops(confidence: list[float], hit: list[bool], of: list[int]) -> float:
    members = defaultdict(list)
    for value, came, where in zip(confidence, hit, of, strict=True):
        members[where].append((value, came))
    total = 0.0
    for pairs in members.values():
        n = len(pairs)
        gap = math.fsum(value for value, _ in pairs) / n - sum(came for _, came in pairs) / n
        total += n / len(confidence) * abs(gap)
    return total


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [1, 2, 14, 15, 16, 500])
@pytest.mark.parametrize("n_bins", [1, 10, 15])
def test_bins_and_ece_equal_loops(n: int, n_bins: int, ties: bool) -> None:
    confidence, hit = random_data(n, n, ties=ties)
    values = confidence.tolist()
    expected = {
        "width": [width_bin(value, n_bins) for value in values],
        "mass": [sum(other < value for other in values) * n_bins // n for value in values],
    }
    found = {"width": bins.equal_width(confidence, n_bins), "mass": bins.equal_mass(confidence, n_bins)}
    for rule, of in expected.items():
        assert found[rule].of.tolist() == of, rule
        assert found[rule].n_bins == n_bins
        error = ece_by_loops(values, hit.tolist(), of)
        assert bins.ece(found[rule], confidence, hit) == pytest.approx(error, abs=1e-12), rule


@pytest.mark.parametrize("rule", [bins.equal_width, bins.equal_mass])
def test_a_reliability_diagram_sums_up_to_its_ece(rule: object) -> None:
    assert callable(rule)
    confidence, hit = random_data(1, 333)
    binning: Binning = rule(confidence)
    chart = bins.reliability(binning, confidence, hit)
    assert chart.n.sum() == 333
    total = (chart.n * np.abs(chart.frequency - chart.confidence)).sum() / 333
    assert bins.ece(binning, confidence, hit) == pytest.approx(total, abs=1e-12)
    for b in range(15):
        own = confidence[binning.of == b]
        assert chart.n[b] == len(own)
        assert chart.confidence[b] == pytest.approx(own.mean(), abs=1e-12)
        assert chart.frequency[b] == pytest.approx(hit[binning.of == b].mean(), abs=1e-12)
        assert chart.low[b] <= own.min() <= own.max() <= chart.high[b]


@pytest.mark.parametrize("ties", [False, True])
def test_scikit_learn_bins_the_same_by_width(ties: bool) -> None:
    confidence, hit = random_data(2, 600, ties=ties)
    chart = bins.reliability(bins.equal_width(confidence), confidence, hit)
    frequency, mean = calibration_curve(hit, confidence, n_bins=15, strategy="uniform")
    np.testing.assert_allclose(chart.frequency[chart.n > 0], frequency, rtol=0, atol=1e-12)
    np.testing.assert_allclose(chart.confidence[chart.n > 0], mean, rtol=0, atol=1e-12)


def test_scikit_learn_bins_the_same_by_mass() -> None:
    confidence, hit = random_data(3, 600)
    chart = bins.reliability(bins.equal_mass(confidence), confidence, hit)
    assert chart.n.tolist() == [40] * 15
    frequency, mean = calibration_curve(hit, confidence, n_bins=15, strategy="quantile")
    np.testing.assert_allclose(chart.frequency, frequency, rtol=0, atol=1e-12)
    np.testing.assert_allclose(chart.confidence, mean, rtol=0, atol=1e-12)


@pytest.mark.parametrize("saturated", [0.0, 0.4])
def test_torchmetrics_has_the_same_ece_of_the_mirrored_event(saturated: float) -> None:
    rng = np.random.default_rng(4)
    confidence = (rng.random(2000) * 0.9 + 0.1).astype(np.float32).astype(np.float64)
    confidence[rng.random(2000) < saturated] = 1.0
    hit = rng.random(2000) < confidence**2
    mirrored = torch.from_numpy(1 - confidence).float()
    theirs = float(binary_calibration_error(mirrored, torch.from_numpy(~hit).long(), n_bins=15, norm="l1"))
    assert bins.ece(bins.equal_width(confidence), confidence, hit) == pytest.approx(theirs, abs=1e-6)


def test_torchmetrics_has_the_same_top_label_ece_off_the_edges() -> None:
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.full(6, 0.4), 3000).astype(np.float32)
    gold = rng.integers(0, 6, 3000)
    gold[:1800] = p[:1800].argmax(axis=1)
    confidence = p.max(axis=1).astype(np.float64)
    # There the rules differ, or float32 rounds across.
    off = np.abs(confidence[:, None] - np.linspace(0, 1, 16)).min(axis=1) > 1e-6
    p, gold, confidence = p[off], gold[off], confidence[off]
    theirs = multiclass_calibration_error(torch.from_numpy(p), torch.from_numpy(gold), num_classes=6, n_bins=15)
    hit = p.argmax(axis=1) == gold
    assert bins.ece(bins.equal_width(confidence), confidence, hit) == pytest.approx(float(theirs), abs=1e-6)


def test_equal_confidences_share_a_bin_of_equal_mass() -> None:
    confidence = np.array([0.3] + [0.5] * 98 + [0.9])
    binning = bins.equal_mass(confidence)
    assert binning.of.tolist() == [0] * 99 + [14]
    assert (binning.low[0], binning.high[0], binning.low[14], binning.high[14]) == (0.3, 0.5, 0.9, 0.9)
    assert not binning.low[1:14].any()
    assert bins.equal_mass(np.full(9, 1.0)).of.tolist() == [0] * 9


def test_no_decisions_have_no_ece() -> None:
    empty, none = np.zeros(0), np.zeros(0, dtype=np.bool_)
    for binning in (bins.equal_width(empty), bins.equal_mass(empty)):
        assert bins.ece(binning, empty, none) is None
        assert not bins.reliability(binning, empty, none).n.any()
    with pytest.raises(AssertionError, match="no decisions"):
        bins.noise_floor(empty, [bins.equal_width(empty)], seed=0)


def test_the_noise_floor_is_the_mean_ece_of_a_perfect_model() -> None:
    confidence, _ = random_data(6, 400)
    binnings = bins.equal_width(confidence), bins.equal_mass(confidence)
    floors = bins.noise_floor(confidence, binnings, seed=1, draws=3000)
    rng = np.random.default_rng(2)
    for binning, floor in zip(binnings, floors, strict=True):
        errors = [bins.ece(binning, confidence, rng.random(400) < confidence) for _ in range(3000)]
        slow = np.array(errors, dtype=np.float64)
        # Four standard errors of the difference of two means.
        assert abs(floor.mean - slow.mean()) < 4 * slow.std() * math.sqrt(2 / 3000)
        assert abs((slow <= floor.high).mean() - 0.95) < 0.025
        assert floor.draws == 3000


def test_the_noise_floor_of_one_bin_is_that_of_a_binomial() -> None:
    n, p = 100, 0.7
    confidence = np.full(n, p)
    (floor,) = bins.noise_floor(confidence, [bins.equal_width(confidence)], seed=0, draws=20_000)
    chances = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    expected = math.fsum(chance * abs(k / n - p) for k, chance in enumerate(chances))
    assert floor.mean == pytest.approx(expected, rel=0.02)


def test_certain_models_have_no_noise() -> None:
    confidence = np.array([1.0, 1.0, 0.0])
    (floor,) = bins.noise_floor(confidence, [bins.equal_width(confidence)], seed=0)
    assert (floor.mean, floor.high) == (0.0, 0.0)


def test_a_floor_is_the_same_for_a_seed_and_in_any_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    confidence, _ = random_data(7, 64)
    binnings = [bins.equal_width(confidence)]
    once = bins.noise_floor(confidence, binnings, seed=3)
    monkeypatch.setattr(bins, "_CHUNK", 64 * 7)
    assert bins.noise_floor(confidence, binnings, seed=3) == once
    assert bins.noise_floor(confidence, binnings, seed=4) != once


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60), st.booleans())
def test_order_changes_nothing(seed: int, n: int, ties: bool) -> None:
    confidence, hit = random_data(seed, n, ties=ties)
    order = np.random.default_rng(seed).permutation(n)
    for rule in (bins.equal_width, bins.equal_mass):
        before, after = rule(confidence), rule(confidence[order])
        assert after.of.tolist() == before.of[order].tolist()
        error = bins.ece(before, confidence, hit)
        assert bins.ece(after, confidence[order], hit[order]) == pytest.approx(error, abs=1e-12)
        floor, again = (
            bins.noise_floor(values, [rule(values)], seed=0, draws=5)[0] for values in (confidence, confidence[order])
        )
        assert (again.mean, again.high) == pytest.approx((floor.mean, floor.high), abs=1e-12)
