"""Everyday sorting: reviews, log messages, statements in news, exam questions.

It refuses to know splits. Trap: the last entry of each review file is empty; it is the only one that may be skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from decider.data.archive import Archive
from decider.data.items import Item, choice, noul
from decider.data.registry import samples
from decider.errors import SetupError

REVIEWS = "package/test/fixtures/{site}.json"
SITES = {"imdb": "film", "yelp": "restaurant", "amazon": "product"}

LOGS = "event_categories/samples.jsonl"
SEVERITIES = ["Information", "Warning", "Error"]

STATEMENTS = "bias_detection/samples.jsonl"
STATEMENT_KINDS = {
    "fact": "a statement free of rephrasing, interpretation, opinions and emotions",
    "opinion": "a personal view, judgement or interpretation",
    "claim": "unverified information, rephrased facts, or affirmation of opinions",
    "argument": "data, reference or narrative used to support a claim",
    "data": "raw data or statistics with their source, without interpretation",
    "quote": "a direct quote from a person or a document",
    "narrative": "a story, account of events or context that illustrates a claim",
    "sensationalism": "exaggeration, sarcasm or scandal-mongering meant to stir emotions",
    "speculation": "an assumption or theory about the future or a hypothetical case",
}

EXAMS = "{language}-exams-qa/samples.jsonl"
LANGUAGES = (
    *("albanian", "croatian", "french", "german", "hungarian", "italian", "lithuanian", "polish", "portuguese"),
    *("spanish", "turkish", "vietnamese"),
)
"""Those in Latin letters; of the other four an English model reads mostly bytes."""
_EXAM = re.compile(r"(.*?)(?:^|\n)A\.(.*?)\nB\.(.*?)(?:\nC\.(.*?))?(?:\nD\.(.*?))?(?:\nE\.(.*?))?\nAnswer:", re.S)


def reviews(archive: Archive) -> Iterator[Item]:
    """Sentences of reviews of films, restaurants and products; half of them positive."""
    question = noul(
        "Is this sentence of a review positive?", yes="the writer is pleased", no="the writer is not pleased"
    )
    for site, thing in SITES.items():
        for entry in json.loads(archive.read(REVIEWS.format(site=site))):
            if entry:
                # One text holds a mark of its own (U+0085) that some readers take for the end of a line.
                text = " ".join(entry["text"].split())
                state = {"review of a": thing, "text": text}
                yield Item(state, {"positive": question}, {"positive": entry["class"] == 1}, group=text)


def log_severity(archive: Archive) -> Iterator[Item]:
    """Messages of a system's event log; 97 % of them are mere information."""
    question = choice("Which severity does this log message have?", SEVERITIES)
    for sample in samples(archive, LOGS):
        yield Item(sample.asked, {"severity": question}, {"severity": sample.ideal}, group=sample.asked)


def statement_kind(archive: Archive) -> Iterator[Item]:
    """Sentences of news articles; labels are a matter of taste."""
    question = choice("Which kind of statement is this sentence of a news article?", STATEMENT_KINDS)
    for sample in samples(archive, STATEMENTS):
        yield Item(sample.asked, {"kind": question}, {"kind": sample.ideal.strip("[]")}, group=sample.asked)


def exams(archive: Archive) -> Iterator[Item]:
    """School exam questions with three to five answers."""
    for language in LANGUAGES:
        file = EXAMS.format(language=language)
        for sample in samples(archive, file):
            found = _EXAM.fullmatch(sample.asked)
            if found is None:
                raise SetupError(f"a sample of {file} reads {sample.asked[:80]!r}, which is not the form expected")
            text, *options = (part.strip() for part in found.groups() if part is not None)
            place = "ABCDE".index(sample.ideal.strip("[]"))
            # Some have an empty question or two equal answers; nothing can be decided there.
            if len(set(options)) == len(options) and all(options) and place < len(options) and text:
                question = choice("Which answer to this exam question is right?", options)
                yield Item(text, {"answer": question}, {"answer": options[place]}, group=text)
