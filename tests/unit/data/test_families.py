"""Programmatic families: every answer is worked out anew by a solver that shares no code with its generator.

Refuses to be lenient: a question that no solver takes fails. Trap: an abstaining option is right only where no other
option is, and that too is worked out. What is drawn by lot has no answer to find, but odds (`test_uncertain.py`); what
people wrote has one that no rule finds (`test_by_hand.py`).
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from solvers.reading import Answer, shown
from solvers.registry import SOLVERS

from decider.data.families.catalogue import FAMILIES, items
from decider.data.families.daily.options import WAYS_OUT
from decider.data.families.making import NONE_FITS, NOT_STATED, Family, near_numbers
from decider.data.items import Gold
from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.wire import parse_request

N = 250
MOST_STATE_CHARS = 3500
ABSTAINING = {*NONE_FITS, *NOT_STATED, *WAYS_OUT, "none of these tools"}


def right(answer: Answer, question: dict[str, Any], gold: Gold) -> bool:
    if question["type"] != "choice":
        return type(answer) is type(gold) and answer == gold
    assert isinstance(answer, set)
    names = shown(question)
    fitting = [name for name in names if name in answer]
    return fitting == [gold] if fitting else [name for name in names if name in ABSTAINING] == [gold]


WORKED_OUT = [family for family in FAMILIES if not family.by_lot and not family.by_hand]


@pytest.mark.parametrize("family", WORKED_OUT, ids=lambda family: family.name)
def test_every_answer_is_found_again(family: Family) -> None:
    for item in itertools.islice(items(family, "test"), N):
        state = json.loads(json.dumps(item.state))
        for key, question in item.questions.items():
            answer = SOLVERS[family.name](state, str(question["instructions"]), dict(question))
            assert right(answer, dict(question), item.gold[key]), (state, question, item.gold[key], answer)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_items_are_what_the_catalogue_says(family: Family) -> None:
    kinds: set[str] = set()
    golds: Counter[Gold] = Counter()
    for item in itertools.islice(items(family, "test"), N):
        request = parse_request(
            json.loads(json.dumps({"state": item.state, "questions": item.questions})), DEFAULT_LIMITS
        )
        assert item.gold.keys() == request.questions.keys()
        kinds |= {question.kind for question in request.questions.values()}
        golds.update(gold for gold in item.gold.values() if isinstance(gold, bool))
        text = item.state if isinstance(item.state, str) else json.dumps(item.state)
        assert 0 < len(text) <= MOST_STATE_CHARS
        assert item.group == item.content()
    assert kinds == set(family.kinds)
    if golds:
        assert 0.3 <= golds[True] / golds.total() <= 0.7


def test_items_depend_on_the_stream_and_their_number_alone() -> None:
    for family in FAMILIES:
        first = [item.content() for item in itertools.islice(items(family, "seed 0"), 8)]
        assert first == [item.content() for item in itertools.islice(items(family, "seed 0"), 8)]
        assert first != [item.content() for item in itertools.islice(items(family, "seed 1"), 8)]


def test_wide_lookup_reaches_255_options() -> None:
    (wide,) = [family for family in FAMILIES if family.name == "lookup_wide"]
    sizes = {len(shown(dict(item.questions["q1"]))) for item in itertools.islice(items(wide, "test"), 400)}
    assert {9, 64, 128, 255} <= sizes
    (exact,) = [family for family in FAMILIES if family.name == "lookup_64"]
    for item in itertools.islice(items(exact, "test"), 50):
        assert len(shown(dict(item.questions["q1"]))) == 64


def test_the_right_option_stands_anywhere() -> None:
    for family in FAMILIES:
        if "choice" in family.kinds:
            places: Counter[str] = Counter()
            for item in itertools.islice(items(family, "test"), N):
                for key, question in item.questions.items():
                    if question["type"] == "choice" and len(names := shown(dict(question))) > 2:
                        places["first"] += names[0] == item.gold[key]
                        places["last"] += names[-1] == item.gold[key]
                        places["all"] += 1
            if places["all"] > 60 and family.name not in ("levels", "deduction_made", "none_fits"):
                assert places["first"] / places["all"] < 0.55, family.name
                assert places["last"] / places["all"] < 0.55, family.name


@pytest.mark.parametrize(
    "family", [each for each in FAMILIES if "choice" in each.kinds], ids=lambda family: family.name
)
def test_an_abstaining_option_is_seldom_right(family: Family) -> None:
    there = right_ones = 0
    for item in itertools.islice(items(family, "test"), 6 * N):
        for key, question in item.questions.items():
            if question["type"] == "choice" and ABSTAINING & set(shown(dict(question))):
                there += 1
                right_ones += item.gold[key] in ABSTAINING
    if family.name in ("none_fits", "answered"):
        assert 0.35 < right_ones / there < 0.65
    elif there > 100:
        assert 0.02 < right_ones / there < 0.2


SHARED = (
    *("stated", "none_fits", "compare", "count", "dates", "days", "sums", "rules", "policy", "tracking"),
    *("deduction_made", "trend", "order"),
)


def test_hard_families_ask_several_different_questions() -> None:
    for family in FAMILIES:
        if family.name in SHARED:
            made = list(itertools.islice(items(family, "seed 0"), N))
            assert sum(len(item.questions) for item in made) / N > 4.2, family.name
            for item in made:
                asked = [question["instructions"] for question in item.questions.values()]
                assert len(asked) == len(set(asked)) <= 6


def test_there_are_easy_items_and_hard_ones() -> None:
    """Shares of what is plainly easy, and of what is plainly not."""

    def shares(name: str, size: Callable[[Any], int], easy: int, hard: int) -> tuple[float, float]:
        (family,) = [each for each in FAMILIES if each.name == name]
        sizes = [size(item.state) for item in itertools.islice(items(family, "seed 0"), 2 * N)]
        return sum(each <= easy for each in sizes) / (2 * N), sum(each >= hard for each in sizes) / (2 * N)

    def largest(state: Any) -> int:
        stock = [each["count"] for each in state["stock"]] if isinstance(state, dict) else []
        return max(stock or map(int, re.findall(r"has (\d+) of", state)))

    def rules_of(state: Any) -> int:
        return len(next(iter(state.values()))) if isinstance(state, dict) else len(re.findall(r"^\d\. ", state, re.M))

    def lines_of(state: Any) -> int:
        return len(state) if isinstance(state, str) else len(json.dumps(state))

    for name, size, easy, hard in (
        ("sums", largest, 9, 12), ("rules", rules_of, 3, 5), ("tracking", lines_of, 110, 200),
        ("trend", lines_of, 150, 220),
        ("deduction_made", lines_of, 100, 170), ("order", lines_of, 30, 90), ("compare", lines_of, 130, 300),
        ("count", lines_of, 250, 500), ("dates", lines_of, 160, 300),
    ):  # fmt: skip
        low, high = shares(name, size, easy, hard)
        assert low > 0.2, (name, low)
        assert high > 0.15, (name, high)


def test_wrong_numbers_are_close_and_far_smaller_and_larger() -> None:
    rng = random.Random(0)
    for number in (0, 1, 7, 40, 300):
        lists = [[int(each) for each in near_numbers(rng, number, 8)] for _ in range(400)]
        gaps = [min(abs(each - number) for each in found) for found in lists]
        for found in lists:
            assert len(set(found)) == len(found) >= 2
            assert min(found) >= 0
            assert number not in found
        assert sum(gap <= 2 for gap in gaps) > 100
        assert number < 5 or sum(gap >= 4 for gap in gaps) > 80
        if number >= 40:
            smaller = sum(each < number for found in lists for each in found) / sum(map(len, lists))
            assert 0.4 < smaller < 0.6
