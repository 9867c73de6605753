"""Rules applied to a case: lists of rules where the first that applies counts, and policies with exceptions.

It refuses to know laws. Trap: a rule that does not decide may still hold of the case; "does rule 2 hold" and "which
rule decides" are two questions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from decider.data.families import words
from decider.data.families.amounts import within
from decider.data.families.making import Asked, ease, item, n_shared, pick, several
from decider.data.items import Item, noul

FACTS: Mapping[str, tuple[str, ...]] = {
    "city": words.CITIES[:12],
    "channel": ("e-mail", "phone", "chat", "letter", "shop"),
    "customer type": ("private", "business", "reseller", "student"),
    "colour": words.COLOURS,
    "department": words.DEPARTMENTS,
}
AMOUNTS = ("amount", "weight", "age in days", "number of items", "distance")
OUTCOMES = (
    *("send to billing", "send to returns", "approve", "reject", "ask a manager", "call back", "archive"),
    *("escalate", "ship today", "hold for review", "refund", "offer a discount", "ask for a receipt"),
)


@dataclass(frozen=True, slots=True)
class _Condition:
    """One field against a value, or against a number."""

    field: str
    limit: str
    value: str | int

    def said(self) -> str:
        return f"the {self.field} is {self.limit} {self.value}".replace("  ", " ")

    def holds(self, case: Mapping[str, str | int]) -> bool:
        found = case[self.field]
        if isinstance(found, int) and isinstance(self.value, int):
            return within(self.limit, found, self.value)
        return (found == self.value) is (self.limit != "not")


NEAR, FAR = (-60, -20, -5, -1, 0, 1, 5, 20, 60), (-90, -60, -40, 40, 60, 90)
"""How far a limit lies from the number it is held against."""


def _condition(
    rng: random.Random, case: Mapping[str, str | int], taken: str | None = None, steps: Sequence[int] = NEAR
) -> _Condition:
    field = rng.choice([name for name in case if name != taken])
    found = case[field]
    if isinstance(found, int):
        number = max(0, found + rng.choice(steps))
        return _Condition(field, rng.choice(("above", "below", "at least", "at most")), number)
    value = found if rng.random() < 0.4 else rng.choice(FACTS[field])
    return _Condition(field, rng.choice(("", "", "", "not")), value)


def rules(rng: random.Random) -> Item:
    """Numbered rules, of which the first that holds of the case decides."""
    hard = ease(rng)
    most = (1, 2, 3)[hard]
    case: dict[str, str | int] = {
        name: rng.choice(FACTS[name]) for name in rng.sample(list(FACTS), rng.randint(1, most))
    }
    case |= {name: rng.randint(1, 200) for name in rng.sample(AMOUNTS, rng.randint(1, min(most, 2)))}
    n = (rng.randint(1, 2), rng.randint(2, 3), rng.randint(2, 6))[hard]
    outcomes = rng.sample(OUTCOMES, n + 1)
    conditions: list[tuple[_Condition, ...]] = []
    for _ in range(n):
        first = _condition(rng, case, None, NEAR if hard == 2 else FAR)
        two = hard == 2 and rng.random() < 0.3
        conditions.append((first, _condition(rng, case, first.field)) if two else (first,))
    holds = [all(each.holds(case) for each in both) for both in conditions]
    gold = outcomes[holds.index(True)] if any(holds) else outcomes[n]
    said = [
        f"If {' and '.join(each.said() for each in both)}, {what}."
        for both, what in zip(conditions, outcomes, strict=False)
    ]
    said.append(f"Otherwise, {outcomes[n]}.")
    if rng.random() < 0.4:
        state: object = {"rules (the first that applies decides)": said, "case": dict(case)}
    else:
        listed = "\n".join(f"{number}. {text}" for number, text in enumerate(said, 1))
        facts = rng.choice(("; ", ", ")).join(f"{name}: {value}" for name, value in case.items())
        state = f"Rules, of which the first that applies decides:\n{listed}\n\nCase: {facts}"

    def outcome() -> Asked:
        text = rng.choice(
            ("What is to be done in this case?", "Which outcome do the rules give?", "Apply the rules: what follows?")
        )
        return pick(rng, text, gold, outcomes, abstain_share=0.05)

    def which() -> Asked:
        number = holds.index(True) + 1 if any(holds) else n + 1
        return pick(
            rng,
            "Which rule decides this case?",
            f"rule {number}",
            [f"rule {k + 1}" for k in range(n + 1)],
            abstain_share=0,
        )

    def one() -> Asked:
        number = rng.randrange(n)
        return noul(f"Is the condition of rule {number + 1} met, whatever the other rules say?"), holds[number]

    def is_it() -> Asked:
        what = gold if rng.random() < 0.5 else rng.choice(outcomes)
        return noul(f"Do the rules say here: {what}?"), what == gold

    return item(state, several(rng, [outcome, outcome, which, one, one, is_it], n_shared(rng)))


@dataclass(frozen=True, slots=True)
class _Policy:
    """What is allowed when, with an exception, and an exception to it."""

    allowed: str
    limit: str
    """With `{n}`."""
    quantity: str
    exception: str
    back: str
    low: int
    high: int


POLICIES = (
    _Policy(
        "a refund",
        "within {n} days of the purchase",
        "days since the purchase",
        "the seal is broken",
        "the item is faulty",
        7,
        60,
    ),
    _Policy(
        "free parking", "for up to {n} hours", "hours parked", "it is a weekday", "the driver is a resident", 1, 12
    ),
    _Policy(
        "entry to the lab",
        "with at least {n} hours of training",
        "hours of training",
        "the alarm is on",
        "the visitor is a firefighter",
        2,
        40,
    ),
    _Policy(
        "a loan extension",
        "for at most {n} weeks",
        "weeks asked for",
        "someone has reserved the book",
        "the reader is a teacher",
        1,
        10,
    ),
    _Policy(
        "free delivery",
        "from a total of {n} euros",
        "total in euros",
        "the address is on an island",
        "the customer has a yearly pass",
        20,
        120,
    ),
    _Policy(
        "working from home",
        "up to {n} days a week",
        "days a week asked for",
        "there is an inspection",
        "a child is ill",
        1,
        4,
    ),
    _Policy(
        "a discount", "from {n} items on", "number of items", "the items are on sale", "the buyer is a charity", 3, 50
    ),
    _Policy(
        "use of the company car",
        "for up to {n} kilometres",
        "kilometres planned",
        "the trip is private",
        "it is an emergency",
        20,
        500,
    ),
)
DECIDES = ("the general rule", "the exception", "the exception to the exception")


def policy(rng: random.Random) -> Item:
    """A rule, its exception, and at times an exception to that."""
    it = rng.choice(POLICIES)
    deep = rng.random() < 0.5
    n = rng.randint(it.low, it.high)
    value = max(0, n + rng.choice(((-20, 20), (-9, -5, 5, 9), (-20, -5, -2, -1, 0, 0, 1, 2, 5, 20))[ease(rng)]))
    from_on = it.limit.startswith(("from", "with at least"))
    ruled = value >= n if from_on else value <= n
    excepted, back = rng.random() < 0.5, deep and rng.random() < 0.5
    allowed = ruled and (not excepted or back)
    said = [
        f"{words.capital(it.allowed)} is granted {it.limit.format(n=n)}.",
        rng.choice(("Exception: it is not granted if {x}.", "It is refused, however, if {x}.")).format(x=it.exception),
    ]
    if deep:
        said.append(
            rng.choice(("This exception does not apply if {x}.", "The exception is waived if {x}.")).format(x=it.back)
        )
    flags = {it.exception: excepted} | ({it.back: back} if deep or rng.random() < 0.3 else {})
    if rng.random() < 0.4:
        facts: dict[str, object] = {it.quantity: value, **flags}
        state: object = {"policy": " ".join(said), "case": facts}
    else:
        told = [f"{words.capital(it.quantity)}: {value}."]
        told += [f"It is {'true' if flag else 'not true'} that {name}." for name, flag in flags.items()]
        state = f"{' '.join(said)}\n\nThe case: {' '.join(told)}"

    def granted() -> Asked:
        texts = (f"Is {it.allowed} granted in this case?", f"By this policy, is there a right to {it.allowed} here?")
        return noul(rng.choice(texts)), allowed

    def refused() -> Asked:
        return noul(f"Must {it.allowed} be refused in this case?"), not allowed

    def outcome() -> Asked:
        names = ["granted", "refused"]
        gold = "granted" if allowed else "refused"
        return pick(rng, f"What does the policy say about {it.allowed} here?", gold, names, abstain_share=0)

    def rule() -> Asked:
        return noul("Leaving exceptions aside, is the general rule's condition met?"), ruled

    def first() -> Asked:
        return noul("Does the condition of the exception hold in this case?"), excepted

    return item(state, several(rng, [granted, granted, refused, outcome, rule, first], n_shared(rng)))
