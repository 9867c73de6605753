"""Answers and their wire form. Trap: names and legends come back as the caller wrote them."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.questions.answers import Answer, ChoiceAnswer, NoulAnswer, ScoreAnswer, Selection, read_answer
from decider.questions.types import Choice, Noul, Question, Score


def test_choice() -> None:
    answer = read_answer(Choice("x", ["b", "None of the above", "a"]), [0.2, 0.4, 0.4], truncated=True)
    assert isinstance(answer, ChoiceAnswer)
    assert answer.choice == "None of the above"
    assert list(answer.probabilities.items()) == [("b", 0.2), ("None of the above", 0.4), ("a", 0.4)]
    assert answer.confidence == pytest.approx(0.1)
    assert answer.p_max == 0.4
    assert answer.to_wire() == {
        "type": "choice",
        "choice": "None of the above",
        "confidence": answer.confidence,
        "probabilities": {"b": 0.2, "None of the above": 0.4, "a": 0.4},
        "x_p_max": 0.4,
        "x_certainty": answer.certainty,
        "x_truncated": True,
    }
    assert list(answer.to_wire())[:4] == ["type", "choice", "confidence", "probabilities"]


def test_a_lone_option_is_certain() -> None:
    answer = read_answer(Choice("x", ["only"]), [1.0], truncated=False)
    assert answer == ChoiceAnswer("only", 1.0, {"only": 1.0}, False)
    assert answer.certainty == 1.0


def test_score() -> None:
    answer = read_answer(Score("x", {"2": {"label": "high"}, "1": "low", "0": ""}), [0, 0.95, 0.05], truncated=False)
    assert isinstance(answer, ScoreAnswer)
    assert answer.score == pytest.approx(1.05)
    assert (answer.level, answer.p_max) == (1, 0.95)
    assert answer.confidence == pytest.approx(0.925)
    wire = answer.to_wire()
    assert wire == {
        "type": "score",
        "score": answer.score,
        "confidence": answer.confidence,
        "legend": {"0": "", "1": "low", "2": {"label": "high"}},
        "probabilities": {"0": 0.0, "1": 0.95, "2": 0.05},
        "x_p_max": 0.95,
        "x_certainty": answer.certainty,
        "x_truncated": False,
    }
    assert list(wire)[:5] == ["type", "score", "confidence", "legend", "probabilities"]


def test_noul_is_the_probability_of_yes() -> None:
    answer = read_answer(Noul("x"), [0.25, 0.75], truncated=False)
    assert answer == NoulAnswer(0.75, False)
    assert answer.p_max == 0.75
    assert answer.certainty == pytest.approx(1 + (0.25 * math.log(0.25) + 0.75 * math.log(0.75)) / math.log(2))
    assert answer.to_wire() == {
        "type": "noul",
        "noul": 0.75,
        "x_p_max": 0.75,
        "x_certainty": answer.certainty,
        "x_truncated": False,
    }
    assert list(answer.to_wire())[:2] == ["type", "noul"]
    assert read_answer(Noul("x"), [0.9, 0.1], truncated=False).p_max == 0.9


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=10))
def test_answers_are_in_range_and_strict_json(weights: list[float]) -> None:
    total = sum(weights)
    shares = [weight / total for weight in weights]
    names = [f"o{index}" for index in range(len(shares))]
    yes = shares[0]
    asked: list[tuple[Question, list[float]]] = [
        (Choice("x", names), shares),
        (Score("x", names), shares),
        (Noul("x"), [1 - yes, yes]),
    ]
    for question, probabilities in asked:
        answer = read_answer(question, probabilities, truncated=False)
        wire = answer.to_wire()
        assert json.loads(json.dumps(wire, allow_nan=False)) == wire
        assert 0 <= answer.certainty <= 1
        assert answer.p_max == pytest.approx(max(probabilities))
        if isinstance(answer, ScoreAnswer):
            assert 0 <= answer.score <= len(shares) - 1


@pytest.mark.parametrize("above", [1 + 1e-12, 1.0])
def test_rounding_is_clamped(above: float) -> None:
    assert read_answer(Noul("x"), [-1e-12, above], truncated=False) == NoulAnswer(1.0, False)
    answer = read_answer(Score("x", ["a", "b"]), [0.0, above], truncated=False)
    assert isinstance(answer, ScoreAnswer)
    assert answer.score == 1.0


@pytest.mark.parametrize(
    "answer",
    [ChoiceAnswer("a", 1.0, {"a": 1.0}, False), ScoreAnswer(0, 0, 1, ("a",), (1.0,), True), NoulAnswer(1, False)],
)
def test_answers_can_be_pickled_and_taken_apart(answer: Answer) -> None:
    assert pickle.loads(pickle.dumps(answer)) == answer
    assert type(answer)(**dataclasses.asdict(answer)) == answer


@pytest.mark.parametrize(
    ("question", "chosen", "written"),
    [
        (Choice("x", ["b", "a"]), ("a",), ["a"]),
        (Score("x", ["low", "high"]), (0, 1), [0, 1]),
        (Noul("x"), (False, True), [False, True]),
    ],
)
def test_a_selection_is_ours_on_the_wire(question: Question, chosen: Any, written: list[object]) -> None:
    plain = read_answer(question, [0.25, 0.75], truncated=False)
    answer = read_answer(question, [0.25, 0.75], truncated=False, selection=Selection(0.1, chosen, True))
    added = {"x_error_rate": 0.1, "x_set": written, "x_abstain": True}
    assert answer.to_wire() == plain.to_wire() | added
    assert dataclasses.replace(answer, selection=None) == plain


@pytest.mark.parametrize("probabilities", [[1.0], [0.5, 0.25, 0.25], [math.nan, 1.0], [0.2, 0.2], [1.5, -0.5]])
@pytest.mark.parametrize("question", [Choice("x", ["a", "b"]), Score("x", ["a", "b"]), Noul("x")])
def test_a_distribution_of_the_wrong_shape_is_our_bug(question: Any, probabilities: list[float]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        read_answer(question, probabilities, truncated=False)
