"""A record with or without a list, and the ways it is written: JSON, lines, tables, sentences, fields beside the point.

It refuses to know questions. Trap: no value may hold a comma or a bar, and an empty list is written "none", never
"n/a", which would leave open whether it is empty.
"""

from __future__ import annotations

import datetime
import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from decider.data.families import words

Plain: TypeAlias = "str | int | float | bool | None"
Value: TypeAlias = "Plain | datetime.date | list[str]"
Fields: TypeAlias = Mapping[str, Value]

EXTRAS: Mapping[str, tuple[Plain, ...]] = MappingProxyType(
    {
        "source": ("web", "phone", "import"),
        "version": (1, 2, 3, 7),
        "region": words.CITIES,
        "note": (None,),
        "legacy_id": (None, 1045, 88213),
        "test_data": (False,),
        "archived": (False, True),
        "entered_by": words.NAMES,
    }
)
"""Fields that no question is about."""
NULLS = ("none", "-", "not set", "n/a")


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of one thing, and the rows of its list, by name, if it has one."""

    fields: Fields
    rows: Mapping[str, Fields]
    pools: Mapping[str, tuple[str, ...]]
    """What the lists among the fields are drawn from."""
    naming: str
    """The heading of the rows' names."""


def written(rng: random.Random, kind: str, record: Record) -> object:
    """The record in one of its ways, as a state."""
    pairs = list(record.fields.items())
    extras = rng.sample(list(EXTRAS), rng.choice((0, 0, 1, 2, 3)))
    for name in extras:
        if record.fields and name not in record.fields:
            pairs.insert(rng.randint(0, len(pairs)), (name, rng.choice(EXTRAS[name])))
    if rng.random() < 0.4:
        rng.shuffle(pairs)
    style = rng.random()
    if style < 0.5:
        return _json(rng, kind, dict(pairs), record)
    null, long, plain = rng.choice(NULLS), rng.random() < 0.5, rng.random() < 0.6
    flags = rng.choice((("yes", "no"), ("true", "false")))

    def said(value: Value) -> str:
        if value is None:
            return null
        if value == []:
            return "none"
        if isinstance(value, bool):
            return flags[not value]
        if isinstance(value, list):
            return " and ".join(value)
        if isinstance(value, datetime.date):
            return words.long_date(value) if long else value.isoformat()
        return str(value)

    def label(name: str) -> str:
        return name.replace("_", " ") if plain else name

    told = [(label(name), said(value)) for name, value in pairs]
    if style < 0.68:
        verbs = ("are" if name.endswith("s") else "is" for name, _ in told)
        parts = (f"the {name} {verb} {value}" for (name, value), verb in zip(told, verbs, strict=True))
        text = f"In this {kind}, {', '.join(parts)}. " if told else ""
        if record.rows:
            text += _list(record.rows, said, label)
        return text.strip()
    if style < 0.85:
        text = "\n".join(f"{words.capital(name) if plain else name}: {value}" for name, value in told)
    elif told:
        text = "\n".join(("| field | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in told)))
    else:
        text = ""
    if not record.rows:
        return text
    columns = next(iter(record.rows.values()))
    table = [[record.naming, *map(label, columns)]]
    table += [[name, *map(said, row.values())] for name, row in record.rows.items()]
    if rng.random() < 0.5:
        comma = rng.choice((",", ", "))
        return f"{text}\n\n".lstrip() + "\n".join(comma.join(row) for row in table)
    table.insert(1, ["---"] * len(table[0]))
    return f"{text}\n\n".lstrip() + "\n".join(f"| {' | '.join(row)} |" for row in table)


def _list(rows: Mapping[str, Fields], said: Callable[[Value], str], label: Callable[[str], str]) -> str:
    if all(set(row) == {"count"} for row in rows.values()):
        return "There are " + words.list_of([f"{row['count']} {name}" for name, row in rows.items()]) + "."
    parts = (f"{name} has {', '.join(f'{label(c)} {said(v)}' for c, v in row.items())}" for name, row in rows.items())
    return f"The list: {'; '.join(parts)}."


def _json(rng: random.Random, kind: str, pairs: dict[str, Value], record: Record) -> object:
    camel = rng.random() < 0.25

    def key(name: str) -> str:
        return re.sub(r"_(\w)", lambda found: found[1].upper(), name) if camel else name

    def plain(row: Fields) -> dict[str, object]:
        return {
            key(name): value.isoformat() if isinstance(value, datetime.date) else value for name, value in row.items()
        }

    whole = plain(pairs)
    if pairs and rng.random() < 0.25:
        inner = rng.sample(list(whole), len(whole) // 2)
        whole = {name: value for name, value in whole.items() if name not in inner} | {
            rng.choice(("details", "data", "info")): {name: value for name, value in whole.items() if name in inner}
        }
    if record.rows:
        listed = [{record.naming: name, **plain(row)} for name, row in record.rows.items()]
        if not pairs and rng.random() < 0.4:
            return listed
        keyed = {name: plain(row) for name, row in record.rows.items()}
        whole[rng.choice(("items", "items", "entries", "list"))] = keyed if rng.random() < 0.3 else listed
    if rng.random() < 0.2:
        whole = {kind: whole}
    return whole if rng.random() < 0.85 else json.dumps(whole, ensure_ascii=False)
