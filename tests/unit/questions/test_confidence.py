"""The formulas against their published check values. Trap: a softmax sums to 1 only nearly; results stay in range."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.questions.confidence import argmax, certainty, choice_confidence, score_confidence

weights = st.lists(st.floats(0, 1), min_size=1, max_size=255).filter(lambda each: sum(each) > 1e-3)


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        ((0.195, 0.1994, 0.2252, 0.2286, 0.1518), 0.03575),
        ((0.5, 0.5), 0.0),
        ((0.0, 1.0), 1.0),
        ((1.0,), 1.0),
        ((0.25, 0.75), 0.5),
    ],
)
def test_choice_confidence(probabilities: Sequence[float], expected: float) -> None:
    assert choice_confidence(probabilities) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        ((0, 0.95, 0.05), 0.925),
        ((0.4, 0.4, 0.2), 0.0),
        ((0.0, 0.0, 1.0), 1.0),
        ((1.0,), 1.0),
        ((0.25, 0.75), 0.5),
        ((0.9, 0.1, 0, 0), 0.9),
    ],
)
def test_score_confidence(probabilities: Sequence[float], expected: float) -> None:
    assert score_confidence(probabilities) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [((0.25,) * 4, 0.0), ((0.0, 1.0), 1.0), ((1.0,), 1.0), ((0.5, 0.5, 0.0, 0.0), 0.5)],
)
def test_certainty(probabilities: Sequence[float], expected: float) -> None:
    assert certainty(probabilities) == pytest.approx(expected, abs=1e-12)


def test_ties_go_to_the_lowest_index() -> None:
    assert argmax((0.2, 0.4, 0.4)) == 1
    assert score_confidence((0.4, 0.2, 0.4)) == score_confidence((0.4, 0.2, 0.4)[::-1])


@given(weights, st.floats(-1e-9, 1e-9))
def test_every_result_is_in_range(raw: list[float], error: float) -> None:
    total = math.fsum(raw)
    probabilities = [max(0.0, weight / total + error) for weight in raw]
    for measure in (choice_confidence, score_confidence, certainty):
        assert 0.0 <= measure(probabilities) <= 1.0
