"""A state out of sentences: a text, a field, a ticket, a thread; with sentences beside the point, and typing errors.

It refuses to know labels. Trap: a sentence beside the point must bear on no question that any family asks, so they all
stand in one list, `aside.toml`, and are small talk. At most one letter of a long sentence is mistyped, so that a
reader, and the test's solver, can still make out which sentence it is.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence

from decider.data.families import words
from decider.data.families.daily.banks import bank, fill, pick_of

N_ASIDE = (0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 5)
FEWEST_WORDS_MISTYPED = 9
FIELDS = (
    *("message", "text", "body", "email", "input", "description", "content", "mail", "customer message", "msg", "note"),
    *("what they wrote", "free text"),
)
WHO = (
    *(("customer", "support"), ("user", "assistant"), ("client", "agent"), ("them", "us"), ("caller", "operator")),
    *(("visitor", "bot"), ("guest", "desk"), ("sender", "clerk")),
)
_SHORTER = (("please", "pls"), ("because", "bc"), ("you", "u"), ("your", "ur"), ("tomorrow", "tmrw"), ("and", "&"))


def mistyped(rng: random.Random, sentence: str) -> str:
    """One word of the sentence with two letters swapped, one lost or one doubled, or shortened."""
    parts = sentence.split(" ")
    if len(parts) < FEWEST_WORDS_MISTYPED:
        return sentence
    shorter = [(n, short) for n, part in enumerate(parts) for long, short in _SHORTER if part == long]
    if shorter and rng.random() < 0.5:
        place, short = rng.choice(shorter)
        parts[place] = short
        return " ".join(parts)
    place = rng.choice([n for n, part in enumerate(parts) if part.isalpha() and len(part) > 3] or [0])
    word = parts[place]
    cut = rng.randrange(1, max(2, len(word) - 1))
    lost, doubled = word[:cut] + word[cut + 1 :], word[:cut] + word[cut - 1] + word[cut:]
    parts[place] = rng.choice((lost, doubled, word[:cut] + word[cut:][1::-1] + word[cut + 2 :]))
    return " ".join(parts)


def sentences(rng: random.Random, held: bool, core: Sequence[str], *, longest: bool = True) -> list[str]:
    """The sentences that count, in their order, and some beside the point; at times many of these."""
    aside = bank("aside", held)["aside"]
    said = list(core)
    n = rng.choice(N_ASIDE)
    if longest and not held and rng.random() < 0.05:
        n = rng.randint(8, 20)
    pool = aside["text"]
    for text in rng.sample(pool, min(n, len(pool))):
        said.insert(rng.randrange(len(said) + 1), fill(rng, text))
    if rng.random() < 0.18:
        said = [mistyped(rng, each) if rng.random() < 0.6 else each for each in said]
    if rng.random() < 0.1:
        said = [each.lower().replace("'", "") for each in said]
    return said


def joined(rng: random.Random, said: Sequence[str]) -> str:
    """Sentences as one text, now and then without the last full stop."""
    text = (" " if rng.random() < 0.85 else "\n").join(said)
    return re.sub(r"\.$", "", text) if rng.random() < 0.12 else text


def letter(rng: random.Random, held: bool, core: Sequence[str]) -> object:
    """What somebody writes to a company: a text, a field, a ticket with fields, a thread."""
    aside = bank("aside", held)["aside"]
    said = sentences(rng, held, core)
    opening = [pick_of(rng, aside, "greeting")] if rng.random() < 0.45 else []
    closing = [pick_of(rng, aside, "closing")] if rng.random() < 0.35 else []
    way = rng.random()
    if way < 0.5:
        return joined(rng, [*opening, *said, *closing])
    if way < 0.62:
        return {rng.choice(FIELDS): joined(rng, [*opening, *said])}
    facts: dict[str, object] = {
        rng.choice(("ticket", "id", "case", "number", "ref", "ticket_id", "case no", "request")): rng.randint(
            100, 99999
        ),
        rng.choice(("from", "customer", "sender", "name", "author", "contact", "written by")): rng.choice(words.NAMES),
        rng.choice(("received", "date", "created", "sent")): words.day(rng).isoformat(),
        "channel": rng.choice(("e-mail", "chat", "web form", "app", "letter", "phone note", "SMS", "counter")),
        rng.choice(("subject", "subject", "title")): pick_of(rng, aside, "subject"),
        "language": "en",
    }
    kept = dict(rng.sample(list(facts.items()), rng.randint(1, 5)))
    if way < 0.8:
        return kept | {rng.choice(FIELDS): joined(rng, [*opening, *said, *closing])}
    turns = _turns(rng, said)
    who, us = rng.choice(WHO)
    thread: list[dict[str, str]] = []
    for number, turn in enumerate(turns):
        if number:
            thread.append({"from": us, "text": pick_of(rng, aside, "reply")})
        thread.append({"from": who, "text": joined(rng, turn)})
    if rng.random() < 0.25:
        return "\n".join(f"{turn['from'].capitalize()}: {turn['text']}" for turn in thread)
    return kept | {rng.choice(("messages", "thread", "conversation", "chat", "dialogue", "transcript")): thread}


def _turns(rng: random.Random, said: Sequence[str]) -> list[list[str]]:
    n = rng.randint(1, min(3, len(said)))
    cuts = [0, *sorted(rng.sample(range(1, len(said)), n - 1)), len(said)]
    return [list(said[start:end]) for start, end in itertools.pairwise(cuts)]


def note(rng: random.Random, held: bool, core: Sequence[str], field: str) -> object:
    """A short text without greetings, bare or as a field; nothing beside the point in it but small talk."""
    text = joined(rng, sentences(rng, held, core))
    return text if rng.random() < 0.65 else {field: text}
