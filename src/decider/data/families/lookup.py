"""Look-up in records: by key, by position, by value, among up to 255 options, and whether a fact is there at all.

It refuses to know how records are written. Trap: a question by value has one answer only if one record has that value.
"""

from __future__ import annotations

import random
from collections import Counter

from decider.data.families import words
from decider.data.families.making import ABSTAIN_RIGHT, NOT_STATED, Asked, item, n_shared, pick, several
from decider.data.families.tables import Value, Written, table
from decider.data.items import Item, choice, noul

BY_KEY = (
    "What is the {field} of {noun} {key}?",
    "{Field} of {key}?",
    "Give the {field} recorded for {key}.",
    "Which {field} does the record of {key} show?",
    "Look up {noun} {key}: what is the {field}?",
    "Choose the {field} of {noun} {key}.",
)
BY_PLACE = (
    "What is the {field} of the {place} {noun} listed?",
    "Take the {place} record: what is its {field}?",
    "{Field} of the {place} {noun} in the list?",
)
BY_VALUE = (
    "Which {noun} has the {field} {value}?",
    "For which {noun} is the {field} {value}?",
    "Find the {noun} whose {field} is {value}.",
)
BY_TWO = (
    "Which {noun} has the {field} {value} as well as the {other} {second}?",
    "Find the {noun} whose {field} is {value} while the {other} is {second}.",
)
IS_IT = (
    "Is the {field} of {noun} {key} {value}?",
    "Does the record of {key} show {value} as the {field}?",
    "True or false: the {field} of {noun} {key} is {value}.",
    "Does {noun} {key} have the {field} {value}?",
)
IS_IT_NOT = (
    "Is the {field} of {noun} {key} something other than {value}?",
    "True or false: the {field} of {noun} {key} is not {value}.",
    "Is it wrong to say that the {field} of {key} is {value}?",
)
IS_STATED = (
    "Does the text say what the {field} of {noun} {key} is?",
    "Can the {field} of {key} be found here?",
    "Is there enough here to tell the {field} of {noun} {key}?",
)
WIDE = (9, 10, 12, 14, 16, 16, 20, 24, 32, 32, 48, 64, 64, 64, 96, 128)


def fill(rng: random.Random, templates: tuple[str, ...], **parts: object) -> str:
    """One of the templates with its blanks filled; `{Field}` is `{field}` with a capital."""
    field = str(parts.get("field", ""))
    return rng.choice(templates).format(Field=words.capital(field), **parts)


def values(written: Written, field: str) -> list[str]:
    """The column of a field, as options."""
    return [str(value) for value in written.column(field)]


def lookup(rng: random.Random) -> Item:
    """A field of a record named by its key."""
    written = table(rng, dated=rng.random() < 0.2)
    return item(written.state, several(rng, [lambda: by_key(rng, written)]))


def by_key(
    rng: random.Random, written: Written, abstain_share: float = 0.12, abstain_right: float = ABSTAIN_RIGHT
) -> Asked:
    """The answer is a value of its column, the others of this or another column, or made up."""
    key = rng.choice(written.keys)
    field = rng.choice(list(written.rows[key]))
    text = fill(rng, BY_KEY, field=field, noun=written.noun, key=key)
    gold = str(written.rows[key][field])
    return pick(rng, text, gold, _wrong(rng, written, field), abstain_share=abstain_share, abstain_right=abstain_right)


def _wrong(rng: random.Random, written: Written, field: str) -> list[str]:
    column = values(written, field)
    if len(set(column)) < 3 or rng.random() < 0.2:
        column += [str(_like(rng, value)) for value in written.column(field) for _ in range(2)]
    while len(set(column)) < 2:
        column.append(str(_like(rng, written.column(field)[0])))
    return column


def _like(rng: random.Random, value: Value) -> Value:
    """Another value of the same look."""
    if isinstance(value, int):
        return max(0, value + rng.choice((-30, -7, -2, -1, 1, 2, 5, 10, 40)))
    if value[:1].isdigit():
        return words.day(rng).isoformat()
    pools = (words.NAMES, words.CITIES, words.COLOURS, words.DEPARTMENTS, words.STATUSES, words.PRIORITIES)
    for pool in (*pools, words.SPECIES, words.LANGUAGES, words.QUEUES, words.THINGS):
        if value in pool:
            return rng.choice(pool)
    return words.code(rng) if "-" in value else words.made_up(rng)


def lookup_position(rng: random.Random) -> Item:
    """A field of the first, third, last … record."""
    written = table(rng, ordered=True, n=rng.randint(2, 8))

    def ask() -> Asked:
        place = rng.randrange(len(written.keys))
        names = [words.ORDINALS[place]]
        if place == len(written.keys) - 1:
            names += ["last", "last"]
        if place == len(written.keys) - 2:
            names += ["second to last"]
        field = rng.choice([written.noun, *written.words, *written.numbers])
        if field == written.noun:
            text = f"Which {field} is listed {names[-1] if names[-1] == 'last' else names[0]}?"
            return pick(rng, text, written.keys[place], written.keys)
        text = fill(rng, BY_PLACE, field=field, noun=written.noun, place=rng.choice(names))
        return pick(rng, text, values(written, field)[place], _wrong(rng, written, field))

    return item(written.state, several(rng, [ask]))


def find_record(rng: random.Random) -> Item:
    """The record with a value, or with two."""
    while True:
        written = table(rng, n=rng.randint(3, 12))
        asked = [one for one in (_find(rng, written) for _ in range(rng.choice((1, 1, 2, 3)))) if one is not None]
        if asked:
            return item(written.state, asked)


