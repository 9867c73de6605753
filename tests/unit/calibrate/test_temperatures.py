"""Fitted temperatures: known ones found again, SciPy's results, and data that say too little.

Refuses to test which form is chosen. Trap: an optimum on a bound is no estimate; every test that ends there says so.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from synthetic_decisions import synthetic, with_gold

from decider.calibrate.apply import option_counts
from decider.calibrate.likelihood import likelihood, right
from decider.calibrate.newton import minimise
from decider.calibrate.temperatures import BOUNDS, fit_line, fit_pair, fit_scalar
from decider.decisions import CHOICE, NOUL, SCORE, Decisions, Float64Array, IntArray, distributions


def mean_nll(decisions: Decisions, temperature: float | Float64Array) -> float:
    p = distributions(decisions, temperature)
    return float(-np.log(p[np.arange(len(decisions)), decisions.gold]).mean())


@pytest.mark.parametrize("true", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("isolated", [False, True])
def test_a_known_temperature_is_found_within_its_error(true: float, isolated: bool) -> None:
    shares = []
    for seed in range(20):
        decisions = synthetic(1500, seed=seed, isolated=isolated, temperature=lambda kind, _: np.full(len(kind), true))
        fitted = fit_scalar(likelihood(decisions))
        assert not fitted.bound
        shares.append(math.log(fitted.temperature / true) / fitted.error)
    # 20 standard normal deviates: a wrong error would show in their spread, a bias in their mean.
    assert abs(np.mean(shares)) < 3 / math.sqrt(20)
    assert 0.55 < np.std(shares) < 1.6


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("isolated", [False, True])
def test_a_fit_is_scipys(seed: int, isolated: bool) -> None:
    decisions = synthetic(400, seed=seed, isolated=isolated)
    fitted = fit_scalar(likelihood(decisions))
    found = minimize_scalar(
        lambda log: mean_nll(decisions, math.exp(log)), bounds=np.log(BOUNDS), method="bounded", options={"xatol": 1e-9}
    )
    assert math.log(fitted.temperature) == pytest.approx(found.x, abs=1e-6)
    started = fit_scalar(likelihood(decisions), near=3.0)
    assert math.log(started.temperature) == pytest.approx(found.x, abs=1e-6)


def test_a_fit_is_that_of_torchs_lbfgs() -> None:
    decisions = synthetic(500, kinds=(CHOICE,))
    fitted = fit_scalar(likelihood(decisions))
    logits, gold = torch.tensor(decisions.logits), torch.tensor(decisions.gold)
    log = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS(
        [log], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        solver.zero_grad()
        # Padding is −∞, of which a log-softmax's gradient is no number.
        scaled = torch.where(torch.isinf(logits), -1e30, logits) / log.exp()
        value = torch.nn.functional.cross_entropy(scaled, gold)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    solver.step(loss)  # type: ignore[no-untyped-call]
    assert math.log(fitted.temperature) == pytest.approx(log.item(), abs=1e-6)


def line_at(a: float, b: float, minimum: float, counts: IntArray) -> Float64Array:
    return np.maximum(minimum, a + b * np.log(np.maximum(counts, 2)))


def test_a_known_line_is_found_and_is_scipys() -> None:
    decisions = synthetic(20_000, temperature=lambda _, n_options: line_at(2.5, -0.6, 0.05, n_options))
    counts = option_counts(decisions.n_options, decisions.isolated)
    line = fit_line(likelihood(decisions), counts, (1.0, 1.0)).line
    assert line.at(2) == pytest.approx(2.5 - 0.6 * math.log(2), rel=0.1)
    assert line.at(12) == pytest.approx(2.5 - 0.6 * math.log(12), rel=0.1)

    def loss(x: Float64Array) -> float:
        return mean_nll(decisions, line_at(float(x[0]), float(x[1]), 1e-3, counts))

    options = {"xatol": 1e-9, "fatol": 1e-14, "maxiter": 4000}
    found = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options=options)
    np.testing.assert_allclose([line.a, line.b], found.x, atol=1e-5)


@pytest.mark.parametrize("ends", [(0.5, 3.0), (3.0, 0.5)])
def test_a_count_that_was_not_seen_has_no_lower_temperature(ends: tuple[float, float]) -> None:
    def true(_: IntArray, n_options: IntArray) -> Float64Array:
        return np.where(n_options <= 3, ends[0], ends[1])

    decisions = synthetic(6000, kinds=(CHOICE,), most_options=6, temperature=true)
    line = fit_line(likelihood(decisions), decisions.n_options, (1.0, 1.0)).line
    seen = [line.at(count) for count in range(2, 7)]
    assert line.minimum == min(seen)
    assert seen in (sorted(seen), sorted(seen, reverse=True))
    assert all(line.at(count) >= min(seen) for count in range(1, 256))


@pytest.mark.parametrize(("right_side", "on"), [(1.0, "lower"), (0.0, "lower"), (None, None)])
def test_a_pair_of_which_one_side_is_all_right_ends_on_a_bound(right_side: float | None, on: str | None) -> None:
    decisions = synthetic(1000)
    familiarity = (np.arange(1000) % 2).astype(np.float64)
    gold = np.where(familiarity == right_side, decisions.logits.argmax(axis=1), decisions.gold)
    pair = fit_pair(likelihood(with_gold(decisions, gold)), familiarity, (1.0, 1.0))
    assert pair.bound == on
    assert (pair.familiar < 0.06) == (right_side == 1)
    assert (pair.unfamiliar < 0.06) == (right_side == 0)


def test_isolated_levels_have_the_temperature_of_two_options() -> None:
    counts = option_counts(np.array([5, 5, 2]), np.array([True, False, False]))
    assert counts.tolist() == [2, 5, 2]


@pytest.mark.parametrize("n", [1, 300])
@pytest.mark.parametrize(("all_right", "end"), [(True, 0), (False, 1)])
def test_all_right_or_all_wrong_ends_on_a_bound(n: int, all_right: bool, end: int) -> None:
    decisions = synthetic(n, kinds=(CHOICE, NOUL))
    best = decisions.logits.argmax(axis=1)
    decisions = with_gold(decisions, best if all_right else np.where(best == 0, 1, 0))
    assert right(decisions).all() == all_right
    fitted = fit_scalar(likelihood(decisions))
    assert fitted.bound == ("lower", "upper")[end]
    assert fitted.temperature == BOUNDS[end]
    assert fitted.error == math.inf


def test_equal_logits_say_nothing() -> None:
    decisions = synthetic(50)
    level = np.where(np.isneginf(decisions.logits), -np.inf, 1.5)
    fitted = fit_scalar(likelihood(replace(decisions, logits=level)))
    assert (fitted.temperature, fitted.error, fitted.bound) == (1.0, math.inf, None)


def test_surely_right_answers_leave_the_temperature_alone() -> None:
    decisions = synthetic(50, kinds=(NOUL,))
    sure = replace(decisions, logits=np.array([[0.0, 9e4]] * 50), gold=np.ones(50, dtype=np.int64))
    assert fit_scalar(likelihood(sure)).temperature == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("odds", "gold", "near", "lowest"),
    [
        ([[-0.5, 5.5], [-2.7, 1.4]], [0, 1], 15.0, 1.07),
        ([[3.5, -0.1], [0.7, 6.0]], [1, 0], 0.3, 20.0),
    ],
)
def test_isolated_levels_may_have_two_valleys_and_the_lower_is_taken(
    odds: list[list[float]], gold: list[int], near: float, lowest: float
) -> None:
    base = synthetic(2, kinds=(SCORE,), isolated=True)
    two = np.full(2, 2)
    decisions = replace(base, logits=np.array(odds), n_options=two, option_list=two, gold=np.array(gold))
    data = likelihood(decisions)
    assert fit_scalar(data).temperature == pytest.approx(lowest, abs=0.01)
    # The other one is there, or the test says nothing.
    other = fit_scalar(data, near=near).temperature
    assert mean_nll(decisions, other) > mean_nll(decisions, lowest) + 0.02


def test_newton_ends_on_bounds_and_finds_its_way_out_of_curvature_that_is_negative() -> None:
    def valley(x: Float64Array) -> tuple[float, Float64Array, Float64Array]:
        """Σ −cos(xᵢ − i): least at (0, 1), bent the other way from π/2 on."""
        off = x - np.arange(2)
        return float(-np.cos(off).sum()), np.sin(off), np.diag(np.cos(off))

    start = np.array([2.5, -1.0])
    wide = minimise(valley, start, np.full(2, -3.0), np.full(2, 3.0))
    np.testing.assert_allclose(wide, [0, 1], atol=1e-8)
    assert minimise(valley, start, np.array([0.5, -3.0]), np.array([3.0, 0.25])).tolist() == [0.5, 0.25]
