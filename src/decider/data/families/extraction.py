"""The right string among ones that are nearly the same, words that occur in a text, and records that agree.

It refuses to know meanings. Trap: an option that differs from the right one in a letter must not itself stand in the
text in the role that is asked for.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable

from decider.data.families import words
from decider.data.families.making import NONE_FITS, NOT_STATED, Asked, item, pick, several
from decider.data.items import Item, noul


def _phone(rng: random.Random) -> str:
    return f"+{rng.randint(20, 99)} {rng.randint(100, 999)} {rng.randint(1000, 9999)}"


def _mail(rng: random.Random) -> str:
    name = rng.choice(words.NAMES).lower()
    return f"{name}{rng.randint(1, 99)}@{words.made_up(rng)}.example"


def _invoice(rng: random.Random) -> str:
    return f"INV-{rng.randint(10000, 99999)}"


def _serial(rng: random.Random) -> str:
    return "".join(rng.choices("ABCDEFGHKLMNPRTUVWXYZ23456789", k=8))


def _amount(rng: random.Random) -> str:
    return f"{rng.randint(10, 9999)}.{rng.randint(0, 99):02d}"


def _address(rng: random.Random) -> str:
    return f"{rng.randint(1, 300)} {words.capital(words.made_up(rng))} Street"


def _date(rng: random.Random) -> str:
    return words.day(rng).isoformat()


KINDS: dict[str, Callable[[random.Random], str]] = {
    "phone number": _phone,
    "e-mail address": _mail,
    "invoice number": _invoice,
    "serial number": _serial,
    "amount": _amount,
    "street address": _address,
    "delivery date": _date,
}
ROLES = ("current", "former", "wrong", "second", "temporary", "confirmed")
SAYS = ("The {role} {kind} is {x}.", "Please note the {role} {kind}: {x}.", "As {role} {kind} we have {x}.")
FILLERS = (
    "Thank you for your letter.",
    "We are sorry for the delay.",
    "Our office is closed on Sundays.",
    "Kind regards from the whole team.",
    "Nothing else has changed.",
)


def near_copy(rng: random.Random, text: str) -> str:
    """`text` with one or two characters changed or exchanged."""
    while True:
        letters = list(text)
        places = [place for place, letter in enumerate(letters) if letter.isalnum()]
        for _ in range(rng.choice((1, 1, 2))):
            place = rng.choice(places)
            if rng.random() < 0.35 and place + 1 in places:
                letters[place], letters[place + 1] = letters[place + 1], letters[place]
            elif letters[place].isdigit():
                letters[place] = rng.choice(string.digits)
            elif letters[place].isupper():
                letters[place] = rng.choice(string.ascii_uppercase)
            else:
                letters[place] = rng.choice(string.ascii_lowercase)
        if "".join(letters) != text:
            return "".join(letters)


def extraction(rng: random.Random) -> Item:
    """The number, address or date with the role asked for, among near-copies."""
    kinds = rng.sample(list(KINDS), rng.randint(1, 2))
    found: dict[tuple[str, str], str] = {}
    for kind in kinds:
        first = KINDS[kind](rng)
        for role in rng.sample(ROLES, rng.randint(2, 4)):
            value = first if not any(k == kind for k, _ in found) else near_copy(rng, first)
            while value in found.values():
                value = KINDS[kind](rng)
            found[kind, role] = value
    if rng.random() < 0.3:
        state: object = [{"kind": kind, "role": role, "text": x} for (kind, role), x in found.items()]
    else:
        told = [rng.choice(SAYS).format(role=role, kind=kind, x=x) for (kind, role), x in found.items()]
        told += rng.sample(FILLERS, rng.randint(0, 3))
        rng.shuffle(told)
        state = " ".join(told)

    def ask() -> Asked:
        kind = rng.choice(kinds)
        roles = [role for each, role in found if each == kind]
        text = rng.choice(
            ("What is the {role} {kind}?", "Which {kind} is given as the {role} one?", "Pick out the {role} {kind}.")
        )
        if rng.random() < 0.02:
            role = rng.choice([role for role in ROLES if role not in roles])
            wrong = [found[kind, each] for each in roles] + [near_copy(rng, found[kind, roles[0]])]
            way_out = rng.choice((*NONE_FITS, *NOT_STATED))
            names = list(dict.fromkeys([*wrong, way_out]))
            return _choice(rng, text.format(role=role, kind=kind), names, way_out)
        role = rng.choice(roles)
        gold = found[kind, role]
        wrong = [found[kind, each] for each in roles if each != role]
        wrong += [near_copy(rng, gold) for _ in range(rng.randint(0, 8))]
        wrong = [each for each in wrong if each != gold]
        if rng.random() < 0.11:
            # More often than the role is missing: a way out must not be a sign that it is right.
            names = list(dict.fromkeys([gold, *wrong, rng.choice((*NONE_FITS, *NOT_STATED))]))
            return _choice(rng, text.format(role=role, kind=kind), names, gold)
        return pick(rng, text.format(role=role, kind=kind), gold, wrong, abstain_share=0.04)

    return item(state, several(rng, [ask]))


def _choice(rng: random.Random, text: str, names: list[str], gold: str) -> Asked:
    rng.shuffle(names)
    return {"type": "choice", "instructions": text, "criteria": names}, gold


def occurs(rng: random.Random) -> Item:
    """Words, letters and beginnings: what stands in a text, and where."""
    pool = rng.sample((*words.THINGS, *words.CITIES, *words.COLOURS, *words.NAMES), 24)
    listed = [word if rng.random() < 0.8 else words.made_up(rng) for word in pool[: rng.randint(3, 10)]]
    listed = list(dict.fromkeys(listed))
    absent = [word for word in pool[12:] if word not in listed]
    shape = rng.randrange(3)
    state: object = ", ".join(listed) if shape == 0 else {"words": listed} if shape == 1 else "\n".join(listed)

    def present() -> Asked:
        texts = ("Which of these words stands in the list?", "Which of these occurs here?")
        return pick(rng, rng.choice(texts), rng.choice(listed), absent, abstain_share=0.1)

    def missing() -> Asked:
        texts = ("Which of these words does not stand in the list?", "Which of these is missing here?")
        return pick(rng, rng.choice(texts), rng.choice(absent), listed, abstain_share=0)

    def is_there() -> Asked:
        word = rng.choice(listed if rng.random() < 0.5 else absent)
        return noul(f"Does the word '{word}' stand in the list?"), word in listed

    def place() -> Asked:
        where = rng.randrange(min(len(listed), len(words.ORDINALS)))
        name = "last" if where == len(listed) - 1 and rng.random() < 0.6 else words.ORDINALS[where]
        return pick(rng, f"Which word is the {name} one in the list?", listed[where], listed, abstain_share=0.04)

    def after() -> Asked:
        where = rng.randrange(len(listed) - 1)
        return pick(
            rng, f"Which word comes right after '{listed[where]}'?", listed[where + 1], listed, abstain_share=0.04
        )

    def length() -> Asked | None:
        longest = max(listed, key=len)
        if sum(len(word) == len(longest) for word in listed) > 1:
            return None
        return pick(rng, "Which word of the list has the most letters?", longest, listed, abstain_share=0)

    return item(state, several(rng, [present, missing, missing, is_there, place, after, length]))


def same_record(rng: random.Random) -> Item:
    """Two records written in two ways: do they agree, and where not."""
    name = f"{rng.choice(words.NAMES)} {words.capital(words.made_up(rng))}"
    born, city, phone, number = words.day(rng, 1950, 2005), rng.choice(words.CITIES), _phone(rng), words.code(rng)
    first = {"name": name, "born": born.isoformat(), "city": city, "phone": phone, "member number": number}
    kept = ["name", *rng.sample(["born", "city", "phone", "member number"], rng.randint(1, 4))]
    other = {
        "name": name,
        "born": words.long_date(born),
        "city": city.upper(),
        "phone": phone.replace(" ", ""),
        "member number": number.lower(),
    }
    wrong = {
        "name": f"{rng.choice(words.NAMES)} {name.split()[1]}",
        "born": words.long_date(words.day(rng, 1950, 2005)),
        "city": rng.choice(words.CITIES).upper(),
        "phone": near_copy(rng, phone.replace(" ", "")),
        "member number": near_copy(rng, number.lower()),
    }
    differs: list[str] = []
    for field in kept:
        if rng.random() < 0.25 and wrong[field] != other[field]:
            differs.append(field)
            other[field] = wrong[field]
    one, two = {field: first[field] for field in kept}, {field: other[field] for field in kept}
    if rng.random() < 0.5:
        state: object = {"first record": one, "second record": two}
    else:
        state = "\n".join(
            f"{title}: {'; '.join(f'{field} {value}' for field, value in record.items())}"
            for title, record in (("First record", one), ("Second record", two))
        )

    def agree() -> Asked:
        texts = (
            "Do the two records agree in every field, spelling aside?",
            "Apart from how they are written, are these two records the same?",
        )
        return noul(rng.choice(texts)), not differs

    def field_agrees() -> Asked:
        field = rng.choice(kept)
        return noul(f"Do both records give the same {field}?"), field not in differs

    def where() -> Asked | None:
        if len(differs) != 1:
            return None
        return pick(rng, "In which field do the records differ?", differs[0], first, abstain_share=0.05)

    return item(state, several(rng, [agree, agree, field_agrees, where]))
