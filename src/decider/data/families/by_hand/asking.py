"""Makes items of the situations written by hand: some of a situation's questions, each in one of its wordings.

It refuses to invent: what is drawn is which questions are asked together, their wordings, the order of options, and
which of the wrong ones stand by. Trap: variants of a situation are near-copies of each other; those that are held out
are whole stretches of a file, with all of their variants.
"""

from __future__ import annotations

import random
from functools import cache

from decider.data.families.by_hand.reading import FILES, Question, Situation, situations
from decider.data.families.making import Asked, item
from decider.data.items import Item, choice, noul, score

STRETCH, EVERY, OFFSET = 10, 20, 7
"""Of every `EVERY` stretches of `STRETCH` situations, the one at `OFFSET` is held out: 5 %."""
ALL_SHARE = 0.4
"""How often all questions of a situation are asked."""
FEWER_SHARE = 0.3
"""How often wrong options are left out of a Choice with more than two."""


def written(rng: random.Random, held: bool) -> Item:
    """One situation with one or more of its questions."""
    situation = rng.choice(_side(held))
    asked = list(situation.questions)
    if rng.random() >= ALL_SHARE:
        asked = rng.sample(asked, rng.randint(1, len(asked)))
    return item(situation.state, [_asked(rng, question) for question in asked])


@cache
def _side(held: bool) -> tuple[Situation, ...]:
    return tuple(
        situation
        for name in FILES
        for place, situation in enumerate(situations(name))
        if (place // STRETCH % EVERY == OFFSET) == held
    )


def _asked(rng: random.Random, question: Question) -> Asked:
    instructions = rng.choice(question.wordings)
    if question.kind == "noul":
        return noul(instructions), question.gold
    if question.kind == "score":
        return score(instructions, list(question.options)), question.gold
    names = list(question.options)
    if len(names) > 2 and rng.random() < FEWER_SHARE:
        others = [name for name in names if name != question.gold]
        names = [str(question.gold), *rng.sample(others, rng.randint(1, len(others)))]
    rng.shuffle(names)
    described = {name: question.options[name] for name in names}
    return choice(instructions, described if any(described.values()) else names), question.gold
