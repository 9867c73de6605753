"""Temperatures by familiarity: a pair a type where the data have both sides, and none where they have not.

Refuses to know wordings. Trap: a pair is fitted from either end, so a test of one end alone passes with both swapped.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_decisions import synthetic

from decider.calibrate.fit import fit
from decider.calibrate.forms import FAMILIAR, LEAST_OF_TYPE, fitting
from decider.decisions import CHOICE, KINDS, NOUL, Decisions, Float64Array, IntArray
from decider.tokens.calibration import Temperatures

NOW = Temperatures()


def by_familiarity(n: int = 8000) -> Decisions:
    """Choices have the temperature 1.2 in familiar words and 4 in others, other types 1.7 in all."""
    familiarity = np.random.default_rng(3).choice((0.0, 0.2, 0.9, 1.0), n)

    def true(kind: IntArray, _: IntArray) -> Float64Array:
        return np.where(kind == CHOICE, familiarity * 1.2 + (1 - familiarity) * 4, 1.7)

    return replace(synthetic(n, temperature=true), familiarity=familiarity)


def test_familiar_and_other_words_get_a_temperature_each() -> None:
    result = fit(by_familiarity(), NOW, schema_first=False, noul_map=False)
    given = result.temperatures
    assert result.winner.name == "by_familiarity"
    assert (given.by_type["choice"], given.unfamiliar_by_type["choice"]) == pytest.approx((1.2, 4), rel=0.08)
    assert (given.by_type["score"], given.unfamiliar_by_type["score"]) == pytest.approx((1.7, 1.7), rel=0.1)
    parts = result.winner.fitted.parts
    assert set(parts) == set(KINDS)
    assert result.winner.fitted.parameters == 2 * len(KINDS)


def test_a_fold_that_is_held_out_changes_no_pair() -> None:
    decisions, fold = by_familiarity(3000), np.arange(3000) // 1500
    whole = fitting(decisions, fold, schema_first=False)
    without = whole.fit_without(0, whole.fit())["by_familiarity"].temperatures
    left = decisions.take(fold == 1)
    alone = fitting(left, fold[fold == 1], schema_first=False).fit()["by_familiarity"].temperatures
    for found, expected in (
        (without.by_type, alone.by_type),
        (without.unfamiliar_by_type, alone.unfamiliar_by_type),
    ):
        assert dict(found) == pytest.approx(dict(expected), rel=1e-4)


def test_a_type_that_lies_in_one_fold_has_no_pair_where_that_is_held_out() -> None:
    decisions = by_familiarity(3000)
    data = fitting(decisions, (decisions.kind == NOUL).astype(np.int64), schema_first=False)
    without = data.fit_without(1, data.fit())["by_familiarity"]
    assert set(without.temperatures.unfamiliar_by_type) == {"choice", "score"}
    assert set(without.parts) == {"choice", "score", "all"}


def test_one_type_alone_has_a_pair_and_nothing_else() -> None:
    decisions = by_familiarity(6000)
    decisions = decisions.take(decisions.kind == CHOICE)
    fitted = fitting(decisions, np.arange(len(decisions)) % 5, schema_first=False).fit()["by_familiarity"]
    assert set(fitted.parts) == set(fitted.temperatures.by_type) == {"choice"}
    assert fitted.parameters == 2


def test_a_type_that_is_asked_in_familiar_words_alone_keeps_one_temperature() -> None:
    decisions = by_familiarity()
    assert decisions.familiarity is not None
    familiarity = np.where(decisions.kind == CHOICE, decisions.familiarity, 1.0)
    given = fit(replace(decisions, familiarity=familiarity), NOW, schema_first=False, noul_map=False).temperatures
    assert set(given.unfamiliar_by_type) == {"choice"}
    assert given.by_type["noul"] == pytest.approx(1.7, rel=0.1)


def test_a_pair_wants_enough_decisions_on_either_side_of_one_half() -> None:
    decisions = synthetic(8 * LEAST_OF_TYPE)
    decisions = decisions.take(np.flatnonzero(decisions.kind == NOUL)[: 2 * LEAST_OF_TYPE])
    rows = np.arange(len(decisions))
    for n_familiar, pairs in ((LEAST_OF_TYPE, (NOUL,)), (LEAST_OF_TYPE - 1, ()), (LEAST_OF_TYPE + 1, ())):
        given = replace(decisions, familiarity=np.where(rows < n_familiar, FAMILIAR, 0.0))
        assert fitting(given, rows, schema_first=False).pairs == pairs


def test_without_familiarity_or_with_questions_first_there_is_no_form_by_it() -> None:
    decisions = by_familiarity(2000)
    for given, schema_first in ((decisions, True), (replace(decisions, familiarity=None), False)):
        result = fit(given, NOW, schema_first=schema_first, noul_map=False)
        assert "by_familiarity" not in {form.name for form in result.forms}


def test_that_there_is_no_pair_is_said() -> None:
    decisions = synthetic(600)
    said = "no temperatures by familiarity: of no type are 100 decisions asked in familiar words and 100 in others"
    every: Float64Array = np.ones(600)
    half: Float64Array = np.arange(600, dtype=np.float64) % 2
    for familiarity, warned in ((every, True), (half, False), (None, False)):
        result = fit(replace(decisions, familiarity=familiarity), NOW, schema_first=False, noul_map=False)
        assert (said in result.warnings) == warned
    known = replace(decisions, familiarity=every)
    assert said not in fit(known, NOW, schema_first=True, noul_map=False).warnings
