"""Which items are kept, and which split each falls into: by SHA-256 of text, never by order, chance or machine.

It refuses to know tasks' meaning. Trap: two texts that differ in a comma are one text. Texts are compared as words
without case and punctuation, and near-copies of a test item are left out of calibration.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from decider.data.items import Item, Task
from decider.questions.words import plain_words

NEAR = 0.7
"""Jaccard similarity of two texts' word pairs from which they count as near-copies."""


@dataclass(frozen=True, slots=True)
class Split:
    """Items in the order they are written, and what was left out."""

    calibrate: tuple[Item, ...]
    test: tuple[Item, ...]
    n_found: int
    n_repeated: int
    """Repeats of a kept item, and items whose repeats are labelled otherwise."""
    n_near: int
    """Items left out of calibration as near-copies of a test item."""


def split(task: Task, items: Iterable[Item], limit: int) -> Split:
    """At most `limit` items a split, by hash. Whatever order `items` come in, the result is the same."""
    found = list(items)
    kept = distinct(found)
    sides: dict[bool, list[tuple[str, Item]]] = {False: [], True: []}
    for digest, item in sorted(kept.items()):
        sides[is_test(item.group)].append((digest, item))
    test = [item for _, item in sides[True]][:limit]
    near = Near(item.group for item in test)
    calibrate: list[Item] = []
    n_near = 0
    for _, item in sides[False]:
        if len(calibrate) == limit:
            break
        if not task.templated and near.has(item.group):
            n_near += 1
        else:
            calibrate.append(item)
    return Split(tuple(calibrate), tuple(test), len(found), len(found) - len(kept), n_near)


def is_test(group: str) -> bool:
    """The split a group's text decides; the same in every task."""
    return hashlib.sha256(normalised(group).encode()).digest()[0] % 2 == 1


def normalised(text: str) -> str:
    """Words without case, accents' encodings and punctuation, one space apart; the text itself where it has none."""
    return " ".join(plain_words(text)) or text


def digest_of(item: Item) -> str:
    """SHA-256 of the item's content, in hexadecimal."""
    return hashlib.sha256(item.content().encode()).hexdigest()


def distinct(items: list[Item]) -> dict[str, Item]:
    """Content hash → item. Of items that ask the same of the same text the first by hash is kept; of those whose
    answers differ, none."""
    by_text: dict[str, dict[str, Item]] = defaultdict(dict)
    for item in items:
        asked = Item(item.state, item.questions, {}, "").content()
        by_text[normalised(asked)][digest_of(item)] = item
    kept = {}
    for same in by_text.values():
        answers = {
            tuple(sorted((key, normalised(str(gold))) for key, gold in item.gold.items())) for item in same.values()
        }
        if len(answers) == 1:
            digest = min(same)
            kept[digest] = same[digest]
    return kept


class Near:
    """Texts to be near to. Holds the word pairs of each, and who has which."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._sizes: list[int] = []
        self._holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for index, text in enumerate(texts):
            pairs = _pairs(text)
            self._sizes.append(len(pairs))
            for pair in pairs:
                self._holders[pair].append(index)

    def has(self, text: str) -> bool:
        """Whether any of the texts shares at least `NEAR` of its word pairs with `text`."""
        pairs = _pairs(text)
        shared: dict[int, int] = defaultdict(int)
        for pair in pairs:
            for index in self._holders.get(pair, ()):
                shared[index] += 1
        return any(n / (len(pairs) + self._sizes[index] - n) >= NEAR for index, n in shared.items())


def _pairs(text: str) -> set[tuple[str, ...]]:
    # Numbers are all alike: "order 4417" and "order 4418" ask the same.
    words = ["0" if word.isdigit() else word for word in normalised(text).split()]
    return set(itertools.pairwise(words)) if len(words) > 1 else {tuple(words)}
