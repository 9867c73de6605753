"""Labelled JSON lines. Refuses models. Trap: what is kept of one line must never answer for another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from decider.errors import InputError, QuestionError, SchemaError, TooLargeError
from decider.evaluate.labelled import MOST_HINTED, LabelledItem, gold_index, read_labelled
from decider.questions.limits import DEFAULT_LIMITS, Limits
from decider.questions.types import Choice, Noul, Score
from decider.questions.wire import parse_request

TEAM = {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "charges", "technical": None}}
SEVERITY = {"type": "score", "criteria": ["none", "mild", "severe"]}
URGENT = {"type": "noul", "instructions": "Urgent?"}
LINE: dict[str, Any] = {
    "state": "Charged twice.",
    "questions": {"team": TEAM, "severity": SEVERITY, "urgent": URGENT},
    "gold": {"team": "technical", "severity": 2, "urgent": True},
}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Lines (JSON values, or text as it is) → a file."""

    def write(*lines: object, name: str = "tickets.jsonl") -> Path:
        path = tmp_path / name
        texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
        path.write_text("\n".join(texts), encoding="utf-8")
        return path

    return write


def test_a_line_is_a_request_of_the_wire_with_its_right_answers(write: Write) -> None:
    other = LINE | {"id": "t-2", "task": "triage", "state": {"text": "é 🙂"}, "layout": "chat"}
    first, second = read_labelled(write(LINE, other))
    wire = {name: LINE[name] for name in ("state", "questions")}
    assert first == LabelledItem(
        "1", "tickets", parse_request(wire, DEFAULT_LIMITS), {"team": 1, "severity": 2, "urgent": 1}
    )
    assert (second.id, second.task, second.request.layout) == ("t-2", "triage", "chat")
    assert second.request == parse_request({**wire, "state": other["state"], "layout": "chat"}, DEFAULT_LIMITS)


def test_what_is_kept_of_a_line_is_not_taken_for_another(write: Write) -> None:
    """Lines that differ in one part, and in what Python calls equal."""
    score = {"q": {"type": "score", "criteria": ["low", "high"], "isolated": True}}
    variants: list[dict[str, Any]] = [
        {"questions": {"q": {"type": "score", "criteria": [0, 1]}}},
        {"questions": {"q": {"type": "score", "criteria": [0, True]}}},
        {"questions": {"q": {"type": "score", "criteria": [0, 1.0]}}},
        {"questions": score},
        {"questions": {"q": {**score["q"], "isolated": False}}},
        {"questions": score, "independent": False},
        {"questions": score, "layout": "chat"},
        {"questions": score, "model": "some"},
    ]
    lines = [{"state": f"s{index}", "gold": {"q": 1}, **variant} for index, variant in enumerate(variants)] * 2
    items = read_labelled(write(*lines))
    for item, line in zip(items, lines, strict=True):
        wire = {name: value for name, value in line.items() if name != "gold"}
        assert repr(item.request) == repr(parse_request(wire, DEFAULT_LIMITS))


def test_questions_without_a_right_answer_stay_only_in_a_shared_row(write: Write) -> None:
    gold = {"gold": {"urgent": False}}
    independent, joint = read_labelled(write(LINE | gold, LINE | gold | {"independent": False}))
    assert list(independent.request.questions) == ["urgent"]
    assert list(joint.request.questions) == ["team", "severity", "urgent"]
    assert independent.gold == joint.gold == {"urgent": 0}


def test_right_answers_follow_the_order_of_the_questions(write: Write) -> None:
    [item] = read_labelled(write(LINE | {"gold": {"urgent": True, "team": "billing"}}))
    assert list(item.gold.items()) == [("team", 0), ("urgent", 1)]
    assert list(item.request.questions) == ["team", "urgent"]


def test_a_byte_order_mark_line_ends_and_blank_lines(write: Write) -> None:
    path = write(LINE)
    line = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + line + b"\r\n\r\n  \n" + line + b"\n")
    assert [item.id for item in read_labelled(path)] == ["1", "4"]


