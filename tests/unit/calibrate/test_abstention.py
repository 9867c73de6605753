"""The abstention promise: over calibration draws from known worlds, how often the true risk is above the rate.

Refuses to judge one draw. Trap: a world in which everything is fine proves nothing; the ones here lie just on the wrong
side of the rate, or go wrong where the model is surest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import beta, binom  # type: ignore[attr-defined]

from decider.calibrate.abstention import FIRST_SURE, PLACING, accept_thresholds
from decider.calibrate.conformal import ROUNDING
from decider.calibrate.selective_fit import ERROR_RATES
from decider.decisions import BoolArray, Float64Array
from decider.errors import MissingDependencyError
from decider.selective import abstains
from decider.tokens.calibration import Thresholds

RATES = (0.02, 0.05, 0.1, 0.2, 0.3)
DRAWS = 600
POPULATION = 20_000
World = Callable[[Float64Array], Float64Array]


def just_too_wrong(rate: float) -> World:
    return lambda p: np.full_like(p, rate * 1.001)


# The chance to be wrong by the largest probability, which is uniform on (0, 1).
WORLDS: dict[str, World] = {
    "calibrated": lambda p: 1 - p,
    "steep": lambda p: (1 - p) ** 3,
    "too wrong by a hair": just_too_wrong(0.1),
    "wrong where surest": lambda p: np.where(p > 0.97, 0.9, np.where(p > 0.5, 0.03, 0.4)),
    "good, bad, good, bad": lambda p: np.where(np.floor(p * 12) % 2 == 0, 0.35, 0.02),
    "upside down": lambda p: p,
}


def true_risk(chance: Float64Array, p: Float64Array, threshold: float) -> float:
    answered = p >= threshold
    return float(chance[answered].mean()) if answered.any() else 0.0


@pytest.mark.parametrize("steps", [None, 8], ids=["continuous", "tied"])
@pytest.mark.parametrize("world", WORLDS)
def test_the_true_risk_is_above_the_rate_in_at_most_delta_of_all_draws(world: str, steps: int | None) -> None:
    population = (np.arange(POPULATION) + 0.5) / POPULATION
    chance = WORLDS[world](population)
    if steps:
        population = np.ceil(population * steps) / steps
    rng = np.random.default_rng(20)
    confidence, broken, given = 0.8, np.zeros(len(RATES), dtype=int), np.zeros(len(RATES), dtype=int)
    for draw in range(DRAWS):
        rows = rng.integers(POPULATION, size=400)
        wrong = rng.random(400) < chance[rows]
        found = accept_thresholds(population[rows], wrong, RATES, confidence=confidence, seed=draw)
        given += [least is not None for least in found]
        broken += [
            least is not None and true_risk(chance, population, least) > rate
            for rate, least in zip(RATES, found, strict=True)
        ]
    assert (broken <= binom.ppf(0.999, DRAWS, 1 - confidence)).all(), broken
    if world in ("calibrated", "steep"):
        assert given[-1] > 0.9 * DRAWS, given
    if world == "too wrong by a hair":
        # The promise is used up, not kept by refusing: 0.1 is broken in nearly as many draws as is allowed.
        assert broken[2] > 0.5 * (1 - confidence) * DRAWS, broken


def by_loops(largest: Float64Array, wrong: BoolArray, rate: float, confidence: float, seed: int) -> list[float]:
    """Every threshold accepted at one rate, highest first, by the definition."""
    order = np.random.default_rng(seed).permutation(len(largest))
    placing, tested = order[: len(order) // PLACING], order[len(order) // PLACING :]
    grid = [*sorted((max(0.0, value - ROUNDING) for value in largest[placing]), reverse=True), 0.0]
    fewest = next(n for n in range(1, 10**6) if (1 - rate) ** n <= 1 - confidence)
    m = len(placing)
    first = next((i for i in range(m) if beta.sf(fewest / len(tested), i + 1, m - i) >= FIRST_SURE), m)
    accepted = []
    for threshold in grid[first:]:
        answered = [row for row in tested if largest[row] >= threshold]
        if binom.cdf(sum(wrong[row] for row in answered), len(answered), rate) > 1 - confidence:
            break
        accepted.append(threshold)
    return accepted


@pytest.mark.parametrize("n", [1, 5, 9, 10, 37, 120, 400])
def test_it_is_the_sequence_of_exact_tests(n: int) -> None:
    rng = np.random.default_rng(n)
    given = 0
    for seed in range(8):
        # Two digits, so that some tie.
        largest = np.round(rng.uniform(0.3, 1, n), 2)
        wrong = rng.random(n) < (1 - largest) * rng.uniform(0, 0.8)
        found = accept_thresholds(largest, wrong, ERROR_RATES, confidence=0.9, seed=seed)
        above = 0.0
        for rate, least in reversed([*zip(ERROR_RATES, found, strict=True)]):
            # A smaller rate goes no further down than a larger one.
            kept = [threshold for threshold in by_loops(largest, wrong, rate, 0.9, seed) if threshold >= above]
            assert least == (kept[-1] if kept else None)
            above = kept[-1] if kept else 2.0
            given += least is not None
    assert given or n < 37


def test_thresholds_never_ascend_and_none_comes_first() -> None:
    rng = np.random.default_rng(1)
    for seed in range(100):
        largest = rng.uniform(0, 1, 300)
        found = accept_thresholds(largest, rng.random(300) < 1 - largest**2, ERROR_RATES, confidence=0.9, seed=seed)
        heights = [2.0 if least is None else least for least in found]
        assert heights == sorted(heights, reverse=True)


def test_the_fewest_without_an_error_are_enough_to_answer_everything() -> None:
    """(1 − 0.1)²² < 0.1 < (1 − 0.1)²¹: with 22 tested decisions, none wrong, 0.1 holds."""
    for n, expected in ((24, 0.0), (23, None)):
        tested = n - n // PLACING
        assert tested == (22 if expected is not None else 21)
        found = accept_thresholds(np.full(n, 0.7), np.zeros(n, dtype=np.bool_), [0.1], confidence=0.9)
        assert found == (expected,)


def test_a_decision_at_the_threshold_is_answered() -> None:
    """Served a rounding lower than it was calibrated, too."""
    largest = np.array([0.9] * 300 + [0.4] * 300)
    wrong = np.arange(600) >= 300
    (least,) = accept_thresholds(largest, wrong, [0.1], confidence=0.9)
    assert least is not None
    thresholds = Thresholds(600, (0.1,), (1.0,), (least,))
    for p in (0.9, 0.9 - 1e-12):
        assert not abstains([1 - p, p], thresholds, 0.1)
    assert abstains([0.4, 0.35, 0.25], thresholds, 0.1)


def test_without_scipy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(MissingDependencyError, match=r"pip install '\.\[eval\]'$"):
        accept_thresholds(np.ones(9), np.zeros(9, dtype=np.bool_), [0.1], confidence=0.9)
