"""Paired tests: exact enumerations say the same, null data give honest p-values, other data are refused.

Refuses models. Trap: a test that is never significant passes any check of its level, so its power is checked too.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decider.decisions import Float64Array, IntArray
from decider.errors import ConfigError, MissingDependencyError
from decider.evaluate import bins, compare, metrics
from decider.evaluate.compare import Comparison, Paired, Scored


def scored(name: str, p: Float64Array, gold: IntArray) -> Scored:
    return Scored(
        name=name,
        data_sha256="ab" * 32,
        keys=tuple(f"{n}/q" for n in range(len(gold))),
        gold=gold,
        n_options=np.full(len(gold), p.shape[1]),
        correct=metrics.correct_of(p, gold),
        confidence=metrics.confidence_of(p),
        nll=metrics.nll_of(p, gold),
        brier=metrics.brier_of(p, gold),
    )


def two_runs(seed: int, n: int, *, better: float = 0.0) -> tuple[Scored, Scored]:
    """Two runs alike in distribution, but that the second leans to the right option by `better` logits."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, 3, n)
    shared = rng.normal(size=(n, 3)) + 1.0 * np.eye(3)[gold]
    runs = []
    for name, lean in (("a.json", 0.0), ("b.json", better)):
        logits = shared + rng.normal(size=(n, 3)) + lean * np.eye(3)[gold]
        p = np.exp(logits)
        runs.append(scored(name, p / p.sum(axis=1, keepdims=True), gold))
    return runs[0], runs[1]


def take(run: Scored, rows: IntArray) -> Scored:
    columns = {
        name: getattr(run, name)[rows] for name in ("gold", "n_options", "correct", "confidence", "nll", "brier")
    }
    return replace(run, keys=tuple(run.keys[n] for n in rows), **columns)


def run(first: Scored, second: Scored, clusters: IntArray | None = None) -> Comparison:
    return compare.compare(first, second, np.arange(len(first.keys)) if clusters is None else clusters, seed=0)


def figure(found: Comparison, name: str) -> Paired:
    return next(row for row in found.figures if row.figure == name)


def enumerated(first: Scored, second: Scored, clusters: IntArray, name: str) -> float:
    """The p of all 2^items ways to swap the runs, item by item."""

    def difference(swap: IntArray) -> float:
        swapped = swap[np.unique(clusters, return_inverse=True)[1]].astype(np.bool_)
        a = {
            f: np.where(swapped, getattr(second, f), getattr(first, f))
            for f in ("correct", "confidence", "nll", "brier")
        }
        b = {
            f: np.where(swapped, getattr(first, f), getattr(second, f))
            for f in ("correct", "confidence", "nll", "brier")
        }
        if name == "ece":
            values = [bins.ece(bins.equal_width(x["confidence"]), x["confidence"], x["correct"]) for x in (a, b)]
            assert values[0] is not None
            assert values[1] is not None
            return values[1] - values[0]
        column = "correct" if name == "accuracy" else name
        return float(b[column].mean() - a[column].mean())

    items = len(set(clusters.tolist()))
    observed = abs(difference(np.zeros(items, dtype=np.int64)))
    every = [abs(difference(np.array(swap))) for swap in product((0, 1), repeat=items)]
    return float(np.mean([value >= observed - 1e-12 for value in every]))


