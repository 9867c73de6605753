"""Rated words: `vaderSentiment` (ten people each rated every word) and TextBlob's lexicon of word senses.

It refuses to know sentences. Trap: forms of one word (shame, shamed, shameful) are rated alike; words that begin alike
share a group.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from decider.data.archive import Archive
from decider.data.items import Item, score

VADER = "vaderSentiment/vader_lexicon.txt"
PATTERN = "textblob/en/en-sentiment.xml"
STEM_LETTERS = 5

FEELINGS = [
    "very negative",
    "negative",
    "slightly negative",
    "neutral",
    "slightly positive",
    "positive",
    "very positive",
]
POLARITIES = ["negative", "slightly negative", "neutral", "slightly positive", "positive"]
SUBJECTIVITIES = ["a matter of fact", "partly opinion", "a matter of opinion"]


def word_feeling(archive: Archive) -> Iterator[Item]:
    """The mean of ten ratings from −4 to 4, to the nearest of seven levels; the two rare ends are joined to ±3."""
    question = score("How negative or positive is the feeling that this word carries?", FEELINGS)
    for line in archive.read(VADER).decode().splitlines():
        word, mean = line.split("\t")[:2]
        if word.isascii() and word.isalpha() and len(word) > 2:
            level = max(-3, min(3, _nearest(float(mean)))) + 3
            yield Item(f"Word: {word}", {"feeling": question}, {"feeling": level}, group=word[:STEM_LETTERS].lower())


def word_sense(archive: Archive) -> Iterator[Item]:
    """Polarity (−1 to 1) and subjectivity (0 to 1) of a word in one meaning, as five and three levels."""
    polarity = score("How negative or positive is the word in this meaning?", POLARITIES)
    subjectivity = score(
        "Is it a matter of fact or of opinion whether the word, in this meaning, applies?", SUBJECTIVITIES
    )
    for entry in ElementTree.fromstring(archive.read(PATTERN)).iter("word"):
        word, sense = entry.get("form", ""), entry.get("sense", "")
        if word and sense:
            yield Item(
                {"word": word, "meaning": sense},
                {"polarity": polarity, "subjectivity": subjectivity},
                {
                    "polarity": _band(float(entry.get("polarity", "")), (-0.5, -0.05, 0.05, 0.5)),
                    "subjectivity": _band(float(entry.get("subjectivity", "")), (0.25, 0.75)),
                },
                group=word[:STEM_LETTERS].lower(),
            )


def _nearest(value: float) -> int:
    """To the nearest whole number, halves away from zero."""
    return int(value + 0.5) if value >= 0 else -int(-value + 0.5)


def _band(value: float, limits: tuple[float, ...]) -> int:
    """How many of the ascending limits `value` is above; at a limit, the side away from 0."""
    return sum(value > limit if limit < 0 else value >= limit for limit in limits)
