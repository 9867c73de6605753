"""The NLL by temperature: against `distributions`, and its derivatives against differences of it.

Refuses to test fits. Trap: isolated levels have another likelihood; every test has some.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_decisions import synthetic

from decider.calibrate.likelihood import LARGEST_GAP, likelihood, right
from decider.decisions import Decisions, distributions

MIXED = synthetic(200, isolated=True)
ROWS = np.arange(200)


def by_distributions(decisions: Decisions, temperature: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    p = distributions(decisions, temperature)
    return -np.log(p[np.arange(len(decisions)), decisions.gold])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.7, 20.0])
def test_the_nll_and_the_confidence_are_those_of_the_distributions(temperature: float) -> None:
    data = likelihood(MIXED)
    assert MIXED.isolated.any()
    reading = data.read(1 / temperature)
    np.testing.assert_allclose(reading.nll, by_distributions(MIXED, temperature), rtol=0, atol=1e-10)
    np.testing.assert_allclose(reading.confidence, distributions(MIXED, temperature).max(axis=1), rtol=1e-12)
    np.testing.assert_array_equal(data.curve(1 / temperature).nll, reading.nll)
    np.testing.assert_array_equal(right(MIXED), distributions(MIXED, temperature).argmax(axis=1) == MIXED.gold)


def test_each_decision_may_have_a_temperature_of_its_own() -> None:
    beta = np.random.default_rng(0).uniform(0.2, 3, 200)
    each = [likelihood(MIXED.take(np.array([row]))).read(float(beta[row])).nll[0] for row in ROWS]
    np.testing.assert_allclose(likelihood(MIXED).read(beta).nll, each, rtol=1e-12)


def test_the_derivatives_are_those_of_the_nll() -> None:
    data = likelihood(MIXED)
    beta, step = 0.8, 1e-4
    below, here, above = (data.curve(at) for at in (beta - step, beta, beta + step))
    np.testing.assert_allclose(here.slope, (above.nll - below.nll) / (2 * step), atol=1e-6)
    np.testing.assert_allclose(here.bend, (above.slope - below.slope) / (2 * step), atol=1e-6)


def test_a_part_is_what_is_made_of_the_part() -> None:
    rows = np.array([7, 3, 3, 190, 0])
    part, made = likelihood(MIXED).take(rows), likelihood(MIXED.take(rows))
    for name in ("values", "starts", "gold", "isolated"):
        np.testing.assert_array_equal(getattr(part, name), getattr(made, name))


def test_nothing_has_no_nll() -> None:
    empty = likelihood(MIXED).take(np.zeros(0, dtype=np.int64))
    assert len(empty.read(1.0).nll) == len(empty.curve(1.0).bend) == 0
    assert len(likelihood(MIXED.take(np.zeros(0, dtype=np.int64)))) == 0


def test_logits_that_are_far_apart_or_infinite_stay_finite() -> None:
    decisions = MIXED.take(ROWS[:60])
    logits = decisions.logits * 1e6
    logits[np.arange(60), (decisions.gold + 1) % decisions.n_options] = -np.inf
    far = likelihood(replace(decisions, logits=logits))
    assert np.abs(far.values).max() == LARGEST_GAP
    for temperature in (0.05, 20.0):
        curve = far.curve(1 / temperature)
        assert all(np.isfinite(column).all() for column in (curve.nll, curve.slope, curve.bend))


@pytest.mark.parametrize("gap", [40.0, 100.0, 300.0, 10_000.0])
def test_no_gap_that_a_temperature_can_bridge_is_cut(gap: float) -> None:
    decisions = MIXED.take(np.flatnonzero(~MIXED.isolated & (MIXED.n_options == 2))[:1])
    logits = np.full_like(decisions.logits, -np.inf)
    logits[0, :2] = [0.0, gap]
    wrong = likelihood(replace(decisions, logits=logits, gold=np.zeros(1, dtype=np.int64)))
    assert wrong.read(1 / 20).nll[0] == pytest.approx(np.logaddexp(0, gap / 20), rel=1e-12)
