"""What a record of everyday business says, asked as people ask: orders, loans, sensors, stock lists, and what is set,
open, too late, above a limit, in a list, most, missing.

It refuses to know wordings: `texts/fields.toml` has the kinds of records, their fields, tests and questions. Trap: gold
and the sign of a wording are drawn first and a record is sought that has them; were gold left to the record, a wording
would give it away, for most kinds of things are more often so than not.
"""

from __future__ import annotations

import datetime
import operator
import random
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from decider.data.families import words
from decider.data.families.daily.banks import Bank, Entry, bank, fill
from decider.data.families.daily.records import Fields, Record, Value, written
from decider.data.families.making import Asked, item, near_numbers, pick
from decider.data.items import Item, noul

Blanks: TypeAlias = Mapping[str, str]

N_TRIES = 30
"""How many records are drawn in search of one that has all the answers wanted."""
NULL_SHARE, ZERO_SHARE, SAME_SHARE = 0.5, 0.35, 0.25
"""Of a field that may be empty; of a number that may be out; of a number near another, how often both are the same."""
THINGS = (
    *("chairs", "desks", "lamps", "shelves", "mirrors", "plants", "screens", "printers", "cups", "plates", "stools"),
    *("benches", "rugs", "clocks", "boxes", "folders", "keyboards", "fans", "ladders", "bins", "sofas", "cushions"),
)
COMPARE: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {"gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le, "eq": operator.eq}
)
LIST_WEIGHT = 2.5
"""How much more often a kind that is a list is drawn: there are few of them."""
BARE_SHARE = 0.5
"""How often a list stands without the fields above it, where no question is about those."""


def fields(rng: random.Random, held: bool) -> Item:
    """One record with two to four questions."""
    found = bank("fields", held)
    kinds = [key for key in found if " " not in key]
    kind = rng.choices(kinds, [LIST_WEIGHT if "rows" in found[key] else 1 for key in kinds])[0]
    keys = [key for key in found if key.startswith(f"{kind} ")]
    keys = rng.sample(keys, min(len(keys), rng.choice((2, 2, 3, 3, 4))))
    wants = {key: (rng.random() < 0.5, rng.random() < 0.5, rng.random()) for key in keys}
    best: tuple[int, Record, list[Asked]] | None = None
    while best is None or not best[2]:
        for _ in range(N_TRIES):
            record = _drawn(rng, found, kind)
            tried = [_asked(rng, found, key, record, wants[key]) for key in keys]
            met = sum(wanted for _, wanted in tried)
            if best is None or met > best[0]:
                best = met, record, [each for each, _ in tried if each is not None]
    _, record, asked = best
    tests = " ".join(found[key]["test"][0] for key in keys)
    if record.rows and not any(name in tests.split() for name in record.fields) and rng.random() < BARE_SHARE:
        record = Record({}, record.rows, record.pools, record.naming)
    return item(written(rng, kind, record), asked)


def _drawn(rng: random.Random, found: Bank, kind: str) -> Record:
    today = words.day(rng, 2023, 2027)
    specs = dict(part.split(": ", 1) for part in _parts(found[kind], "fields"))
    made = _row(rng, specs, today)
    pools = {name: _pool(spec) for name, spec in specs.items() if spec.startswith("list")}
    rows: dict[str, Fields] = {}
    heading = ""
    if "rows" in found[kind]:
        (heading, naming), *columns = (part.split(": ", 1) for part in _parts(found[kind], "rows"))
        rows = {_name(rng, naming): _row(rng, dict(columns), today) for _ in range(rng.choice((2, 3, 3, 4, 4, 5, 7)))}
        if len(rows) < 2:
            return _drawn(rng, found, kind)
    return Record(made, rows, pools, heading)


def _parts(entry: Entry, field: str) -> list[str]:
    """A field that is one line of several parts."""
    (line,) = entry[field]
    return line.split(" | ")


def _name(rng: random.Random, naming: str) -> str:
    if naming == "sku":
        return f"{rng.choice('ABCDEFGHKM')}{rng.randrange(1, 100)}"
    return rng.choice(THINGS if naming == "thing" else words.NAMES)


def _pool(spec: str) -> tuple[str, ...]:
    return tuple(spec.split(" ", 1)[1].split("/"))


