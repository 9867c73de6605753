"""The temperature at which held-out decisions are compared: found where SciPy finds it, and tasks count alike.

Refuses to ask a model. Trap: decisions have unlike numbers of options; what pads them is no option at any
temperature.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from decider.decisions import Float64Array
from decider.train.held import MOST_TEMPERATURE, _calibrated, _Decision


def softmax(logits: Float64Array) -> Float64Array:
    found = np.exp(logits - logits.max())
    return np.asarray(found / found.sum())


def drawn(n: int, sureness: float, seed: int) -> tuple[list[_Decision], list[Float64Array]]:
    """Decisions of 2 to 6 options, drawn by probabilities whose logits are then multiplied by `sureness`."""
    generator = np.random.default_rng(seed)
    decisions, distributions = [], []
    for _ in range(n):
        logits = generator.normal(size=int(generator.integers(2, 7)))
        gold = int(generator.choice(len(logits), p=softmax(logits)))
        decisions.append(_Decision("task", gold, ((0, 0),)))
        distributions.append(softmax(sureness * logits))
    return decisions, distributions


def mean_nll(
    temperature: float, decisions: Sequence[_Decision], distributions: Sequence[Float64Array], weights: Float64Array
) -> float:
    nlls = [
        -math.log(softmax(np.log(found) / temperature)[decision.gold])
        for decision, found in zip(decisions, distributions, strict=True)
    ]
    return float(weights @ nlls)


@pytest.mark.parametrize("sureness", [0.5, 1.0, 3.0])
def test_the_temperature_that_undoes_how_sure_a_model_is(sureness: float) -> None:
    decisions, distributions = drawn(4000, sureness, seed=1)
    weights = np.full(len(decisions), 1 / len(decisions))
    temperature, nll = _calibrated(decisions, distributions, weights)
    assert temperature == pytest.approx(sureness, rel=0.08)
    best = minimize_scalar(
        lambda log: mean_nll(math.exp(log), decisions, distributions, weights), bounds=(-2, 2), method="bounded"
    )
    assert nll == pytest.approx(best.fun, abs=1e-7)
    assert temperature == pytest.approx(math.exp(best.x), rel=1e-3)
    assert nll <= mean_nll(1.0, decisions, distributions, weights)


def test_a_decision_counts_by_its_weight() -> None:
    right, wrong = _Decision("a", 0, ((0, 0),)), _Decision("b", 1, ((0, 0),))
    sure = np.array([0.9, 0.1])
    _, even = _calibrated([right, wrong], [sure, sure], np.array([0.5, 0.5]))
    assert even == pytest.approx(math.log(2), abs=2e-3)
    temperature, _ = _calibrated([right, wrong], [sure, sure], np.array([0.9, 0.1]))
    assert temperature == pytest.approx(1.0, rel=1e-3)


def test_the_bounds_hold_for_what_is_always_right_and_for_what_knows_nothing() -> None:
    decisions = [_Decision("a", 0, ((0, 0),))]
    temperature, nll = _calibrated(decisions, [np.array([0.6, 0.4])], np.ones(1))
    assert temperature == pytest.approx(1 / MOST_TEMPERATURE)
    assert nll < 0.001
    temperature, nll = _calibrated(decisions, [np.array([0.0, 1.0])], np.ones(1))
    assert temperature == pytest.approx(MOST_TEMPERATURE)
    assert math.isfinite(nll)


def test_no_numbers_are_no_improvement() -> None:
    decisions = [_Decision("a", 0, ((0, 0),))]
    _, nll = _calibrated(decisions, [np.array([math.nan, math.nan])], np.ones(1))
    assert math.isnan(nll)
