"""Thresholds of prediction sets against their definition, and sets that never lose what they were calibrated on.

Refuses to judge coverage over draws (`test_coverage`). Trap: what a threshold means is what `decider.selective` does
with it, so scores are held against its sets and not against a formula written twice.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.calibrate.conformal import (
    ROUNDING,
    class_thresholds,
    fewest_decisions,
    least_error_rate,
    nonconformity,
    rank,
    set_thresholds,
)
from decider.calibrate.selective_fit import ERROR_RATES, one_per_item, selective_of, selective_warnings
from decider.decisions import CHOICE, KINDS, NOUL, SCORE, Decisions, Float64Array, IntArray, distributions
from decider.questions.types import Choice, Noul, Score
from decider.read import normalise_levels, probabilities
from decider.selective import class_names, prediction_set
from decider.tokens.calibration import Thresholds

RATE = 0.1


def at(threshold: float, by_class: dict[str, float] | None = None) -> Thresholds:
    own = {name: (1, (value,)) for name, value in (by_class or {}).items()}
    return Thresholds(1, (RATE,), (threshold,), (None,), own)


def decisions_of(
    kind: int, logits: Float64Array, gold: IntArray, *, items: list[str] | None = None, isolated: bool = False
) -> Decisions:
    n, width = logits.shape
    return Decisions(
        key=tuple(f"{item}/{row}" for row, item in enumerate(items or map(str, range(n)))),
        task=("task",) * n,
        kind=np.full(n, kind),
        n_options=np.isfinite(logits).sum(axis=1),
        gold=gold,
        logits=logits,
        isolated=np.full(n, isolated),
        row_tokens=np.full(n, 10),
        option_lists=tuple(tuple(f"option {i}" for i in range(count)) for count in range(width + 1)),
        option_list=np.isfinite(logits).sum(axis=1),
    )


@pytest.mark.parametrize(
    ("n", "rate", "expected"),
    [
        (9, 0.1, 9),
        (8, 0.1, 9),
        (10, 0.1, 10),
        (99, 0.29, 71),
        (99, 0.07, 93),
        (19, 0.05, 19),
        (18, 0.05, 19),
        (1, 0.5, 1),
    ],
)
def test_the_rank_counts_the_new_decision_in(n: int, rate: float, expected: int) -> None:
    assert rank(n, rate) == expected


@given(st.integers(0, 3000), st.integers(1, 999))
def test_the_rank_is_exact_in_decimal(n: int, thousandths: int) -> None:
    rate = thousandths / 1000
    exact = ((n + 1) * (1 - Decimal(thousandths) / 1000)).to_integral_value(ROUND_CEILING)
    assert rank(n, rate) == rank(n, np.float64(rate)) == exact


@pytest.mark.parametrize("rate", ERROR_RATES)
def test_one_decision_fewer_than_the_fewest_gives_every_option(rate: float) -> None:
    fewest = fewest_decisions(rate)
    assert least_error_rate(fewest) <= rate * (1 + 1e-12) < least_error_rate(fewest - 1) * (1 + 1e-11)
    assert set_thresholds(np.zeros(fewest - 1), [rate]) == (1.0,)
    assert set_thresholds(np.zeros(fewest), [rate]) == (ROUNDING,)


@given(st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75]), min_size=1, max_size=60), st.sampled_from(ERROR_RATES))
def test_a_threshold_is_the_least_score_with_enough_at_or_below_it(scores: list[float], rate: float) -> None:
    needed = (len(scores) + 1) * (1 - Decimal(str(rate)))
    enough = [score for score in scores if sum(other <= score for other in scores) >= needed]
    assert set_thresholds(np.array(scores), [rate]) == (min(enough) + ROUNDING if enough else 1.0,)


def test_thresholds_never_pass_one_and_never_ascend() -> None:
    scores = np.array([1.0] * 5 + [0.3] * 60 + [0.1] * 60)
    found = set_thresholds(scores, ERROR_RATES)
    assert found == tuple(sorted(found, reverse=True))
    assert found[0] == found[1] == 1.0
    assert found[-1] == 0.3 + ROUNDING


rows_of_weights = st.lists(st.integers(0, 6), min_size=2, max_size=7).filter(any)


@given(rows_of_weights, st.data(), st.sampled_from(KINDS))
def test_a_score_is_where_the_served_set_takes_gold_in(weights: list[int], data: st.DataObject, kind: str) -> None:
    """From the score on the set of `decider.selective` holds gold, and just below it does not."""
    gold = data.draw(st.integers(0, len(weights) - 1))
    p = np.array(weights, dtype=np.float64) / sum(weights)
    names = [str(i) for i in range(len(p))]
    score = float(nonconformity(p[None], np.array([gold]), as_range=kind == "score")[0])
    for above in (0.0, 1e-9, 0.5):
        assert gold in prediction_set(list(p), at(score + above), RATE, kind, names)
    if score > 0:
        assert gold not in prediction_set(list(p), at(score - 1e-9), RATE, kind, names)
    else:
        assert gold in prediction_set(list(p), at(0.0), RATE, kind, names)


@given(rows_of_weights, st.data())
def test_padding_changes_no_score(weights: list[int], data: st.DataObject) -> None:
    gold = np.array([data.draw(st.integers(0, len(weights) - 1))])
    p = np.array([weights], dtype=np.float64) / sum(weights)
    for as_range in (False, True):
        padded = nonconformity(np.pad(p, ((0, 0), (0, 3))), gold, as_range=as_range)
        assert padded == nonconformity(p, gold, as_range=as_range)


def test_a_score_by_class_counts_no_range_in() -> None:
    """The levels between may have higher thresholds, so that no range would reach over them."""
    p = np.array([[0.5, 0.1, 0.4]])
    assert nonconformity(p, np.array([1]), as_range=True) == 0.6
    logits, gold = np.log(np.repeat(p, 40, axis=0)), np.full(40, 1)
    decisions = decisions_of(SCORE, logits, gold)
    found = selective_of(
        decisions, distributions(decisions, 1.0), layout="plain", permutations=1, class_conditional=True
    ).by_kind["score"]
    assert found.set_thresholds[5] == pytest.approx(0.6)
    assert found.by_class == {"1": (40, found.by_class["1"][1])}
    assert found.by_class["1"][1][5] == pytest.approx(0.9)


@pytest.mark.parametrize(("kind", "isolated"), [(CHOICE, False), (SCORE, False), (SCORE, True), (NOUL, False)])
def test_another_order_of_sums_drops_no_decision(kind: int, isolated: bool) -> None:
    """Decisions that tie at the threshold, recomputed one by one as an engine answers them, with logits shifted."""
    width = 2 if kind == NOUL else 5
    rng = np.random.default_rng(7)
    for _ in range(50):
        one = rng.normal(0, 3, width)
        gold = int(rng.integers(width))
        shifts = np.zeros(30) if isolated else rng.normal(0, 50, 30)
        logits = one + shifts[:, None]
        decisions = decisions_of(kind, logits, np.full(30, gold), isolated=isolated)
        temperature = float(rng.uniform(0.5, 3))
        found = selective_of(decisions, distributions(decisions, temperature), layout="plain", permutations=1)
        thresholds = found.by_kind[KINDS[kind]]
        for row in logits:
            p = (
                normalise_levels([float(-np.log1p(np.exp(-z / temperature))) for z in row])
                if isolated
                else probabilities(row, width, temperature)
            )
            for rate in thresholds.error_rates:
                assert gold in prediction_set(list(p), thresholds, rate, KINDS[kind], [str(i) for i in range(width)])


def test_classes_are_calibrated_apart() -> None:
    scores = np.array([0.5, 0.1, 0.2, 0.3, 0.4, 0.6])
    found = class_thresholds(scores, ["b", "a", "a", "b", "a", "a"], [0.2, 0.25, 0.5])
    assert found == {
        "a": (4, (0.6 + ROUNDING, 0.6 + ROUNDING, 0.4 + ROUNDING)),
        "b": (2, (1.0, 1.0, 0.5 + ROUNDING)),
    }


def test_classes_go_by_the_names_that_answers_go_by() -> None:
    """As `class_names` has them when a set is made; a name of another kind would always be in."""
    logits = np.log(np.array([[0.6, 0.4], [0.3, 0.7]] * 20))
    gold = np.array([0, 1] * 20)
    for kind, question in (
        (CHOICE, Choice("?", ["option 0", "option 1"])),
        (SCORE, Score("?", ["a", "b"])),
        (NOUL, Noul("?")),
    ):
        decisions = decisions_of(kind, logits, gold)
        found = selective_of(
            decisions, distributions(decisions, 1.0), layout="plain", permutations=1, class_conditional=True
        )
        assert tuple(found.by_kind[KINDS[kind]].by_class) == class_names(question)


def test_one_decision_an_item_and_type_is_kept() -> None:
    items = ["a", "a", "a", "b", "b", "c/d", "c/e"]
    decisions = decisions_of(NOUL, np.zeros((7, 2)), np.zeros(7, dtype=np.int64), items=items)
    seen = {tuple(one_per_item(decisions, NOUL, seed)) for seed in range(60)}
    assert seen == {(first, second, 5, 6) for first in (0, 1, 2) for second in (3, 4)}
    assert [*one_per_item(decisions, NOUL, 3)] == [*one_per_item(decisions, NOUL, 3)]
    assert len(one_per_item(decisions, CHOICE, 0)) == 0
    found = selective_of(decisions, distributions(decisions, 1.0), layout="plain", permutations=1)
    assert {kind: own.n for kind, own in found.by_kind.items()} == {"noul": 4}


def test_a_lone_option_counts_for_nothing() -> None:
    logits = np.full((30, 2), -np.inf)
    logits[:, 0] = 0.0
    logits[20:, 1] = 1.0
    decisions = decisions_of(CHOICE, logits, np.zeros(30, dtype=np.int64))
    found = selective_of(decisions, distributions(decisions, 1.0), layout="chat", permutations=3)
    assert (found.layout, found.permutations, found.by_kind["choice"].n) == ("chat", 3, 10)


def test_too_few_are_warned_of() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1, (30, 3))
    gold = np.arange(30) % 10 % 3
    decisions = decisions_of(CHOICE, logits, gold, items=[str(row // 2) for row in range(30)])
    found = selective_of(
        decisions, distributions(decisions, 1.0), layout="plain", permutations=1, class_conditional=True
    )
    few, sets, answers, classes = selective_warnings(found, decisions)
    assert "15 of 30 decisions" in few
    assert "below an error rate of 0.062 with 15 decisions; label at least 99 for 0.01" in sets
    assert "always abstained" in answers
    least = min(n for n, _ in found.by_kind["choice"].by_class.values())
    assert f"3 of 3 options that were right were so fewer than 99 times (the rarest {least})" in classes
    assert all(sentence.startswith("choice: ") for sentence in (few, sets, answers, classes))


def test_enough_are_not_warned_of() -> None:
    rng = np.random.default_rng(0)
    gold = rng.integers(3, size=3000)
    logits = rng.normal(0, 1, (3000, 3))
    logits[np.arange(3000), gold] += 12
    decisions = decisions_of(CHOICE, logits, gold)
    found = selective_of(decisions, distributions(decisions, 1.0), layout="plain", permutations=1)
    assert selective_warnings(found, decisions) == ()
    by_class = selective_of(
        decisions, distributions(decisions, 1.0), layout="plain", permutations=1, class_conditional=True
    )
    assert selective_warnings(by_class, decisions) == ()
    assert found.by_kind["choice"].accept == (0.0,) * len(ERROR_RATES)
