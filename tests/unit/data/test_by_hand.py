"""Situations written by hand: how they are read, what is asked, what is held out, and what they must not be near.

Trap: nobody can work their answers out again, so what is tested is that each is asked as it was written.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from decider.data.families.by_hand.asking import EVERY, OFFSET, STRETCH
from decider.data.families.by_hand.reading import FILES, Question, Situation, parsed, situations
from decider.data.families.catalogue import FAMILIES, HELD_OUT, STOPPING, items
from decider.data.split import Near
from decider.evaluate.tables import read_data
from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.wire import parse_request

N = 600
(WRITTEN,) = [family for family in FAMILIES if family.by_hand]
ASKED = sorted((Path(__file__).parents[3] / "benchmarks").glob("asked*.jsonl"))
ALL = [situation for name in FILES for situation in situations(name)]


def flat(state: object) -> str:
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)


def names_of(question: dict[str, Any]) -> list[str]:
    return list(question["criteria"])


def test_a_situation_is_read() -> None:
    text = """
The lamp came: with a crack.

It is on again now.
C: What is wrong? // The trouble: | nothing | *it is cracked: the glass is broken | late: it came after its day
C: At which time? | 9:00 | *10:00
S: How bad? | none | * some | much
N: Is it on? // see http://x | yes
C: Which is it? | *a: b: c | d: e | f
C: Which line? | a*: b | *c | d | e | f: g
---

[17] door open
N: Is the door shut? | no
---
{"n": 1}
N: n is 1 | yes
---
[1, 2]
N: Are there two? | yes
"""
    first, second, third, fourth = parsed(text)
    assert first.state == "The lamp came: with a crack.\n\nIt is on again now."
    options = {"nothing": None, "it is cracked": "the glass is broken", "late": "it came after its day"}
    assert first.questions == (
        Question("choice", ("What is wrong?", "The trouble:"), options, "it is cracked"),
        Question("choice", ("At which time?",), {"9:00": None, "10:00": None}, "10:00"),
        Question("score", ("How bad?",), {"none": None, "some": None, "much": None}, 1),
        Question("noul", ("Is it on?", "see http://x"), {}, True),
        Question("choice", ("Which is it?",), {"a": "b: c", "d": "e", "f": None}, "a"),
        Question("choice", ("Which line?",), dict.fromkeys(("a*: b", "c", "d", "e", "f: g")), "c"),
    )
    assert second == Situation("[17] door open", (Question("noul", ("Is the door shut?",), {}, False),))
    assert third.state == {"n": 1}
    assert fourth.state == [1, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a state alone", "wants a state and questions"),
        ("N: a question alone? | yes", "wants a state and questions"),
        ("state\nN: so? | maybe", "no question that can be asked: 'N: so?"),
        ("state\nC: which? | a | b", "no question that can be asked"),
        ("state\nC: which? | *a | *b", "no question that can be asked"),
        ("state\nC: which? | *a | a", "no question that can be asked"),
        ("state\nS: how? | *a | ", "no question that can be asked"),
        ("state\nC: which? | *a", "no question that can be asked"),
        ("state\nC:  | *a | b", "no question that can be asked"),
        ("state\nN: so? | yes\nmore state", "no question that can be asked: 'more state'"),
    ],
)
def test_what_cannot_be_asked_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parsed(text)


def test_every_file_is_large_and_no_state_is_there_twice() -> None:
    for name in FILES:
        assert len(situations(name)) > 250, name
    assert len({flat(situation.state) for situation in ALL}) == len(ALL)


def test_every_question_is_asked_as_it_was_written() -> None:
    written = {
        (flat(situation.state), wording): question
        for situation in ALL
        for question in situation.questions
        for wording in question.wordings
    }
    orders: Counter[bool] = Counter()
    seen: Counter[str] = Counter()
    for item in itertools.islice(items(WRITTEN, "seed 0"), N):
        for key, asked in item.questions.items():
            question = written[flat(item.state), str(asked["instructions"])]
            seen["another wording"] += asked["instructions"] != question.wordings[0]
            assert asked["type"] == question.kind
            assert item.gold[key] == question.gold
            if question.kind == "score":
                assert names_of(dict(asked)) == list(question.options)
            elif question.kind == "choice":
                names = names_of(dict(asked))
                assert question.gold in names
                assert set(names) <= set(question.options)
                orders[names == list(question.options)] += 1
                seen["fewer options"] += len(names) < len(question.options)
                seen["two options"] += len(names) == 2 < len(question.options)
                seen["descriptions"] += asked["criteria"] == {name: question.options[name] for name in names}
    assert orders[False] > orders[True]
    assert min(seen["another wording"], seen["fewer options"], seen["two options"]) > 40, seen
    assert seen["fewer options"] > 1.5 * seen["two options"]
    assert seen["descriptions"] > 4, seen
    n_asked = Counter(len(item.questions) for item in itertools.islice(items(WRITTEN, "seed 0"), N))
    assert n_asked[1] > 0.1 * N
    assert n_asked[3] > 0.1 * N


def test_all_of_it_can_be_asked_and_answers_are_balanced() -> None:
    yes: Counter[bool] = Counter()
    for situation in ALL:
        for question in situation.questions:
            criteria: dict[str, object] = {"criteria": dict(question.options)} if question.kind == "choice" else {}
            if question.kind == "score":
                criteria = {"criteria": list(question.options)}
            for wording in question.wordings:
                asked = {"type": question.kind, "instructions": wording, **criteria}
                parse_request({"state": situation.state, "questions": {"q": asked}}, DEFAULT_LIMITS)
            if question.kind == "noul":
                yes[question.gold is True] += 1
    assert 0.42 < yes[True] / yes.total() < 0.58


def test_whole_stretches_are_held_out() -> None:
    def made(stream: str) -> set[str]:
        return {flat(item.state) for item in itertools.islice(items(WRITTEN, stream), N)}

    held = {
        flat(situation.state)
        for name in FILES
        for place, situation in enumerate(situations(name))
        if place // STRETCH % EVERY == OFFSET
    }
    assert made(HELD_OUT) | made(STOPPING) <= held
    assert len(made(HELD_OUT)) > 0.9 * len(held)
    assert not made("seed 0") & held
    assert 0.02 < len(held) / len(ALL) < 0.1


def test_none_is_near_what_measures_or_calibrates() -> None:
    assert len(ASKED) == 2
    near = Near(flat(item.request.state) for path in ASKED for item in read_data(path, None))
    assert [flat(each.state) for each in ALL if near.has(flat(each.state))] == []
