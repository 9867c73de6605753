"""From a question with its answer to an item: options in random order, abstaining options, several questions a state.

It refuses to know what is asked. Trap: training shuffles options and takes subsets of them, so no question may ask for
an option's place, and the right one must stay right whichever of the others are there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from decider.data.items import Gold, Item, choice

NONE_FITS = ("none of these", "none of the above", "another one", "not listed here")
"""Options that are right where no other is."""
NOT_STATED = ("not stated", "the text does not say", "unknown")
"""Options that are right where the state does not tell."""

ABSTAIN_RIGHT = 0.15
"""How often an abstaining option is right where it stands. More, and a model learns to abstain."""

Asked: TypeAlias = tuple[dict[str, object], Gold]
"""A question in its wire form, and its answer."""


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of programmatic decision."""

    name: str
    kinds: tuple[str, ...]
    """The question types that occur."""
    options: str
    """How many options a question has, in words."""
    asks: str
    share: int
    """How many items of it are made unless told otherwise."""
    make: Callable[[random.Random], Item]
    held: Callable[[random.Random], Item] | None = None
    """Makes items of phrases that `make` never uses, for the held-out stream; None: that stream uses `make` too."""


def item(state: object, asked: Sequence[Asked]) -> Item:
    """One state with its questions; a question asked twice is asked once."""
    distinct = {str(question["instructions"]): (question, gold) for question, gold in asked}
    named = {f"q{number}": each for number, each in enumerate(distinct.values(), 1)}
    made = Item(
        state,
        {key: question for key, (question, _) in named.items()},
        {key: gold for key, (_, gold) in named.items()},
        group="",
    )
    return Item(made.state, made.questions, made.gold, group=made.content())


def n_questions(rng: random.Random) -> int:
    """One question half of the time, at most five."""
    return rng.choices((1, 2, 3, 4, 5), (50, 20, 15, 10, 5))[0]


def n_options(rng: random.Random, most: int = 12) -> int:
    """How many options: often few, at times `most`."""
    return min(most, rng.choice((2, 3, 3, 4, 4, 4, 5, 6, 7, 8, 10, 12)))


def pick(
    rng: random.Random,
    instructions: str,
    gold: str,
    others: Iterable[str],
    *,
    most: int = 12,
    abstain: Sequence[str] = NONE_FITS,
    abstain_share: float = 0.12,
    abstain_right: float = ABSTAIN_RIGHT,
) -> Asked:
    """A Choice between `gold` and some of `others`. At times an abstaining option stands among them, and in a
    share of `ABSTAIN_RIGHT` of those times the right one is missing, so that abstaining is right.
    """
    wrong = list(dict.fromkeys(other for other in others if other != gold))
    assert wrong, (instructions, gold)
    rng.shuffle(wrong)
    wrong = wrong[: n_options(rng, most) - 1]
    names = [gold, *wrong]
    if rng.random() < abstain_share:
        way_out = rng.choice(abstain)
        if rng.random() < abstain_right and len(wrong) > 1:
            names = wrong
            gold = way_out
        rng.shuffle(names)
        names.insert(rng.choice((len(names), rng.randrange(len(names) + 1))), way_out)
    else:
        rng.shuffle(names)
    return choice(instructions, names), gold


def near_numbers(rng: random.Random, number: int, n: int = 12) -> list[str]:
    """Other numbers from 0, most of them close to `number`."""
    steps = [1, -1, 2, -2, 3, -3, 4, 5, -5, 10, -10, 6, 7, 8, 9, 11, 20]
    found = [str(number + step) for step in steps if number + step >= 0]
    return [*found[: n // 2], *rng.sample(found[n // 2 :], min(n - n // 2, len(found) - n // 2))]


def several(rng: random.Random, asks: Sequence[Callable[[], Asked | None]], n: int | None = None) -> list[Asked]:
    """Questions of randomly taken `asks`, at least one; an ask that does not fit the state returns None."""
    wanted = n_questions(rng) if n is None else n
    found: list[Asked] = []
    for _ in range(40):
        asked = rng.choice(asks)()
        if asked is not None:
            found.append(asked)
        if len(found) == wanted:
            break
    assert found, "no question fits this state"
    return found
