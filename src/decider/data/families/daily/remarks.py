"""Remarks that stand in a message or do not (threats, wishes, data given away), and how severe or urgent a matter is.

It refuses to know teams beyond their names. Trap: that a remark is absent answers its question with no only where
nothing else in the message may imply it; a bank marks those that may with `absent`, `avoid` and `unsure`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from decider.data.families.daily.asks import TEAM
from decider.data.families.daily.banks import Bank, Entry, bank, fill, pick_of
from decider.data.families.daily.options import among
from decider.data.families.daily.sorting import scope, settled, side
from decider.data.families.daily.writing import letter, note
from decider.data.families.making import Asked, item
from decider.data.items import Item, noul, score


def remark(rng: random.Random, entry: Entry, gold: bool) -> Asked:
    """A Noul, half of the time with what yes and no mean."""
    text = rng.choice(entry["ask"])
    if rng.random() < 0.5:
        return noul(text), gold
    sides = {"yes": rng.choice(entry["true"]), "no": rng.choice(entry["false"])}
    return noul(text, **(sides if rng.random() < 0.7 else {"yes": sides["yes"]})), gold


def _apart(found: Bank, one: str, other: str) -> bool:
    return other not in found[one].get("avoid", ()) and one not in found[other].get("avoid", ())


def _made(
    rng: random.Random, found: Bank, n: int, barred: tuple[str, ...], yes: float
) -> tuple[dict[str, bool], list[str], dict[str, bool]]:
    """Remarks of the message with their signs, their sentences, and every question they answer."""
    chosen: dict[str, bool] = {}
    for key in rng.sample(list(found), len(found)):
        if len(chosen) < n and key not in barred and all(_apart(found, key, other) for other in chosen):
            chosen[key] = rng.random() < yes
    if chosen.get("resolved"):
        chosen = {key: key == "resolved" for key in chosen}
    said = [pick_of(rng, found[key], "yes" if holds else "no") for key, holds in chosen.items()]
    absent = {
        key: False
        for key, entry in found.items()
        if key not in chosen
        and key not in barred
        and "absent" not in entry
        and all(_apart(found, key, other) for other in chosen)
    }
    return chosen, said, absent


def _asked(
    rng: random.Random, found: Bank, there: Mapping[str, bool], absent: Mapping[str, bool], n: int
) -> list[Asked]:
    keys = rng.sample(list(there), len(there))
    away = rng.sample(list(absent), min(len(absent), sum(rng.random() < 0.2 for _ in range(n))))
    keys = rng.sample([*keys[: max(1, n - len(away))], *away], min(n, len(keys[: max(1, n - len(away))]) + len(away)))
    return [remark(rng, found[key], {**absent, **there}[key]) for key in keys]


def ticket(rng: random.Random, held: bool) -> Item:
    """A matter for a team with remarks on it: which team, what is said, how bad and how urgent it is."""
    teams, remarks, scales = bank("teams", held), bank("customer", held), bank("scales", held)
    gold = rng.choice(list(teams))
    there, said, absent = _made(rng, remarks, rng.choice((1, 1, 2, 2, 3)), teams[gold].get("unsure", ()), 0.58)
    core = [pick_of(rng, teams[gold], "text"), *said]
    asked = _asked(rng, remarks, there, absent, rng.choice((1, 1, 2, 3, 4)))
    name = rng.choice(("impact", "urgency"))
    # These say by themselves how bad or how urgent it is.
    speaks = {"deadline", "harm", "leaves"} & set(there) or name in teams[gold].get("unsure", ())
    if not speaks and not there.get("resolved") and rng.random() < 0.5:
        level = rng.randrange(4)
        core.append(pick_of(rng, scales[name], f"l{level}"))
        asked.append(graded(rng, scales[name], level))
    if rng.random() < 0.15:
        core.insert(0, settled(rng, held, teams, gold))
    if rng.random() < 0.5:
        asked.append(among(rng, teams, gold, side(held, TEAM)))
    rng.shuffle(asked)
    return item(letter(rng, held, core), asked)


def graded(rng: random.Random, entry: Entry, level: int) -> Asked:
    """A Score in one of its sets of levels, some of which take two of the bank's levels together."""
    names, places = rng.choice(list(zip(entry["levels"], entry["map"], strict=True)))
    return score(rng.choice(entry["ask"]), names.split(" | ")), int(places.split()[level])


def grading(rng: random.Random, held: bool) -> Item:
    """A level of one of the scales; the phrase of a `plain` scale stands alone, for small talk would bear on it."""
    scales = bank("scales", held)
    name = rng.choice(list(scales))
    entry = scales[name]
    levels = [field for field in entry if field[0] == "l" and field[1:].isdigit()]
    level = rng.randrange(len(levels))
    core = [pick_of(rng, entry, levels[level])]
    if "alone" not in entry:
        sayings = [entry for entry in bank("teams", held).values() if name not in entry.get("unsure", ())]
        core.insert(0, pick_of(rng, rng.choice(sayings), "text"))
    elif name == "satisfaction" and len(entry[levels[level]]) > 1 and rng.random() < 0.4:
        core = [fill(rng, text, {"product": "thing"}) for text in rng.sample(entry[levels[level]], 2)]
    asked = [graded(rng, entry, level)]
    field = rng.choice(("text", "report", "message"))
    if "plain" in entry:
        return item(core[0] if rng.random() < 0.65 else {field: core[0]}, asked)
    return item(note(rng, held, core, field) if "alone" in entry else letter(rng, held, core), asked)


def leads(rng: random.Random, held: bool) -> Item:
    """What a prospect says of money, say, time and size."""
    found = bank("leads", held)
    there, said, absent = _made(rng, found, rng.choice((1, 2, 2, 3, 4)), (), 0.6)
    if rng.random() < 0.7:
        said.insert(0, pick_of(rng, bank("teams", held)["sales"], "text"))
        # A request for an offer may itself speak of numbers and of a demonstration.
        absent = {key: value for key, value in absent.items() if key not in ("large", "demo")}
    return item(letter(rng, held, said), _asked(rng, found, there, absent, rng.choice((1, 2, 2, 3, 4))))


def guard(rng: random.Random, held: bool) -> Item:
    """Whether a text gives away data, asks for money or secrets, insults, threatens; whether it is off topic."""
    if rng.random() < 0.3:
        return item(*scope(rng, held))
    found = bank("guard", held)
    there, said, absent = _made(rng, found, 1, (), 0.57)
    state = note(rng, held, said, rng.choice(("text", "message", "input", "content")))
    return item(state, _asked(rng, found, there, absent, rng.choice((1, 1, 1, 2, 2))))