@pytest.mark.parametrize("items", [9, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_sign_flips_equal_the_enumeration_of_every_swap(seed: int, items: int) -> None:
    first, second = two_runs(seed, 18, better=0.8)
    clusters = np.arange(18) % items * 10
    found = run(first, second, clusters)
    assert (found.items, found.units, found.decisions) == (items, items, 18)
    for name in ("accuracy", "nll", "brier", "ece"):
        row = figure(found, name)
        expected = enumerated(first, second, clusters, name)
        assert row.p == pytest.approx(expected, abs=4 * math.sqrt(0.25 / compare.FLIPS)), name
        assert row.test.startswith("sign flips of items"), name


@pytest.mark.parametrize(("alone", "others"), [(0, 0), (0, 1), (3, 9), (9, 3), (5, 5), (40, 61)])
def test_mcnemar_is_the_binomial_of_the_discordant(alone: int, others: int) -> None:
    first = np.array([True] * alone + [False] * others + [True, False])
    second = np.array([False] * alone + [True] * others + [True, False])
    n = alone + others
    tail = sum(math.comb(n, k) for k in range(min(alone, others) + 1)) / 2**n
    assert compare.mcnemar(first, second) == pytest.approx(min(1.0, 2 * tail), abs=1e-12)


def test_one_question_an_item_is_tested_by_mcnemar() -> None:
    first, second = two_runs(2, 300, better=0.3)
    found = run(first, second)
    row = figure(found, "accuracy")
    assert row.test == "McNemar, exact"
    assert row.p == compare.mcnemar(first.correct, second.correct)
    assert found.first_alone_right == sum(a and not b for a, b in zip(first.correct, second.correct, strict=True))
    assert found.second_alone_right == sum(b and not a for a, b in zip(first.correct, second.correct, strict=True))
    gap = (found.second_alone_right - found.first_alone_right) / 300
    assert row.difference == pytest.approx(gap, abs=1e-12)


def test_figures_are_those_of_the_runs() -> None:
    first, second = two_runs(3, 250, better=1.0)
    found = run(first, second)
    for name, column in (("accuracy", "correct"), ("nll", "nll"), ("brier", "brier")):
        row = figure(found, name)
        means = [metrics.mean(getattr(one, column)) for one in (first, second)]
        assert [row.first, row.second] == pytest.approx(means, abs=1e-12)
        assert row.difference == pytest.approx(means[1] - means[0], abs=1e-12)  # type: ignore[operator]
    errors = [bins.ece(bins.equal_width(one.confidence), one.confidence, one.correct) for one in (first, second)]
    assert [figure(found, "ece").first, figure(found, "ece").second] == pytest.approx(errors, abs=1e-12)


def test_a_better_run_is_found_better() -> None:
    found = run(*two_runs(4, 400, better=1.0))
    for name, sign in (("accuracy", 1), ("nll", -1), ("brier", -1)):
        row = figure(found, name)
        assert row.p is not None
        assert row.p_holm is not None
        assert row.low is not None
        assert row.high is not None
        assert row.p <= row.p_holm < 0.001, name
        assert sign * row.low > 0, name
        assert sign * row.high > 0, name
    # None of the draws is as far, and what was observed counts as one.
    assert figure(found, "nll").p == 1 / (compare.FLIPS + 1)


def test_an_overconfident_run_is_found_worse_calibrated() -> None:
    rng = np.random.default_rng(12)
    p = rng.dirichlet(np.ones(3), 600)
    gold = (np.cumsum(p, axis=1) > rng.random(600)[:, None]).argmax(axis=1)
    sharp = p**3 / (p**3).sum(axis=1, keepdims=True)
    row = figure(run(scored("a.json", p, gold), scored("b.json", sharp, gold)), "ece")
    assert row.p is not None
    assert row.difference is not None
    assert row.low is not None
    assert row.high is not None
    assert row.p < 0.01
    assert 0 < row.low < row.difference < row.high


def test_p_values_of_runs_alike_are_honest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "FLIPS", 400)
    monkeypatch.setattr(compare, "_CHUNK", 400)
    small = dict.fromkeys(("nll", "brier", "ece"), 0)
    held = dict.fromkeys(("accuracy", "nll", "brier"), 0)
    for seed in range(150):
        first, second = two_runs(100 + seed, 120)
        found = compare.compare(first, second, np.arange(120) // 2, seed=seed)
        for name in small:
            p = figure(found, name).p
            assert p is not None
            small[name] += p <= 0.1
        for name in held:
            row = figure(found, name)
            assert row.low is not None
            assert row.high is not None
            held[name] += row.low <= 0 <= row.high
    for name, count in small.items():
        # 15 expected, and four standard deviations either way.
        assert 1 <= count <= 29, name
    for name, count in held.items():
        assert count >= 150 * 0.95 - 4 * math.sqrt(150 * 0.95 * 0.05), name


def test_copies_of_a_decision_prove_nothing() -> None:
    first, second = two_runs(5, 60, better=0.4)
    rows = np.repeat(np.arange(60), 8)
    copies = [replace(take(one, rows), keys=tuple(f"{n}" for n in range(480))) for one in (first, second)]
    once, often = run(first, second), run(copies[0], copies[1], rows)
    assert compare.mcnemar(copies[0].correct, copies[1].correct) < 0.1 * compare.mcnemar(first.correct, second.correct)
    for name in ("nll", "brier"):
        assert figure(often, name).p == figure(once, name).p
        assert figure(often, name).low == pytest.approx(figure(once, name).low, abs=1e-12)
    honest, single = figure(often, "accuracy").p, figure(once, "accuracy").p
    assert honest == pytest.approx(single, abs=0.02)


def test_many_items_are_swapped_in_blocks() -> None:
    found = run(*two_runs(6, 5000, better=0.05))
    assert (found.items, found.units, found.resamples) == (5000, 1000, 1000)
    row = figure(found, "nll")
    assert row.p is not None
    assert row.difference is not None
    assert row.low is not None
    assert row.high is not None
    # A normal test of the mean difference says about the same.
    first, second = two_runs(6, 5000, better=0.05)
    gaps = second.nll - first.nll
    z = abs(gaps.mean()) / (gaps.std() / math.sqrt(5000))
    assert row.p == pytest.approx(math.erfc(z / math.sqrt(2)), abs=0.03)
    assert row.high - row.low == pytest.approx(2 * 1.96 * gaps.std() / math.sqrt(5000), rel=0.12)


def test_a_run_and_itself_do_not_differ() -> None:
    first, _ = two_runs(7, 50)
    for row in run(first, replace(first, name="b.json")).figures:
        assert (row.difference, row.low, row.high, row.p, row.p_holm) == (0.0, 0.0, 0.0, 1.0, 1.0), row.figure


def test_one_item_has_differences_and_no_interval() -> None:
    first, second = two_runs(8, 4, better=2.0)
    found = run(first, second, np.zeros(4, dtype=np.int64))
    assert found.resamples == 0
    assert [(row.low, row.high, row.p) for row in found.figures] == [(None, None, 1.0)] * 4


def test_an_infinite_nll_is_not_tested_and_the_json_stays_strict() -> None:
    first, second = two_runs(9, 40)
    nll = second.nll.copy()
    nll[3] = math.inf
    found = run(first, replace(second, nll=nll))
    row = figure(found, "nll")
    assert (row.second, row.difference, row.low, row.p, row.p_holm) == (None, None, None, None, None)
    assert row.test == "none, since the NLL is infinite in one run or both (decisions: 1)"
    assert figure(found, "brier").p_holm is not None
    written = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert [one["figure"] for one in written["figures"]] == ["accuracy", "nll", "brier", "ece"]
    assert (written["first"], written["second"], written["decisions"]) == ("a.json", "b.json", 40)


def test_holm_by_hand() -> None:
    assert compare.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert compare.holm([0.5, 0.9]) == (1.0, 1.0)
    assert compare.holm([0.02]) == (0.02,)
    assert compare.holm([]) == ()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_order_and_never_helps(p_values: list[float]) -> None:
    corrected = compare.holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, corrected, strict=True))
    by_p = [q for _, q in sorted(zip(p_values, corrected, strict=True))]
    assert by_p == sorted(by_p)
    # Rejecting at a level is stepping down while p ≤ level / (tests left).
    for level in (0.01, 0.05, 0.3):
        left = len(p_values)
        for p in sorted(p_values):
            if p * left > level:
                break
            left -= 1
        assert sum(q <= level for q in corrected) == len(p_values) - left


