"""Reviews: which aspect is praised, which blamed, whether one is, and how the review is on the whole.

It refuses to know other texts. Trap: an aspect is praised or blamed in a review, never both, so that each question on
it has one answer; one that is not mentioned is neither.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from decider.data.families import words
from decider.data.families.daily.banks import Bank, bank, pick_of
from decider.data.families.daily.sorting import side
from decider.data.families.daily.writing import note
from decider.data.families.making import Asked, item, pick, several
from decider.data.items import Item, noul, score

THINGS = {
    "restaurant": ("restaurant", "place to eat"),
    "hotel": ("hotel", "place to stay"),
    "gadget": ("device", "gadget"),
    "course": ("course", "class"),
    "app": ("app", "program"),
    "airline": ("airline", "carrier"),
    "bank": ("bank",),
    "school": ("school", "school of our children"),
    "museum": ("museum",),
    "car": ("car", "vehicle"),
    "book": ("book", "novel"),
    "film": ("film", "movie"),
    "game": ("game", "video game"),
    "clinic": ("clinic", "practice"),
    "shop": ("shop", "store"),
    "delivery": ("delivery service", "courier"),
    "landlord": ("flat", "rented flat"),
    "employer": ("firm", "workplace"),
    "phone plan": ("phone plan", "mobile contract"),
    "festival": ("festival", "open-air festival"),
    "gym": ("gym", "fitness studio"),
    "train line": ("train line", "railway"),
    "hair salon": ("salon", "hairdresser's"),
    "conference": ("conference", "congress"),
    "campsite": ("campsite", "place for camping"),
    "tradesman": ("firm of builders", "repair service"),
}
PRAISED = (
    "What does the reviewer like?",
    "Which aspect is praised?",
    "What speaks for it, in this review?",
    "Name the strong point that is mentioned.",
)
BLAMED = (
    "What does the reviewer criticise?",
    "Which aspect is blamed?",
    "What should the owner work on, by this review?",
    "Name the weak point that is mentioned.",
)
IS_PRAISED = (
    "Is this praised: {x}?",
    "Does the reviewer speak well of the following? {x}",
    "Did the reviewer like this: {x}?",
)
IS_BLAMED = (
    "Is this criticised: {x}?",
    "Does the reviewer complain about the following? {x}",
    "Was the reviewer unhappy with this: {x}?",
)
MENTIONED = (
    "Does the review speak of this: {x}?",
    "Is the following a subject of the review? {x}",
    "Is this mentioned: {x}?",
)
WHOLE = ("How is the review on the whole?", "What is the balance of this review?", "How mixed is this review?")
BALANCES = (
    ["only criticism", "both praise and criticism", "only praise"],
    ["all bad", "partly good, partly bad", "all good"],
    ["negative", "mixed", "positive"],
)
OPENINGS = (
    "We tried this {thing} in {month}.",
    "A few words about this {thing}.",
    "My opinion on the {thing}:",
    "Here is what I think of the {thing}.",
)


def aspects(rng: random.Random, held: bool) -> Item:
    """One to four aspects, each praised or blamed."""
    found = bank("aspects", held)
    domain = rng.choice(list(THINGS))
    own = {key: entry for key, entry in found.items() if entry["of"] == (domain,)}
    keys = rng.sample(list(own), rng.choice((1, 2, 2, 3, 3, 4)))
    liked = {key: rng.random() < 0.5 for key in keys}
    said = [pick_of(rng, own[key], "praise" if good else "blame") for key, good in liked.items()]
    if rng.random() < 0.4:
        thing = rng.choice(THINGS[domain])
        said.insert(0, rng.choice(side(held, OPENINGS)).format(thing=thing, month=rng.choice(words.MONTHS)))
    state = note(rng, held, said, rng.choice(("review", "text", "comment")))
    return item(state, several(rng, _asks(rng, held, own, liked)))


def _asks(rng: random.Random, held: bool, own: Bank, liked: dict[str, bool]) -> list[Callable[[], Asked | None]]:
    def name(key: str) -> str:
        return rng.choice(own[key]["names"])

    def which() -> Asked | None:
        good = rng.random() < 0.5
        right = [key for key, each in liked.items() if each is good]
        wrong = [key for key in own if key not in right]
        if not right or not wrong:
            return None
        asks = side(held, PRAISED if good else BLAMED)
        return pick(rng, rng.choice(asks), name(rng.choice(right)), [name(key) for key in wrong], abstain_share=0.2)

    def is_it() -> Asked:
        good, key = rng.random() < 0.5, rng.choice(list(liked) if rng.random() < 0.8 else list(own))
        text = rng.choice(side(held, IS_PRAISED if good else IS_BLAMED)).format(x=name(key))
        return noul(text), liked.get(key) is good

    def mentioned() -> Asked:
        key = rng.choice(list(liked) if rng.random() < 0.5 else list(own))
        return noul(rng.choice(side(held, MENTIONED)).format(x=name(key))), key in liked

    def whole() -> Asked:
        signs = set(liked.values())
        level = 1 if len(signs) == 2 else 2 if True in signs else 0
        return score(rng.choice(side(held, WHOLE)), list(rng.choice(BALANCES))), level

    return [which, which, is_it, is_it, mentioned, whole]
