"""Small arithmetic: spans of days with a time limit, and sums, differences and products of numbers of things.

It refuses to know tables. Trap: a small model that meets hard items alone learns nothing of them; a third of the items
here are such that one digit settles them, and the hard ones stay.
"""

from __future__ import annotations

import datetime
import random

from decider.data.families import words
from decider.data.families.making import Asked, ease, item, n_shared, near_numbers, pick, several
from decider.data.items import Item, noul


def days(rng: random.Random) -> Item:
    """Spans of days: how long, when it ends, whether a time limit is kept. Easy ones lie within one month."""
    hard = ease(rng)
    start = words.day(rng)
    length = rng.choice((1, 2, 3, 5, 7, 10, 14, 14, 21, 28, 30)[: (5, 8, 11)[hard]])
    steps = ((-5, -3, 3, 5), (-9, -3, -1, 0, 1, 3, 9), (-9, -3, -2, -1, 0, 1, 2, 3, 9))[hard]
    taken = max(0, length + rng.choice(steps))
    if hard == 0:
        start = start.replace(day=rng.randint(1, 27 - max(taken, length)))
    end = start + datetime.timedelta(days=taken)
    write = rng.choice((datetime.date.isoformat, words.long_date)) if hard else datetime.date.isoformat
    who, what = rng.choice(words.NAMES), rng.choice(words.THINGS)
    if rng.random() < 0.5:
        state: object = {
            "item": what,
            "borrower": who,
            "lent on": write(start),
            "back on": write(end),
            "days allowed": length,
        }
    else:
        state = f"{who} borrowed the {what} on {write(start)} for at most {length} days. It came back on {write(end)}."
    due = start + datetime.timedelta(days=length)

    def late() -> Asked:
        text = rng.choice((f"Was the {what} brought back late?", f"Did {who} keep the {what} longer than allowed?"))
        return noul(text), taken > length

    def in_time() -> Asked:
        return noul(f"Did {who} bring the {what} back within the days allowed?"), taken <= length

    def how_long() -> Asked:
        return pick(
            rng, f"For how many days did {who} have the {what}?", str(taken), near_numbers(rng, taken, 10), most=8
        )

    def allowed() -> Asked:
        text = f"For how many days was {who} allowed to have the {what}?"
        return pick(rng, text, str(length), near_numbers(rng, length, 10), most=8)

    def longer() -> Asked:
        number = max(0, taken + rng.choice((-6, -4, 4, 6) if hard < 2 else (-4, -1, 0, 1, 4)))
        return noul(f"Did {who} have the {what} for more than {number} days?"), taken > number

    def last_day() -> Asked:
        wrong = [write(due + datetime.timedelta(days=step)) for step in (-7, -2, -1, 1, 2, 7, 30, -60, 90, 365)]
        return pick(rng, f"On which day was the {what} due back at the latest?", write(due), wrong, most=6)

    return item(
        state, several(rng, [late, late, in_time, how_long, how_long, allowed, longer, last_day], n_shared(rng))
    )


def sums(rng: random.Random) -> Item:
    """Sums, differences and products of small numbers of things. Easy ones stay below 20."""
    hard = ease(rng)
    things = rng.sample(words.THINGS, (2, 3, rng.choice((2, 3, 3, 4)))[hard])
    numbers = {thing: rng.randint(1, (9, 20, rng.choice((5, 10, 20, 50)))[hard]) for thing in things}
    prices = {thing: rng.choice((1, 2, 10)) if hard == 0 else rng.randint(1, (5, 12)[hard - 1]) for thing in things}
    who = rng.choice(words.NAMES)
    if rng.random() < 0.4:
        state: object = {"owner": who, "stock": [{"thing": t, "count": numbers[t], "price": prices[t]} for t in things]}
    else:
        state = " ".join(
            f"{who} has {n} of the thing '{t}' at a price of {prices[t]} each." for t, n in numbers.items()
        )

    def two() -> list[str]:
        return rng.sample(things, 2)

    def together() -> Asked:
        one, other = two()
        n = numbers[one] + numbers[other]
        text = rng.choice(("How many does {who} have of {a} and {b} together?", "Add up the counts of {a} and {b}."))
        return pick(rng, text.format(who=who, a=one, b=other), str(n), near_numbers(rng, n), most=8)

    def more() -> Asked:
        high, low = sorted(two(), key=lambda thing: -numbers[thing])
        n = numbers[high] - numbers[low]
        return pick(rng, f"How many more are there of {high} than of {low}?", str(n), near_numbers(rng, n), most=8)

    def most() -> Asked | None:
        one, other = two()
        if numbers[one] == numbers[other]:
            return None
        return noul(f"Are there more of {one} than of {other}?"), numbers[one] > numbers[other]

    def worth() -> Asked:
        one = rng.choice(things)
        n = numbers[one] * prices[one]
        return pick(rng, f"What are all of {who}'s {one} worth?", str(n), near_numbers(rng, n), most=6)

    def enough() -> Asked:
        one = rng.choice(things)
        wanted = max(1, numbers[one] + rng.choice((-5, -1, 0, 1, 5) if hard == 2 else (-6, -4, 4, 6)))
        return noul(f"Are there enough of {one} to give away {wanted}?"), numbers[one] >= wanted

    return item(state, several(rng, [together, together, more, most, worth, enough], n_shared(rng)))
