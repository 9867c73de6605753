"""What is drawn by lot: gold comes as often as the state's odds say, and where the state is silent every answer does.

Refuses to judge single answers. Trap: all questions of an item are about one draw, so a count over them all would seem
surer than it is; one question of each item is taken.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from solvers.daily import flat
from solvers.reading import shown
from solvers.uncertain import bank, odds, told

from decider.data.families.catalogue import FAMILIES, HELD_OUT, items
from decider.data.families.daily.banks import bank as parted_bank
from decider.data.families.making import NONE_FITS, NOT_STATED, Family
from decider.data.families.uncertain.chance import PACKAGE
from decider.data.items import Gold

LOT = {family.name: family for family in FAMILIES if family.by_lot}
CHANCE, UNSAID = LOT["chance"], LOT["unsaid"]
N = 6000
MOST_SD = 4.0
"""By chance alone a figure is further off once in 16,000 times."""


def one_each(family: Family, n: int = N) -> Iterator[tuple[Any, dict[str, Any], Gold]]:
    """State, question and gold of one question an item."""
    for number, item in enumerate(itertools.islice(items(family, "seed 0"), n)):
        key = random.Random(number).choice(sorted(item.questions))
        yield item.state, dict(item.questions[key]), item.gold[key]


def off(drawn: list[tuple[dict[Any, float], Any]]) -> tuple[float, float]:
    """By how many standard deviations the worst bin of probabilities, and the log-likelihood, are off."""
    hits: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    surprise = variance = 0.0
    for found, gold in drawn:
        for answer, p in found.items():
            hits[min(9, int(10 * p))].append((p, answer == gold))
        assert found[gold] > 0
        logs = [(p, -math.log(p)) for p in found.values() if p > 0]
        mean = sum(p * each for p, each in logs)
        surprise += -math.log(found[gold]) - mean
        variance += sum(p * (each - mean) ** 2 for p, each in logs)
    bins = []
    for pairs in hits.values():
        spread = math.sqrt(sum(p * (1 - p) for p, _ in pairs))
        bins.append(abs(sum(hit - p for p, hit in pairs)) / spread)
    return max(bins), abs(surprise) / math.sqrt(variance)


def test_gold_comes_as_often_as_the_odds_say() -> None:
    drawn: dict[str, list[tuple[dict[Any, float], Any]]] = defaultdict(list)
    for state, question, gold in one_each(CHANCE):
        found = odds(state, str(question["instructions"]), question)
        assert sum(found.values()) == 1
        drawn[question["type"]].append(({answer: float(p) for answer, p in found.items()}, gold))
    assert set(drawn) == {"choice", "noul", "score"}
    every = [each for kind in drawn.values() for each in kind]
    for each in (every, *drawn.values()):
        assert len(each) > 150
        assert max(off(each)) < MOST_SD
    # A sampler that is wrong is found out: the likeliest always, all alike, odds drawn towards the middle.
    draw = random.Random(0)
    wrong = [
        [(found, max(found, key=lambda answer: found[answer])) for found, _ in every],
        [(found, draw.choice([answer for answer in found if found[answer] > 0])) for found, _ in every],
        [(found, draw.choices(list(found), [p + 0.05 * (p > 0) for p in found.values()])[0]) for found, _ in every],
    ]
    for each in wrong:
        assert max(off(each)) > MOST_SD


def test_odds_are_of_all_sizes() -> None:
    top = [max(odds(state, str(q["instructions"]), q).values()) for state, q, _ in one_each(CHANCE, 1500)]
    shares = Counter(min(9, int(10 * float(p))) for p in top)
    assert min(shares[place] for place in range(4, 10)) > 0.02 * len(top)


def test_where_nothing_is_said_gold_is_anywhere() -> None:
    places: dict[int, Counter[int]] = defaultdict(Counter)
    yes: Counter[bool] = Counter()
    levels: dict[int, Counter[int]] = defaultdict(Counter)
    for _, question, gold in one_each(UNSAID, 5000):
        if question["type"] == "choice":
            names = shown(question)
            places[len(names)][names.index(str(gold))] += 1
        elif question["type"] == "noul":
            yes[bool(gold)] += 1
        else:
            levels[len(question["criteria"])][int(gold)] += 1
    assert sum(map(Counter.total, places.values())) > 1700
    assert yes.total() > 1700
    assert abs(yes[True] - yes.total() / 2) < MOST_SD * math.sqrt(yes.total()) / 2
    for n, counts in [*places.items(), *levels.items()]:
        even = counts.total() / n
        chi_square = sum((counts[place] - even) ** 2 / even for place in range(n))
        assert chi_square < n - 1 + MOST_SD * math.sqrt(2 * (n - 1)) + 4, (n, counts)


def test_no_answer_stands_in_a_state_that_does_not_say_it() -> None:
    n_pairs = 0
    for item in itertools.islice(items(UNSAID, "seed 0"), 1200):
        state = json.loads(json.dumps(item.state))
        for question in item.questions.values():
            assert told(state, str(question["instructions"]), dict(question)) == [], (state, question)
            n_pairs += question["type"] == "noul"
            if question["type"] == "choice":
                assert len(set(shown(dict(question)))) == len(shown(dict(question))) > 1
    assert n_pairs > 500
    x, y = bank("unsaid")["drink"]["options"][0].split(" | ")[:2]
    asked = {"type": "noul"}
    text = bank("unsaid")["drink"]["pair"][0].replace("{A}", "Ada").replace("{x}", x).replace("{y}", y)
    assert told({"note": [f"There is {y.upper()}."]}, text, asked) == [y]


def test_what_is_asked_of_a_record_is_not_in_it() -> None:
    n_blank = n_away = 0
    marks = bank("unsaid")["records"]["blank"][0].split(" | ")
    for state, question, _ in one_each(UNSAID, 1500):
        whole = flat(state)
        n_blank += any(mark in whole for mark in marks)
        n_away += question["type"] == "choice"
    assert n_blank > 150
    assert n_away > 400


@pytest.mark.parametrize("family", LOT.values(), ids=lambda family: family.name)
def test_nothing_offers_a_way_out(family: Family) -> None:
    out = {*NONE_FITS, *NOT_STATED, "cannot be told"}
    for _, question, _ in one_each(family, 1000):
        assert question["type"] == "noul" or not out & set(question["criteria"])


@pytest.mark.parametrize("family", LOT.values(), ids=lambda family: family.name)
def test_wordings_are_held_out(family: Family) -> None:
    name = family.name
    fields = ("says", "ask", "one", "yes", "pair")
    trained, away = (
        {text for e in parted_bank(name, held, PACKAGE).values() for f in fields for text in e.get(f, ())}
        for held in (False, True)
    )
    assert len(away - trained) > 40
    assert len(trained - away) > 100
    asked = {str(q["instructions"]) for item in itertools.islice(items(family, HELD_OUT), 400)
             for q in item.questions.values()}  # fmt: skip
    plain = {text for text in trained - away if "{" not in text}
    assert not asked & plain


@pytest.mark.parametrize("family", LOT.values(), ids=lambda family: family.name)
def test_items_seldom_repeat(family: Family) -> None:
    made = [item.content() for item in itertools.islice(items(family, "seed 0"), 1000)]
    assert len(set(made)) > 970
