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
    by_hand: bool = False
    """Whether people wrote its questions and answers, so that no rule finds the answers again."""
    by_lot: bool = False
    """Whether gold is drawn by known odds, so that a probability can be right and an answer only lucky."""


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


def n_shared(rng: random.Random) -> int:
    """Three to six questions: a state that is read once teaches more by each of them."""
    return rng.choice((3, 4, 5, 6))


def ease(rng: random.Random) -> int:
    """How hard an item is, evenly: 0 easy, 1 middling, 2 hard. Without easy ones a small model has no foothold."""
    return rng.randrange(3)


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
    """Other numbers from 0: close to `number`, far from it, or both, each in a third of the calls.

    How many of them are smaller is even from none to all, as far as there are smaller ones: else the smallest of a
    question's options would be right too often.
    """
    gap = max(4, number // 3)
    close = [step for step in (1, 2, 3, 4, 5, 10) for _ in range(2)]
    far = [gap + rng.randrange(3 * gap) for _ in range(12)]
    steps = list(dict.fromkeys((close, far, close[:6] + far[:6])[rng.randrange(3)]))
    wanted = rng.randint(0, n)
    below = [number - step for step in steps if step <= number]
    if len(below) < wanted:
        below = list(range(number - min(steps) + 1) or range(number))[-16:]
    n_below = min(len(below), wanted)
    # Fewer in all rather than a right one that stands below most.
    n_above = n - wanted if n_below == wanted else max(2, (n - wanted) * n_below // wanted)
    above = [number + step for step in steps]
    return [str(each) for each in rng.sample(below, n_below) + rng.sample(above, min(len(above), n_above))]


def several(rng: random.Random, asks: Sequence[Callable[[], Asked | None]], n: int | None = None) -> list[Asked]:
    """Different questions of randomly taken `asks`, at least one; an ask that does not fit the state returns None."""
    wanted = n_questions(rng) if n is None else n
    found: dict[str, Asked] = {}
    for _ in range(40):
        asked = rng.choice(asks)()
        if asked is not None:
            found.setdefault(str(asked[0]["instructions"]), asked)
        if len(found) == wanted:
            break
    assert found, "no question fits this state"
    return list(found.values())
