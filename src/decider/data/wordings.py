"""Other ways to ask the questions of the training sets, so that a model learns the decision and not one sentence.

It refuses to touch evaluation: there each question keeps its one wording. Trap: which wording an item gets is decided
by its hash, so that two builds agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from decider.data.items import Gold, Item, choice
from decider.data.split import digest_of


@dataclass(frozen=True, slots=True)
class Wording:
    """Another text; for a Noul with two names, a Choice between them instead."""

    text: str
    yes: str | None = None
    no: str | None = None


WORDINGS: Mapping[tuple[str, str], tuple[Wording, ...]] = {
    ("satire", "satire"): (
        Wording("Was this headline made up for a laugh?"),
        Wording("Does this headline come from a satirical paper?"),
        Wording("What kind of headline is this?", "satire", "news"),
        Wording("Where did this headline appear?", "in a satirical paper", "on a news site"),
    ),
    ("occupation", "occupation"): (
        Wording("Which occupation does this job title belong to?"),
        Wording("Sort this job title under one of the occupations."),
    ),
    ("word_feeling", "feeling"): (
        Wording("How does this word feel, from very negative to very positive?"),
        Wording("Rate the feeling of the word."),
    ),
    ("word_sense", "polarity"): (Wording("How positive is the word when it means this?"),),
    ("word_sense", "subjectivity"): (Wording("How much is the word, so meant, a matter of opinion?"),),
    ("reviews", "positive"): (
        Wording("Did the reviewer like it?"),
        Wording("Is the writer satisfied?"),
        Wording("What is the sentiment of this review?", "positive", "negative"),
        Wording("How does the writer feel about it?", "pleased", "displeased"),
    ),
    ("spam", "spam"): (
        Wording("Should a mail filter sort this message out as spam?"),
        Wording("Is this unwanted bulk mail?"),
        Wording("Into which folder does this e-mail belong?", "spam", "inbox"),
        Wording("What is this message?", "spam", "legitimate e-mail"),
    ),
    ("log_severity", "severity"): (
        Wording("How severe is this event?"),
        Wording("Which level should this line of a log have?"),
        Wording("Label this system message."),
    ),
    ("statement_kind", "kind"): (Wording("What kind of statement is this?"), Wording("Classify this sentence.")),
    ("exams", "answer"): (
        Wording("Which answer is right?"),
        Wording("Choose the right answer."),
        Wording("Answer the question of the exam."),
    ),
}


def reworded(task: str, item: Item) -> Item:
    """The item with each question in one of its wordings, the usual one among them."""
    rank = int(digest_of(item)[:8], 16)
    questions, gold = dict(item.questions), dict(item.gold)
    for key, question in item.questions.items():
        known = WORDINGS.get((task, key), ())
        place = rank % (len(known) + 1)
        if place:
            questions[key], gold[key] = _asked(known[place - 1], question, item.gold[key], swap=rank % 2 == 1)
    return replace(item, questions=questions, gold=gold)


def _asked(
    wording: Wording, question: Mapping[str, object], gold: Gold, *, swap: bool
) -> tuple[Mapping[str, object], Gold]:
    if wording.yes is None or wording.no is None:
        return {**question, "instructions": wording.text}, gold
    names = [wording.yes, wording.no]
    return choice(wording.text, names[::-1] if swap else names), wording.yes if gold else wording.no
