"""Banks of labelled sentences out of `texts/*.toml`, parted into trained ones and ones held out, and their blanks.

It refuses to know questions. Trap: the last fifth of every list of four phrases or more is seen by the held-out stream
alone; a phrase written twice, in two lists, would be trained and held out, and a test forbids that.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TypeAlias

from decider.data.families import words

Entry: TypeAlias = Mapping[str, tuple[str, ...]]
"""Field → phrases."""
Bank: TypeAlias = Mapping[str, Entry]
"""Meaning → its phrases, in the order of the file."""

DAILY = "decider.data.families.daily"
FEWEST_PARTED = 4
"""Shorter lists are the same on both sides."""
HELD_SHARE = 5
"""One phrase in so many is held out, and at least one."""
WHOLE = ("facts", "goals", "passages", "relations")
"""Banks of which whole meanings are held out, one in `HELD_SHARE`, and no single phrases."""
SHARED = ("levels", "map", "avoid", "unsure", "near", "alike", "where")
"""Fields that are no phrases of a text, and the same on both sides."""

BLANKS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "name": words.NAMES,
        "city": words.CITIES,
        "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
        "month": words.MONTHS,
        "product": (
            *("Lumo lamp", "Tarvo headset", "garden chair", "coffee grinder", "Nerix tablet", "winter jacket"),
            *("Solva planner", "kitchen scale", "Quill editor", "smart thermostat", "backpack", "Pargo router"),
            *("Orbit dashboard", "yoga mat", "desk", "Kestrel camera", "bread maker", "Mirel watch", "vacuum cleaner"),
        ),
        "company": (
            *("Brandt & Sons", "Helix Foods", "Norvik", "Calder Press", "Tamarind Travel", "Ostrava Glass"),
            *("Lindqvist Tools", "Mori Dental", "Blue Heron Logistics", "Vantage Schools", "Ferrow", "Juniper Clinics"),
        ),
        "service": (
            *("checkout", "search-api", "mailer", "auth", "reports", "ingest", "billing-worker", "web-03"),
            *("cache-2", "gateway", "scheduler", "images", "export-job", "ledger", "notifier"),
        ),
    }
)


@cache
def bank(name: str, held: bool, package: str = DAILY) -> Bank:
    """The phrases of a package's `texts/<name>.toml` for training, or those held out. A value is one phrase a line."""
    text = resources.files(package).joinpath("texts", f"{name}.toml").read_text("utf-8")
    found: dict[str, Entry] = {}
    for place, (meaning, fields) in enumerate(tomllib.loads(text).items()):
        lists = {field: tuple(line for line in str(value).splitlines() if line) for field, value in fields.items()}
        if name in WHOLE:
            if (place % HELD_SHARE == HELD_SHARE - 1) is held:
                found[meaning] = lists
        elif "only" not in lists:
            found[meaning] = {
                field: phrases if field in SHARED else parted(phrases, held) for field, phrases in lists.items()
            }
        elif held:
            found[meaning] = lists
    return MappingProxyType(found)


def parted(phrases: tuple[str, ...], held: bool) -> tuple[str, ...]:
    """The trained phrases of a list, or those held out."""
    if len(phrases) < FEWEST_PARTED:
        return phrases
    cut = len(phrases) - max(1, len(phrases) // HELD_SHARE)
    return phrases[cut:] if held else phrases[:cut]


def fill(rng: random.Random, text: str, known: Mapping[str, str] | None = None) -> str:
    """The text with its blanks filled; `known` comes first."""

    def value(match: re.Match[str]) -> str:
        blank = match[1]
        if known is not None and blank in known:
            return known[blank]
        if blank in BLANKS:
            return rng.choice(BLANKS[blank])
        return {
            "n": lambda: str(rng.randint(2, 12)),
            "number": lambda: str(rng.randint(15, 480)),
            "amount": lambda: f"{rng.choice('€$£')}{rng.randint(8, 900)}{rng.choice(('', '', '.50', '.99'))}",
            "order": lambda: rng.choice((words.code(rng), str(rng.randint(10000, 999999)))),
        }[blank]()

    return re.sub(r"\{(\w+)\}", value, text)


def pick_of(rng: random.Random, entry: Entry, field: str) -> str:
    """One phrase of a field, its blanks filled."""
    return fill(rng, rng.choice(entry[field]))
