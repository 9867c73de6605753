"""The question types: normalised copies, and every refusal. Trap: counts are checked before contents."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from decider.errors import InputError, QuestionError, SchemaError
from decider.questions.faults import Path
from decider.questions.types import Choice, Noul, Question, Score

QUESTIONS: list[Question] = [
    Choice("Which?", {"a": {"x": [1]}, "b": None}),
    Score({"rate": "it"}, ["low", "high"], isolated=True),
    Noul("Urgent?", {"true": "today"}),
    Noul("Urgent?"),
]


def test_choice_keeps_order_and_copies() -> None:
    description = ["x"]
    criteria: dict[str, object] = {"b": description, "a": None, "c": 0}
    choice = Choice("Which?", criteria)
    description.append("y")
    criteria.clear()
    assert choice.names == ("b", "a", "c")
    assert choice.descriptions == (["x"], None, 0)
    assert choice == Choice(instructions="Which?", criteria={"b": ["x"], "a": None, "c": 0})


def test_a_list_of_names_has_no_descriptions() -> None:
    assert Choice(None, ["x", ""]) == Choice(None, ("x", "")) == Choice(None, {"x": None, "": None})


def test_score_levels_are_in_order() -> None:
    assert Score("Rate", ["low", {"label": "mid"}, "", 3]).levels == ("low", {"label": "mid"}, "", 3)
    assert Score("Rate", {"2": "high", "-1.5": "low", "10": "top", "1e0": "mid"}).levels == (
        "low",
        "mid",
        "high",
        "top",
    )
    assert Score("Rate", {2: "high", 1: "low"}).levels == ("low", "high")


def test_noul_sides() -> None:
    assert (Noul("Urgent?").true, Noul("Urgent?").false) == (None, None)
    assert (Noul(None, {"true": "today"}).true, Noul(criteria={"false": 0}).false) == ("today", 0)


def test_kinds() -> None:
    assert [question.kind for question in QUESTIONS] == ["choice", "score", "noul", "noul"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_survive_pickle_copy_and_replace(question: Question) -> None:
    assert pickle.loads(pickle.dumps(question)) == question
    assert copy.deepcopy(question) == question
    assert dataclasses.replace(question, instructions="Else?").criteria == question.criteria


@pytest.mark.parametrize("question", QUESTIONS[:3])
def test_questions_are_read_only(question: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        question.instructions = "x"
    with pytest.raises(TypeError):
        question.criteria["a"] = "x"


@pytest.mark.parametrize("instructions", [None, "", " \n", "text", {}, {"a": 1}, [], ["a"]])
def test_instructions_are_text_or_json_content(instructions: Any) -> None:
    assert Choice(instructions, ["a"]).instructions == instructions


@pytest.mark.parametrize("instructions", [5, True, 1.5, b"x", {"x"}, object()])
@pytest.mark.parametrize("make", [Choice, Score, Noul])
def test_other_instructions_are_refused(make: Any, instructions: object) -> None:
    criteria = {"true": "x"} if make is Noul else ["a", "b"]
    with pytest.raises(SchemaError, match=r"instructions are .*; give text") as caught:
        make(instructions, criteria)
    assert caught.value.loc == ("instructions",)


REFUSED: list[tuple[Any, dict[str, Any], type[InputError], str, Path]] = [
    (Choice, {}, SchemaError, "no options", ("criteria",)),
    (Choice, {"criteria": {}}, SchemaError, "no options", ("criteria",)),
    (
        Choice,
        {"criteria": [f"o{i}" for i in range(256)]},
        QuestionError,
        "256 options.*255 options per choice",
        ("criteria",),
    ),
    (Choice, {"criteria": {f"o{i}": None for i in range(256)}}, QuestionError, "options per choice", ("criteria",)),
    (Choice, {"criteria": ["a", "b", "a"]}, SchemaError, "duplicate option 'a'", ("criteria", 2)),
    (Choice, {"criteria": ["a", None]}, SchemaError, "an option is None", ("criteria", 1)),
    (Choice, {"criteria": [["a"]]}, SchemaError, "an option is a list", ("criteria", 0)),
    (Choice, {"criteria": "abc"}, SchemaError, "options are 'abc'; give a map", ("criteria",)),
    (Choice, {"criteria": None}, SchemaError, "options are None", ("criteria",)),
    (Choice, {"criteria": {"a", "b"}}, SchemaError, "options are a set", ("criteria",)),
    (Choice, {"criteria": {1: "x"}}, SchemaError, "key 1 is no string", ("criteria",)),
    (Choice, {"criteria": {"a": math.nan}}, SchemaError, "nan is not JSON", ("criteria", "a")),
    (Choice, {"criteria": ["\ud800"]}, SchemaError, "lone surrogate", ("criteria", 0)),
    (Choice, {"criteria": {"a": {"b": "\ud800"}}}, SchemaError, "lone surrogate", ("criteria", "a", "b")),
    (Choice, {"instructions": "\ud800", "criteria": ["a"]}, SchemaError, "lone surrogate", ("instructions",)),
    (Score, {}, SchemaError, "no levels", ("criteria",)),
    (Score, {"criteria": {}}, SchemaError, "no levels", ("criteria",)),
    (Score, {"criteria": ["a"]}, QuestionError, "1 levels; give it 2 to 10", ("criteria",)),
    (Score, {"criteria": ["a"] * 11}, QuestionError, "11 levels; give it 2 to 10", ("criteria",)),
    (Score, {"criteria": {"0": "a"}}, QuestionError, "1 levels", ("criteria",)),
    (Score, {"criteria": "ab"}, SchemaError, "levels are 'ab'", ("criteria",)),
    (Score, {"criteria": ["a", None]}, SchemaError, "level is null", ("criteria", 1)),
    (Score, {"criteria": ["a", math.inf]}, SchemaError, "inf is not JSON", ("criteria", 1)),
    (Score, {"criteria": {"low": "a", "1": "b"}}, SchemaError, "'low' is no finite number", ("criteria",)),
    (Score, {"criteria": {"nan": "a", "1": "b"}}, SchemaError, "'nan' is no finite number", ("criteria",)),
    (Score, {"criteria": {"inf": "a", "1": "b"}}, SchemaError, "'inf' is no finite number", ("criteria",)),
    (Score, {"criteria": {True: "a", 0: "b"}}, SchemaError, "True is no finite number", ("criteria",)),
    (Score, {"criteria": {10**400: "a", 0: "b"}}, SchemaError, "is no finite number", ("criteria",)),
    (Score, {"criteria": {"1": "a", "1.0": "b"}}, SchemaError, r"'1\.0' equals another", ("criteria",)),
    (Score, {"criteria": ["a", "b"], "isolated": 1}, SchemaError, "isolated is 1", ("isolated",)),
    (Noul, {}, QuestionError, "nothing to ask", ()),
    (Noul, {"instructions": ""}, QuestionError, "nothing to ask", ()),
    (Noul, {"instructions": {}}, QuestionError, "nothing to ask", ()),
    (Noul, {"criteria": {"true": "", "false": None}}, QuestionError, "nothing to ask", ()),
    (Noul, {"instructions": "x", "criteria": ["yes"]}, SchemaError, "criteria are a list", ("criteria",)),
    (Noul, {"instructions": "x", "criteria": {"True": "x"}}, SchemaError, "did you mean 'true'", ("criteria",)),
    (Noul, {"instructions": "x", "criteria": {True: "x"}}, SchemaError, "no criterion True", ("criteria",)),
    (Noul, {"instructions": "x", "criteria": {"true": math.nan}}, SchemaError, "nan", ("criteria", "true")),
]


@pytest.mark.parametrize(("make", "fields", "error", "said", "loc"), REFUSED)
def test_refused(make: Any, fields: Mapping[str, Any], error: type[InputError], said: str, loc: Path) -> None:
    with pytest.raises(error, match=said) as caught:
        make(**fields)
    assert type(caught.value) is error
    assert caught.value.loc == loc


def test_the_largest_questions_are_accepted() -> None:
    assert len(Choice("x", [f"o{i}" for i in range(255)]).names) == 255
    assert len(Score("x", ["same"] * 10).levels) == 10
    assert Choice("x", ["only"]).names == ("only",)


@pytest.mark.parametrize("criteria", [{"true": 0}, {"false": {}}, {"true": []}, {"false": False}])
def test_falsy_descriptions_describe(criteria: Mapping[str, object]) -> None:
    assert Noul(None, criteria).criteria == criteria


def test_white_space_is_text() -> None:
    assert Noul(" ").instructions == " "
