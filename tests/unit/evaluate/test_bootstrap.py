"""Intervals: every resample, written out decision by decision, has the figure that its weights gave.

Refuses models. Trap: an interval that is too narrow looks like a better one; so its width is compared with scipy's,
with theory, and with how often it holds the truth.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap as scipy_bootstrap  # type: ignore[attr-defined]

from decider.decisions import BoolArray, Float64Array, IntArray, item_codes
from decider.errors import MissingDependencyError
from decider.evaluate import bins, bootstrap, metrics, selection
from decider.evaluate.bootstrap import Interval, Resamples, resample


def data(seed: int, n: int, *, items: int | None = None, levels: int = 6) -> tuple[Float64Array, BoolArray, IntArray]:
    """Confidences of a few distinct values, hits, and the item of each."""
    rng = np.random.default_rng(seed)
    confidence = rng.integers(1, levels + 1, n) / levels
    clusters = np.arange(n) if items is None else rng.integers(0, items, n) * 7 - 3
    return confidence, rng.random(n) < confidence, clusters


def draw(clusters: IntArray, seed: int = 0, resamples: int = bootstrap.RESAMPLES) -> Resamples:
    drawn = resample(clusters, seed=seed, resamples=resamples)
    assert drawn is not None
    return drawn


def width(found: Interval | None) -> float:
    assert found is not None
    return found.high - found.low


def ends(figures: list[float | None]) -> tuple[float, float]:
    """The 2.5 % and the 97.5 % of 100 figures: the third from either end."""
    ordered = sorted(value for value in figures if value is not None)
    cut = math.floor(len(ordered) * 0.025)
    return ordered[cut], ordered[-1 - cut]


@pytest.mark.parametrize(("n", "items"), [(30, None), (60, 12), (400, 100)])
def test_every_interval_is_of_resamples_written_out(n: int, items: int | None) -> None:
    confidence, hit, clusters = data(n, n, items=items)
    drawn = draw(clusters, resamples=100)
    each = [np.repeat(np.arange(n), drawn.weights[drawn.unit, r].astype(int)) for r in range(100)]
    nll = -np.log(confidence)
    found = {
        "accuracy": bootstrap.mean_interval(drawn, hit),
        "nll": bootstrap.mean_interval(drawn, nll),
        "aurc": bootstrap.aurc_interval(drawn, confidence, hit),
        "auroc": bootstrap.auroc_interval(drawn, confidence, hit),
    }
    expected = {
        "accuracy": [metrics.mean(hit[rows]) for rows in each],
        "nll": [metrics.mean(nll[rows]) for rows in each],
        "aurc": [selection.aurc(confidence[rows], hit[rows]) for rows in each],
        "auroc": [metrics.auroc(confidence[rows], hit[rows]) for rows in each],
    }
    for name, binning in (("width", bins.equal_width(confidence)), ("mass", bins.equal_mass(confidence))):
        found[name] = bootstrap.ece_interval(drawn, binning, confidence, hit)
        fixed = [bins.Binning(binning.of[rows], binning.low, binning.high) for rows in each]
        expected[name] = [bins.ece(b, confidence[rows], hit[rows]) for b, rows in zip(fixed, each, strict=True)]
    for name, interval in found.items():
        assert interval is not None
        assert (interval.low, interval.high) == pytest.approx(ends(expected[name]), abs=1e-9), name
        assert (interval.resamples, interval.units) == (100, len(set(clusters.tolist()))), name


def test_units_are_drawn_with_replacement_and_whole() -> None:
    _, _, clusters = data(1, 500, items=40)
    drawn = draw(clusters)
    units = len(set(clusters.tolist()))
    assert drawn.weights.shape == (units, bootstrap.RESAMPLES)
    assert (drawn.weights.sum(axis=0) == units).all()
    # Each count is binomial(units, 1 / units); the mean of 40 000 variances of about 1.
    assert drawn.weights.var() == pytest.approx(1 - 1 / units, abs=0.03)
    for cluster in set(clusters.tolist()):
        assert len(set(drawn.unit[clusters == cluster].tolist())) == 1
    assert drawn.sizes.tolist() == drawn.weights[drawn.unit].sum(axis=0).tolist()


def test_questions_of_one_item_are_not_independent() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=200)
    alone = bootstrap.mean_interval(draw(np.arange(200)), values)
    copies = bootstrap.mean_interval(draw(np.repeat(np.arange(200), 9)), np.repeat(values, 9))
    assert width(copies) == pytest.approx(width(alone), rel=1e-9)
    assert width(bootstrap.mean_interval(draw(np.arange(1800)), np.repeat(values, 9))) < 0.45 * width(alone)


def test_a_mean_has_the_interval_that_scipy_gives() -> None:
    values = np.random.default_rng(3).exponential(size=150)
    ours = bootstrap.mean_interval(draw(np.arange(150), resamples=20_000), values)
    theirs = scipy_bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(4)
    ).confidence_interval
    assert ours is not None
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.05 * (theirs.high - theirs.low))


def test_blocks_of_items_keep_the_width() -> None:
    n = 30_000
    values = np.random.default_rng(5).normal(size=n)
    # Two values an item that are the same: the width of n / 2 decisions.
    pairs = np.arange(n) // 2
    for clusters, independent in ((np.arange(n), n), (pairs, n // 2)):
        drawn = draw(clusters)
        assert len(drawn.weights) == bootstrap.MAX_UNITS
        found = bootstrap.mean_interval(drawn, values[clusters])
        assert width(found) == pytest.approx(2 * 1.96 / math.sqrt(independent), rel=0.12)
        counts = np.bincount(drawn.unit)
        assert len(counts) == bootstrap.MAX_UNITS
        assert counts.max() - counts.min() <= 2


def test_merged_cells_of_rank_keep_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    confidence = rng.random(4000)
    hit = rng.random(4000) < confidence
    drawn = draw(np.arange(4000) // 4, resamples=300)
    merged = bootstrap.aurc_interval(drawn, confidence, hit), bootstrap.auroc_interval(drawn, confidence, hit)
    monkeypatch.setattr(bootstrap, "MAX_CELLS", 4000)
    whole = bootstrap.aurc_interval(drawn, confidence, hit), bootstrap.auroc_interval(drawn, confidence, hit)
    for one, other in zip(merged, whole, strict=True):
        assert one is not None
        assert other is not None
        assert one != other
        assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=0.01 * width(other))


@pytest.mark.parametrize("figure", ["accuracy", "aurc", "auroc"])
def test_intervals_hold_the_truth_about_as_often_as_they_say(figure: str) -> None:
    truth_c, truth_h, _ = data(7, 400_000)
    truth = {
        "accuracy": metrics.mean(truth_h),
        "aurc": selection.aurc(truth_c, truth_h),
        "auroc": metrics.auroc(truth_c, truth_h),
    }[figure]
    assert truth is not None
    held = 0
    for seed in range(200):
        confidence, hit, clusters = data(1000 + seed, 200)
        drawn = draw(clusters, seed=seed, resamples=200)
        found = {
            "accuracy": lambda d, _, h: bootstrap.mean_interval(d, h),
            "aurc": bootstrap.aurc_interval,
            "auroc": bootstrap.auroc_interval,
        }[figure](drawn, confidence, hit)
        assert found is not None
        held += found.low <= truth <= found.high
    # 0.95 less four standard errors; percentile intervals of 200 decisions are a little narrow.
    assert 0.885 <= held / 200 <= 0.995


def test_an_infinite_value_is_infinite_where_it_is_drawn() -> None:
    values = np.array([1.0, 2.0, math.inf, 3.0])
    drawn = draw(np.arange(4))
    sums = drawn.sums(values)
    assert (np.isinf(sums) == (drawn.weights[2] > 0)).all()
    np.testing.assert_allclose(
        sums[drawn.weights[2] == 0], (drawn.weights[[0, 1, 3]].T @ [1, 2, 3])[drawn.weights[2] == 0]
    )
    found = bootstrap.mean_interval(drawn, values)
    assert found is not None
    assert 1.0 <= found.low < 2.5
    assert found.high == math.inf


def test_an_auroc_is_left_out_of_resamples_with_one_answer() -> None:
    yes = np.array([True] + [False] * 9)
    p = np.linspace(1, 0, 10)
    found = bootstrap.auroc_interval(draw(np.arange(10)), p, yes)
    assert found is not None
    assert (found.low, found.high) == (1.0, 1.0)
    # The one yes is in a resample with probability 1 − 0.9¹⁰ = 0.65.
    assert 600 < found.resamples < 700
    assert bootstrap.auroc_interval(draw(np.arange(10)), p, np.zeros(10, dtype=np.bool_)) is None


@pytest.mark.parametrize("clusters", [[], [5], [5, 5, 5]])
def test_fewer_than_two_items_have_no_interval(clusters: list[int]) -> None:
    assert resample(np.array(clusters, dtype=np.int64), seed=0) is None


def test_a_seed_decides() -> None:
    confidence, hit, clusters = data(8, 2500)
    first, again, other = (bootstrap.aurc_interval(draw(clusters, seed), confidence, hit) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_items_are_numbered_whatever_their_order() -> None:
    assert item_codes(["b", "a", "b", "c"]).tolist() == [1, 0, 1, 2]
    assert item_codes([]).shape == (0,)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 80), st.booleans())
def test_order_changes_nothing(seed: int, n: int, blocked: bool) -> None:
    confidence, hit, clusters = data(seed, n, items=max(2, n // 2))
    order = np.random.default_rng(seed).permutation(n)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "MAX_UNITS", 5 if blocked else bootstrap.MAX_UNITS)
        for rows in (np.arange(n), order):
            drawn = resample(clusters[rows], seed=0, resamples=50)
            if drawn is None:
                assert len(set(clusters.tolist())) < 2
                return
            c, h = confidence[rows], hit[rows]
            intervals = [
                bootstrap.mean_interval(drawn, c - h),
                bootstrap.ece_interval(drawn, bins.equal_mass(c), c, h),
                bootstrap.aurc_interval(drawn, c, h),
                bootstrap.auroc_interval(drawn, c, h),
            ]
            found.append([None if i is None else (i.low, i.high, i.resamples) for i in intervals])
    for before, after in zip(*found, strict=True):
        assert after == pytest.approx(before, abs=1e-12)


def test_without_scipy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    confidence, hit, clusters = data(9, 20)
    drawn = draw(clusters)
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(MissingDependencyError, match=r"pip install '\.\[eval\]'$"):
        bootstrap.aurc_interval(drawn, confidence, hit)


def test_blocks_do_not_follow_the_order_of_items() -> None:
    """Files are often sorted, by time or by topic; blocks of neighbours would be as far apart as their topics."""
    n = 20_000
    values = np.linspace(-1, 1, n)
    found = bootstrap.mean_interval(draw(np.arange(n)), values)
    assert width(found) == pytest.approx(2 * 1.96 * values.std() / math.sqrt(n), rel=0.12)
