"""How things are written: which string has a format, and whether a reply keeps to what was asked of it.

It refuses to judge content. Trap: a string may have two formats at once (an integer is a word of digits); a question
offers only strings of which one alone has the format asked for, and each format says exactly what it wants.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from decider.data.families import words
from decider.data.families.making import Asked, item, pick, several
from decider.data.items import Item, noul, score


@dataclass(frozen=True, slots=True)
class _Format:
    said: str
    pattern: str
    make: Callable[[random.Random], str]


def _word(rng: random.Random) -> str:
    return rng.choice((*words.THINGS, *words.COLOURS, *words.HOLDERS))


FORMATS = (
    _Format("a date as YYYY-MM-DD", r"\d{4}-\d\d-\d\d", lambda r: words.day(r).isoformat()),
    _Format("a date as DD/MM/YYYY", r"\d\d/\d\d/\d{4}", lambda r: words.day(r).strftime("%d/%m/%Y")),
    _Format("a date with the month as a word", r"\d{1,2} [A-Z][a-z]+ \d{4}", lambda r: words.long_date(words.day(r))),
    _Format("a time of day as HH:MM", r"\d\d:\d\d", lambda r: f"{r.randrange(24):02d}:{r.randrange(60):02d}"),
    _Format("a whole number", r"\d+", lambda r: str(r.randrange(10, 99999))),
    _Format("a number with two decimals", r"\d+\.\d\d", lambda r: f"{r.randrange(1000)}.{r.randrange(100):02d}"),
    _Format("a percentage", r"\d+ ?%", lambda r: f"{r.randrange(101)}%"),
    _Format("an e-mail address", r"[\w.]+@[\w.]+\.\w+", lambda r: f"{_word(r)}.{_word(r)}@{words.made_up(r)}.example"),
    _Format("a web address", r"https?://\S+", lambda r: f"https://{words.made_up(r)}.example/{_word(r)}"),
    _Format("a colour as # and six hex digits", r"#[0-9a-f]{6}", lambda r: f"#{r.randrange(16**6):06x}"),
    _Format("an IPv4 address", r"(\d+\.){3}\d+", lambda r: ".".join(str(r.randrange(256)) for _ in range(4))),
    _Format("snake_case", r"[a-z]+(_[a-z]+)+", lambda r: f"{_word(r)}_{_word(r)}"),
    _Format("kebab-case", r"[a-z]+(-[a-z]+)+", lambda r: f"{_word(r)}-{_word(r)}"),
    _Format("camelCase", r"[a-z]+([A-Z][a-z]+)+", lambda r: f"{_word(r)}{words.capital(_word(r))}"),
    _Format("UPPER_CASE with underscores", r"[A-Z]+(_[A-Z]+)+", lambda r: f"{_word(r)}_{_word(r)}".upper()),
    _Format("two words, each with a capital", r"[A-Z][a-z]+ [A-Z][a-z]+", lambda r: f"{_word(r)} {_word(r)}".title()),
    _Format("one word in lower case", r"[a-z]+", _word),
    _Format("a JSON object", r"\{.*\}", lambda r: json.dumps({_word(r): r.randrange(100)})),
    _Format("a JSON array", r"\[.*\]", lambda r: json.dumps([r.randrange(100) for _ in range(3)])),
    _Format(
        "a list of three words parted by commas", r"\w+, \w+, \w+", lambda r: ", ".join(_word(r) for _ in range(3))
    ),
    _Format(
        "a phone number that begins with +", r"\+\d[\d ]+", lambda r: f"+{r.randint(20, 99)} {r.randint(10**5, 10**7)}"
    ),
    _Format("an amount in dollars", r"\$\d+(\.\d\d)?", lambda r: f"${r.randrange(1000)}.{r.randrange(100):02d}"),
)


def formats(rng: random.Random) -> Item:
    """Strings, of which one has a given format; or one string and what it is."""
    if rng.random() < 0.6:
        right, *others = rng.sample(FORMATS, rng.randint(4, 13))
        made = [form.make(rng) for form in others]
        wrong = [text for text in made if not re.fullmatch(right.pattern, text)]
        field = rng.choice(("value", "entry", "reply", "field", "name"))
        state: object = (
            {field: None, "format": right.said} if rng.random() < 0.5 else f"The {field} has to be {right.said}."
        )
        text = rng.choice((f"Which of these can be the {field}?", f"Which {field} has the format asked for?"))
        return item(state, [pick(rng, text, right.make(rng), wrong, abstain_share=0.08)])
    form = rng.choice(FORMATS)
    value = form.make(rng)
    others = [each for each in FORMATS if not re.fullmatch(each.pattern, value)]

    def what() -> Asked:
        return pick(rng, "How is this written?", form.said, [each.said for each in others], abstain_share=0.08)

    def is_it() -> Asked:
        each = form if rng.random() < 0.5 else rng.choice(others)
        return noul(f"Is this {each.said}?"), each is form

    return item({"value": value} if rng.random() < 0.4 else value, several(rng, [what, is_it], rng.choice((1, 1, 2))))


@dataclass(frozen=True, slots=True)
class _Demand:
    said: str
    met: Callable[[str], bool]


def _demands(rng: random.Random, reply: str) -> list[_Demand]:
    n, said = len(reply.split()), reply.split()[0].strip(",.!?")
    wanted = max(1, n + rng.choice((-3, -1, 0, 0, 0, 1, 3)))
    most = max(1, n + rng.choice((-3, -1, 0, 1, 4)))
    start = said if rng.random() < 0.5 else words.capital(_word(rng))
    names = [word.strip(",.!?") for word in reply.split()]
    named = rng.choice(names) if rng.random() < 0.5 else _word(rng)
    mark = rng.choice("?!.")
    marks = {"?": "a question mark", "!": "an exclamation mark", ".": "a full stop"}
    return [
        _Demand(f"use exactly {wanted} words", lambda text: len(text.split()) == wanted),
        _Demand(f"use at most {most} words", lambda text: len(text.split()) <= most),
        _Demand("write in lower case only", lambda text: text == text.lower()),
        _Demand("write in capitals only", lambda text: text == text.upper()),
        _Demand(f"begin with the word '{start}'", lambda text: text.split()[0].strip(",.!?").lower() == start.lower()),
        _Demand(f"end with {marks[mark]}", lambda text: text.endswith(mark)),
        _Demand(f"use the word '{named}'", lambda text: named.lower() in re.findall(r"[\w-]+", text.lower())),
        _Demand(
            f"do not use the word '{named}'", lambda text: named.lower() not in re.findall(r"[\w-]+", text.lower())
        ),
        _Demand("use no comma", lambda text: "," not in text),
        _Demand("use a comma", lambda text: "," in text),
        _Demand("use no digits", lambda text: not any(letter.isdigit() for letter in text)),
        _Demand("give a number in digits", lambda text: any(letter.isdigit() for letter in text)),
    ]


REPLIES = (
    "The {a} is in the {h}", "Please bring {n} more of the {a}, and the {b}", "I found a {c} {a} next to the {b}",
    "Yes, the {a} was sold in {city}", "No {a} here", "{name} took the {a}, the {b} and a {c} {d}",
    "We have {n} left", "Is the {c} {a} yours", "Nobody in {city} knows {name}", "Look into the {h}, please",
)  # fmt: skip


def follows(rng: random.Random) -> Item:
    """A reply and what was asked of its form: whether each demand is met, and how many are."""
    a, b, d = rng.sample(words.THINGS, 3)
    reply = rng.choice(REPLIES).format(
        a=a, b=b, d=d, c=rng.choice(words.COLOURS), h=rng.choice(words.HOLDERS), n=rng.randint(2, 99),
        city=rng.choice(words.CITIES), name=rng.choice(words.NAMES),
    )  # fmt: skip
    reply += rng.choice((".", ".", "!", "?", ""))
    style = rng.random()
    reply = reply.lower() if style < 0.25 else reply.upper() if style < 0.4 else reply
    known = _demands(rng, reply)
    if rng.random() < 0.5:
        kept = [each for each in known if each.met(reply)]
        n = rng.randint(1, 3)
        demand = rng.sample(kept if len(kept) >= n and rng.random() < 0.4 else known, n)
        listed = [words.capital(each.said) + "." for each in demand]
        if rng.random() < 0.5:
            state: object = {"instructions": listed, "reply": reply}
        else:
            state = f"Instructions: {' '.join(listed)}\nReply: {reply}"
        met = [each.met(reply) for each in demand]
        asked: list[Asked] = [
            (
                noul(
                    rng.choice(
                        ("Does the reply do all that the instructions want?", "Does the reply follow the instructions?")
                    )
                ),
                all(met),
            )
        ]
        if len(demand) > 1 and rng.random() < 0.5:
            levels = ["none", "one", "two", "three"][: len(demand) + 1]
            asked.append((score("How many of the instructions does the reply follow?", levels), sum(met)))
        return item(state, asked)

    def one() -> Asked:
        met = rng.random() < 0.5
        each = rng.choice([each for each in known if each.met(reply) is met])
        return noul(f"Does the reply keep to this instruction: {each.said}?"), each.met(reply)

    def which() -> Asked | None:
        kept, broken = [each for each in known if each.met(reply)], [each for each in known if not each.met(reply)]
        right, wrong = (kept, broken) if rng.random() < 0.6 else (broken, kept)
        text = (
            "Which of these instructions does the reply keep to?"
            if right is kept
            else "Which of these instructions does the reply break?"
        )
        if not right or not wrong:
            return None
        return pick(rng, text, rng.choice(right).said, [each.said for each in wrong], most=6, abstain_share=0.05)

    return item({"reply": reply} if rng.random() < 0.4 else f"Reply: {reply}", several(rng, [one, one, which]))
