"""Numbers and dates in records: comparison, rank, counting, days; levels by thresholds.

It refuses to know how records are written. Trap: equal numbers have no largest; a question is asked only where one
answer is right.
"""

from __future__ import annotations

import datetime
import itertools
import random
from collections import Counter

from decider.data.families import words
from decider.data.families.lookup import fill
from decider.data.families.making import Asked, ease, item, n_shared, near_numbers, pick, several
from decider.data.families.tables import Written, table
from decider.data.items import Gold, Item, choice, noul, score

MOST = ("Which {noun} has the {most} {field}?", "Whose record shows the {most} {field}?", "Find the {most} {field}.")
MORE = ("Is the {field} of {noun} {key} {more} than that of {other}?", "Does {key} have a {more} {field} than {other}?")
LIMIT = ("Is the {field} of {noun} {key} {limit} {number}?", "True or false: the {field} of {key} is {limit} {number}.")
HOW_MANY = ("How many {plural} have the {field} {value}?", "Count the {plural} whose {field} is {value}.")
HOW_MANY_OVER = (
    "How many {plural} have a {field} {limit} {number}?",
    "Count the {plural} with a {field} {limit} {number}.",
)
HOW_MANY_ALL = ("How many {plural} are there?", "Count the {plural} listed.")
LEVELS = ["none", "one", "two", "three", "four", "five", "six or more"]
LIMITS = ("above", "below", "at least", "at most")


def within(limit: str, value: int, number: int) -> bool:
    """Whether `value` is above, below, at least or at most `number`."""
    return {
        "above": value > number,
        "below": value < number,
        "at least": value >= number,
        "at most": value <= number,
    }[limit]


def _numbers(rng: random.Random, written: Written) -> tuple[str, dict[str, int]]:
    field = rng.choice(written.numbers)
    return field, {key: int(row[field]) for key, row in written.rows.items()}


