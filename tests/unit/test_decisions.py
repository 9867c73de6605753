"""Columns of decisions and their distributions. Refuses models. Trap: `read` is the oracle, row by row."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.decisions import (
    CHOICE,
    NOUL,
    SCORE,
    BoolArray,
    Decisions,
    Float64Array,
    IntArray,
    decision_key,
    distributions,
    item_and_question,
)
from decider.read import log_probabilities, normalise_levels, probabilities

WIDTH = 12
TEMPERATURES = st.floats(1e-3, 1e3) | st.sampled_from([5e-324, 1e-300, 1e300])


def decisions(rows: list[tuple[int, list[float], bool]]) -> Decisions:
    """One decision a (kind, logits, isolated)."""
    logits = np.full((len(rows), WIDTH), -np.inf)
    for index, (_, own, _) in enumerate(rows):
        logits[index, : len(own)] = own
    zeros = np.zeros(len(rows), dtype=np.int64)
    return Decisions(
        key=tuple(map(str, range(len(rows)))),
        task=tuple(f"task {index}" for index in range(len(rows))),
        kind=np.array([kind for kind, _, _ in rows], dtype=np.int64),
        n_options=np.array([len(own) for _, own, _ in rows], dtype=np.int64),
        gold=zeros,
        logits=logits,
        isolated=np.array([isolated for _, _, isolated in rows], dtype=np.bool_),
        row_tokens=zeros + 7,
        option_lists=(("a",),),
        option_list=zeros,
    )


def by_read(own: list[float], isolated: bool, temperature: float) -> Float64Array:
    """What the engine and the API make of the same logits; a level's row has the logits (0, z) of (no, yes)."""
    if not isolated:
        return probabilities(np.array(own), len(own), temperature)
    return normalise_levels([log_probabilities(np.array([0.0, z]), 2, temperature)[1] for z in own])


logits_of = st.lists(st.floats(-90, 90), min_size=1, max_size=WIDTH)
rows_of = st.lists(
    st.tuples(logits_of, st.booleans(), TEMPERATURES).map(
        lambda row: (SCORE if row[1] else CHOICE, row[0], row[1], row[2])
    ),
    min_size=1,
    max_size=6,
)


@given(rows_of)
def test_distributions_are_those_of_read(rows: list[tuple[int, list[float], bool, float]]) -> None:
    asked = decisions([row[:3] for row in rows])
    ours = distributions(asked, np.array([row[3] for row in rows]))
    assert ours.shape == (len(rows), WIDTH)
    assert ours.dtype == np.float64
    for row, (_, own, isolated, temperature) in zip(ours, rows, strict=True):
        np.testing.assert_allclose(row[: len(own)], by_read(own, isolated, temperature), rtol=1e-12, atol=1e-15)
        assert not row[len(own) :].any()


def test_one_temperature_is_for_all() -> None:
    asked = decisions([(CHOICE, [1.0, 2.0], False), (SCORE, [1.0, -2.0, 0.5], True), (NOUL, [3.0, 1.0], False)])
    assert distributions(asked, 1.7).tolist() == distributions(asked, np.full(3, 1.7)).tolist()


def test_levels_that_all_vanish_are_alike() -> None:
    ours = distributions(decisions([(SCORE, [-3.0, -1.0, -2.0], True), (SCORE, [-3.0, 1.0], True)]), 5e-324)
    np.testing.assert_array_equal(ours[0, :4], [1 / 3, 1 / 3, 1 / 3, 0])
    np.testing.assert_array_equal(ours[1, :3], [0, 1, 0])


def test_an_option_that_cannot_be_has_no_probability() -> None:
    ours = distributions(decisions([(CHOICE, [0.0, -math.inf, 0.0], False)]), 0.3)
    np.testing.assert_array_equal(ours[0, :4], [0.5, 0, 0.5, 0])


def test_a_lone_option_is_certain_and_no_decisions_have_no_distributions() -> None:
    assert distributions(decisions([(CHOICE, [-3.0], False)]), 2.0)[0].tolist() == [1.0, *[0.0] * (WIDTH - 1)]
    assert distributions(decisions([]), 1.0).shape == (0, WIDTH)
    nothing = decisions([]).take(np.zeros(0, dtype=np.int64))
    assert len(nothing) == 0
    assert distributions(nothing, np.zeros(0)).shape == (0, WIDTH)


def test_inputs_are_left_as_they_were() -> None:
    asked = decisions([(SCORE, [1.0, -2.0], True), (CHOICE, [1.0, 2.0], False)])
    before = asked.logits.copy()
    distributions(asked, 3.0)
    np.testing.assert_array_equal(asked.logits, before)


@pytest.mark.parametrize("rows", [np.array([2, 0]), np.array([True, False, True])])
def test_take_keeps_every_column_and_the_order(rows: IntArray | BoolArray) -> None:
    asked = decisions([(CHOICE, [1.0], False), (SCORE, [0.1, 0.2], True), (NOUL, [3.0, 4.0], False)])
    assert asked.take(rows).familiarity is None
    asked = replace(asked, familiarity=np.array([0.0, 0.25, 1.0]))
    taken = asked.take(rows)
    order = [2, 0] if rows.dtype == np.int64 else [0, 2]
    assert taken.key == tuple(str(index) for index in order)
    assert taken.task == tuple(f"task {index}" for index in order)
    for name in ("kind", "n_options", "gold", "logits", "isolated", "row_tokens", "option_list", "familiarity"):
        np.testing.assert_array_equal(getattr(taken, name), getattr(asked, name)[order])
    assert taken.option_lists == asked.option_lists
    assert {field.name for field in fields(Decisions)} == {
        *(
            "key",
            "task",
            "kind",
            "n_options",
            "gold",
            "logits",
            "isolated",
            "row_tokens",
            "option_lists",
            "option_list",
        ),
        "familiarity",
    }


def test_columns_of_different_lengths_are_our_bug() -> None:
    asked = decisions([(CHOICE, [1.0], False)])
    with pytest.raises(AssertionError):
        Decisions(**{field.name: getattr(asked, field.name) for field in fields(asked)} | {"task": ()})
    with pytest.raises(AssertionError):
        replace(asked, familiarity=np.ones(2))


@pytest.mark.parametrize(
    ("key", "parts"), [("7/team", ("7", "team")), ("a/7/team", ("a/7", "team")), ("7", ("7", "")), ("/x", ("", "x"))]
)
def test_a_key_is_an_item_and_a_question(key: str, parts: tuple[str, str]) -> None:
    assert item_and_question(key) == parts


@given(st.text(), st.text())
def test_no_name_is_lost_in_a_key(item: str, question: str) -> None:
    assert item_and_question(decision_key(item, question)) == (item, question)