def test_the_order_of_either_run_changes_nothing() -> None:
    first, second = two_runs(10, 80, better=0.2)
    clusters = np.arange(80) // 2
    expected = run(first, second, clusters)
    order = np.random.default_rng(0).permutation(80)
    for a, b, items in ((first, take(second, order), clusters), (take(first, order), second, clusters[order])):
        found = run(a, b, items)
        for before, after in zip(expected.figures, found.figures, strict=True):
            assert after.p == before.p
            numbers = [(row.first, row.second, row.difference, row.low, row.high) for row in (before, after)]
            assert numbers[1] == pytest.approx(numbers[0], abs=1e-12)


FIRST, SECOND = two_runs(11, 6)


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (
            take(SECOND, np.arange(4)),
            r"^b\.json lacks decisions of the other run \(count: 2, as '4/q'\); evaluate both",
        ),
        (
            replace(SECOND, keys=("0/q", "1/q", "2/q", "3/q", "4/q", "new/q")),
            r"^b\.json lacks decisions of the other run \(count: 1, as '5/q'\)",
        ),
        (replace(SECOND, keys=("0/q",) * 6), r"^b\.json holds the decision '0/q' twice"),
        (replace(SECOND, data_sha256="cd" * 32), r"different data files \(SHA-256 abababababab… and cdcdcdcdcdcd…\)"),
        (replace(SECOND, gold=(SECOND.gold + 1) % 3), r"differ in their right answers \(decisions: 6, as '0/q'\)"),
        (
            replace(SECOND, n_options=np.array([3, 3, 4, 3, 3, 4])),
            r"differ in their options \(decisions: 2, as '2/q'\)",
        ),
        (take(SECOND, np.arange(0)), r"^b\.json holds no decisions"),
    ],
)
def test_runs_over_other_data_are_refused(second: Scored, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        run(FIRST, second)


def test_more_decisions_in_the_second_run_are_refused_too() -> None:
    with pytest.raises(ConfigError, match=r"^a\.json lacks decisions of the other run \(count: 2, as '4/q'\)"):
        run(take(FIRST, np.arange(4)), SECOND)


def test_without_scipy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(MissingDependencyError, match=r"pip install '\.\[eval\]'$"):
        compare.mcnemar(np.array([True]), np.array([False]))
