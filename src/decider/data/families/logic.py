"""What follows: kinds and their properties, directions of change, orders, and statements with "not".

It refuses to know the world: its kinds are made up, and its quantities say themselves how they hang together. Trap:
"is not shown" and "is shown not to be" are one answer where what cannot be shown is false, and two otherwise.
"""

from __future__ import annotations

import itertools
import random

from decider.data.families import words
from decider.data.families.making import Asked, ease, item, n_shared, pick, several
from decider.data.items import Item, choice, noul

PROPERTIES = ("heavy", "loud", "soft", "bright", "cold", "smooth", "tiny", "round", "striped", "shy", "quick", "sweet")
OPEN = {"yes": None, "no": None, "cannot be told": "the text settles it neither way"}


def deduction(rng: random.Random) -> Item:
    """Members of kinds, kinds within kinds, and properties that kinds have or lack."""
    hard = ease(rng)
    kinds = list(dict.fromkeys(words.made_up(rng) for _ in range(6)))[: 2 + hard]
    chain, aside = kinds[:-1], kinds[-1]
    has: dict[str, dict[str, bool]] = {kind: {} for kind in kinds}
    told = [f"Every {low} is a {high}." for low, high in itertools.pairwise(chain)]
    properties = rng.sample(PROPERTIES, 3 + hard)
    for name in properties[:-1]:
        kind, positive = rng.choice(kinds), rng.random() < 0.7
        has[kind][name] = positive
        told.append(f"Every {kind} is {name}." if positive else f"No {kind} is {name}.")
    members = {person: rng.choice(kinds) for person in rng.sample(words.NAMES, rng.randint(1, 1 + hard))}
    told += [f"{person} is a {kind}." for person, kind in members.items()]
    rng.shuffle(told)

    def known(person: str) -> dict[str, bool]:
        kind = members[person]
        above = [kind] if kind == aside else chain[chain.index(kind) :]
        found: dict[str, bool] = {}
        for each in above:
            found |= has[each]
        return found

    def open_world() -> Asked:
        sure = [(person, name) for person in members for name in known(person)]
        settled = sure and rng.random() < 0.6
        person, name = rng.choice(sure) if settled else (rng.choice(list(members)), rng.choice(properties))
        answer = known(person).get(name)
        gold = "cannot be told" if answer is None else "yes" if answer else "no"
        return choice(f"Is {person} {name}?", OPEN), gold

    def pair(wanted: bool) -> tuple[str, str]:
        """A member and a property; half of the time one that it is known to have, or known to lack."""
        sure = [(person, name) for person in members for name, has_it in known(person).items() if has_it is wanted]
        return rng.choice(sure) if sure and rng.random() < 0.5 else (rng.choice(list(members)), rng.choice(properties))

    def follows() -> Asked:
        person, name = pair(True)
        texts = ("Does it follow that {p} is {x}?", "Can it be concluded that {p} is {x}?")
        return noul(rng.choice(texts).format(p=person, x=name)), known(person).get(name) is True

    def lacks() -> Asked:
        person, name = pair(False)
        return noul(f"Does it follow that {person} is not {name}?"), known(person).get(name) is False

    def belongs() -> Asked:
        person, kind = rng.choice(list(members)), rng.choice(kinds)
        own = members[person]
        gold = kind == own or (own in chain and kind in chain and chain.index(own) <= chain.index(kind))
        return noul(f"Does it follow that {person} is a {kind}?"), gold

    return item(
        rng.choice((" ", "\n")).join(told), several(rng, [open_world, follows, follows, lacks, belongs], n_shared(rng))
    )


QUANTITIES = (
    *("temperature of the oven", "speed of the belt", "price of the ticket", "number of visitors", "noise in the hall"),
    *("pressure in the tank", "size of the crew", "length of the queue", "amount of salt", "age of the battery"),
    *("brightness of the screen", "weight of the load", "height of the water", "share of faults", "use of fuel"),
)


def trend(rng: random.Random) -> Item:
    """Quantities that rise or fall with each other; what one does when another changes."""
    hard = ease(rng)
    chain = rng.sample(QUANTITIES, (2, 3, rng.randint(3, 5))[hard])
    signs = [rng.choice((1, -1)) for _ in chain[1:]]
    links = [
        rng.choice(
            (
                "When the {a} goes up, the {b} goes {d}.",
                "A higher {a} makes the {b} go {d}.",
                "As the {a} rises, the {b} goes {d}.",
            )
        ).format(a=a, b=b, d="up" if sign > 0 else "down")
        for a, b, sign in zip(chain, chain[1:], signs, strict=False)
    ]
    lone = rng.choice([name for name in QUANTITIES if name not in chain])
    links.append(f"The {lone} does not depend on any of this.")
    if hard and rng.random() < 0.6:
        rng.shuffle(links)
    state: object = {"relations": links} if rng.random() < 0.25 else " ".join(links)

    def moved(start: int, end: int, up: bool) -> bool:
        sign = 1 if up else -1
        for each in signs[start:end]:
            sign *= each
        return sign > 0

    def direction() -> Asked:
        start, end = sorted(rng.sample(range(len(chain)), 2))
        up = rng.random() < 0.5
        target = lone if rng.random() < 0.12 else chain[end]
        gold = "stays the same" if target == lone else "goes up" if moved(start, end, up) else "goes down"
        text = f"The {chain[start]} goes {'up' if up else 'down'}. What happens to the {target}?"
        names = ["goes up", "goes down"] + (["stays the same"] if target == lone or rng.random() < 0.5 else [])
        rng.shuffle(names)
        return choice(text, names), gold

    def is_up() -> Asked:
        start, end = sorted(rng.sample(range(len(chain)), 2))
        up, asked_up = rng.random() < 0.5, rng.random() < 0.5
        cause, effect = ("up" if up else "down"), ("up" if asked_up else "down")
        text = f"If the {chain[start]} goes {cause}, does the {chain[end]} go {effect}?"
        return noul(text), moved(start, end, up) is asked_up

    return item(state, several(rng, [direction, direction, is_up], n_shared(rng)))


