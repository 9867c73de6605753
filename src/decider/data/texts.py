"""Sets of `evals` that ask what a short text is: a headline, a job title, a pair of offers, an exam question.

It refuses to know splits. Trap: options drawn from the other samples are chosen by hash, never by chance, so that every
build asks the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from decider.data.archive import Archive
from decider.data.items import Item, choice, noul
from decider.data.registry import parts, samples

HEADLINES = "sarcasm/samples.jsonl"
PRODUCTS = "product-matching/zeroshot/samples.jsonl"
_PRODUCTS = re.compile(r"Do the following .*\nProduct 1: 'Title:(.*)'\nProduct 2: 'Title:(.*)'", re.S)
JOBS = "soc_codes/samples.jsonl"
_JOBS = re.compile(r"What is the SOC Code for the job title (.*?)'?", re.S)
N_OCCUPATIONS = 20
RADIO = "fcc_amateur_extra/samples.jsonl"
_RADIO = re.compile(r"(.*?)\nA\.(.*?)\nB\.(.*?)\nC\.(.*?)\nD\.(.*?)", re.S)


def satire(archive: Archive) -> Iterator[Item]:
    """Headlines of a satirical paper and of a news site."""
    question = noul(
        "Is this headline satire?",
        yes="from a satirical paper that makes its stories up",
        no="from a news site that reports what happened",
    )
    for sample in samples(archive, HEADLINES):
        yield Item(sample.asked, {"satire": question}, {"satire": sample.ideal == "1"}, group=sample.asked)


def same_product(archive: Archive) -> Iterator[Item]:
    """Two offers' titles, of one product or of two."""
    question = noul("Do these two offers sell the same product, model and variant included?")
    for sample in samples(archive, PRODUCTS):
        first, second = parts(_PRODUCTS, sample.asked, PRODUCTS)
        state = {"offer 1": first, "offer 2": second}
        yield Item(state, {"same": question}, {"same": sample.ideal == "Yes"}, group=f"{first}\n{second}")


def occupation(archive: Archive) -> Iterator[Item]:
    """A job title, and the occupation it is counted under, among twenty."""
    titles = [(parts(_JOBS, sample.asked, JOBS)[0], sample.ideal) for sample in samples(archive, JOBS)]
    occupations = sorted({occupation for _, occupation in titles})
    for title, gold in titles:
        others = sorted((name for name in occupations if name != gold), key=lambda name: _rank(title, name))
        names = sorted([gold, *others[: N_OCCUPATIONS - 1]], key=lambda name: _rank(name, title))
        question = choice("Under which occupation do labour statistics count this job title?", names)
        yield Item(f"Job title: {title}", {"occupation": question}, {"occupation": gold}, group=title)


def radio_licence(archive: Archive) -> Iterator[Item]:
    """Questions of the pool for the US amateur radio licence, Extra class."""
    for sample in samples(archive, RADIO):
        asked, *options = parts(_RADIO, sample.asked, RADIO)
        if len(set(options)) == len(options):
            gold = options["ABCD".index(sample.ideal)]
            question = choice("Which answer to this question of the amateur radio exam is right?", options)
            yield Item(asked, {"answer": question}, {"answer": gold}, group=asked)


def _rank(*words: str) -> bytes:
    return hashlib.sha256("\n".join(words).encode()).digest()
