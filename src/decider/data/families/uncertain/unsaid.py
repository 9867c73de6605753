"""What the state does not contain: another record, a blank field, somebody's taste, plans or secrets; gold by lot.

It refuses to offer a way out: no option says that it cannot be told, and all are alike. Trap: an option that stands
somewhere in the state looks more likely than the others, so none may; and a Noul must be as likely as its opposite, so
it sets one against another ("this rather than that") and never asks for one value of many.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable

from decider.data.families import words
from decider.data.families.daily.banks import DAILY, Entry, bank, fill
from decider.data.families.daily.writing import letter, note
from decider.data.families.making import Asked, item, n_options, several
from decider.data.families.tables import DOMAINS, Value, table, written
from decider.data.families.uncertain.chance import scenes, split_line
from decider.data.items import Item, choice, noul, score


def unsaid(rng: random.Random, held: bool) -> Item:
    """Records that lack what is asked, or a text about something else."""
    found = scenes("unsaid", held)
    if rng.random() < 0.4:
        return _records(rng, found["records"])
    return _private(rng, held, rng.choice([entry for name, entry in found.items() if name != "records"]))


def absent(state: object, values: Iterable[str]) -> list[str]:
    """Those of the values that do not stand in the state as words, whatever their case."""
    text = (state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)).lower()

    def stands(value: str) -> bool:
        # Most do not stand there in any way; patterns are slow to make.
        return value in text and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None

    return [each for each in values if not stands(each.lower())]


def _alike(rng: random.Random, text: str, values: list[str]) -> Asked:
    names = rng.sample(values, min(len(values), n_options(rng, 10)))
    return choice(text, names), rng.choice(names)


def _records(rng: random.Random, entry: Entry) -> Item:
    domain = rng.choice(DOMAINS)
    n = rng.randint(1, 6)
    fields, numbers = rng.sample(list(domain.words), rng.randint(1, 3)), list(domain.numbers)
    rows: dict[str, dict[str, Value]] = {}
    while len(rows) < n + 2:
        draws = {**domain.words, **domain.numbers}
        rows[str(domain.key(rng))] = {field: draws[field](rng) for field in [*fields, *numbers]}
    key, second, *others = rng.sample(list(rows), n + 2)
    kept = {each: rows[each] for each in rows if each in others}
    if rng.random() < 0.5:
        # The record is there, and what is asked of it is not.
        mark = rng.choice(split_line(entry, "blank"))
        for each in (key, second):
            kept[each] = dict.fromkeys(rows[each], mark)
            if (left := rng.choice([*fields, *numbers])) not in numbers and len(fields) > 1:
                kept[each][left] = rows[each][left]
        kept = dict(rng.sample(list(kept.items()), len(kept)))
    state = written(rng, domain, kept, (tuple(fields), tuple(numbers)), dated=False, ordered=False).state

    def known(field: str) -> dict[str, str]:
        return {"field": field, "noun": domain.noun, "key": key, "second": second}

    def value_of() -> tuple[str, list[str]] | None:
        field = rng.choice([*fields, *numbers])
        if key in kept and kept[key][field] == rows[key][field]:
            return None
        draw = domain.words.get(field) or domain.numbers[field]
        drawn = dict.fromkeys(str(draw(rng)) for _ in range(24))
        values = absent(state, drawn)
        return (field, values) if len(values) > 1 else None

    def which() -> Asked | None:
        found = value_of()
        return _alike(rng, fill(rng, rng.choice(entry["ask"]), known(found[0])), found[1]) if found else None

    def pair() -> Asked | None:
        if (found := value_of()) is None:
            return None
        x, y = rng.sample(found[1], 2)
        return noul(fill(rng, rng.choice(entry["pair"]), known(found[0]) | {"x": x, "y": y})), rng.random() < 0.5

    def more() -> Asked:
        return noul(fill(rng, rng.choice(entry["more"]), known(rng.choice(numbers)))), rng.random() < 0.5

    return item(state, several(rng, [which, which, pair, more], rng.choice((1, 2, 3))))


def _private(rng: random.Random, held: bool, entry: Entry) -> Item:
    one, other = rng.sample(words.NAMES, 2)
    known = {"A": one, "B": other}
    options = split_line(entry, "options")
    if options == ["names"]:
        options = rng.sample([name for name in words.NAMES if name not in known.values()], 10)
    while True:
        state = _beside(rng, held, known)
        values = absent(state, options)
        if len(values) > 1 and ("grade" not in entry or len(values) == len(options)):
            break

    def which() -> Asked:
        return _alike(rng, fill(rng, rng.choice(entry["ask"]), known), values)

    def pair() -> Asked:
        x, y = rng.sample(values, 2)
        return noul(fill(rng, rng.choice(entry["pair"]), known | {"x": x, "y": y})), rng.random() < 0.5

    def grade() -> Asked:
        return score(fill(rng, rng.choice(entry["grade"]), known), options), rng.randrange(len(options))

    asks = [which, which, pair, pair] + ([grade, grade] if "grade" in entry else [])
    return item(state, several(rng, asks, rng.choice((1, 2, 3))))


def _beside(rng: random.Random, held: bool, people: dict[str, str]) -> object:
    """A report, a letter, a note or records, in which these people may occur, about something else."""
    kind = rng.random()
    if kind < 0.15:
        return table(rng, n=rng.randint(2, 5)).state
    if kind < 0.5:
        facts = rng.sample(list(bank("facts", held, DAILY).values()), rng.choice((1, 1, 2)))
        filled = people | {"city": rng.choice(words.CITIES), "month": rng.choice(words.MONTHS)}
        text = " ".join(fill(rng, rng.choice(fact["says"]), filled) for fact in facts)
        return text if rng.random() < 0.7 else {rng.choice(("report", "text", "note", "document")): text}
    name = rng.choice(("teams", "meetings", "alerts", "topics", "steps"))
    entries = list(bank(name, held, DAILY).values())
    core = [fill(rng, rng.choice(rng.choice(entries)["text"]), people)]
    if rng.random() < 0.4:
        core.append(f"{people['A']} has read this.")
    return letter(rng, held, core) if name == "teams" else note(rng, held, core, "text")
