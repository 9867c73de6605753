"""Which form wins: where one is true it is found, where none is nothing changes, and small data do no harm.

Refuses to test the fits themselves. Trap: a choice is a matter of chance; seeds are fixed, and the truths far apart.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from synthetic_decisions import synthetic, with_gold

from decider.calibrate.fit import FEW_DECISIONS, LEAST_DECISIONS, NAMES, fit
from decider.calibrate.forms import LEAST_OF_TYPE, fitting
from decider.calibrate.likelihood import likelihood
from decider.calibrate.temperatures import fit_scalar
from decider.decisions import CHOICE, NOUL, SCORE, Decisions, Float64Array, IntArray, item_codes
from decider.errors import ConfigError
from decider.tokens.calibration import OptionTemperature, PlattMap, Temperatures

NOW = Temperatures()


def by_type(kind: IntArray, _: IntArray) -> Float64Array:
    return np.select([kind == CHOICE, kind == SCORE], [0.7, 2.0], 4.0)


def by_options(_: IntArray, n_options: IntArray) -> Float64Array:
    return 3.5 - 1.2 * np.log(n_options)


def constant(value: float) -> object:
    return lambda kind, _: np.full(len(kind), value)


TRUTHS = [
    (constant(1.0), "uncalibrated"),
    (constant(1.7), "scalar"),
    (by_type, "by_type"),
    (by_options, "by_options"),
]


@pytest.mark.parametrize(("truth", "name"), TRUTHS)
@pytest.mark.parametrize("seed", range(3))
def test_the_true_form_wins(truth: object, name: str, seed: int) -> None:
    decisions = synthetic(5000, seed=seed, temperature=truth)  # type: ignore[arg-type]
    result = fit(decisions, NOW, schema_first=False)
    assert [form.name for form in result.forms] == ["uncalibrated", "scalar", "by_type", "by_options"]
    assert result.winner.name == name
    assert result.warnings == ()
    if name != "uncalibrated":
        assert result.winner.gain.value > result.winner.gain.error > 0
        assert "nats better than T = 1" in result.reason
        assert result.winner.ece.value < result.forms[0].ece.value
    if name == "by_type":
        assert {**result.temperatures.by_type} == pytest.approx({"choice": 0.7, "score": 2.0, "noul": 4.0}, rel=0.2)
        assert result.winner.fitted.parameters == 3
    if name == "by_options":
        assert result.temperatures.by_options is not None
        assert result.temperatures.by_options.at(4) == pytest.approx(3.5 - 1.2 * np.log(4), rel=0.1)
        assert result.winner.fitted.parameters == 2


def test_what_is_handed_out_is_fitted_on_everything() -> None:
    decisions = synthetic(600)
    result = fit(decisions, NOW, schema_first=False)
    assert result.winner.name == "scalar"
    assert result.temperatures == Temperatures(fit_scalar(likelihood(decisions)).temperature)


def test_held_out_figures_are_held_out() -> None:
    """By hand: each fold read at the temperature of the others."""
    decisions = synthetic(300, kinds=(CHOICE,), most_options=5)
    result = fit(decisions, NOW, schema_first=True, folds=3, seed=7)
    items = item_codes(decisions.key)
    fold_of = np.empty(150, dtype=np.int64)
    fold_of[np.random.default_rng(7).permutation(150)] = np.arange(150) % 3
    nll = np.zeros(300)
    for held in range(3):
        out = fold_of[items] == held
        temperature = fit_scalar(likelihood(decisions.take(~out))).temperature
        nll[out] = likelihood(decisions.take(out)).read(1 / temperature).nll
    scalar = next(form for form in result.forms if form.name == "scalar")
    assert scalar.nll.value == pytest.approx(nll.mean(), abs=1e-9)


def test_the_order_of_rows_changes_nothing_and_the_seed_does() -> None:
    decisions = synthetic(900)
    turned = decisions.take(np.random.default_rng(0).permutation(900))
    first, second = (fit(given, NOW, schema_first=False) for given in (decisions, turned))
    assert first.winner.nll.value == pytest.approx(second.winner.nll.value, abs=1e-12)
    other = fit(decisions, NOW, schema_first=False, seed=1)
    assert other.winner.nll.value != pytest.approx(first.winner.nll.value, abs=1e-12)


def test_the_present_temperatures_stay_where_nothing_is_better() -> None:
    decisions = synthetic(3000)
    present = Temperatures(1.7, schema_first=3.0)
    result = fit(decisions, present, schema_first=False)
    assert [form.name for form in result.forms][:2] == ["uncalibrated", "present"]
    assert (result.winner.name, result.temperatures) == ("present", present)


def test_a_layout_of_the_other_order_keeps_its_temperatures() -> None:
    decisions = synthetic(3000)
    present = Temperatures(9.0, {"noul": 8.0}, None, 7.0, {"score": 6.0})
    scalar = fit_scalar(likelihood(decisions)).temperature
    first = fit(decisions, present, schema_first=False)
    assert first.temperatures == Temperatures(scalar, {}, None, 7.0, {"score": 6.0})
    second = fit(decisions, present, schema_first=True)
    assert second.temperatures == Temperatures(9.0, {"noul": 8.0}, None, scalar, {})


def test_schema_first_has_no_form_by_options() -> None:
    decisions = synthetic(5000, temperature=by_type)
    result = fit(decisions, Temperatures(by_options=OptionTemperature(1.0, 0.5)), schema_first=True)
    assert [form.name for form in result.forms] == ["uncalibrated", "scalar", "by_type"]
    assert result.winner.name == "by_type"
    assert result.temperatures.schema_first is not None
    assert {*result.temperatures.schema_first_by_type} == {"choice", "score", "noul"}
    assert result.temperatures.by_options == OptionTemperature(1.0, 0.5)


def test_one_type_and_one_count_make_one_form() -> None:
    result = fit(synthetic(400, kinds=(SCORE,)), NOW, schema_first=False)
    assert [form.name for form in result.forms] == ["uncalibrated", "scalar"]


def test_a_type_of_few_decisions_keeps_the_temperature_of_all() -> None:
    many, few = synthetic(400, kinds=(CHOICE,)), synthetic(LEAST_OF_TYPE - 1, kinds=(SCORE,), seed=1)
    width = many.logits.shape[1]
    wide = np.full((len(few), width), -np.inf)
    wide[:, :5] = few.logits
    both = Decisions(
        key=many.key + tuple(f"more {key}" for key in few.key),
        task=many.task + few.task,
        kind=np.concatenate([many.kind, few.kind]),
        n_options=np.concatenate([many.n_options, few.n_options]),
        gold=np.concatenate([many.gold, few.gold]),
        logits=np.concatenate([many.logits, wide]),
        isolated=np.concatenate([many.isolated, few.isolated]),
        row_tokens=np.concatenate([many.row_tokens, few.row_tokens]),
        option_lists=many.option_lists,
        option_list=np.concatenate([many.option_list, few.option_list]),
    )
    result = fit(both, NOW, schema_first=False)
    form = next(form.fitted for form in result.forms if form.name == "by_type")
    assert {*form.temperatures.by_type} == {"choice"}
    assert form.temperatures.plain == fit_scalar(likelihood(both)).temperature
    assert form.parameters == 2
    assert len(result.warnings) == 2
    assert f"{LEAST_OF_TYPE - 1} decisions of type score are too few" in result.warnings[0]
    assert "no decisions of type noul; they get a temperature of other types" in result.warnings[1]


def test_a_line_by_options_needs_many_decisions_of_few_options_and_of_many() -> None:
    # Scores have five options and Nouls two, all of which are right: alone they would settle on no temperature at all.
    decisions = synthetic(400, kinds=(SCORE, NOUL), per_item=1)
    sure = replace(decisions, gold=np.where(decisions.kind == NOUL, decisions.logits.argmax(axis=1), decisions.gold))

    def forms(n_nouls: int) -> set[str]:
        nouls = np.flatnonzero(sure.kind == NOUL)
        kept = np.concatenate([np.flatnonzero(sure.kind == SCORE), nouls[:n_nouls]])
        result = fit(sure.take(kept), NOW, schema_first=False)
        assert result.temperatures.by_options is None
        return {form.name for form in result.forms}

    assert "by_options" not in forms(LEAST_OF_TYPE - 1)
    assert "by_options" in forms(LEAST_OF_TYPE)


def test_few_options_and_many_are_told_apart_by_ratios() -> None:
    # Half of the way from 2 to 64 options is 11 by ratios, and 33 by numbers.
    decisions = synthetic(2 * LEAST_OF_TYPE + 1, kinds=(CHOICE,), most_options=64, per_item=1)
    counts = np.array([2] * LEAST_OF_TYPE + [20] * LEAST_OF_TYPE + [64])
    kept = replace(
        decisions,
        n_options=counts,
        option_list=counts,
        gold=np.zeros(len(counts), dtype=np.int64),
        logits=np.where(
            np.arange(decisions.logits.shape[1]) < counts[:, None], np.nan_to_num(decisions.logits, neginf=0.0), -np.inf
        ),
    )
    assert "by_options" in {form.name for form in fit(kept, NOW, schema_first=False).forms}


def test_folds_keep_items_together_and_differ_by_one() -> None:
    decisions = synthetic(101 * 3, per_item=3)
    items = item_codes(decisions.key)
    seen: dict[int, set[int]] = {}

    def remember(given: Decisions, fold: IntArray, *, schema_first: bool) -> object:
        for item, own in zip(items.tolist(), fold.tolist(), strict=True):
            seen.setdefault(item, set()).add(own)
        return fitting(given, fold, schema_first=schema_first)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("decider.calibrate.fit.fitting", remember)
        fit(decisions, NOW, schema_first=False, folds=4)
    assert {len(folds) for folds in seen.values()} == {1}
    sizes = np.bincount([next(iter(folds)) for folds in seen.values()])
    assert sorted(sizes.tolist()) == [25, 25, 25, 26]


def test_a_noul_map_is_taken_where_the_middle_is_wrong() -> None:
    decisions = synthetic(4000, kinds=(NOUL,), temperature=constant(1.0))  # type: ignore[arg-type]
    shifted = replace(decisions, logits=decisions.logits + np.array([2.0, 0.0]))
    result = fit(shifted, NOW, schema_first=False)
    assert isinstance(result.noul_map, PlattMap)
    assert result.noul_map.b / result.noul_map.a == pytest.approx(2.0 / result.temperatures.plain, rel=0.1)
    assert result.map_reason.startswith("platt: gains ")
    assert fit(decisions, NOW, schema_first=False).noul_map is None
    without = fit(shifted, NOW, schema_first=False, noul_map=False)
    assert (without.maps, without.noul_map, without.map_reason) == (None, None, "not tried, as said")
    assert without.temperatures == result.temperatures


def test_few_nouls_have_no_map() -> None:
    result = fit(synthetic(400), NOW, schema_first=False)
    assert (result.maps, result.noul_map) == (None, None)
    assert "not tried" in result.map_reason
    rare = synthetic(400, kinds=(NOUL,))
    rare = with_gold(rare, (np.arange(400) < 19).astype(np.int64))
    assert "19 of the rarer answer" in fit(rare, NOW, schema_first=False).map_reason


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("present", [Temperatures(), Temperatures(1.3)])
def test_one_item_changes_nothing(n: int, present: Temperatures) -> None:
    result = fit(synthetic(n), present, schema_first=False)
    assert (result.folds, result.n_items) == (0, 1)
    assert result.temperatures == present
    assert "one item" in result.reason
    assert any("few for a temperature" in warning for warning in result.warnings)


@pytest.mark.parametrize("n", [3, 7, 40])
@pytest.mark.parametrize("gold", ["right", "wrong"])
@pytest.mark.parametrize("isolated", [False, True])
def test_small_and_one_sided_data_give_finite_temperatures_and_warnings(n: int, gold: str, isolated: bool) -> None:
    decisions = synthetic(n, isolated=isolated)
    best = decisions.logits.argmax(axis=1)
    decisions = with_gold(decisions, best if gold == "right" else (best + 1) % decisions.n_options)
    result = fit(decisions, NOW, schema_first=False)
    for form in result.forms:
        assert np.isfinite([form.nll.value, form.ece.value, form.excess.value]).all()
        assert 0.05 <= form.fitted.temperatures.plain <= 20
    end = "lowest" if gold == "right" else "highest"
    bound = [warning for warning in result.warnings if f"to the {end} allowed" in warning]
    # Under the minimum nothing is fitted; all right, nothing that was fitted is taken.
    assert any(NAMES["scalar"] in warning for warning in bound) == (n >= LEAST_DECISIONS)
    assert (result.temperatures == NOW) == (n < LEAST_DECISIONS or gold == "right")
    assert any(f"{n} decisions are few" in warning for warning in result.warnings)
    assert n < FEW_DECISIONS


@pytest.mark.parametrize("present", [Temperatures(), Temperatures(1.3)])
def test_under_the_minimum_nothing_is_fitted(present: Temperatures) -> None:
    few = fit(synthetic(LEAST_DECISIONS - 1), present, schema_first=False)
    assert (few.folds, few.temperatures) == (0, present)
    assert f"fewer than {LEAST_DECISIONS} decisions" in few.reason
    assert {form.name for form in few.forms} <= {"uncalibrated", "present"}
    enough = fit(synthetic(LEAST_DECISIONS), present, schema_first=False)
    assert enough.folds == 5
    assert "scalar" in {form.name for form in enough.forms}


def test_answers_that_are_all_right_settle_no_temperature_whatever_their_nll() -> None:
    decisions = synthetic(400)
    decisions = with_gold(decisions, decisions.logits.argmax(axis=1))
    result = fit(decisions, Temperatures(0.8), schema_first=False)
    # Of what is not fitted, the better one.
    assert result.winner.name == "present"
    assert result.temperatures == Temperatures(0.8)
    scalar = next(form for form in result.forms if form.name == "scalar")
    assert scalar.nll.value < result.winner.nll.value
    assert "the least NLL of what the data settle" in result.reason
    assert any("one temperature" in warning and "not taken" in warning for warning in result.warnings)


def test_a_type_whose_answers_are_all_right_keeps_the_temperature_of_all() -> None:
    decisions = synthetic(6000, temperature=by_type)
    gold = np.where(decisions.kind == CHOICE, decisions.logits.argmax(axis=1), decisions.gold)
    result = fit(with_gold(decisions, gold), NOW, schema_first=False)
    assert result.winner.name == "by_type"
    assert {**result.temperatures.by_type} == pytest.approx({"score": 2.0, "noul": 4.0}, rel=0.2)
    assert 0.05 < result.temperatures.plain < 20
    assert any("answers of type choice are nearly all right" in warning for warning in result.warnings)


def test_a_model_at_chance_is_flattened() -> None:
    decisions = synthetic(3000)
    rng = np.random.default_rng(5)
    result = fit(with_gold(decisions, rng.integers(0, decisions.n_options)), NOW, schema_first=False)
    assert result.temperatures.plain == 20.0
    assert any("hardly better than chance" in warning for warning in result.warnings)


def test_where_nothing_is_possible_there_is_nothing_to_fit() -> None:
    decisions = with_gold(synthetic(250, kinds=(CHOICE,)), np.zeros(250, dtype=np.int64))
    logits = decisions.logits.copy()
    logits[:, 0] = -np.inf
    with pytest.raises(ConfigError, match="right option has probability 0 in each of the 250 decisions"):
        fit(replace(decisions, logits=logits), NOW, schema_first=False)


def test_equal_logits_are_said_to_say_nothing() -> None:
    decisions = synthetic(300, kinds=(NOUL,))
    result = fit(replace(decisions, logits=np.zeros((300, 2))), NOW, schema_first=False)
    assert result.winner.name == "uncalibrated"
    assert any("say nothing" in warning for warning in result.warnings)


def test_what_cannot_be_is_left_out_and_said() -> None:
    decisions = synthetic(600)
    logits = decisions.logits.copy()
    logits[[5, 6], decisions.gold[[5, 6]]] = -np.inf
    # Where a wrong option cannot be, nothing is amiss.
    logits[7, (decisions.gold[7] + 1) % decisions.n_options[7]] = -np.inf
    result = fit(replace(decisions, logits=logits), NOW, schema_first=False)
    assert result.n == 598
    assert "2 decisions are left out" in result.warnings[0]
    assert np.isfinite(result.winner.nll.value)


def test_a_hundred_thousand_take_seconds() -> None:
    """Processor time, as other tests may run beside it; about 1 s, so that three times that is a fault."""
    decisions = synthetic(100_000, most_options=20)
    fit(decisions.take(np.arange(2000)), NOW, schema_first=False)
    began = time.process_time()
    fit(decisions, NOW, schema_first=False)
    assert time.process_time() - began < 4
