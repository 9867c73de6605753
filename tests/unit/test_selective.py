"""Maps of P(yes), prediction sets and abstention. Trap: a property that holds for one threshold may fail for two."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.errors import QuestionError
from decider.questions.answers import Selection
from decider.questions.request import make_request
from decider.questions.types import Choice, Noul, Question, Score
from decider.selective import abstains, class_names, noul_mapped, prediction_set, rate_index, selector_for
from decider.tokens.calibration import Calibration, IsotonicMap, PlattMap, Selective, Thresholds

RATES = (0.01, 0.05, 0.2)
THRESHOLDS = Thresholds(100, RATES, (1.0, 0.8, 0.5), (None, 0.9, 0.6))


@pytest.mark.parametrize("p", [0.0, 1e-300, 1e-12, 0.25, 0.5, 0.75, 1 - 1e-12, 1.0])
@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (2.5, -1.0), (0.1, 3.0), (20.0, 0.0)])
def test_a_platt_map_is_the_logistic_of_the_log_odds(p: float, a: float, b: float) -> None:
    odds = math.inf if p == 1 else (p / (1 - p)) ** a * math.exp(b)
    expected = 1.0 if math.isinf(odds) else odds / (1 + odds)
    assert float(noul_mapped(p, PlattMap(a, b))) == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_an_isotonic_map_is_straight_between_its_points_and_held_beyond() -> None:
    noul_map = IsotonicMap((0.2, 0.4, 0.8), (0.1, 0.1, 0.9))
    mapped = noul_mapped(np.array([0.0, 0.2, 0.3, 0.6, 0.8, 1.0]), noul_map)
    np.testing.assert_allclose(mapped, [0.1, 0.1, 0.1, 0.5, 0.9, 0.9], atol=1e-15)
    assert float(noul_mapped(0.7, IsotonicMap((0.5,), (0.3,)))) == 0.3


def test_the_last_bits_of_a_softmax_are_no_nan() -> None:
    beyond = np.array([-1e-17, 1 + 2**-52])
    assert noul_mapped(beyond, PlattMap(1.0, 5.0)).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(("rate", "index"), [(0.009, None), (0.01, 0), (0.0499, 0), (0.05, 1), (0.19, 1), (0.99, 2)])
def test_the_largest_calibrated_rate_that_is_no_larger_is_used(rate: float, index: int | None) -> None:
    assert rate_index(THRESHOLDS, rate) == index


def test_a_set_by_hand() -> None:
    names = ("a", "b", "c")
    assert prediction_set((0.5, 0.3, 0.2), THRESHOLDS, 0.01, "choice", names) == (0, 1, 2)
    # 1 − 0.2 is 0.8, which is on the threshold and in.
    assert prediction_set((0.5, 0.3, 0.2), THRESHOLDS, 0.05, "choice", names) == (0, 1, 2)
    assert prediction_set((0.5, 0.31, 0.19), THRESHOLDS, 0.05, "choice", names) == (0, 1)
    assert prediction_set((0.5, 0.31, 0.19), THRESHOLDS, 0.2, "choice", names) == (0,)
    # None reaches 0.5, and the likeliest is in all the same.
    assert prediction_set((0.3, 0.4, 0.3), THRESHOLDS, 0.2, "choice", names) == (1,)


def test_a_scores_set_has_no_gap() -> None:
    assert prediction_set((0.4, 0.1, 0.1, 0.4), THRESHOLDS, 0.05, "score", "0123") == (0, 1, 2, 3)
    assert prediction_set((0.4, 0.1, 0.1, 0.4), THRESHOLDS, 0.05, "choice", "0123") == (0, 3)


def test_each_class_has_its_own_threshold_and_a_foreign_one_is_always_in() -> None:
    by_class = {"a": (9, (1.0, 0.1, 0.0)), "b": (9, (1.0, 0.9, 0.7))}
    thresholds = replace(THRESHOLDS, by_class=by_class)
    assert prediction_set((0.6, 0.2, 0.2), thresholds, 0.05, "choice", ("c", "a", "b")) == (0, 2)
    assert prediction_set((0.6, 0.4, 0.0), thresholds, 0.2, "choice", ("b", "a", "foreign")) == (0, 2)


def test_abstention_by_hand() -> None:
    assert abstains((1.0, 0.0), THRESHOLDS, 0.01)
    assert abstains((0.89, 0.11), THRESHOLDS, 0.05)
    assert not abstains((0.1, 0.9), THRESHOLDS, 0.05)
    assert not abstains((0.89, 0.11), THRESHOLDS, 0.2)


@st.composite
def any_thresholds(draw: st.DrawFn) -> Thresholds:
    rates = tuple(sorted(draw(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=6, unique=True))))
    several = st.lists(st.floats(0, 1.2), min_size=len(rates), max_size=len(rates)).map(
        lambda values: tuple(sorted(values, reverse=True))
    )
    n_none = draw(st.integers(0, len(rates)))
    accept = sorted(draw(st.lists(st.floats(0, 1), min_size=len(rates), max_size=len(rates))), reverse=True)
    by_class = draw(st.dictionaries(st.sampled_from("0123456"), st.tuples(st.just(9), several)))
    return Thresholds(9, rates, draw(several), (*(None,) * n_none, *accept[n_none:]), by_class)


weights = st.lists(st.floats(0, 1), min_size=1, max_size=7).filter(lambda values: sum(values) > 0)


@given(any_thresholds(), weights, st.sampled_from(["choice", "score"]))
def test_sets_hold_the_likeliest_and_grow_as_the_rate_falls(
    thresholds: Thresholds, weighed: list[float], kind: str
) -> None:
    p = [weight / sum(weighed) for weight in weighed]
    names = [str(option) for option in range(len(p))]
    sets = [prediction_set(p, thresholds, rate, kind, names) for rate in thresholds.error_rates]
    for chosen in sets:
        assert p.index(max(p)) in chosen
        assert list(chosen) == sorted(set(chosen))
        if kind == "score":
            assert chosen[-1] - chosen[0] + 1 == len(chosen)
    for smaller, larger in pairwise(sets):
        assert set(smaller) >= set(larger)
    assert prediction_set(p, thresholds, 0.9999, kind, names) == sets[-1]


@given(any_thresholds(), st.lists(weights, min_size=2, max_size=2))
def test_abstention_falls_with_the_rate_and_with_the_probability(
    thresholds: Thresholds, pair: list[list[float]]
) -> None:
    surer, less = sorted(([w / sum(own) for w in own] for own in pair), key=max, reverse=True)
    for probabilities in (surer, less):
        abstained = [abstains(probabilities, thresholds, rate) for rate in thresholds.error_rates]
        assert abstained == sorted(abstained, reverse=True)
    for rate in thresholds.error_rates:
        assert abstains(less, thresholds, rate) or not abstains(surer, thresholds, rate)


SELECTIVE = Selective("plain", 1, 0.9, {"choice": THRESHOLDS, "score": THRESHOLDS, "noul": THRESHOLDS})
QUESTIONS: dict[str, Question] = {"c": Choice("x", ["a", "b"]), "s": Score("x", ["u", "v", "w"]), "n": Noul("x")}


def test_a_selection_speaks_of_names_levels_and_booleans() -> None:
    request = make_request("x", QUESTIONS, error_rate=0.06)
    selector = selector_for(request, Calibration(selective=SELECTIVE), layout="plain", permutations=1, overridden=False)
    assert selector is not None
    assert selector.select(QUESTIONS["c"], [0.1, 0.9]) == Selection(0.06, ("b",), False)
    assert selector.select(QUESTIONS["s"], [0.4, 0.1, 0.5]) == Selection(0.06, (0, 1, 2), True)
    assert selector.select(QUESTIONS["n"], [0.45, 0.55]) == Selection(0.06, (False, True), True)
    assert selector.select(QUESTIONS["n"], [0.95, 0.05]) == Selection(0.06, (False,), False)
    assert selector.select(Choice("x", ["only"]), [1.0]) == Selection(0.06, ("only",), False)


def test_classes_are_called_by_name_index_and_no_or_yes() -> None:
    assert [class_names(question) for question in QUESTIONS.values()] == [("a", "b"), ("0", "1", "2"), ("no", "yes")]


def test_without_an_error_rate_nothing_is_refused() -> None:
    request = make_request("x", QUESTIONS, independent=False)
    assert selector_for(request, Calibration(), layout="chat", permutations=3, overridden=True) is None


def refused(
    questions: dict[str, Question],
    *,
    calibration: Calibration | None = None,
    independent: bool = True,
    layout: str = "plain",
    permutations: int = 1,
    overridden: bool = False,
    rate: float = 0.05,
) -> str:
    request = make_request("x", questions, independent=independent, error_rate=rate)
    found = Calibration(selective=SELECTIVE) if calibration is None else calibration
    with pytest.raises(QuestionError) as caught:
        selector_for(request, found, layout=layout, permutations=permutations, overridden=overridden)
    assert caught.value.loc == ("error_rate",)
    return str(caught.value)


def test_what_was_not_calibrated_is_refused() -> None:
    said = refused(QUESTIONS, calibration=Calibration())
    assert "no thresholds for error rates" in said
    assert "`decider calibrate`" in said
    assert "--decider-config FILE" in said
    only_choice = Calibration(selective=replace(SELECTIVE, by_kind={"choice": THRESHOLDS}))
    assert "questions of type score" in refused(QUESTIONS, calibration=only_choice)
    said = refused(QUESTIONS, rate=0.005)
    assert "error_rate is 0.005, and the smallest with thresholds for questions of type choice is 0.01" in said
    # There are none below the grid, whatever the data.
    assert "data" not in said


def test_a_lone_option_needs_no_thresholds() -> None:
    no_kinds = Calibration(selective=replace(SELECTIVE, by_kind={}))
    request = make_request("x", {"q": Choice("x", ["only"])}, error_rate=0.001)
    selector = selector_for(request, no_kinds, layout="plain", permutations=1, overridden=False)
    assert selector is not None
    assert selector.select(request.questions["q"], [1.0]) == Selection(0.001, ("only",), False)


def test_answers_that_come_about_in_another_way_are_refused() -> None:
    assert "independent=False" in refused(QUESTIONS, independent=False)
    assert "explicit temperature" in refused(QUESTIONS, overridden=True)
    assert "layout is 'chat', and error rates were calibrated with 'plain'" in refused(QUESTIONS, layout="chat")
    assert "`decider calibrate --layout`" in refused(QUESTIONS, layout="chat")
    said = refused(QUESTIONS, permutations=2)
    assert "permutations is 2, and error rates were calibrated with 1; ask with that, or without" in said
    # Which calibrates in one order alone.
    assert "decider calibrate" not in said


@pytest.mark.parametrize("isolated_levels", [True, False])
@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("asked", [True, False, None])
def test_scores_are_asked_in_the_form_they_were_calibrated_in(
    isolated_levels: bool, calibrated: bool, asked: bool | None
) -> None:
    by_kind = {**SELECTIVE.by_kind, "score": replace(THRESHOLDS, isolated=calibrated)}
    calibration = Calibration(selective=replace(SELECTIVE, by_kind=by_kind, isolated_levels=isolated_levels))
    questions = {**QUESTIONS, "s": Score("x", ["u", "v"], isolated=asked)}
    if calibrated == (isolated_levels if asked is None else asked):
        request = make_request("x", questions, error_rate=0.05)
        assert selector_for(request, calibration, layout="plain", permutations=1, overridden=False) is not None
    else:
        said = refused(questions, calibration=calibration)
        assert "the score 's' is asked with" in said
        assert f"ask it with `isolated` {str(calibrated).lower()}" in said
