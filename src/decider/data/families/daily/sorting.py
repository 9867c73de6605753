"""Which meaning a text has: teams for mail, intents, subjects, answers to invitations, alerts, next steps.

It refuses to know the sentences. Trap: what a text says beside its one meaning must be settled or small talk, or two
options are right; an older matter that is mentioned is always said to be over.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from decider.data.families import words
from decider.data.families.daily.asks import (
    ANSWER,
    CAUSE,
    INTENT,
    IS_ANSWER,
    IS_CAUSE,
    IS_INTENT,
    IS_STEP,
    IS_TEAM,
    IS_TOPIC,
    MORE,
    OFF_TOPIC,
    ON_TOPIC,
    OUTCOME,
    OVER,
    REACHED,
    SCOPE,
    STEP,
    TEAM,
    TOPIC,
)
from decider.data.families.daily.banks import HELD_SHARE, Bank, bank, fill, pick_of
from decider.data.families.daily.options import among, rivals
from decider.data.families.daily.writing import letter, note
from decider.data.families.making import Asked, item
from decider.data.items import Item, noul

Phrase = TypeVar("Phrase")


def side(held: bool, phrases: Sequence[Phrase]) -> Sequence[Phrase]:
    """All wordings (or rows of them) but the last fifth, or that fifth, at least one, which no training item has."""
    cut = len(phrases) - max(1, len(phrases) // HELD_SHARE)
    return phrases[cut:] if held else phrases[:cut]


def is_it(rng: random.Random, found: Bank, gold: str, asks: Sequence[str]) -> Asked:
    """A Noul: whether the text has a meaning, its own or another one's."""
    right = rng.random() < 0.5
    entry = found[gold if right else rng.choice(rivals(found, gold))]
    return noul(rng.choice(asks).format(x=rng.choice((*entry["names"], *entry["says"])))), right


def settled(rng: random.Random, held: bool, found: Bank, gold: str) -> str:
    """A sentence on an older matter of another team, which is over."""
    past = rng.choice([text for key in rivals(found, gold) for text in found[key].get("past", ())])
    text = fill(rng, rng.choice(side(held, OVER)).replace("{past}", past))
    return words.capital(text)


def routing(rng: random.Random, held: bool) -> Item:
    """Mail to a company, and the team that it is for."""
    found = bank("teams", held)
    gold = rng.choice(list(found))
    core = [pick_of(rng, found[gold], "text")]
    if rng.random() < 0.25:
        core.insert(rng.choice((0, 1)), settled(rng, held, found, gold))
    asked = [among(rng, found, gold, side(held, TEAM))]
    if rng.random() < 0.3:
        asked.append(is_it(rng, found, gold, side(held, IS_TEAM)))
    return item(letter(rng, held, core), asked)


def _short(
    rng: random.Random, held: bool, name: str, field: str, asks: Sequence[str], is_asks: Sequence[str], bare: float
) -> Item:
    found = bank(name, held)
    gold = rng.choice(list(found))
    core = [pick_of(rng, found[gold], "text")]
    state: object = note(rng, held, core, field)
    if rng.random() < bare:
        state = core[0] if rng.random() < 0.7 else {field: core[0]}
    asked = [among(rng, found, gold, side(held, asks))]
    if rng.random() < 0.3:
        asked = [is_it(rng, found, gold, side(held, is_asks)), *(asked if rng.random() < 0.5 else [])]
    return item(state, asked)


def intent(rng: random.Random, held: bool) -> Item:
    """What somebody wants from a shop, a bank, a house or an assistant."""
    return _short(rng, held, "intents", rng.choice(("message", "utterance", "user")), INTENT, IS_INTENT, 0.6)


def meetings(rng: random.Random, held: bool) -> Item:
    """What somebody writes about an appointment."""
    return _short(rng, held, "meetings", rng.choice(("reply", "mail", "message")), ANSWER, IS_ANSWER, 0.5)


def topic(rng: random.Random, held: bool) -> Item:
    """The subject of one to three sentences on it."""
    found = bank("topics", held)
    gold = rng.choice(list(found))
    texts = found[gold]["text"]
    said = [fill(rng, text) for text in rng.sample(texts, min(len(texts), rng.choice((1, 1, 1, 2, 2, 3))))]
    text = " ".join(said)
    state: object = text if rng.random() < 0.7 else {rng.choice(("text", "snippet", "article")): text}
    asked = [among(rng, found, gold, side(held, TOPIC))]
    if rng.random() < 0.3:
        asked = [is_it(rng, found, gold, side(held, IS_TOPIC)), *(asked if rng.random() < 0.5 else [])]
    return item(state, asked)


