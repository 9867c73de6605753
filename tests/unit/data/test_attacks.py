"""Attacks on assistants: two sides of one size, no word that tells them apart, and no option that may be right as well.

Refuses to judge sentences. Trap: a bank where "ignore" stands in attacks alone teaches a word and not a meaning, so a
reader of single words is fitted on half of the bank and must do badly on the other half.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections import Counter

from solvers.daily import bank
from solvers.reading import shown

from decider.data.families.catalogue import FAMILIES, items
from decider.data.families.daily import attack_asks, attacks
from decider.data.families.daily import banks as parted
from decider.data.families.daily.options import WAYS_OUT
from decider.data.families.daily.sorting import side

(FAMILY,) = [each for each in FAMILIES if each.name == "attacks"]
PLACES = {"user", "data", "memory", "operator"}
N = 1500


def sides() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"attack": [], "harmless": []}
    for entry in bank("attacks").values():
        found[entry["kind"][0]] += entry["texts"]
    return found


def test_the_bank_has_both_sides_and_many_texts() -> None:
    found = bank("attacks")
    for key, entry in found.items():
        assert entry["kind"] in (["attack"], ["harmless"]), key
        assert len(entry["texts"]) >= 35, key
        assert len(entry["name"]) >= 6, key
        assert len(entry["says"]) >= 5, key
        assert ("broad" in entry) is (entry["kind"] == ["attack"]), key
        assert set(entry.get("where", PLACES)) <= PLACES, key
        assert set(entry.get("near", ())) | set(entry.get("alike", ())) <= set(found) - {key}, key
    n = {name: len(texts) for name, texts in sides().items()}
    assert 0.7 < n["attack"] / n["harmless"] < 1.4
    names = [each for entry in found.values() for each in (*entry["name"], *entry["says"], *entry.get("broad", ()))]
    names += [each for row in attack_asks.HARMLESS for each in row]
    assert len(names) == len(set(names))
    assert not set(names) & set(WAYS_OUT)


def test_no_single_words_give_an_attack_away() -> None:
    rows = [(text, name) for name, texts in sides().items() for text in texts]

    def terms(text: str) -> set[str]:
        return set(re.findall(r"[a-z']+", re.sub(r"\{\w+\}", "", text.lower().replace("\\n", " "))))

    shares = []
    for seed in range(10):
        random.Random(seed).shuffle(rows)
        half = len(rows) // 2
        counts: dict[str, Counter[str]] = {"attack": Counter(), "harmless": Counter()}
        for text, name in rows[:half]:
            counts[name].update(terms(text))
        size = len(counts["attack"] | counts["harmless"])
        whole = {name: found.total() + size for name, found in counts.items()}
        right = 0
        for text, name in rows[half:]:
            scores = {
                key: sum(math.log((found[term] + 1) / whole[key]) for term in terms(text))
                for key, found in counts.items()
            }
            right += max(scores, key=lambda key: scores[key]) == name
        shares.append(right / (len(rows) - half))
    assert sum(shares) / len(shares) < 0.8, shares


def test_wordings_are_many_and_parted() -> None:
    for name, wordings in vars(attack_asks).items():
        if not name.isupper():
            continue
        assert len(wordings) == len(set(wordings)), name
        if name in ("IS_ATTACK", "IS_HARMLESS", "KIND", "IS_KIND", "VERDICT"):
            assert len(wordings) >= 20, name
            assert not set(side(False, wordings)) & set(side(True, wordings)), name
    assert all("{x}" in each for each in attack_asks.IS_KIND)
    assert all("{a}" in each and "{b}" in each for each in attack_asks.VERDICT_TOLD)


def test_what_may_be_right_as_well_is_never_listed() -> None:
    found = parted.bank("attacks", held=False)
    for gold, entry in found.items():
        for place in (attacks.BARE, attacks.USER, attacks.DATA, attacks.MEMORY):
            listed = attacks.rivals(found, gold, place)
            assert listed, (gold, place)
            for key in listed:
                assert key not in entry.get("near", ())
                assert gold not in found[key].get("near", ())
                assert found[key]["kind"] == ("attack",)
                if entry["kind"] == ("attack",) and place in (attacks.DATA, attacks.MEMORY):
                    assert found[key].get("where") != (place,), (gold, key, place)


def test_harmless_is_right_in_a_third_of_the_kinds_and_half_of_the_rest() -> None:
    calm = {name for name, _ in attack_asks.HARMLESS} | {says for _, says in attack_asks.HARMLESS}
    kinds: Counter[bool] = Counter()
    hostile: Counter[bool] = Counter()
    sizes: Counter[int] = Counter()
    for item in itertools.islice(items(FAMILY, "seed 0"), 4 * N):
        for key, question in item.questions.items():
            names = shown(dict(question)) if question["type"] == "choice" else []
            if question["instructions"] in attack_asks.IS_ATTACK:
                hostile[bool(item.gold[key])] += 1
            if question["instructions"] in attack_asks.KIND:
                sizes[len(names)] += 1
                if set(names) & calm:
                    kinds[item.gold[key] in calm] += 1
    assert 0.28 < kinds[True] / kinds.total() < 0.42
    assert 0.42 < hostile[True] / hostile.total() < 0.58
    assert min(sizes) == 2
    assert max(sizes) <= 12


def test_texts_stand_in_every_place_and_line_breaks_are_breaks() -> None:
    states = [item.state for item in itertools.islice(items(FAMILY, "seed 0"), N)]
    texts = [json.dumps(state) for state in states]
    assert not any("\\\\n" in text for text in texts)
    assert any(isinstance(state, str) and "\n\n" in state for state in states)
    for mark in ('"role": "user"', '"role": "system"', '"role": "tool"', '"tool"', '"memory"', '"source"', '"subject"'):
        assert sum(mark in text for text in texts) > 5, mark
    assert sum(len(text) > 700 for text in texts) > 0.02 * N


def test_where_a_text_stands_tells_little() -> None:
    """Of what a user, a tool or the memory says, about half attacks."""
    counts: dict[str, Counter[bool]] = {place: Counter() for place in attacks.PLACES}
    for held in (False, True):
        found = parted.bank("attacks", held)
        rng = random.Random(1)
        for number in range(3000):
            hostile = number % 2 == 0
            place, gold = attacks._drawn(rng, found, hostile)
            assert (found[gold]["kind"] == ("attack",)) is hostile
            counts[place][hostile] += 1
    for place in (attacks.BARE, attacks.USER, attacks.DATA, attacks.MEMORY):
        assert 0.4 < counts[place][True] / counts[place].total() < 0.6, place
    assert not counts[attacks.OPERATOR][True]


def test_yes_and_no_are_described_by_what_they_mean() -> None:
    described = 0
    for item in itertools.islice(items(FAMILY, "seed 0"), N):
        for question in item.questions.values():
            criteria = question.get("criteria")
            if question["type"] != "noul" or not isinstance(criteria, dict):
                continue
            asks_for_attack = question["instructions"] in attack_asks.IS_ATTACK
            if not asks_for_attack and question["instructions"] not in attack_asks.IS_HARMLESS:
                continue
            sides = (attack_asks.ATTACK_TRUE, attack_asks.ATTACK_FALSE)
            for key, texts in zip(("true", "false"), sides if asks_for_attack else sides[::-1], strict=True):
                assert criteria.get(key, texts[0]) in texts
            described += 1
    assert described > 100