def test_ids_may_be_numbers_and_fields_that_mean_nothing_are_ignored(write: Write) -> None:
    items = read_labelled(write(*(LINE | {"id": index, "note": {"by": index}} for index in range(2000))))
    assert [item.id for item in items] == [str(index) for index in range(2000)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"gold": {"team": "bilings"}},
            r"gold.team: 'bilings' is no option of this question; did you mean 'billing'\?",
        ),
        ({"gold": {"team": 0}}, r"gold.team: 0 is no option .* known: 'billing', 'technical'"),
        ({"gold": {"severity": 3}}, "gold.severity: 3 is no level of this question; give a whole number from 0 to 2"),
        ({"gold": {"severity": -1}}, "gold.severity: -1 is no level"),
        ({"gold": {"severity": True}}, "gold.severity: True is no level"),
        ({"gold": {"severity": 1.0}}, "gold.severity: 1.0 is no level"),
        ({"gold": {"urgent": 1}}, "gold.urgent: 1 is no answer to a noul; give true or false"),
        ({"gold": {"urgnt": True}}, r"gold: there is no question 'urgnt'; did you mean 'urgent'\?"),
        ({"gold": {}}, "gold: gold is a dict of length 0; give a map"),
        ({"gold": ["billing"]}, "gold: gold is a list of length 1"),
        ({"id": ""}, "id: id is ''; give text or a whole number"),
        ({"id": True}, "id: id is True"),
        ({"task": None}, "task: task is None"),
        ({"state": 3}, "state: the state is 3; give text"),
        ({"questions": {"q": {"type": "chioce"}}}, r"questions.q.type: unknown question type 'chioce'; did you mean"),
        ({"layout": "wide"}, "layout: unknown layout 'wide'"),
        ({"assets": ["image"]}, "assets: this model is text-only"),
    ],
)
def test_a_fault_names_file_line_path_value_and_remedy(write: Write, change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=r"^tickets.jsonl, line 2: " + said + r".*1 of 2 lines is faulty"):
        read_labelled(write(LINE, LINE | change))


@pytest.mark.parametrize("missing", ["state", "questions", "gold"])
def test_a_missing_part_is_named(write: Write, missing: str) -> None:
    sound = [LINE] * 3
    with pytest.raises(SchemaError, match=rf"line 4: {missing}: .* no {missing}; add"):
        read_labelled(write(*sound, {name: value for name, value in LINE.items() if name != missing}))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{'state': 1}", "malformed JSON"),
        ('{"state": NaN}', "NaN is not JSON"),
        ('{"state": "a", "state": "b"}', "duplicate key 'state'"),
        ("[1]", "the line is a list of length 1; it must be an object with state, questions and gold"),
        ('{"state": "\\ud800"}', "lone surrogate"),
    ],
)
def test_json_is_strict(write: Write, line: str, said: str) -> None:
    with pytest.raises(SchemaError, match=rf"line 1: .*{said}.*\(1 of 1 lines is faulty, and nothing is run"):
        read_labelled(write(line))


def test_the_first_fault_is_told_with_the_number_of_all(write: Write) -> None:
    bad = [LINE | {"gold": {"urgent": word}} for word in ("first", "second")]
    with pytest.raises(SchemaError, match=r"line 2: gold.urgent: 'first' .*\(2 of 4 lines are faulty"):
        read_labelled(write(LINE, bad[0], "", LINE, bad[1]))


def test_a_fault_keeps_its_class(write: Write) -> None:
    many = {"q": {"type": "choice", "criteria": [str(index) for index in range(256)]}}
    with pytest.raises(QuestionError, match="256 options"):
        read_labelled(write({"state": "s", "questions": many, "gold": {"q": "0"}}))
    with pytest.raises(TooLargeError, match="max_state_bytes"):
        read_labelled(write(LINE, LINE), Limits(max_state_bytes=5))


def test_two_lines_with_one_decision_are_both_named(write: Write) -> None:
    with pytest.raises(SchemaError, match=r"line 3: id: the decision 'a/team' is on line 1 too"):
        read_labelled(write(LINE | {"id": "a"}, LINE | {"id": "b"}, LINE | {"id": "a"}))
    with pytest.raises(SchemaError, match=r"line 2: id: the decision '2/team' is on line 1 too"):
        read_labelled(write(LINE | {"id": "2"}, LINE))
    parts = [LINE | {"id": "a", "gold": gold} for gold in ({"team": "billing"}, {"urgent": True})]
    assert [item.id for item in read_labelled(write(*parts))] == ["a", "a"]


def test_a_file_without_lines_or_that_is_not_there(write: Write, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"tickets.jsonl has no lines; give it one labelled decision"):
        read_labelled(write("", "  "))
    with pytest.raises(SchemaError, match=r"cannot read .*none.jsonl: No such file"):
        read_labelled(tmp_path / "none.jsonl")


def test_of_many_options_only_the_first_are_listed() -> None:
    question = Choice("Which?", [f"option {index}" for index in range(200)])
    with pytest.raises(SchemaError, match=rf"'option {MOST_HINTED - 1}' and {200 - MOST_HINTED} more$"):
        gold_index(question, "zzz")
    assert gold_index(question, "option 199") == 199
    assert gold_index(Score("?", ["a", "b"]), 0) == 0
    assert gold_index(Noul("?"), False) == 0
