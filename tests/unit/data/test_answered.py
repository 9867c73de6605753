"""Passages and their questions: a bank that no word gives away, and items in which one answer alone is right.

Refuses to judge prose. Trap: what a passage does not answer must look like what it answers, or a model learns to tell
them apart without reading.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import statistics
from collections import Counter
from typing import Any

import pytest
from solvers.daily import bank, flat
from solvers.passages import GIVEN

from decider.data.families.catalogue import FAMILIES, HELD_OUT, items
from decider.data.families.daily import answered, answered_asks
from decider.data.families.daily.answered import Passage, named, passages, sentences, sort_of
from decider.data.items import Item

ALL: tuple[Passage, ...] = (*passages(False), *passages(True))
N = 600
(FAMILY,) = [family for family in FAMILIES if family.name == "answered"]


def made(stream: str) -> list[Item]:
    return list(itertools.islice(items(FAMILY, stream), N))


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def test_passages_are_short_and_have_as_many_misses_as_asks() -> None:
    assert len(ALL) == len(bank("passages")) >= 90
    questions = Counter(each for one in ALL for each in (*(ask.question for ask in one.asks), *one.misses))
    assert [each for each, n in questions.items() if n > 1] == []
    assert all(each.endswith(("?", ".")) and "|" not in each for each in questions)
    for one in ALL:
        assert 40 <= len(one.text.split()) <= 170, one.text
        assert 6 <= len(one.asks) <= 9, one.text
        assert 6 <= len(one.misses) <= 9, one.text
        answers = [ask.answer.lower() for ask in one.asks]
        assert all(answers), one.text
    assert 0.85 < sum(len(one.asks) for one in ALL) / sum(len(one.misses) for one in ALL) < 1.15


def test_an_answer_that_stands_alone_is_left_out_with_its_sentence() -> None:
    alone = [(one, ask) for one in ALL for ask in one.asks if ask.place >= 0]
    assert len(alone) > 250
    for one, ask in alone:
        parts = sentences(one.text)
        assert ask.place > 0, ask
        rest = " ".join(part for place, part in enumerate(parts) if place != ask.place)
        assert ask.answer in parts[ask.place]
        assert ask.answer not in rest


def test_no_words_tell_asks_from_misses() -> None:
    shares: dict[bool, list[float]] = {True: [], False: []}
    rows: list[tuple[int, bool, set[str]]] = []
    for number, one in enumerate(ALL):
        inside = set(words(one.text))
        for hit, questions in ((True, [ask.question for ask in one.asks]), (False, list(one.misses))):
            for question in questions:
                long = [word for word in words(question) if len(word) > 3]
                shares[hit].append(sum(word in inside for word in long) / max(1, len(long)))
                rows.append((number, hit, set(words(question))))
    assert abs(statistics.mean(shares[True]) - statistics.mean(shares[False])) < 0.1
    random.Random(0).shuffle(order := list(range(len(ALL))))
    fitted = set(order[: len(order) // 2])
    counts = {
        hit: Counter(w for n, h, found in rows if n in fitted and h is hit for w in found) for hit in (True, False)
    }
    known = set(counts[True]) | set(counts[False])
    sizes = {hit: counts[hit].total() + len(known) for hit in counts}

    def weight(word: str) -> float:
        return math.log((counts[True][word] + 1) / sizes[True]) - math.log((counts[False][word] + 1) / sizes[False])

    judged = [(sum(map(weight, found & known)) > 0) is hit for n, hit, found in rows if n not in fitted]
    assert sum(judged) / len(judged) < 0.7


def test_every_way_to_say_that_nothing_is_given_is_known_to_the_solver() -> None:
    assert set(answered_asks.NOT_GIVEN) == set(GIVEN)


@pytest.mark.parametrize("stream", ["seed 0", HELD_OUT])
def test_choices_have_one_right_option_and_forms_differ(stream: str) -> None:
    forms: Counter[str] = Counter()
    for item in made(stream):
        texts = [one for one in ALL if sentences(one.text)[0] in flat(item.state)]
        assert 1 <= len(texts) <= 2
        forms["two" if len(texts) == 2 else type(item.state).__name__] += 1
        forms["shortened"] += not any(one.text in flat(item.state) for one in texts)
        for key, question in item.questions.items():
            names: Any = question.get("criteria", ())
            if question["type"] == "choice":
                gold = str(item.gold[key])
                options = [name for name in names if name not in GIVEN]
                assert len(names) == len(set(names)) >= 2
                if gold not in GIVEN and not any(name.endswith("?") for name in options):
                    assert not any(gold.lower() in name.lower() for name in options if name != gold), names
    assert min(forms[form] for form in ("str", "dict", "two", "shortened")) > 0.05 * N, forms


def test_not_given_is_right_about_half_of_the_times_it_is_offered() -> None:
    offered = right = 0
    for item in made("seed 0"):
        for key, question in item.questions.items():
            if question["type"] == "choice" and set(question["criteria"]) & set(GIVEN):  # type: ignore[call-overload]
                offered += 1
                right += item.gold[key] in GIVEN
    assert offered > 150
    assert 0.4 < right / offered < 0.6


def test_what_is_asked_of_the_wrong_passage_names_somebody_it_does_not_speak_of() -> None:
    assert named("Who paid Ordell Finch?", "A text about Kestin.")
    assert not named("Who paid Ordell Finch?", "Ordell Finch was paid.")
    assert not named("Who was paid?", "A text about Kestin.")


def test_answers_are_sorted_and_equal_ones_are_seen_in_figures_and_words() -> None:
    assert [sort_of(each) for each in ("4 May 1887", "eleven weeks", "Mount Brack", "a bell")] == [
        "date",
        "number",
        "name",
        "phrase",
    ]
    same = [("four", "4 euros"), ("twice", "two"), ("with lemons", "a lemon"), ("no", "not with us")]
    assert all(answered._alike(*pair) for pair in same)
    assert not answered._alike("1903", "1951")


def test_items_are_json() -> None:
    for item in made("seed 1")[:50]:
        assert json.loads(json.dumps(item.state)) == item.state


def test_yes_and_no_are_described_by_what_they_mean() -> None:
    def asked_by(wordings: tuple[str, ...], text: str) -> bool:
        parts = (re.escape(wording).replace(re.escape("{q}"), ".+") for wording in wordings)
        return any(re.fullmatch(part, text, re.DOTALL) for part in parts)

    described = 0
    for item in made("seed 0"):
        for question in item.questions.values():
            criteria = question.get("criteria")
            if question["type"] != "noul" or not isinstance(criteria, dict):
                continue
            lacks = asked_by((*answered_asks.LACKS, *answered_asks.INSIDE_NOT), str(question["instructions"]))
            pair = (criteria["false"], criteria["true"]) if lacks else (criteria["true"], criteria["false"])
            assert pair in answered_asks.SIDES, question
            described += 1
    assert described > 60