def _row(rng: random.Random, specs: Mapping[str, str], today: datetime.date) -> dict[str, Value]:
    made: dict[str, Value] = {}
    for name, spec in specs.items():
        if not spec.startswith("near"):
            made[name] = _value(rng, spec, today)
    for name, spec in specs.items():
        if spec.startswith("near"):
            made[name] = _near(rng, made[spec.split()[1]])
    for name, spec in specs.items():
        if " if " in spec and made[spec.split(" if ")[1]] is None:
            made[name] = None
    return {name: made[name] for name in specs}


def _near(rng: random.Random, other: Value) -> int | float:
    assert isinstance(other, int | float)
    if rng.random() < SAME_SHARE:
        return other
    far = max(4, round(other * 0.6))
    step = rng.choice((rng.randint(1, 3), rng.randint(1, far))) * rng.choice((-1, 1))
    return abs(other + (step if other + step >= 0 else -step))


def _value(rng: random.Random, spec: str, today: datetime.date) -> Value:
    word, _, rest = spec.partition(" ")
    if word.endswith("?") and rng.random() < NULL_SHARE:
        return None
    word = word.removesuffix("?")
    if word in ("of", "list"):
        pool = _pool(spec)
        return rng.choice(pool) if word == "of" else rng.sample(pool, rng.choice((0, 0, 1, 2, 2, 3)))
    low, high = map(int, rest.split()) if re.fullmatch(r"-?\d+ -?\d+", rest) else (0, 0)
    plain: dict[str, Callable[[], Value]] = {
        "id": lambda: rng.choice((words.code(rng), rng.randint(1000, 9999))),
        "code": lambda: words.code(rng),
        "name": lambda: rng.choice(words.NAMES),
        "names": lambda: rng.sample(words.NAMES, rng.choice((0, 0, 1, 2, 3))),
        "flag": lambda: rng.random() < 0.5,
        "int": lambda: rng.choice((low, rng.randint(low, high), rng.randint(low, high))),
        "low": lambda: 0 if rng.random() < ZERO_SHARE else rng.randint(low, high),
        "mark": lambda: None if rng.random() < 0.15 else rng.randint(low, high),
        "dec": lambda: rng.randint(2 * low, 2 * high) / 2,
        "money": lambda: rng.randint(3, 90),
        "today": lambda: today,
        "day": lambda: today + datetime.timedelta(rng.choice((low, high, *(min(high, n) for n in (-1, 0, 1))))),
        "time": lambda: f"{rng.randint(low, high):02}:{rng.choice(('00', '00', '15', '30', '45'))}",
    }
    return plain[word]()


# Answers.


def _size(value: Value | datetime.date) -> float:
    """A number, a day or a time of day as what can be compared."""
    if isinstance(value, datetime.date):
        return value.toordinal()
    if isinstance(value, str) and ":" in value:
        hours, minutes = value.split(":")
        return int(hours) * 60 + int(minutes)
    assert isinstance(value, str | int | float), value
    return float(value)


def holds(record: Record, test: str, known: Blanks) -> bool:
    """Whether all parts of a test hold of a record; `known` fills the test's blanks."""
    return all(_holds(record, part, known) for part in re.sub(r"\{(\w+)\}", lambda m: known[m[1]], test).split(" & "))


def _holds(record: Record, part: str, known: Blanks) -> bool:
    if part.startswith("!"):
        return not _holds(record, part[1:], known)
    word, first, *rest = part.split(" ")
    values = record.fields

    def operand(name: str) -> float:
        return _size(values.get(name, name))

    if word in COMPARE:
        return COMPARE[word](operand(first), operand(rest[0]))
    if word in ("rowgt", "rowge"):
        value = record.rows[known["name"]][rest[0]]
        return value is not None and COMPARE[word[3:]](_size(value), operand(rest[1]))
    if word == "any":
        return any(row[first] == int(rest[0]) for row in record.rows.values())
    value = values[first]
    if word in ("set", "flag"):
        return value is not None and value is not False
    assert isinstance(value, list), part
    if word == "overlap":
        other = values[rest[0]]
        assert isinstance(other, list)
        return bool(set(value) & set(other))
    return known["name"] in value if word == "has" else not value


