"""Maps of P(yes): scikit-learn's numbers, never 0 or 1, and taken only where they earn it.

Refuses to test temperatures. Trap: data that a threshold parts have no finite maximum likelihood.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from decider.calibrate.noul import (
    MOST_POINTS,
    compare_maps,
    fit_isotonic,
    fit_platt,
    isotonic_nll,
    platt_nll,
)
from decider.decisions import BoolArray, Float64Array
from decider.errors import MissingDependencyError
from decider.selective import noul_mapped
from decider.tokens.calibration import IsotonicMap, PlattMap


def sigmoid(x: Float64Array) -> Float64Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def drawn(n: int, seed: int, a: float = 1.0, b: float = 0.0) -> tuple[Float64Array, BoolArray]:
    """Log-odds, and answers by Platt's map of them."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(0, 2, n)
    return log_odds, rng.random(n) < sigmoid(a * log_odds + b)


@pytest.mark.parametrize("seed", range(3))
def test_platt_is_logistic_regression_without_penalty(seed: int) -> None:
    log_odds, yes = drawn(500, seed, 0.6, -0.8)
    platt = fit_platt(log_odds, yes)
    regression = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000).fit(log_odds[:, None], yes)
    assert platt.a == pytest.approx(regression.coef_[0, 0], abs=1e-5)
    assert platt.b == pytest.approx(regression.intercept_[0], abs=1e-5)
    np.testing.assert_allclose(
        platt_nll(platt.a * log_odds + platt.b, yes),
        -np.log(np.where(yes, noul_mapped(sigmoid(log_odds), platt), 1 - noul_mapped(sigmoid(log_odds), platt))),
        atol=1e-9,
    )


@pytest.mark.parametrize("turned", [False, True])
def test_platt_stays_within_bounds_and_never_turns_answers_round(turned: bool) -> None:
    log_odds = np.linspace(-3, 3, 40)
    platt = fit_platt(log_odds, (log_odds < 0) if turned else (log_odds > 0))
    assert platt.a == (0.05 if turned else 20.0)
    assert abs(platt.b) <= 20


def test_isotonic_is_scikit_learns_between_the_ends() -> None:
    log_odds, yes = drawn(300, 3)
    p = sigmoid(log_odds)
    fitted = noul_mapped(p, fit_isotonic(p, yes))
    theirs = IsotonicRegression().fit(p, yes).predict(p)
    within = (theirs > 0) & (theirs < 1)
    assert within.any()
    np.testing.assert_allclose(fitted[within], theirs[within], atol=1e-12)


def test_an_end_block_counts_one_answer_of_each_more() -> None:
    p = np.array([0.1, 0.2, 0.3, 0.5, 0.6, 0.8, 0.9])
    yes = np.array([False, False, False, True, False, True, True])
    isotonic = fit_isotonic(p, yes)
    mapped = noul_mapped(p, isotonic)
    np.testing.assert_allclose(mapped, [1 / 5, 1 / 5, 1 / 5, 0.5, 0.5, 3 / 4, 3 / 4])
    assert isotonic_nll(np.array([0.0, 1.0]), np.array([True, False]), isotonic) == pytest.approx(np.log([5, 4]))


@pytest.mark.parametrize("yes", [[True], [False], [True] * 5, [False] * 5, [False, True], [True, False]])
def test_whatever_the_answers_are_a_map_is_sound(yes: list[bool]) -> None:
    p = np.linspace(0.2, 0.8, len(yes))
    isotonic = fit_isotonic(p, np.array(yes))
    assert all(a < b for a, b in zip(isotonic.x, isotonic.x[1:], strict=False))
    assert all(a <= b for a, b in zip(isotonic.y, isotonic.y[1:], strict=False))
    assert 0 < min(isotonic.y) <= max(isotonic.y) < 1
    platt = fit_platt(np.log(p / (1 - p)), np.array(yes))
    assert 0.05 <= platt.a <= 20
    assert -20 <= platt.b <= 20


def test_an_end_block_does_not_pass_its_neighbour() -> None:
    """One no alone would have 1/3, above the 1/4 of the block behind it."""
    p = np.linspace(0.1, 0.9, 6)
    isotonic = fit_isotonic(p, np.array([False, True, False, False, False, True]))
    assert noul_mapped(p, isotonic).tolist() == pytest.approx([1 / 4] * 5 + [2 / 3])


def test_a_long_map_is_thinned_and_stays_near() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(200_000)
    yes = rng.random(200_000) < p
    isotonic = fit_isotonic(p, yes)
    assert len(isotonic.x) == len(isotonic.y) <= MOST_POINTS
    regression = IsotonicRegression().fit(p, yes)
    assert len(regression.X_thresholds_) > MOST_POINTS
    assert np.abs(noul_mapped(p, isotonic) - regression.predict(p)).max() < 0.03


def compared(log_odds: Float64Array, yes: BoolArray, folds: int = 5) -> tuple[str, PlattMap | IsotonicMap | None]:
    items = np.arange(len(yes))
    choice = compare_maps([log_odds] * folds, log_odds, yes, items % folds, items)
    assert [form.name for form in choice.forms] == ["none", "platt", "isotonic"]
    return choice.winner.name, choice.winner.noul_map


def test_no_map_is_taken_where_the_log_odds_are_right() -> None:
    assert [compared(*drawn(2000, seed))[0] for seed in range(6)].count("none") >= 5


def test_platt_is_taken_where_a_line_is_what_is_wrong() -> None:
    log_odds, yes = drawn(4000, 1, 0.5, 1.0)
    name, noul_map = compared(log_odds, yes)
    assert name == "platt"
    assert noul_map == fit_platt(log_odds, yes)


def test_isotonic_is_taken_where_a_line_does_not_do() -> None:
    rng = np.random.default_rng(0)
    log_odds = rng.uniform(-4, 4, 6000)
    yes = rng.random(6000) < np.where(np.abs(log_odds) < 2, 0.5, np.where(log_odds > 0, 0.98, 0.02))
    assert compared(log_odds, yes)[0] == "isotonic"


def test_a_fold_with_every_noul_has_nothing_to_fit_on() -> None:
    log_odds, yes = drawn(300, 0, 0.3, 2.0)
    items = np.arange(300)
    choice = compare_maps([log_odds, log_odds], log_odds, yes, np.zeros(300, dtype=np.int64), items)
    assert choice.winner.name == "none"
    assert all(form.gain.value == 0 for form in choice.forms)


def test_a_missing_scikit_learn_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.isotonic", None)
    with pytest.raises(MissingDependencyError, match=r"pip install '\.\[eval\]'$"):
        fit_isotonic(np.array([0.5]), np.array([True]))


def test_a_map_that_is_near_the_best_must_itself_earn_its_place() -> None:
    """Isotonic gains more than its error, Platt less than its own; Platt is within one error of isotonic."""
    rng = np.random.default_rng(3)
    log_odds = rng.normal(0, 2, 400)
    yes = rng.random(400) < np.select([log_odds > 1, log_odds > -1], [0.75, 0.5], 0.25)
    fold = rng.integers(0, 5, 400)
    log_odds *= rng.choice([0.5, 0.6, 0.7, 0.8])
    choice = compare_maps([log_odds] * 5, log_odds, yes, fold, np.arange(400))
    gains = {form.name: form.gain for form in choice.forms}
    assert 0 < gains["platt"].value < gains["platt"].error
    assert gains["isotonic"].value > gains["isotonic"].error
    assert (choice.best.name, choice.winner.name) == ("isotonic", "none")
