"""What odds are stated of: urns, raffles, wheels, shares, records of the past; gold is drawn by exactly those odds.

It refuses to estimate: "15 of the last 20" is a chance of 15 in 20, and no more is read into it. Trap: all questions of
an item are about one and the same draw, so they are right together; whoever tests the odds takes one question an item.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from decider.data.families import words
from decider.data.families.daily.banks import Bank, Entry, bank, fill
from decider.data.families.making import Asked, item, several
from decider.data.items import Item, choice, noul, score

PACKAGE = "decider.data.families.uncertain"


def scenes(name: str, held: bool) -> Bank:
    """A bank of this package."""
    return bank(name, held, PACKAGE)


def split_line(entry: Entry, field: str) -> list[str]:
    """A field that is one line of several parts."""
    (line,) = entry[field]
    return line.split(" | ")


def chance(rng: random.Random, held: bool) -> Item:
    """One scene: outcomes with a number each, or how often something happened."""
    found = scenes("chance", held)
    counted = [entry for entry in found.values() if "unit" in entry]
    rates = [entry for entry in found.values() if "unit" not in entry]
    return _counted(rng, rng.choice(counted)) if rng.random() < 0.5 else _rate(rng, rng.choice(rates))


def _counted(rng: random.Random, entry: Entry) -> Item:
    outcomes = split_line(entry, "outcomes")
    if outcomes == ["names"]:
        outcomes = rng.sample(words.NAMES, 6)
    n = rng.randint(2, len(outcomes))
    # Scales keep their order.
    names = sorted(rng.sample(outcomes, n), key=outcomes.index)
    (unit,) = entry["unit"]
    counts = _hundred(rng, n) if "%" in unit else _weights(rng, n)
    odds = dict(zip(names, counts, strict=True))
    drawn = rng.choices(names, counts)[0]
    told = list(odds)
    if "grade" not in entry:
        rng.shuffle(told)
    known = {"name": rng.choice([name for name in words.NAMES if name not in names])}
    if rng.random() < 0.25:
        heading, how = split_line(entry, "json")
        state: object = {heading: {name: odds[name] for name in told}, how: 1}
    else:
        listed = words.list_of([unit.format(n=odds[name], x=name) for name in told])
        state = fill(rng, rng.choice(entry["says"]), known | {"counts": listed})

    def which() -> Asked:
        return choice(fill(rng, rng.choice(entry["ask"]), known), rng.sample(names, n)), drawn

    def one() -> Asked:
        about = rng.choice(names)
        return noul(fill(rng, rng.choice(entry["one"]), {"x": about})), drawn == about

    def other() -> Asked:
        about = rng.choice(names)
        return noul(fill(rng, rng.choice(entry["other"]), {"x": about})), drawn != about

    def grade() -> Asked:
        return score(rng.choice(entry["grade"]), names), names.index(drawn)

    asks = [which, which, one, other] + ([grade, grade, grade] if "grade" in entry else [])
    return item(state, several(rng, asks, rng.choice((1, 2, 3))))


def _weights(rng: random.Random, n: int) -> list[int]:
    """A number for each outcome: all the same, one that outweighs the rest, or any; now and then none at all."""
    kind = rng.random()
    if kind < 0.15:
        return [rng.randint(1, 9)] * n
    found = [rng.randint(1, 12) for _ in range(n)]
    if kind < 0.45:
        found[rng.randrange(n)] += rng.randint(10, 80)
    if kind > 0.92 and n > 2:
        found[rng.randrange(n)] = 0
    return found


def _hundred(rng: random.Random, n: int) -> list[int]:
    """Per cent of each outcome, 100 together."""
    step = rng.choice((1, 5, 10))
    cuts = sorted(rng.sample(range(step, 100, step), n - 1))
    return [end - start for start, end in zip([0, *cuts], [*cuts, 100], strict=True)]


def _rate(rng: random.Random, entry: Entry) -> Item:
    n = rng.choice((3, 4, 5, 6, 8, 10, 10, 12, 20, 20, 25, 40, 50, 100))
    k = rng.choice((0, n)) if rng.random() < 0.04 else rng.randint(1, n - 1)
    text = rng.choice(entry["says"])
    if "{p}" in text:
        n, k = 100, rng.choice((rng.randint(1, 99), 5 * rng.randint(1, 19), 10 * rng.randint(1, 9)))
    happens = rng.randrange(n) < k
    known = {"n": str(n), "k": str(k), "m": str(n - k), "p": str(k), "name": rng.choice(words.NAMES)}
    if rng.random() < 0.2:
        heads: Sequence[str] = split_line(entry, "json")
        state: object = {heads[0]: n, heads[1]: k, "question": heads[2]}
    else:
        state = fill(rng, text, known)

    def yes() -> Asked:
        return noul(fill(rng, rng.choice(entry["yes"]), known)), happens

    def no() -> Asked:
        return noul(fill(rng, rng.choice(entry["no"]), known)), not happens

    def which() -> Asked:
        names = split_line(entry, "pair")
        gold = names[0 if happens else 1]
        rng.shuffle(names)
        return choice(rng.choice(entry["which"]), names), gold

    return item(state, several(rng, [yes, yes, no, which], rng.choice((1, 2, 3))))
