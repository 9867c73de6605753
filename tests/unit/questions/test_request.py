"""The Python way in. Trap: a typed question and its wire form must give the same request."""

from __future__ import annotations

import math
from typing import Any

import pytest

from decider.errors import InputError, QuestionError, SchemaError, TooLargeError
from decider.questions.faults import Path
from decider.questions.limits import Limits
from decider.questions.request import make_request
from decider.questions.types import Choice, Noul, Question, Score


def test_defaults() -> None:
    request = make_request({"a": 1}, {"q": Noul("Urgent?")})
    assert (request.state, dict(request.questions)) == ('{"a": 1}', {"q": Noul("Urgent?")})
    assert (request.independent, request.layout, request.model) == (True, None, None)


def test_what_is_given_is_kept() -> None:
    questions: dict[str, Question | dict[str, object]] = {
        "🙂 b": Score("Rate", ("low", "high")),
        "": {"type": "bool", "question": "Urgent?", "criteria": {"true": ("a", "b")}},
        "a": Choice("Which?", ["x"]),
    }
    request = make_request("s", questions, independent=False, layout="chat_schema_first", model="m")
    assert list(request.questions) == ["🙂 b", "", "a"]
    assert request.questions[""] == Noul("Urgent?", {"true": ["a", "b"]})
    assert (request.independent, request.layout, request.model) == (False, "chat_schema_first", "m")
    questions.clear()
    assert len(request.questions) == 3


def test_questions_are_read_only() -> None:
    request: Any = make_request("s", {"q": Noul("x")})
    with pytest.raises(TypeError):
        request.questions["r"] = Noul("y")


def test_as_many_questions_as_the_limit_says() -> None:
    questions = {f"q{index}": Noul("x") for index in range(3)}
    assert len(make_request("s", questions, limits=Limits(max_questions=3)).questions) == 3


NOUL = {"q": Noul("x")}


@pytest.mark.parametrize(
    ("arguments", "error", "loc", "said"),
    [
        ({"state": 5}, SchemaError, ("state",), "state is 5"),
        ({"questions": {}}, SchemaError, ("questions",), "no questions"),
        ({"questions": None}, SchemaError, ("questions",), "questions are None"),
        ({"questions": [Noul("x")]}, SchemaError, ("questions",), "questions are a list"),
        ({"questions": {1: Noul("x")}}, SchemaError, ("questions",), "id 1 is no string"),
        ({"questions": {"\ud800": Noul("x")}}, SchemaError, ("questions",), "lone surrogate"),
        ({"questions": {"q": "text"}}, SchemaError, ("questions", "q"), "a question is 'text'"),
        ({"questions": {"q": None}}, SchemaError, ("questions", "q"), "a question is None"),
        ({"questions": {"q": ["x"]}}, SchemaError, ("questions", "q"), "a question is a list"),
        ({"questions": {"q": object()}}, SchemaError, ("questions", "q"), "an object is not JSON"),
        ({"questions": {"q": {"type": "noul"}}}, QuestionError, ("questions", "q"), "nothing to ask"),
        (
            {"questions": {f"q{i}": Noul("x") for i in range(4)}},
            TooLargeError,
            ("questions",),
            "at most 3 .max_questions",
        ),
        ({"questions": {"q": Noul("x" * 60)}}, TooLargeError, ("questions", "q"), "max_question_bytes"),
        ({"questions": {"q" * 99: Noul("x" * 60)}}, TooLargeError, ("questions", "q" * 60 + "…"), "max_question_bytes"),
        ({"error_rate": 0}, SchemaError, ("error_rate",), "error_rate is 0; it must be a number above 0 and below 1"),
        ({"error_rate": 1.0}, SchemaError, ("error_rate",), "error_rate is 1.0"),
        ({"error_rate": math.nan}, SchemaError, ("error_rate",), "error_rate is nan"),
        ({"error_rate": False}, SchemaError, ("error_rate",), "error_rate is False"),
        ({"error_rate": 10**400}, SchemaError, ("error_rate",), "error_rate is an int"),
        ({"independent": 1}, SchemaError, ("independent",), "independent is 1"),
        ({"layout": "chat_schema"}, SchemaError, ("layout",), "did you mean 'chat_schema_first'"),
        ({"layout": ["chat"]}, SchemaError, ("layout",), "unknown layout a list"),
        ({"model": 5}, SchemaError, ("model",), "model is 5"),
    ],
)
def test_refused(arguments: dict[str, Any], error: type[InputError], loc: Path, said: str) -> None:
    limits = Limits(max_questions=3, max_question_bytes=50)
    with pytest.raises(error, match=said) as caught:
        make_request(**{"state": "s", "questions": NOUL, "limits": limits, **arguments})
    assert type(caught.value) is error
    assert caught.value.loc == loc
