"""Options out of a bank's meanings: names, names with descriptions, descriptions alone, opaque names; with a way out.

It refuses to know states. Trap: two meanings that a careful reader could both call right must never be offered
together; a meaning says with `avoid` which ones those are, and it counts both ways.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from decider.data.families.daily.banks import Bank
from decider.data.families.making import Asked
from decider.data.items import choice

WAYS_OUT: Mapping[str, str | None] = {
    "none of the above": None,
    "none of these": None,
    "other": "anything else",
    "something else": None,
    "no match": "fits none of the others",
    "none": "no other option fits",
    "not listed": None,
    "anything else": "whatever the others do not cover",
    "none of the options": None,
    "OTHER": "everything that is not named here",
    "none_of_these": None,
    "does not fit any": None,
    "a different one": "something that is not on this list",
}
OFFERED_SHARE = 0.35
"""How often a way out stands among the options."""
RIGHT_SHARE = 0.08
"""How often it is then right."""
NEAR, NEAR_SHARE = 12, 0.6
"""Banks are written subject by subject: meanings at most so many places away are of the same one; how often half of
the other options are drawn from them."""
N_OPTIONS = (2, 3, 3, 4, 4, 4, 5, 5, 6, 7, 8, 10, 12)
_OPAQUE = (
    *("queue {}", "team {}", "Q{}", "group {}", "option {}", "route_{}", "{}", "L{}", "class {}", "label_{}", "({})"),
    *("C{}", "bucket-{}", "type {}", "choice {}", "category {}", "opt{}", "item {}", "k_{}", "tray {}", "{})"),
)


def rivals(bank: Bank, gold: str) -> list[str]:
    """The meanings that may be offered beside `gold`."""
    near = bank[gold].get("avoid", ())
    others = (key for key in bank if key != gold and key not in near)
    return [key for key in others if gold not in bank[key].get("avoid", ())]


def drawn(rng: random.Random, bank: Bank, gold: str, others: Sequence[str], n: int) -> list[str]:
    """`n` of `others`, now and then half of them meanings of the same subject as `gold`."""
    place = {key: index for index, key in enumerate(bank)}
    near = [key for key in others if abs(place[key] - place[gold]) <= NEAR]
    n_near = min(len(near), (n + 1) // 2) if rng.random() < NEAR_SHARE else 0
    keys = rng.sample(near, n_near)
    return keys + rng.sample([key for key in others if key not in keys], n - n_near)


def among(rng: random.Random, bank: Bank, gold: str, asks: Sequence[str], *, most: int = 12) -> Asked:
    """A Choice between the meaning `gold` and others of the bank."""
    others = rivals(bank, gold)
    keys = drawn(rng, bank, gold, others, min(len(others), rng.choice(N_OPTIONS) - 1, most - 1))
    way_out = rng.choice(list(WAYS_OUT)) if rng.random() < OFFERED_SHARE else None
    missing = way_out is not None and rng.random() < RIGHT_SHARE and len(keys) > 1
    if not missing:
        keys.append(gold)
    rng.shuffle(keys)
    style = rng.random()
    numbers = rng.sample("123456789" if rng.random() < 0.5 else "ABCDEFGHJKLM", min(9, len(keys)))
    form = rng.choice(_OPAQUE)
    opaque = 0.75 <= style < 0.9 and len(keys) <= len(numbers)
    options: dict[str, object] = {}
    right = way_out
    for place, key in enumerate(keys):
        entry = bank[key]
        name, says = rng.choice(entry["names"]), rng.choice(entry["says"])
        if opaque:
            name = form.format(numbers[place])
        elif style >= 0.9:
            name = says
        options[name] = says if opaque or 0.4 <= style < 0.75 else None
        if key == gold:
            right = name
    if way_out is not None:
        options[way_out] = WAYS_OUT[way_out] if style >= 0.4 or rng.random() < 0.3 else None
        if rng.random() < 0.3:
            shuffled = list(options.items())
            rng.shuffle(shuffled)
            options = dict(shuffled)
    assert right is not None
    assert len(options) == len(keys) + (way_out is not None), (options, keys)
    bare = all(text is None for text in options.values())
    return choice(rng.choice(asks), list(options) if bare and rng.random() < 0.7 else options), right
