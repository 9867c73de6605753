"""Figures a decision: loops in plain Python, scikit-learn and scipy say the same.

Refuses models. Trap: random distributions never tie nor hold a zero, so the degenerate ones are written out.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu  # type: ignore[attr-defined]
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, mean_absolute_error, roc_auc_score

from decider.decisions import Float64Array, IntArray
from decider.evaluate import metrics

Data = tuple[Float64Array, IntArray, IntArray]


def random_data(seed: int, n: int, width: int, *, same: bool = False) -> Data:
    """Distributions over 2 … `width` options (`width` each if `same`), with ties, zeros and certainties among them."""
    rng = np.random.default_rng(seed)
    n_options = np.full(n, width) if same else rng.integers(2, width + 1, n)
    inside = np.arange(width) < n_options[:, None]
    weights = np.where(inside, rng.gamma(0.5, size=(n, width)) + 1e-6, 0.0)
    whole = np.where(inside, rng.integers(0, 3, (n, width)), 0)
    odd = (rng.random(n) < 0.3) & (whole.sum(axis=1) > 0)
    weights[odd] = whole[odd]
    return weights / weights.sum(axis=1, keepdims=True), n_options, rng.integers(0, n_options)


def by_loops(data: Data) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in ("correct", "nll", "brier", "rps", "error", "level")}
    for p, n, gold in zip(*(column.tolist() for column in data), strict=True):
        own = p[:n]
        answer = own.index(max(own))
        found["correct"].append(float(answer == gold))
        found["nll"].append(-math.log(own[gold]) if own[gold] > 0 else math.inf)
        found["brier"].append(math.fsum((q - (i == gold)) ** 2 for i, q in enumerate(own)))
        reached = [(math.fsum(own[: k + 1]) - (gold <= k)) ** 2 for k in range(n - 1)]
        found["rps"].append(math.fsum(reached) / (n - 1) if n > 1 else 0.0)
        found["error"].append(abs(math.fsum(i * q for i, q in enumerate(own)) - gold))
        found["level"].append(float(abs(answer - gold)))
    return found


def ours(data: Data) -> dict[str, Float64Array]:
    p, n_options, gold = data
    return {
        "correct": metrics.correct_of(p, gold).astype(np.float64),
        "nll": metrics.nll_of(p, gold),
        "brier": metrics.brier_of(p, gold),
        "rps": metrics.rps_of(p, n_options, gold),
        "error": metrics.absolute_error_of(p, gold),
        "level": metrics.level_error_of(p, gold),
    }


def auroc_by_loops(p: list[float], yes: list[bool]) -> float | None:
    pairs = [
        (a > b) + (a == b) / 2 for a, y in zip(p, yes, strict=True) if y for b, z in zip(p, yes, strict=True) if not z
    ]
    return math.fsum(pairs) / len(pairs) if pairs else None


@pytest.mark.parametrize(("n", "width"), [(1, 2), (2, 2), (7, 3), (200, 2), (200, 8), (60, 40)])
def test_vectors_equal_loops(n: int, width: int) -> None:
    data = random_data(n + width, n, width)
    expected, found = by_loops(data), ours(data)
    for name, values in expected.items():
        assert found[name].dtype == np.float64, name
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-12, err_msg=name)
        mean = metrics.mean(found[name])
        assert mean == pytest.approx(sum(values) / n, abs=1e-9), name


def test_scikit_learn_says_the_same() -> None:
    p, n_options, gold = random_data(3, 400, 5, same=True)
    assert metrics.mean(metrics.correct_of(p, gold)) == accuracy_score(gold, p.argmax(axis=1))
    labels = list(range(5))
    brier = brier_score_loss(gold, p, labels=labels, scale_by_half=False)
    assert metrics.mean(metrics.brier_of(p, gold)) == pytest.approx(brier, abs=1e-12)
    error = mean_absolute_error(gold, p @ np.arange(5))
    assert metrics.mean(metrics.absolute_error_of(p, gold)) == pytest.approx(error, abs=1e-12)
    possible = p[np.arange(400), gold] > 0
    assert 0 < possible.sum() < 400
    nll = metrics.nll_of(p, gold)
    loss = log_loss(gold[possible], p[possible], labels=labels)
    assert metrics.mean(nll[possible]) == pytest.approx(loss, abs=1e-9)
    assert metrics.n_infinite(nll) == 400 - possible.sum()
    # The binary Brier score of P(yes) is half the sum over both answers.
    p, n_options, gold = random_data(4, 300, 2)
    assert n_options.tolist() == [2] * 300
    assert metrics.mean(metrics.brier_of(p, gold)) == pytest.approx(2 * brier_score_loss(gold, p[:, 1]), abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [2, 3, 50, 300])
def test_auroc_equals_loops_scikit_learn_and_scipy(n: int, ties: bool) -> None:
    rng = np.random.default_rng(n)
    p = rng.integers(0, 4, n) / 4 if ties else rng.random(n)
    yes = rng.random(n) < 0.3
    yes[:2] = [True, False]
    found = metrics.auroc(p, yes)
    assert found is not None
    assert found == pytest.approx(auroc_by_loops(p.tolist(), yes.tolist()), abs=1e-12)
    assert found == pytest.approx(roc_auc_score(yes, p), abs=1e-12)
    u = mannwhitneyu(p[yes], p[~yes], method="asymptotic").statistic
    assert found == pytest.approx(u / (yes.sum() * (~yes).sum()), abs=1e-12)


@pytest.mark.parametrize("yes", [[], [True], [False], [True, True], [False, False, False]])
def test_auroc_of_one_answer_alone_is_undefined(yes: list[bool]) -> None:
    assert metrics.auroc(np.linspace(0, 1, len(yes)), np.array(yes, dtype=np.bool_)) is None


def test_auroc_of_equals_is_a_half() -> None:
    assert metrics.auroc(np.full(5, 0.7), np.array([True, False, True, True, False])) == 0.5


def test_a_tie_is_answered_by_the_lowest_index() -> None:
    p = np.array([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]])
    assert metrics.answers_of(p).tolist() == [0, 1, 0, 0]
    assert metrics.confidence_of(p).tolist() == [0.4, 0.4, 1 / 3, 0.5]
    assert metrics.correct_of(p, np.array([1, 1, 0, 1])).tolist() == [False, True, True, False]


def test_an_impossible_right_option_is_infinite_and_counted() -> None:
    p, gold = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]]), np.array([0, 1, 1])
    nll = metrics.nll_of(p, gold)
    assert nll.tolist() == [0.0, math.inf, math.log(2)]
    assert not np.signbit(nll).any()
    assert metrics.n_infinite(nll) == 1
    assert metrics.mean(nll) == math.inf
    assert metrics.brier_of(p, gold).tolist() == [0.0, 2.0, 0.5]


def test_ranked_scores_tell_near_from_far_and_do_not_grow_with_the_scale() -> None:
    p = np.array([[0, 0, 0, 1.0], [0, 0, 0, 1.0], [1.0, 0, 0, 0], [1.0, 0, 0, 0]])
    scores = metrics.rps_of(p, np.array([4, 4, 2, 1]), np.array([2, 0, 1, 0]))
    np.testing.assert_allclose(scores, [1 / 3, 1, 1, 0], atol=1e-15)


def test_no_decisions_have_no_mean() -> None:
    empty: Data = (np.zeros((0, 3)), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    for name, values in ours(empty).items():
        assert values.shape == (0,), name
        assert metrics.mean(values) is None, name
    assert metrics.answers_of(empty[0]).shape == metrics.confidence_of(empty[0]).shape == (0,)


@pytest.mark.parametrize("gold", [[-1, 0], [0], [0, 2]])
def test_a_right_option_that_is_none_is_a_bug(gold: list[int]) -> None:
    with pytest.raises((AssertionError, IndexError)):
        metrics.nll_of(np.full((2, 2), 0.5), np.array(gold))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(2, 9), st.integers(1, 5))
def test_order_and_padding_change_nothing(seed: int, n: int, width: int, more: int) -> None:
    p, n_options, gold = data = random_data(seed, n, width)
    order = np.random.default_rng(seed).permutation(n)
    shuffled = ours((p[order], n_options[order], gold[order]))
    padded = ours((np.pad(p, ((0, 0), (0, more))), n_options, gold))
    for name, values in ours(data).items():
        np.testing.assert_allclose(shuffled[name], values[order], rtol=0, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(padded[name], values, rtol=0, atol=1e-12, err_msg=name)
    yes = gold == 1
    assert metrics.auroc(p[:, 1][order], yes[order]) == metrics.auroc(p[:, 1], yes)