SCALES = (
    ("taller", "shorter", "tallest", "shortest"), ("older", "younger", "oldest", "youngest"),
    ("faster", "slower", "fastest", "slowest"), ("richer", "poorer", "richest", "poorest"),
    ("heavier", "lighter", "heaviest", "lightest"), ("louder", "quieter", "loudest", "quietest"),
)  # fmt: skip


def order(rng: random.Random) -> Item:
    """People compared in pairs; who is the most, who is more than whom."""
    more, less, most, least = rng.choice(SCALES)
    people = rng.sample(words.NAMES, (2, 3, rng.randint(3, 6))[ease(rng)])
    told = [
        f"{high} is {more} than {low}." if rng.random() < 0.5 else f"{low} is {less} than {high}."
        for high, low in itertools.pairwise(people)
    ]
    if rng.random() < 0.7:
        rng.shuffle(told)

    def end() -> Asked:
        top = rng.random() < 0.5
        return pick(rng, f"Who is the {most if top else least}?", people[0 if top else -1], people, abstain_share=0.03)

    def pair() -> Asked:
        one, other = rng.sample(people, 2)
        is_more = rng.random() < 0.5
        gold = (people.index(one) < people.index(other)) is is_more
        return noul(f"Is {one} {more if is_more else less} than {other}?"), gold

    def which() -> Asked:
        one, other = rng.sample(people, 2)
        high, low = sorted((one, other), key=people.index)
        is_more = rng.random() < 0.5
        gold = high if is_more else low
        return pick(rng, f"Who is {more if is_more else less}, {one} or {other}?", gold, [one, other], abstain_share=0)

    return item(rng.choice((" ", "\n")).join(told), several(rng, [end, pair, pair, which], n_shared(rng)))


def negation(rng: random.Random) -> Item:
    """Who has, likes or knows what, and who does not."""
    verb, bare = rng.choice((("likes", "like"), ("owns", "own"), ("needs", "need"), ("sells", "sell")))
    people = rng.sample(words.NAMES, rng.randint(2, 4))
    things = [f"the {thing}" for thing in rng.sample(words.THINGS, rng.randint(2, 5))]
    facts = {person: {thing: rng.random() < 0.5 for thing in things} for person in people}
    told: list[str] = []
    for person, each in facts.items():
        yes, no = [t for t in things if each[t]], [t for t in things if not each[t]]
        if yes and no and rng.random() < 0.5:
            told.append(f"{person} {verb} {words.list_of(yes)} but not {words.list_of(no, 'or')}.")
        else:
            told += [f"{person} {verb} {words.list_of(yes)}."] if yes else []
            told += [f"{person} does not {bare} {words.list_of(no, 'or')}."] if no else []
    if rng.random() < 0.5:
        rng.shuffle(told)

    def does() -> Asked:
        person, thing, negated = rng.choice(people), rng.choice(things), rng.random() < 0.5
        text = f"Is it true that {person} does not {bare} {thing}?" if negated else f"Does {person} {bare} {thing}?"
        return noul(text), facts[person][thing] is not negated

    def what() -> Asked | None:
        person, positive = rng.choice(people), rng.random() < 0.35
        right = [thing for thing in things if facts[person][thing] is positive]
        wrong = [thing for thing in things if facts[person][thing] is not positive]
        if not right or not wrong:
            return None
        text = f"Which of these does {person} {bare}?" if positive else f"Which of these does {person} not {bare}?"
        return pick(rng, text, rng.choice(right), wrong, abstain_share=0.1)

    def who() -> Asked | None:
        thing, positive = rng.choice(things), rng.random() < 0.35
        right = [person for person in people if facts[person][thing] is positive]
        wrong = [person for person in people if facts[person][thing] is not positive]
        if not right or not wrong:
            return None
        text = f"Who of these {verb} {thing}?" if positive else f"Who of these does not {bare} {thing}?"
        return pick(rng, text, rng.choice(right), wrong, abstain_share=0.1)

    return item(rng.choice((" ", "\n")).join(told), several(rng, [does, does, what, who]))
