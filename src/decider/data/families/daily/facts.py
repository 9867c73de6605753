"""Little reports and what is to be made of them: the same said otherwise, what follows, what is ruled out, summaries.

It refuses to know the world: what a report does not settle is open, however likely. Trap: the facts of one item are
about different people and matters, so that one says nothing of the other; names are filled in once for an item.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from decider.data.families import words
from decider.data.families.daily.banks import Entry, bank, fill
from decider.data.families.daily.sorting import side
from decider.data.families.daily.writing import joined
from decider.data.families.making import Asked, item
from decider.data.items import Item, choice, noul

FOLLOWS = (
    "Does the text show that this is true? {x}",
    "By the text, does this hold: {x}",
    "Can one conclude from the text: {x}",
    "Is this statement supported by the text? {x}",
)
DENIED = (
    "Does the text contradict this? {x}",
    "Is this at odds with the text: {x}",
    "Is this statement wrong, by the text? {x}",
)
STANDING = (
    "How does this statement stand to the text? {x}",
    "What does the text say about this? {x}",
    "Judge the statement by the text: {x}",
)
STANDINGS = (
    ("it follows", "it is ruled out", "it is left open"),
    ("supported", "contradicted", "neither"),
    ("true", "false", "cannot be told"),
    ("entailment", "contradiction", "neutral"),
)
TRUE = ("Which of these is true, by the text?", "Which statement does the text support?", "What can be concluded?")
SAME = (
    "Do both sentences say the same?",
    "Do the two mean the same thing?",
    "Is the second a rewording of the first?",
    "Are these two paraphrases of each other?",
)
WHICH_SAME = (
    "Which sentence says the same in other words?",
    "Which of these means the same?",
    "Find the paraphrase.",
)
FITS = (
    "Is the summary true to the text?",
    "Does everything in the summary follow from the text?",
    "Can this summary be published as it is?",
    "Is the summary faithful?",
)
WHICH_FITS = (
    "Which summary is true to the text?",
    "Which of these summaries fits the text?",
    "Pick the summary without a mistake.",
)
ERRORS = (
    "Does the summary say something that the text does not?",
    "Is there a mistake in the summary?",
    "Does the summary go beyond the text or against it?",
)


def _drawn(rng: random.Random, held: bool, n: int) -> list[dict[str, tuple[str, ...]]]:
    """Some facts, each with people of its own."""
    found: Sequence[Entry] = list(bank("facts", held).values())
    people = rng.sample(words.NAMES, 2 * n)
    drawn = []
    for entry in rng.sample(found, n):
        known: Mapping[str, str] = {
            "A": people.pop(),
            "B": people.pop(),
            "city": rng.choice(words.CITIES),
            "month": rng.choice(words.MONTHS),
            "day": fill(rng, "{day}"),
        }
        drawn.append({field: tuple(fill(rng, text, known) for text in texts) for field, texts in entry.items()})
    return drawn


def entails(rng: random.Random, held: bool) -> Item:
    """A text of one to five facts, and statements that follow, are ruled out or are left open."""
    n = rng.choice((1, 1, 1, 2, 2, 3, 5))
    facts = _drawn(rng, held, n)
    one = rng.choice(facts)
    said = [rng.choice(fact["says"]) for fact in facts]
    text = joined(rng, said)

    def statement(wanted: str) -> str:
        pool = [other for other in one["says"] if other not in said] if wanted == "says" else one[wanted]
        return rng.choice(pool)

    def standing() -> Asked:
        place = rng.randrange(3)
        kind = (rng.choice(("follows", "follows", "says")), "denied", "open")[place]
        names = list(rng.choice(STANDINGS))
        right = names[place]
        rng.shuffle(names)
        return choice(rng.choice(side(held, STANDING)).format(x=statement(kind)), names), right

    def follows() -> Asked:
        true = rng.random() < 0.5
        kind = rng.choice(("follows", "follows", "says") if true else ("denied", "open"))
        return noul(rng.choice(side(held, FOLLOWS)).format(x=statement(kind))), true

    def denied() -> Asked:
        true = rng.random() < 0.5
        kind = "denied" if true else rng.choice(("follows", "says", "open"))
        return noul(rng.choice(side(held, DENIED)).format(x=statement(kind))), true

    def which() -> Asked:
        right = statement(rng.choice(("follows", "says")))
        wrong = [rng.choice(fact[kind]) for fact in facts for kind in ("denied", "open")]
        names = [right, *rng.sample(wrong, rng.randint(1, min(5, len(wrong))))]
        rng.shuffle(names)
        return choice(rng.choice(side(held, TRUE)), names), right

    asks = (standing, follows, follows, denied, which)
    asked = [rng.choice(asks)() for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return item(text if rng.random() < 0.7 else {rng.choice(("text", "report", "premise")): text}, asked)


def same_meaning(rng: random.Random, held: bool) -> Item:
    """Two sentences that say the same or do not; or a sentence and the one among others that says the same."""
    one, other = _drawn(rng, held, 2)
    first, second = rng.sample(one["says"], 2)
    wrong = [*one["denied"], *one["open"], rng.choice(other["says"])]
    if rng.random() < 0.35:
        names = [second, *rng.sample(wrong, rng.randint(1, len(wrong)))]
        rng.shuffle(names)
        state: object = first if rng.random() < 0.6 else {"sentence": first}
        return item(state, [(choice(rng.choice(side(held, WHICH_SAME)), names), second)])
    same = rng.random() < 0.5
    pair = [first, second if same else rng.choice(wrong)]
    rng.shuffle(pair)
    way = rng.random()
    if way < 0.4:
        state = {"first": pair[0], "second": pair[1]}
    elif way < 0.7:
        state = f"A: {pair[0]}\nB: {pair[1]}"
    else:
        state = list(pair)
    return item(state, [(noul(rng.choice(side(held, SAME))), same)])


def summary_fits(rng: random.Random, held: bool) -> Item:
    """A text of several facts and a summary, which may hold one sentence that is wrong or made up."""
    facts = _drawn(rng, held, rng.choice((2, 3, 3, 4, 5, 7)))
    said = [rng.choice(fact["says"]) for fact in facts]
    text = joined(rng, said)

    def summary(true: bool) -> str:
        kept = rng.sample(facts, rng.randint(1, min(3, len(facts))))
        spoilt = None if true else rng.randrange(len(kept))
        lines = []
        for place, fact in enumerate(kept):
            if place == spoilt:
                lines.append(rng.choice(fact[rng.choice(("denied", "denied", "open"))]))
            else:
                pool = [other for other in (*fact["says"], *fact["follows"]) if other not in said]
                lines.append(rng.choice(pool))
        return " ".join(lines)

    if rng.random() < 0.3:
        right = summary(True)
        names = list(dict.fromkeys([right, *(summary(False) for _ in range(rng.randint(1, 4)))]))
        rng.shuffle(names)
        state: object = text if rng.random() < 0.6 else {"text": text}
        return item(state, [(choice(rng.choice(side(held, WHICH_FITS)), names), right)])
    true = rng.random() < 0.5
    short = summary(true)
    state = {"text": text, "summary": short} if rng.random() < 0.5 else f"{text}\n\nSummary: {short}"
    asked: list[Asked] = [(noul(rng.choice(side(held, FITS))), true), (noul(rng.choice(side(held, ERRORS))), not true)]
    return item(state, rng.choice((asked, asked[:1], asked[:1], asked[1:])))