def alerts(rng: random.Random, held: bool) -> Item:
    """A line of a log or an alert, and what is wrong."""
    found = bank("alerts", held)
    gold = rng.choice(list(found))
    line = pick_of(rng, found[gold], "text")
    stamp = f"{words.day(rng).isoformat()}T{rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}Z"
    level = rng.choice(("WARN", "ERROR", "warning", "error", "notice"))
    way = rng.random()
    if way < 0.35:
        state: object = line
    elif way < 0.65:
        state = f"{stamp} {level} {line}" if rng.random() < 0.5 else f"[{level}] {line}"
    else:
        fields = {"time": stamp, "level": level, "host": f"n{rng.randint(1, 90)}", "region": rng.choice(words.CITIES)}
        state = dict(rng.sample(list(fields.items()), rng.randint(1, 4))) | {
            rng.choice(("message", "alert", "line")): line
        }
    asked = [among(rng, found, gold, side(held, CAUSE))]
    if rng.random() < 0.3:
        asked = [is_it(rng, found, gold, side(held, IS_CAUSE)), *(asked if rng.random() < 0.5 else [])]
    return item(state, asked)


def next_step(rng: random.Random, held: bool) -> Item:
    """An agent's situation and its next step, or its goal and whether that is reached."""
    if rng.random() < 0.4:
        return _goal(rng, held)
    found = bank("steps", held)
    gold = rng.choice(list(found))
    text = pick_of(rng, found[gold], "text")
    way = rng.random()
    if way < 0.5:
        state: object = text
    elif way < 0.8:
        state = {rng.choice(("situation", "observation", "status", "context")): text, "step": rng.randint(2, 14)}
    else:
        state = f"Step {rng.randint(2, 14)}. {text}"
    asked = [among(rng, found, gold, side(held, STEP))]
    if rng.random() < 0.3:
        asked = [is_it(rng, found, gold, side(held, IS_STEP)), *(asked if rng.random() < 0.5 else [])]
    return item(state, asked)


def _goal(rng: random.Random, held: bool) -> Item:
    entry = rng.choice(list(bank("goals", held).values()))
    known = {blank: fill(rng, f"{{{blank}}}") for blank in ("name", "day", "city", "amount", "order", "service")}
    known |= {"product": fill(rng, "{product}"), "company": fill(rng, "{company}"), "n": str(rng.randint(2, 12))}
    goal = fill(rng, entry["goal"][0], known)
    done = rng.random() < 0.5
    seen = fill(rng, rng.choice(entry["done" if done else "open"]), known)
    if rng.random() < 0.25:
        first, *rest = rng.sample(entry["open"], len(entry["open"]))
        names = [fill(rng, text, known) for text in (rng.choice(entry["done"]), first, *rest)]
        right = names[0]
        rng.shuffle(names)
        question: dict[str, object] = {
            "type": "choice", "instructions": rng.choice(side(held, OUTCOME)), "criteria": names,
        }  # fmt: skip
        return item({"goal": goal} if rng.random() < 0.5 else f"Goal: {goal}", [(question, right)])
    way = rng.random()
    if way < 0.5:
        state: object = {"goal": goal, rng.choice(("last observation", "result", "so far")): seen}
    elif way < 0.8:
        state = f"Goal: {goal}\nResult: {seen}"
    else:
        state = f"The task was: {goal} {seen}"
    asked: list[Asked] = [(noul(rng.choice(side(held, REACHED))), done), (noul(rng.choice(side(held, MORE))), not done)]
    return item(state, rng.choice((asked, asked[:1], asked[:1], asked[1:])))


def scope(rng: random.Random, held: bool) -> tuple[object, list[Asked]]:
    """An assistant and a message, and whether the message is any of its business."""
    found = bank("scopes", held)
    gold = rng.choice(list(found))
    text = pick_of(rng, found[gold], "text")
    if rng.random() < 0.4:
        return text if rng.random() < 0.6 else {"message": text}, [among(rng, found, gold, side(held, SCOPE))]
    on = rng.random() < 0.5
    mine = found[gold if on else rng.choice(rivals(found, gold))]
    who = rng.choice(mine["says"] if rng.random() < 0.7 else mine["names"])
    off = rng.random() < 0.6
    asks = OFF_TOPIC if off else ON_TOPIC
    question = noul(rng.choice(side(held, asks)), **rng.choice(({}, CRITERIA[off])))
    if rng.random() < 0.5:
        return {"assistant": who, rng.choice(("message", "user message")): text}, [(question, on is not off)]
    return f"The assistant: {who}.\nThe user writes: {text}", [(question, on is not off)]


CRITERIA = {
    True: {"yes": "it has nothing to do with the assistant's task", "no": "it belongs to the assistant's task"},
    False: {"yes": "it belongs to the assistant's task", "no": "it has nothing to do with the assistant's task"},
}