def _asked(
    rng: random.Random, found: Bank, key: str, record: Record, want: tuple[bool, bool, float]
) -> tuple[Asked | None, bool]:
    """A question, or None where it does not fit the record, and whether its answer is the one wanted."""
    entry = found[key]
    (test,) = entry["test"]
    positive, gold, place = want
    if "text" in entry:
        return _which(rng, entry["text"], test, record, place)
    positive = positive or "no" not in entry
    text = rng.choice(entry["yes" if positive else "no"])
    known: Blanks | None = None
    for known in _blanks(rng, test, record):
        if holds(record, test, known) == (positive == gold):
            break
    if known is None:
        return None, False
    answer = holds(record, test, known) == positive
    return (noul(fill(rng, text, known)), answer), answer == gold


def _blanks(rng: random.Random, test: str, record: Record) -> Iterable[Blanks]:
    """What a test's blanks may be filled with: names of the list, numbers around the one compared."""
    word, first, *rest = test.split(" ")
    names: list[str] = [""]
    if "{name}" in test:
        names = rng.sample(list(record.rows), len(record.rows)) if record.rows else list(record.pools[first])
        rng.shuffle(names)
    for name in names:
        if word.startswith("row") and record.rows[name][rest[0]] is None:
            continue
        if "{n}" not in test:
            yield {"name": name}
            continue
        size = _size(record.rows[name][rest[0]] if word == "rowgt" else record.fields[first])
        size = int(size // 60 if ":00" in test else size)
        steps = [0, -1, 1, 2, -2, rng.randint(3, 5 + size // 2), -rng.randint(3, 5 + size // 2)]
        for step in rng.sample(steps, len(steps)):
            if size + step > 0 and (":00" not in test or size + step < 24):
                yield {"name": name, "n": str(size + step)}


def _which(
    rng: random.Random, texts: tuple[str, ...], test: str, record: Record, place: float
) -> tuple[Asked | None, bool]:
    word, rest = test.split(" ", 1) if " " in test else (test, "")
    known: Blanks = {"name": rng.choice(list(record.rows))} if "{name}" in test else {}
    met = True
    if word == "which":
        labels = [part.split(" = ") for part in rest.split(" / ")]
        options = [label for label, *_ in labels]
        gold = next(label for label, *tests in labels if not tests or holds(record, tests[0], known))
        met = gold == options[int(place * len(options))]
    elif word == "value":
        field, names = rest.split(" ")
        options, gold = names.split("/"), str(record.fields[field])
    elif word in ("most", "least", "one", "unset"):
        column, *_ = rest.split(" ")
        fitting = _extreme(record, word, column)
        options = list(record.rows)
        if len(fitting) != 1:
            return None, False
        (gold,) = fitting
    else:
        number = _number(record, word, rest, known)
        if number is None:
            return None, False
        gold = str(number)
        there = [str(value) for row in record.rows.values() for value in row.values() if isinstance(value, int)]
        near = near_numbers(rng, number, 4 if number < 9 else 6)
        options = [*near, *(there if word == "cell" else ())]
    text = fill(rng, rng.choice(texts), known)
    return pick(rng, text, gold, options, most=8, abstain_share=0.1, abstain_right=0.08), met


def _extreme(record: Record, word: str, column: str) -> list[str]:
    values = {name: row[column] for name, row in record.rows.items()}
    if word in ("one", "unset"):
        return [name for name, value in values.items() if value == (0 if word == "one" else None)]
    sizes = {name: _size(value) for name, value in values.items() if value is not None}
    if len(sizes) < 2:
        return []
    end = (max if word == "most" else min)(sizes.values())
    return [name for name, size in sizes.items() if size == end]


def _number(record: Record, word: str, rest: str, known: Blanks) -> int | None:
    first, *others = rest.split(" ")
    if word == "rows":
        return len(record.rows)
    if word == "size":
        value = record.fields[first]
        assert isinstance(value, list)
        return len(value)
    if word == "cell":
        cell = record.rows[known["name"]][first]
        return cell if isinstance(cell, int) else None
    column = [row[first] for row in record.rows.values() if row[first] is not None]
    limit = _size(record.fields.get(others[0], others[0]))
    return sum(_size(value) >= limit if word == "countge" else _size(value) == limit for value in column)