def compare(rng: random.Random) -> Item:
    """The most and the least, the second most, one against another or against a number."""
    hard = ease(rng)
    written = table(rng, n=rng.randint(2, (3, 5, 10)[hard]), apart=hard < 2)

    def extreme() -> Asked | None:
        field, numbers = _numbers(rng, written)
        largest = rng.random() < 0.5
        ranked = sorted(numbers, key=lambda key: numbers[key], reverse=largest)
        rank = rng.choice((0, 0, 0, 1)) if len(ranked) > 2 else 0
        if Counter(numbers.values())[numbers[ranked[rank]]] > 1 or (rank and numbers[ranked[0]] == numbers[ranked[1]]):
            return None
        most = ("second " if rank else "") + rng.choice(("highest", "largest") if largest else ("lowest", "smallest"))
        text = fill(rng, MOST[:2], noun=written.noun, most=most, field=field)
        if rng.random() < 0.25:
            text = fill(rng, MOST[2:], most=most, field=field)
            return pick(
                rng, text, str(numbers[ranked[rank]]), [str(each) for each in numbers.values()], abstain_share=0
            )
        return pick(rng, text, ranked[rank], written.keys, abstain_share=0.04)

    def pair() -> Asked | None:
        field, numbers = _numbers(rng, written)
        key, other = rng.sample(written.keys, 2)
        more = rng.choice(("higher", "larger", "lower", "smaller"))
        if numbers[key] == numbers[other]:
            return None
        gold = (numbers[key] > numbers[other]) is (more in ("higher", "larger"))
        return noul(fill(rng, MORE, field=field, noun=written.noun, key=key, other=other, more=more)), gold

    def limit() -> Asked:
        field, numbers = _numbers(rng, written)
        key = rng.choice(written.keys)
        steps = (-50, -10, -5, -2, -1, 0, 1, 2, 5, 10, 50) if hard == 2 else (-numbers[key] // 2, numbers[key], 100)
        number = max(0, numbers[key] + rng.choice(steps))
        word = rng.choice(LIMITS)
        text = fill(rng, LIMIT, field=field, noun=written.noun, key=key, limit=word, number=number)
        return noul(text), within(word, numbers[key], number)

    return item(written.state, several(rng, [extreme, extreme, pair, limit], n_shared(rng)))


def count(rng: random.Random) -> Item:
    """How many records there are, have a value, or are over a limit; as a number or as a level."""
    hard = ease(rng)
    written = table(rng, n=rng.randint(2, (4, 7, 12)[hard]), apart=hard == 0, few=rng.random() < 0.7)

    def ask() -> Asked:
        kind = rng.random()
        if kind < 0.55:
            field = rng.choice(written.words)
            value = Counter(written.column(field)).most_common(2)[-1 if rng.random() < 0.4 else 0][0]
            n = written.column(field).count(value)
            text = fill(rng, HOW_MANY, plural=written.plural, field=field, value=value)
        elif kind < 0.85:
            field, numbers = _numbers(rng, written)
            at = rng.choice(sorted(numbers.values()))
            limit, number = rng.choice(LIMITS), max(0, at + rng.choice((-1, 0, 1, 3) if hard else (-2, 2)))
            n = sum(within(limit, each, number) for each in numbers.values())
            text = fill(rng, HOW_MANY_OVER, plural=written.plural, field=field, limit=limit, number=number)
        else:
            n = len(written.keys)
            text = fill(rng, HOW_MANY_ALL, plural=written.plural)
        return _number(rng, text, n)

    return item(written.state, several(rng, [ask], n_shared(rng)))


def _number(rng: random.Random, text: str, n: int) -> Asked:
    if rng.random() < 0.25:
        return score(text, LEVELS), min(n, len(LEVELS) - 1)
    if n <= 10 and rng.random() < 0.2:
        names = ["none", *words.SMALL[1:]]
        return pick(rng, text, names[n], names[: n + 4], most=8, abstain_share=0.05)
    return pick(rng, text, str(n), near_numbers(rng, n, 8), most=8, abstain_share=0.08)


def dates(rng: random.Random) -> Item:
    """The earliest and the latest, before and after a day, days apart, months."""
    hard = ease(rng)
    month_of = words.day(rng).replace(day=1)

    def near(rng: random.Random) -> datetime.date:
        return month_of + datetime.timedelta(days=rng.randrange(28))

    day = near if hard == 0 else words.day
    written = table(rng, n=rng.randint(2, (3, 4, 8)[hard]), dated=True, short=True, day=day)
    field = written.date
    assert field is not None, written
    when = {key: datetime.date.fromisoformat(str(row[field])) for key, row in written.rows.items()}

    def extreme() -> Asked | None:
        early = rng.random() < 0.5
        ranked = sorted(when, key=lambda key: when[key], reverse=not early)
        if when[ranked[0]] == when[ranked[1]]:
            return None
        words_of = ("earliest", "first") if early else ("latest", "last")
        text = f"Which {written.noun} has the {rng.choice(words_of[:1])} {field}?"
        if rng.random() < 0.3:
            text = f"What is the {words_of[0]} {field}?"
            return pick(
                rng, text, when[ranked[0]].isoformat(), [day.isoformat() for day in when.values()], abstain_share=0
            )
        return pick(rng, text, ranked[0], written.keys, abstain_share=0)

    def side() -> Asked:
        key = rng.choice(written.keys)
        steps = ((-9, -5, 5, 9), (-800, -400, 400, 800), (-400, -40, -7, -1, 1, 5, 31, 365))[hard]
        day = when[key] + datetime.timedelta(days=rng.choice(steps))
        said = rng.choice((day.isoformat(), words.long_date(day))) if hard == 2 else day.isoformat()
        before = rng.random() < 0.5
        text = f"Is the {field} of {written.noun} {key} {'before' if before else 'after'} {said}?"
        return noul(text), (when[key] < day) is before

    def order() -> Asked | None:
        key, other = rng.sample(written.keys, 2)
        before = rng.random() < 0.5
        if when[key] == when[other]:
            return None
        text = f"Is the {field} of {key} {'earlier' if before else 'later'} than that of {other}?"
        return noul(text), (when[key] < when[other]) is before

    def month() -> Asked:
        key = rng.choice(written.keys)
        text = f"In which month is the {field} of {written.noun} {key}?"
        return pick(rng, text, words.MONTHS[when[key].month - 1], words.MONTHS, abstain_share=0.05)

    def year() -> Asked:
        key = rng.choice(written.keys)
        text = f"In which year is the {field} of {written.noun} {key}?"
        return pick(rng, text, str(when[key].year), map(str, range(2017, 2030)), abstain_share=0.05)

    def written_out() -> Asked:
        key = rng.choice(written.keys)
        text = f"How is the {field} of {key} written out?"
        wrong = [words.long_date(day) for day in when.values()]
        wrong += [words.long_date(when[key] + datetime.timedelta(days=step)) for step in (1, -1, 30, -31, 365)]
        return pick(rng, text, words.long_date(when[key]), wrong, abstain_share=0.05)

    return item(written.state, several(rng, [extreme, extreme, side, order, month, year, written_out], n_shared(rng)))


BANDS = (
    ("temperature", "degrees"), ("waiting time", "minutes"), ("distance", "kilometres"), ("load", "percent"),
    ("noise", "decibels"), ("score", "points"), ("speed", "knots"), ("depth", "metres"),
)  # fmt: skip
NAMES_OF_LEVELS = {
    2: ["normal", "too high"],
    3: ["low", "medium", "high"],
    4: ["low", "moderate", "high", "critical"],
    5: ["very low", "low", "medium", "high", "very high"],
}


def levels(rng: random.Random) -> Item:
    """The level that a number falls into; its bounds stand in the state or in the levels."""
    quantity, unit = rng.choice(BANDS)
    n = rng.randint(2, 5)
    bounds = sorted(rng.sample(range(5, 200, rng.choice((1, 5, 10))), n - 1))
    value = max(0, rng.choice((rng.randint(0, 220), rng.choice(bounds) + rng.choice((-2, -1, 0, 1, 2)))))
    level = sum(value >= bound for bound in bounds)
    reading: dict[str, object] = {"sensor": words.code(rng), quantity: value, "unit": unit}
    said = rng.choice((f"The {quantity} is {value} {unit}.", f"Measured today: {quantity} {value} {unit}."))
    ranges = [f"below {bounds[0]}", *(f"{a} to {b - 1}" for a, b in itertools.pairwise(bounds))]
    ranges.append(f"{bounds[-1]} or more")
    names = NAMES_OF_LEVELS[n]
    text = rng.choice(
        (f"How high is the {quantity}?", f"Grade the {quantity}.", f"Which level does the {quantity} have?")
    )
    kind = rng.random()
    gold: Gold = level
    if kind < 0.35:
        state: object = reading if rng.random() < 0.5 else said
        question = score(text, [f"{name}: {span}" for name, span in zip(names, ranges, strict=True)])
    elif kind < 0.55:
        state = reading if rng.random() < 0.5 else said
        question = score(text, ranges)
    else:
        rules = dict(zip(names, ranges, strict=True))
        listed = "; ".join(f"{name}: {span}" for name, span in rules.items())
        state = {"levels": rules, "reading": reading} if rng.random() < 0.5 else f"Levels in {unit}: {listed}. {said}"
        question, gold = (score(text, names), level) if kind < 0.8 else (choice(text, names), names[level])
    asked: list[Asked] = [(question, gold)]
    if rng.random() < 0.4:
        limit, number = rng.choice(LIMITS), max(0, value + rng.choice((-20, -3, -1, 0, 1, 3, 20)))
        asked.append((noul(f"Is the {quantity} {limit} {number} {unit}?"), within(limit, value, number)))
    return item(state, asked)
