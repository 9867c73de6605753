"""The wire and plain forms. Trap: whatever a caller sends is an InputError or a request, never another exception."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path as FilePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.errors import InputError, QuestionError, SchemaError, TooLargeError
from decider.questions.answers import NoulAnswer
from decider.questions.faults import Path
from decider.questions.limits import Limits
from decider.questions.prompt import level_prompts, prompt
from decider.questions.request import Request, make_request
from decider.questions.types import Choice, Noul, Question, Score
from decider.questions.wire import parse_plain, parse_request, response

LIMITS = Limits()
GOLDEN = json.loads((FilePath(__file__).parents[2] / "data/golden-layouts.json").read_text(encoding="utf-8"))["cases"]
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=8,
)


def body(question: object) -> dict[str, object]:
    return {"state": "s", "questions": {"q": question}}


def parsed(question: object) -> Question:
    return parse_request(json.dumps(body(question)), LIMITS).questions["q"]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_golden_requests_have_the_golden_option_counts(case: dict[str, Any]) -> None:
    request = parse_request(json.dumps(case["request"]), LIMITS)
    counts: list[int] = []
    for question in request.questions.values():
        isolated = case["request"]["isolated_levels"] and request.independent
        if isinstance(question, Score) and (isolated if question.isolated is None else question.isolated):
            counts += [len(level.options) for level in level_prompts(question)]
        else:
            counts.append(len(prompt(question, neutralize_none=True).options))
    assert case.get("error") or counts == [n for row in case["rows"] for n in row["n_options"]]


def test_a_full_request() -> None:
    request = parse_request(
        {
            "state": {"a": [1]},
            "model": "jev-latest",
            "questions": {"q": {"type": "noul", "instructions": "x"}},
            "assets": {},
            "independent": False,
            "layout": "plain_schema_first",
            "stream": True,
        },
        LIMITS,
    )
    assert request == Request('{"a": [1]}', {"q": Noul("x")}, False, "plain_schema_first", "jev-latest", None)


def test_an_error_rate_is_asked_for() -> None:
    wire = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "x"}}, "error_rate": 0.05}
    assert parse_request(json.dumps(wire), LIMITS) == make_request("x", {"q": Noul("x")}, error_rate=0.05)


def test_text_bytes_and_mapping_are_one_request() -> None:
    wire = {"state": ["é"] * 9, "questions": {"q": {"type": "choice", "criteria": {"b": None, "a": [1]}}}}
    written = json.dumps(wire, ensure_ascii=False)
    expected = make_request(["é"] * 9, {"q": Choice(None, {"b": None, "a": [1]})})
    assert parse_request(wire, LIMITS) == parse_request(written, LIMITS) == expected
    assert parse_request(written.encode(), LIMITS) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"type": "choice", "question": "x", "options": ["a", "b"]}, Choice("x", ["a", "b"])),
        ({"type": "choice", "instructions": None, "criteria": {"a": "b"}}, Choice(None, {"a": "b"})),
        ({"type": "score", "question": "x", "criteria": ["a", "b"], "isolated": True}, Score("x", ["a", "b"], True)),
        ({"type": "score", "criteria": {"2": "b", "1": "a"}, "isolated": None}, Score(None, ["a", "b"])),
        ({"type": "noul", "instructions": "x", "criteria": None}, Noul("x")),
        ({"type": "bool", "question": ["x"]}, Noul(["x"])),
        ({"type": "noul", "criteria": {"false": "no way"}}, Noul(None, {"false": "no way"})),
    ],
)
def test_questions(question: object, expected: Question) -> None:
    assert parsed(question) == expected


@pytest.mark.parametrize(
    ("question", "error", "loc", "said"),
    [
        ("text", SchemaError, (), "a question is 'text'; it must be an object"),
        (None, SchemaError, (), "a question is None"),
        ([], SchemaError, (), "a question is a list"),
        ({}, SchemaError, ("type",), "no type; known: 'choice', 'score', 'noul'"),
        ({"type": "box"}, SchemaError, ("type",), "unknown question type 'box'"),
        ({"type": "chioce"}, SchemaError, ("type",), "did you mean 'choice'"),
        ({"type": ["noul"]}, SchemaError, ("type",), "unknown question type a list"),
        ({"type": None}, SchemaError, ("type",), "unknown question type None"),
        (
            {"type": "noul", "instruction": "x"},
            SchemaError,
            (),
            "a noul has no field 'instruction'; did you mean 'instructions'",
        ),
        ({"type": "noul", "isolated": True}, SchemaError, (), "no field 'isolated'"),
        ({"type": "score", "options": ["a", "b"]}, SchemaError, (), "a score has no field 'options'"),
        ({"type": "noul", "question": "x", "instructions": "x"}, SchemaError, ("instructions",), "the same field"),
        ({"type": "noul", "instructions": "x", "question": None}, SchemaError, ("question",), "the same field"),
        (
            {"type": "choice", "options": ["a"], "criteria": ["a"]},
            SchemaError,
            ("criteria",),
            "'options' and 'criteria'",
        ),
        ({"type": "choice"}, SchemaError, ("criteria",), "no options"),
        ({"type": "choice", "options": []}, SchemaError, ("options",), "no options"),
        ({"type": "choice", "options": ["a", "a"]}, SchemaError, ("options", 1), "duplicate option 'a'"),
        (
            {"type": "choice", "criteria": list(map(str, range(256)))},
            QuestionError,
            ("criteria",),
            "options per choice",
        ),
        ({"type": "choice", "question": 5, "options": ["a"]}, SchemaError, ("question",), "instructions are 5"),
        ({"type": "score", "criteria": ["a"]}, QuestionError, ("criteria",), "1 levels"),
        ({"type": "score", "criteria": ["a"] * 11}, QuestionError, ("criteria",), "11 levels"),
        ({"type": "score", "criteria": []}, SchemaError, ("criteria",), "no levels"),
        ({"type": "score", "criteria": ["a", "b"], "isolated": "no"}, SchemaError, ("isolated",), "isolated is 'no'"),
        ({"type": "noul"}, QuestionError, (), "nothing to ask"),
        ({"type": "noul", "instructions": "x", "criteria": ["yes"]}, SchemaError, ("criteria",), "criteria are a list"),
    ],
)
def test_refused_questions(question: object, error: type[InputError], loc: Path, said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        parsed(question)
    assert type(caught.value) is error
    assert caught.value.loc == ("questions", "q", *loc)


ASKED = {"q": {"type": "noul", "instructions": "x"}}


@pytest.mark.parametrize(
    ("request_body", "error", "loc", "said"),
    [
        ([], SchemaError, (), "the request is a list"),
        (None, SchemaError, (), "the request is None"),
        ({"questions": ASKED}, SchemaError, ("state",), "has no state"),
        ({"state": "s"}, SchemaError, ("questions",), "has no questions"),
        ({"state": "s", "questions": {}}, SchemaError, ("questions",), "no questions"),
        ({"state": "s", "questions": [ASKED]}, SchemaError, ("questions",), "questions are a list"),
        ({"state": None, "questions": ASKED}, SchemaError, ("state",), "state is None"),
        ({"state": 1, "questions": ASKED}, SchemaError, ("state",), "state is 1"),
        ({"state": "s", "questions": ASKED, "assets": {"a": {}}}, QuestionError, ("assets",), "text-only"),
        ({"state": "s", "questions": ASKED, "independent": "no"}, SchemaError, ("independent",), "independent is 'no'"),
        ({"state": "s", "questions": ASKED, "independent": None}, SchemaError, ("independent",), "independent is null"),
        ({"state": "s", "questions": ASKED, "layout": "poem"}, SchemaError, ("layout",), "unknown layout 'poem'"),
        ({"state": "s", "questions": ASKED, "error_rate": None}, SchemaError, ("error_rate",), "error_rate is null"),
        ({"state": "s", "questions": ASKED, "error_rate": "0.1"}, SchemaError, ("error_rate",), "error_rate is '0.1'"),
        ({"state": "s", "questions": ASKED, "error_rate": True}, SchemaError, ("error_rate",), "error_rate is True"),
        ({"state": "s", "questions": ASKED, "error_rate": 1}, SchemaError, ("error_rate",), "above 0 and below 1"),
        ({"state": "s", "questions": ASKED, "layout": None}, SchemaError, ("layout",), "layout is null"),
        ({"state": "s", "questions": ASKED, "model": 5}, SchemaError, ("model",), "model is 5"),
        ({"state": "s", "questions": ASKED, "model": None}, SchemaError, ("model",), "model is null"),
        ({"state": ["x" * 2**21], "questions": ASKED}, TooLargeError, ("state",), "max_state_bytes"),
    ],
)
def test_refused_requests(request_body: Any, error: type[InputError], loc: Path, said: str) -> None:
    for sent in (json.dumps(request_body), request_body):
        with pytest.raises(error, match=said) as caught:
            parse_request(sent, LIMITS)
        assert type(caught.value) is error
        assert caught.value.loc == loc


@pytest.mark.parametrize(
    ("sent", "error", "said"),
    [
        ('{"state": "s", "state": "t", "questions": {}}', SchemaError, "duplicate key 'state'"),
        ('{"state": "s", "questions": {"q": 1, "q": 2}}', SchemaError, "questions: duplicate key 'q'"),
        ('{"state": NaN}', SchemaError, "state: NaN"),
        ('{"state": {"n": ' + "9" * 5000 + "}}", SchemaError, "state.n: a number of 5,000"),
        ('{"state": ' + "[" * 100_000, SchemaError, "levels deep"),
        ('{"state": "\\ud800"}', SchemaError, "state: the text has a lone surrogate"),
        ('{"state": "' + "x" * 10_000_000 + '"}', TooLargeError, "max_body_bytes"),
        ("{", SchemaError, "malformed JSON at line 1"),
        (b"\xff", SchemaError, "not UTF-8"),
    ],
    ids=count(),
)
def test_refused_json(sent: str | bytes, error: type[InputError], said: str) -> None:
    with pytest.raises(error, match=said):
        parse_request(sent, LIMITS)


@given(junk, junk, junk)
def test_junk_is_an_input_error_or_a_request(question: object, criteria: object, anything: object) -> None:
    for sent in (
        anything,
        body(question),
        body({"type": "choice", "criteria": criteria, "instructions": question}),
        body({"type": "score", "criteria": criteria, "isolated": question}),
        body({"type": "noul", "criteria": criteria, "instructions": question}),
        {"state": anything, "questions": ASKED, "layout": question, "independent": criteria},
    ):
        for form in (sent, json.dumps(sent)):
            try:
                request = parse_request(form, LIMITS)  # type: ignore[arg-type]
            except InputError as error:
                assert len(error.message) < 400  # noqa: PT017 - either outcome is sound
            else:
                assert isinstance(request, Request)


def test_plain_form() -> None:
    request = parse_plain(
        {"a": 1},
        {
            "Which?": {"type": "choice", "options": ["a", "b"]},
            "Urgent?": {"type": "bool"},
            "How bad?": {"type": "scale", "levels": ["low", "high"]},
        },
        limits=LIMITS,
    )
    assert request.state == '{"a": 1}'
    assert dict(request.questions) == {
        "Which?": Choice("Which?", ["a", "b"]),
        "Urgent?": Noul("Urgent?"),
        "How bad?": Score("How bad?", ["low", "high"]),
    }
    assert (request.independent, request.layout, request.model) == (False, None, None)
    assert parse_plain("s", {"x": {"type": "bool"}}, independent=True, limits=LIMITS).independent


@pytest.mark.parametrize(
    ("questions", "error", "loc", "said"),
    [
        ({}, SchemaError, ("questions",), "no questions"),
        (["x"], SchemaError, ("questions",), "questions are a list"),
        ({1: {"type": "bool"}}, SchemaError, ("questions",), "question 1 is no string"),
        ({"x": "bool"}, SchemaError, ("questions", "x"), "a question is 'bool'"),
        ({"x": {"type": "noul"}}, SchemaError, ("questions", "x", "type"), "known: 'choice', 'bool', 'scale'"),
        ({"x": {"type": "choice"}}, SchemaError, ("questions", "x", "options"), "no options"),
        ({"x": {"type": "bool", "instructions": "y"}}, SchemaError, ("questions", "x"), "no field 'instructions'"),
        ({"x": {"type": "scale", "levels": ["a"]}}, QuestionError, ("questions", "x", "levels"), "1 levels"),
        ({"": {"type": "bool"}}, QuestionError, ("questions", ""), "nothing to ask"),
        ({"x": {"type": "bool", "y": {1}}}, SchemaError, ("questions", "x", "y"), "a set of length 1 is not JSON"),
    ],
)
def test_refused_plain_form(questions: Any, error: type[InputError], loc: Path, said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        parse_plain("s", questions, limits=LIMITS)
    assert type(caught.value) is error
    assert caught.value.loc == loc


def test_response() -> None:
    answered = response("decider-dev", {"b": NoulAnswer(0.25, False), "a": NoulAnswer(1.0, True)}, 17)
    assert list(answered) == ["model", "answers", "usage"]
    assert answered["usage"] == {"input_tokens": 17, "output_tokens": 0}
    answers = answered["answers"]
    assert isinstance(answers, dict)
    assert [(key, answer["noul"]) for key, answer in answers.items()] == [("b", 0.25), ("a", 1.0)]
    assert json.loads(json.dumps(answered, allow_nan=False)) == answered
