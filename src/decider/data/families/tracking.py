"""State that changes: things moved between places, people who carry things, counters, switches, swaps, a queue.

It refuses to know what is likely. Trap: the last sentence about a thing is not always its last move; what carries it
may have moved since.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from decider.data.families import words
from decider.data.families.making import Asked, ease, item, n_shared, near_numbers, pick, several
from decider.data.items import Item, noul


def tracking(rng: random.Random) -> Item:
    """One of the six kinds."""
    kinds: tuple[Callable[[random.Random], Item], ...] = (_moves, _moves, _carried, _counter, _switches, _swaps, _queue)
    return rng.choice(kinds)(rng)


def _steps(rng: random.Random, hard: int, most: int) -> int:
    """How many things happen: one, two or three, up to `most`."""
    return (1, rng.randint(2, 3), rng.randint(2, most))[hard]


def _state(rng: random.Random, told: list[str]) -> object:
    return {"events": told} if rng.random() < 0.25 else rng.choice((" ", "\n")).join(told)


def _moves(rng: random.Random) -> Item:
    """Things put from holder to holder."""
    hard = ease(rng)
    people, things = rng.sample(words.NAMES, 3), rng.sample(words.THINGS, rng.randint(1, (1, 2, 4)[hard]))
    holders = rng.sample(words.HOLDERS, rng.randint(3, (3, 4, 6)[hard]))
    places = {thing: [rng.choice(holders)] for thing in things}
    told = [f"The {thing} is in the {where[0]} at first." for thing, where in places.items()]
    movers: dict[str, str] = {}
    for _ in range(_steps(rng, hard, 7)):
        thing, person = rng.choice(things), rng.choice(people)
        target = rng.choice([holder for holder in holders if holder != places[thing][-1]])
        told.append(
            rng.choice(("{p} moves the {t} to the {h}.", "{p} puts the {t} into the {h}.")).format(
                p=person, t=thing, h=target
            )
        )
        places[thing].append(target)
        movers[thing] = person

    def now() -> Asked:
        thing = rng.choice(things)
        text = rng.choice(
            ("Where is the {t} now?", "In which place is the {t} at the end?", "The {t} is in the …")
        ).format(t=thing)
        return pick(rng, text, places[thing][-1], holders, abstain_share=0.06)

    def first() -> Asked:
        thing = rng.choice(things)
        return pick(rng, f"Where was the {thing} at first?", places[thing][0], holders, abstain_share=0.06)

    def before() -> Asked | None:
        thing = rng.choice(things)
        if len(places[thing]) < 2:
            return None
        return pick(
            rng, f"Where was the {thing} just before its last move?", places[thing][-2], holders, abstain_share=0.04
        )

    def who() -> Asked | None:
        thing = rng.choice(things)
        if thing not in movers:
            return None
        return pick(rng, f"Who moved the {thing} last?", movers[thing], people, abstain_share=0)

    def is_there() -> Asked:
        thing = rng.choice(things)
        where = rng.choice([places[thing][-1], rng.choice(places[thing]), rng.choice(holders)])
        return noul(f"Is the {thing} in the {where} at the end?"), where == places[thing][-1]

    return item(_state(rng, told), several(rng, [now, now, first, before, who, is_there], n_shared(rng)))


def _carried(rng: random.Random) -> Item:
    """People walk between rooms; what they hold goes along."""
    hard = ease(rng)
    people = rng.sample(words.NAMES, rng.randint(2, (2, 3, 3)[hard]))
    things = rng.sample(words.THINGS, rng.randint(1, 1 + hard))
    rooms = rng.sample(words.ROOMS, rng.randint(3, 3 + hard))
    at = {person: rng.choice(rooms) for person in people}
    holder: dict[str, str] = {}
    lies: dict[str, str] = {}
    told = [f"{person} is in the {room}." for person, room in at.items()]
    for thing in things:
        person = rng.choice(people)
        holder[thing] = person
        told.append(f"{person} takes the {thing}.")
    for _ in range(_steps(rng, hard, 7)):
        person = rng.choice(people)
        held = [thing for thing in things if holder.get(thing) == person]
        if held and rng.random() < 0.3:
            thing = rng.choice(held)
            del holder[thing]
            lies[thing] = at[person]
            told.append(f"{person} drops the {thing}.")
        else:
            at[person] = rng.choice([room for room in rooms if room != at[person]])
            told.append(f"{person} goes to the {at[person]}.")
    where = {thing: at[holder[thing]] if thing in holder else lies[thing] for thing in things}

    def thing_is() -> Asked:
        thing = rng.choice(things)
        return pick(rng, f"In which room is the {thing} at the end?", where[thing], rooms, abstain_share=0.05)

    def person_is() -> Asked:
        person = rng.choice(people)
        return pick(rng, f"In which room is {person} at the end?", at[person], rooms, abstain_share=0.05)

    def holds() -> Asked:
        thing, person = rng.choice(things), rng.choice(people)
        return noul(f"Does {person} hold the {thing} at the end?"), holder.get(thing) == person

    def same_room() -> Asked:
        one, other = rng.sample(people, 2)
        return noul(f"Are {one} and {other} in the same room at the end?"), at[one] == at[other]

    return item(_state(rng, told), several(rng, [thing_is, thing_is, person_is, holds, same_room], n_shared(rng)))


def _counter(rng: random.Random) -> Item:
    """Things put into and taken out of a holder."""
    thing, holder = rng.choice(words.THINGS), rng.choice(words.HOLDERS)
    hard = ease(rng)
    n = start = rng.randint(0, 10)
    told = [f"Number of things like '{thing}' in the {holder}: {n}."]
    for _ in range(_steps(rng, hard, 4)):
        step = rng.randint(1, (2, 5, 5)[hard])
        if n >= step and rng.random() < 0.5:
            n -= step
            told.append(rng.choice((f"{step} are taken out.", f"{rng.choice(words.NAMES)} removes {step}.")))
        else:
            n += step
            told.append(rng.choice((f"{step} are added.", f"{rng.choice(words.NAMES)} puts in {step}.")))

    def final() -> Asked:
        return pick(
            rng,
            rng.choice((f"How many are in the {holder} at the end?", "How many are there now?")),
            str(n),
            near_numbers(rng, n, 10),
            most=8,
        )

    def first() -> Asked:
        return pick(rng, f"How many were in the {holder} at first?", str(start), near_numbers(rng, start, 10), most=8)

    def more() -> Asked:
        return noul("Are there more at the end than at the start?"), n > start

    def empty() -> Asked:
        return noul(f"Is the {holder} empty at the end?"), n == 0

    return item(_state(rng, told), several(rng, [final, first, more, empty], n_shared(rng)))


def _switches(rng: random.Random) -> Item:
    """Lamps switched on, off, and over."""
    hard = ease(rng)
    rooms = rng.sample(words.ROOMS, rng.randint(2, 2 + hard))
    on = {room: rng.random() < 0.5 for room in rooms}
    told = [f"The lamp in the {room} is {'on' if lit else 'off'}." for room, lit in on.items()]
    for _ in range(_steps(rng, hard, 6)):
        room = rng.choice(rooms)
        kind = rng.choice(("over", "over", "on", "off"))
        on[room] = not on[room] if kind == "over" else kind == "on"
        person = rng.choice(words.NAMES)
        told.append(
            f"{person} presses the switch in the {room}."
            if kind == "over"
            else f"{person} turns the lamp in the {room} {kind}."
        )
    told.insert(0, "A press of a switch turns a lamp that is on off and one that is off on.")

    def is_on() -> Asked:
        room, state = rng.choice(rooms), rng.random() < 0.5
        return noul(f"Is the lamp in the {room} {'on' if state else 'off'} at the end?"), on[room] is state

    def how_many() -> Asked:
        n = sum(on.values())
        return pick(
            rng, "How many lamps are on at the end?", str(n), map(str, range(len(rooms) + 1)), abstain_share=0.05
        )

    return item(_state(rng, told), several(rng, [is_on, is_on, is_on, how_many], n_shared(rng)))


def _swaps(rng: random.Random) -> Item:
    """People who hold one thing each, and swap."""
    hard = ease(rng)
    people = rng.sample(words.NAMES, rng.randint(3, 3 + hard))
    has = dict(zip(people, rng.sample(words.THINGS, len(people)), strict=True))
    told = [f"{person} has the {thing}." for person, thing in has.items()]
    for _ in range(_steps(rng, hard, 4)):
        one, other = rng.sample(people, 2)
        has[one], has[other] = has[other], has[one]
        told.append(f"{one} and {other} swap what they have.")

    def what() -> Asked:
        person = rng.choice(people)
        return pick(rng, f"What does {person} have at the end?", has[person], has.values(), abstain_share=0.05)

    def who() -> Asked:
        person = rng.choice(people)
        return pick(rng, f"Who has the {has[person]} at the end?", person, people, abstain_share=0.05)

    return item(_state(rng, told), several(rng, [what, who], n_shared(rng)))


def _queue(rng: random.Random) -> Item:
    """People who join and leave a queue."""
    hard = ease(rng)
    names = rng.sample(words.NAMES, 10)
    queue = [names.pop() for _ in range(rng.randint(2, 4))]
    told = [f"The queue, from the front: {', '.join(queue)}."]
    for _ in range(_steps(rng, hard, 5)):
        kind = rng.random()
        if kind < 0.4 and names:
            queue.append(names.pop())
            told.append(f"{queue[-1]} joins at the end.")
        elif kind < 0.6 and names:
            queue.insert(0, names.pop())
            told.append(f"{queue[0]} is let in at the front.")
        elif len(queue) > 2:
            gone = queue.pop(0) if rng.random() < 0.6 else queue.pop(rng.randrange(len(queue)))
            told.append(f"{gone} leaves the queue.")

    def front() -> Asked:
        return pick(rng, "Who is at the front of the queue now?", queue[0], queue, abstain_share=0.05)

    def back() -> Asked:
        return pick(rng, "Who is at the end of the queue now?", queue[-1], queue, abstain_share=0.05)

    def length() -> Asked:
        return pick(
            rng, "How many people are in the queue now?", str(len(queue)), near_numbers(rng, len(queue), 6), most=6
        )

    def before() -> Asked:
        one, other = rng.sample(queue, 2)
        return noul(f"Is {one} nearer to the front than {other} now?"), queue.index(one) < queue.index(other)

    return item(_state(rng, told), several(rng, [front, back, length, before], n_shared(rng)))