def _find(rng: random.Random, written: Written) -> Asked | None:
    key = rng.choice(written.keys)
    row = written.rows[key]
    parts: dict[str, object] = {"noun": written.noun}
    fields = [*written.words, *written.numbers]
    field = rng.choice(fields)
    if Counter(written.column(field))[row[field]] == 1:
        text = fill(rng, BY_VALUE, field=field, value=row[field], **parts)
        return pick(rng, text, key, written.keys, abstain_share=0.06)
    other = rng.choice(fields)
    same = [each for each in written.rows.values() if each[field] == row[field] and each[other] == row[other]]
    if other == field or len(same) > 1:
        return None
    text = fill(rng, BY_TWO, field=field, value=row[field], other=other, second=row[other], **parts)
    return pick(rng, text, key, written.keys, abstain_share=0.06)


def verify(rng: random.Random) -> Item:
    """Whether a record has a value; asked positively and negatively."""
    written = table(rng, dated=rng.random() < 0.15)

    def ask() -> Asked:
        key = rng.choice(written.keys)
        field = rng.choice(list(written.rows[key]))
        true = written.rows[key][field]
        value = true if rng.random() < 0.5 else rng.choice([*written.column(field), _like(rng, true)])
        negated = rng.random() < 0.4
        text = fill(rng, IS_IT_NOT if negated else IS_IT, field=field, noun=written.noun, key=key, value=value)
        return noul(text), (value == true) is not negated

    return item(written.state, several(rng, [ask]))


def stated(rng: random.Random) -> Item:
    """Whether a fact is in the records at all, and look-up with a way out; some records lack a field."""
    whole = table(rng, n=rng.randint(2, 7))
    fields = [*whole.words, *whole.numbers]
    rows = {key: {f: row[f] for f in fields if rng.random() < 0.6} for key, row in whole.rows.items()}
    rows = {key: row or {fields[0]: whole.rows[key][fields[0]]} for key, row in rows.items()}
    if rng.random() < 0.4:
        state: object = {whole.plural: [{whole.noun: key, **row} for key, row in rows.items()]}
    else:
        facts = [
            f"The {field} of {whole.noun} {key} is {value}."
            for key, row in rows.items()
            for field, value in row.items()
        ]
        if rng.random() < 0.5:
            rng.shuffle(facts)
        state = " ".join(facts)

    def ask() -> Asked:
        missing = [(key, field) for key, row in rows.items() for field in fields if field not in row]
        there = [(key, field) for key, row in rows.items() for field in row]
        yes_no = rng.random() < 0.6
        known = not missing or rng.random() < (0.5 if yes_no else 1 - ABSTAIN_RIGHT)
        key, field = rng.choice(there if known else missing)
        if yes_no:
            return noul(fill(rng, IS_STATED, field=field, noun=whole.noun, key=key)), known
        text = fill(rng, BY_KEY, field=field, noun=whole.noun, key=key)
        wrong = [str(row[field]) for row in rows.values() if field in row] or [str(_like(rng, whole.rows[key][field]))]
        way_out = rng.choice(NOT_STATED)
        gold = str(rows[key][field]) if known else way_out
        names = list(dict.fromkeys([gold, way_out, *wrong]))[: rng.randint(2, 8)]
        if len(names) == 1:
            names.append(str(_like(rng, whole.rows[key][field])))
        rng.shuffle(names)
        return choice(text, list(dict.fromkeys(names))), gold

    return item(state, several(rng, [ask], n_shared(rng)))


def none_fits(rng: random.Random) -> Item:
    """Look-up where an option says that no other is right, and often is."""
    written = table(rng)
    return item(
        written.state, several(rng, [lambda: by_key(rng, written, abstain_share=1.0, abstain_right=0.5)], n_shared(rng))
    )


def lookup_wide(rng: random.Random) -> Item:
    """Look-up among many options: 9 to 128, at times 255."""
    return _wide(rng, 255 if rng.random() < 0.02 else rng.choice(WIDE))


def lookup_64(rng: random.Random) -> Item:
    """Look-up among 64 options."""
    return _wide(rng, 64)


def _wide(rng: random.Random, n: int) -> Item:
    written = table(rng, n=min(n, rng.choice((4, 8, 16, 24, 32))), short=True)
    (field,) = written.words
    # With 64 options and more, the state has fewer records than the question options: the rest are of its look.
    if rng.random() < 0.5:
        unique = [key for key in written.keys if written.column(field).count(written.rows[key][field]) == 1]
        if unique:
            key = rng.choice(unique)
            text = fill(rng, BY_VALUE, field=field, value=written.rows[key][field], noun=written.noun)
            return item(written.state, [_among(rng, n, text, key, written.keys)])
    key = rng.choice(written.keys)
    text = fill(rng, BY_KEY, field=field, noun=written.noun, key=key)
    return item(written.state, [_among(rng, n, text, str(written.rows[key][field]), values(written, field))])


def _among(rng: random.Random, n: int, text: str, gold: str, others: list[str]) -> Asked:
    names = list(dict.fromkeys([gold, *others]))[:n]
    start = gold
    while len(names) < n:
        other = str(_like(rng, start))
        if rng.random() < 0.3 or other in names:
            other = words.code(rng) if "-" in start else words.made_up(rng)
        if other not in names:
            names.append(other)
    rng.shuffle(names)
    return choice(text, names), gold
