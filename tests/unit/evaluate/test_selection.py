"""Risk-coverage: every order of equal confidences, tried one by one, has the closed form for its mean.

Refuses models. Trap: a single order of ties is right by luck, so ties are permuted exhaustively or averaged exactly.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decider.decisions import BoolArray, Float64Array
from decider.evaluate import selection


def risks_in_order(correct: list[bool]) -> list[Fraction]:
    return [Fraction(sum(not ok for ok in correct[:k]), k) for k in range(1, len(correct) + 1)]


def risks_over_orders(confidence: list[float], correct: list[bool]) -> list[Fraction]:
    """The expected risk at every k, over all orders that put no lower confidence first."""
    orders = [
        o for o in permutations(range(len(confidence))) if all(confidence[a] >= confidence[b] for a, b in pairwise(o))
    ]
    curves = [risks_in_order([correct[i] for i in order]) for order in orders]
    return [sum(at_k, Fraction(0)) / len(orders) for at_k in zip(*curves, strict=True)]


def data(seed: int, n: int, *, levels: int | None = None) -> tuple[Float64Array, BoolArray]:
    rng = np.random.default_rng(seed)
    confidence = rng.random(n) if levels is None else rng.integers(1, levels + 1, n) / levels
    return confidence, rng.random(n) < confidence


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_equals_are_averaged_over_their_orders(n: int, levels: int) -> None:
    confidence, correct = data(10 * n + levels, n, levels=levels)
    risks = risks_over_orders(confidence.tolist(), correct.tolist())
    curve = selection.risk_coverage(confidence, correct)
    np.testing.assert_allclose(curve.risk, [float(risk) for risk in risks], rtol=0, atol=1e-12)
    np.testing.assert_allclose(curve.coverage, np.arange(1, n + 1) / n)
    assert selection.aurc(confidence, correct) == pytest.approx(float(sum(risks) / n), abs=1e-12)


@pytest.mark.parametrize("n", [1, 3, 100, 3000])
def test_without_ties_the_area_is_the_mean_risk(n: int) -> None:
    confidence, correct = data(n, n)
    in_order = correct[np.argsort(-confidence)]
    risks = np.cumsum(~in_order) / np.arange(1, n + 1)
    assert selection.aurc(confidence, correct) == pytest.approx(risks.mean(), abs=1e-9)
    best = (np.cumsum(~np.sort(correct)[::-1]) / np.arange(1, n + 1)).mean()
    assert selection.excess_aurc(confidence, correct) == pytest.approx(risks.mean() - best, abs=1e-9)


def test_one_confidence_for_all_has_the_error_rate_everywhere() -> None:
    correct = np.array([True] * 30 + [False] * 10)
    curve = selection.risk_coverage(np.full(40, 0.8), correct)
    np.testing.assert_allclose(curve.risk, 0.25)
    assert selection.aurc(np.full(40, 0.8), correct) == pytest.approx(0.25, abs=1e-12)


@pytest.mark.parametrize(("right", "area"), [(True, 0.0), (False, 1.0)])
def test_all_right_and_all_wrong(right: bool, area: float) -> None:
    confidence, correct = np.linspace(0.1, 1, 20), np.full(20, right)
    assert selection.aurc(confidence, correct) == pytest.approx(area, abs=1e-12)
    assert selection.excess_aurc(confidence, correct) == pytest.approx(0.0, abs=1e-12)


def test_a_perfect_ranking_has_no_excess_and_a_reversed_one_the_most() -> None:
    correct = np.array([True] * 6 + [False] * 2)
    perfect = selection.excess_aurc(np.arange(8, 0, -1) / 8, correct)
    chance = selection.excess_aurc(np.full(8, 0.5), correct)
    reversed_ = selection.excess_aurc(np.arange(1, 9) / 8, correct)
    assert perfect is not None
    assert chance is not None
    assert reversed_ is not None
    assert perfect == pytest.approx(0, abs=1e-12)
    assert perfect < chance < reversed_


def test_a_thinned_curve_is_the_full_one_at_its_points() -> None:
    confidence, correct = data(1, 5000, levels=50)
    full = selection.risk_coverage(confidence, correct, points=5000)
    thin = selection.risk_coverage(confidence, correct)
    assert (len(full.risk), len(thin.risk)) == (5000, selection.CURVE_POINTS)
    at = np.round(thin.coverage * 5000).astype(int) - 1
    assert (at[0], at[-1]) == (0, 4999)
    np.testing.assert_allclose(thin.risk, full.risk[at], rtol=0, atol=1e-12)
    assert thin.risk[-1] == pytest.approx(1 - correct.mean(), abs=1e-12)


def test_no_decisions_have_no_area() -> None:
    empty, none = np.zeros(0), np.zeros(0, dtype=np.bool_)
    assert selection.aurc(empty, none) is None
    assert selection.excess_aurc(empty, none) is None
    assert selection.risk_coverage(empty, none).risk.shape == (0,)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60), st.one_of(st.none(), st.integers(1, 5)))
def test_order_changes_nothing(seed: int, n: int, levels: int | None) -> None:
    confidence, correct = data(seed, n, levels=levels)
    order = np.random.default_rng(seed).permutation(n)
    assert selection.aurc(confidence[order], correct[order]) == pytest.approx(
        selection.aurc(confidence, correct), abs=1e-12
    )
    before, after = (selection.risk_coverage(confidence[i], correct[i]).risk for i in (np.arange(n), order))
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-12)
