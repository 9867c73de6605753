"""Passages of prose about invented things, and questions that they answer or only seem to answer.

It refuses to know the world: what a passage does not say is open, however likely. Trap: an ask marked as alone has its
answer in one sentence of the passage, and no other sentence may give it away: that sentence is at times left out, and
the question is then open.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from decider.data.families.daily.answered_asks import (
    ANSWER,
    CAN,
    INSIDE,
    INSIDE_NOT,
    LACKS,
    NOT_GIVEN,
    OPEN,
    SIDES,
    WHICH,
)
from decider.data.families.daily.banks import bank
from decider.data.families.daily.sorting import side
from decider.data.families.making import Asked, item
from decider.data.items import Item, choice, noul

FIELDS = (
    *("passage", "context", "text", "document", "article", "paragraph", "content", "source", "excerpt", "body"),
    *("reading", "extract", "snippet", "chunk"),
)
QUESTION = ("question", "query", "q", "asked", "user_question")
WANTS = (
    ("when|what year|which year|what date|on what d|in what year|in which year|what month|which month", "date"),
    ("how many|how much|how long|how far|how old|how high|how often|what percentage|what share", "number"),
    ("who|whose|whom|where|which", "name"),
)
"""How a question begins that wants an answer of a sort."""
_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_NUMBER = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|hundred|thousand"
_FIGURES = "1 2 3 4 5 6 7 8 9 10 11 12 20 30 40 100 1000 1 2"
FIGURES = MappingProxyType(dict(zip((*_NUMBER.split("|"), "once", "twice"), _FIGURES.split(), strict=True)))
SHORTENED_SHARE, TWO_SHARE = 0.4, 0.2
"""How often a sentence is left out of the passage, and how often another passage stands beside it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question that a passage answers; `place` is the sentence that alone gives the answer, or -1."""

    question: str
    answer: str
    place: int


@dataclass(frozen=True, slots=True)
class Passage:
    """A text with what it answers and what it seems to answer."""

    text: str
    title: str | None
    asks: tuple[Ask, ...]
    misses: tuple[str, ...]


def sentences(text: str) -> list[str]:
    """The sentences of a passage."""
    return re.split(r"(?<=[.!?]) (?=[A-Z“‘0-9])", text)


@cache
def passages(held: bool) -> tuple[Passage, ...]:
    """The passages of one side. An ask is "question | answer", with "| alone" if one sentence alone answers it."""
    found = []
    for entry in bank("passages", held).values():
        (text,) = entry["text"]
        asks = []
        for line in entry["asks"]:
            question, answer, *mark = (part.strip() for part in line.split("|"))
            places = [place for place, each in enumerate(sentences(text)) if answer in each] if mark else [-1]
            assert len(places) == 1, (question, answer, places)
            asks.append(Ask(question, answer, places[0]))
        found.append(Passage(text, entry.get("title", (None,))[0], tuple(asks), entry["misses"]))
    return tuple(found)


@cache
def sort_of(answer: str) -> str:
    """What sort of thing an answer is: a date, a number, a name or a phrase."""
    if re.search(rf"\b(?:{_MONTH}|1\d\d\d|20\d\d)\b", answer):
        return "date"
    if re.search(rf"\d|\b(?:{_NUMBER})\b", answer):
        return "number"
    return "name" if answer[0].isupper() and len(answer) < 40 else "phrase"


def wanted(question: str) -> str:
    """The sort of answer that a question asks for, by its first words."""
    return next((sort for starts, sort in WANTS if re.match(starts, question.lower())), "phrase")


def named(question: str, text: str) -> bool:
    """Whether the question names somebody or something of which the text does not speak."""
    return any(name not in text for name in re.findall(r"(?<=\s)[A-Z][\w’']{2,}", question))


def _parts(answer: str) -> set[str]:
    """The words and numbers of an answer that count, numbers as figures and words without a last s."""
    words = re.findall(r"\d+|[^\W\d_]+", answer.lower())
    return {FIGURES.get(each, each.rstrip("s")) for each in words if each in FIGURES or each.isdigit() or len(each) > 3}


def _alike(one: str, other: str) -> bool:
    """Whether two answers may come to the same: they share a word that counts, or a number."""
    return bool(_parts(one) & _parts(other)) or one.lower() in other.lower() or other.lower() in one.lower()


def _wrong(
    rng: random.Random, own: Passage, rest: Sequence[Passage], right: str | None, sort: str, n: int
) -> list[str]:
    """`n` wrong answers: those of the same passage and of the same sort first."""
    same = [ask.answer for ask in own.asks]
    others = [ask.answer for other in rest if other is not own for ask in other.asks]
    pools = (
        [each for each in same if sort_of(each) == sort],
        [each for each in others if sort_of(each) == sort],
        [each for each in same if sort_of(each) != sort],
    )
    if rng.random() < 0.5:
        pools = (pools[0], pools[2], pools[1])
    found: list[str] = []
    for pool in pools:
        for each in rng.sample(pool, len(pool)):
            if len(found) < n and not any(_alike(each, said) for said in (*found, *([right] if right else []))):
                found.append(each)
    return found


def _state(rng: random.Random, one: Passage, text: str, other: Passage | None) -> object:
    """The passage bare or in a field; or two passages one after the other."""
    if other is not None:
        texts = [text, other.text]
        rng.shuffle(texts)
        way = rng.random()
        if way < 0.4:
            return "\n\n".join(texts)
        if way < 0.6:
            return texts
        field = rng.choice(FIELDS)
        if way < 0.8:
            return {f"{field} {number}": each for number, each in enumerate(texts, 1)}
        ids = rng.sample(range(100, 10000), 2)
        return {rng.choice(("results", "documents", "hits")): [
            {"id": number, field: each} for number, each in zip(ids, texts, strict=True)
        ]}  # fmt: skip
    way = rng.random()
    if way < 0.3:
        return text
    if way < 0.4:
        return f"{rng.choice(('Passage', 'Text', 'Context', 'Reading', 'Source'))}: {text}"
    facts: dict[str, object] = {rng.choice(FIELDS): text}
    if one.title is not None and text == one.text and way < 0.8:
        facts["title" if rng.random() < 0.8 else "heading"] = one.title
        if way < 0.5:
            return f"{one.title}\n\n{text}"
    if way > 0.65:
        facts[rng.choice(("id", "doc_id", "page", "no", "ref"))] = rng.randint(1, 9999)
    return dict(rng.sample(list(facts.items()), len(facts)))


def answered(rng: random.Random, held: bool) -> Item:
    """A passage, whole or short of a sentence, and whether questions are answered by it, which ones, and with what."""
    one, other, third = rng.sample(passages(held), 3)
    hits, misses, gone = list(one.asks), list(one.misses), list[str]()
    text, beside = one.text, None
    way = rng.random()
    if way < SHORTENED_SHARE:
        places = sorted({ask.place for ask in one.asks} - {-1, 0})
        dropped = rng.choice(places) if places else -1
        kept = [ask for ask in one.asks if ask.place not in (-1, dropped)]
        if places and kept:
            hits, gone = kept, [ask.question for ask in one.asks if ask.place == dropped]
            text = " ".join(each for place, each in enumerate(sentences(text)) if place != dropped)
    elif way < SHORTENED_SHARE + TWO_SHARE:
        own = [ask for ask in one.asks if named(ask.question, other.text)]
        open_ones = [each for each in one.misses if named(each, other.text)]
        if len(own) > 2 and len(open_ones) > 2:
            beside, hits, misses = other, own, open_ones
    shown = text if beside is None else f"{text} {beside.text}"
    foreign = [ask.question for ask in third.asks if named(ask.question, shown)]

    def miss() -> str:
        draw = rng.random()
        if draw < 0.12 and foreign:
            return rng.choice(foreign)
        return rng.choice(gone if gone and draw < 0.6 else misses)

    def question(is_hit: bool) -> str:
        return rng.choice(hits).question if is_hit else miss()

    def judged(asks: Sequence[str], lacks: Sequence[str]) -> tuple[Asked, str]:
        is_hit, denied = rng.random() < 0.5, rng.random() < 0.5
        asked = question(is_hit)
        yes, no = rng.choice(SIDES)[:: -1 if denied else 1] if rng.random() < 0.25 else (None, None)
        wording = rng.choice(side(held, lacks if denied else asks)).replace("{q}", asked)
        return (noul(wording, yes=yes, no=no), is_hit is not denied), asked

    def answer() -> Asked:
        way_out = rng.choice(side(held, NOT_GIVEN)) if rng.random() < 0.6 else None
        n = rng.choice((1, 2, 3, 3, 4, 5))
        rest = passages(held) if beside is None else (beside,)
        if way_out is not None and rng.random() < 0.5:
            asked = miss()
            names = _wrong(rng, one, rest, None, wanted(asked), n + 1)
            gold = way_out
        else:
            ask = rng.choice(hits)
            asked, gold = ask.question, ask.answer
            names = [gold, *_wrong(rng, one, rest, gold, sort_of(gold), n)]
        rng.shuffle(names)
        if way_out is not None:
            names.insert(rng.choice((len(names), rng.randrange(len(names) + 1))), way_out)
        return choice(rng.choice(side(held, ANSWER)).replace("{q}", asked), names), gold

    def which() -> Asked:
        is_hit, n = rng.random() < 0.5, rng.choice((1, 2, 3, 3, 4, 5))
        gold = question(is_hit)
        names = [gold]
        for _ in range(40):
            each = question(not is_hit)
            if len(names) <= n and each not in names:
                names.append(each)
        rng.shuffle(names)
        wording = rng.choice(side(held, WHICH if is_hit else OPEN))
        if rng.random() < 0.25:
            mark = rng.choice(("Q", "question ", "q_", "no. ", "#"))
            letters = {f"{mark}{number}": each for number, each in enumerate(names, 1)}
            return choice(wording, letters), next(key for key, each in letters.items() if each == gold)
        return choice(wording, names), gold

    state = _state(rng, one, text, beside)
    if rng.random() < 0.22:
        asked, inner = judged(INSIDE, INSIDE_NOT)
        pairs: list[tuple[str, object]] = [(rng.choice(QUESTION), inner), (rng.choice(FIELDS), state)]
        if isinstance(state, str) and rng.random() < 0.3:
            return item(f"{state}\n\n{rng.choice(('Question', 'Q', 'Asked'))}: {inner}", [asked])
        rng.shuffle(pairs)
        return item(dict(pairs), [asked])
    kinds = (lambda: judged(CAN, LACKS)[0], lambda: judged(CAN, LACKS)[0], answer, answer, which)
    return item(state, [rng.choice(kinds)() for _ in range(rng.choice((1, 1, 2, 2, 3, 4)))])
