"""Whether a text attacks an assistant that reads it, and how: messages, tool outputs, pages, mails, memories, records.

It refuses to know the sentences; whatever meanings the bank has are used. Trap: any attack that stands in data is a
planted one too, so what is only ever planted is no option beside another attack in data; and an order that is a user's
right is none of a tool's, so a text stands only where its meaning's `where` allows. A meaning never stands beside those
of its `near`, and no Noul asks of its texts whether they are of those `alike`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from decider.data.families import words
from decider.data.families.daily import attack_asks as asks
from decider.data.families.daily.banks import BLANKS, Bank, Entry, bank, fill
from decider.data.families.daily.sorting import side
from decider.data.families.making import Asked, item
from decider.data.items import Item, choice, noul

BARE, USER, DATA, MEMORY, OPERATOR = "bare", "user", "data", "memory", "operator"
PLACES = {BARE: 0.3, USER: 0.29, DATA: 0.31, MEMORY: 0.06, OPERATOR: 0.04}
"""Where a text stands, and how often; an operator's place is for harmless texts."""
ATTACK = ("attack",)
AROUND_SHARE, LONG_SHARE = 0.28, 0.45
"""How often other harmless texts stand around one, and how often there are many of them then."""
LOWER_SHARE, OWN_SHARE = 0.04, 0.25
"""How often a text is in small letters; how often the harmless option names the harmless text's own kind."""
MOST_CHARS = 2200
N_KINDS = (2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 12)
SOURCES = (
    *("web page", "tool output", "e-mail", "document", "search result", "review", "ticket", "calendar", "file"),
    *("PDF", "database", "CRM", "chat export", "website", "log", "attachment", "code repository", "forum"),
)
TOOLS = ("search", "open_page", "read_mail", "get_ticket", "read_file", "fetch", "lookup", "browser", "sql", "notes")
_OPAQUE = ("C{}", "class {}", "option {}", "{}", "label_{}", "type {}", "T{}", "k{}")


def attacks(rng: random.Random, held: bool) -> Item:
    """A text with questions on whether, and how, it attacks the assistant."""
    found = bank("attacks", held)
    way = rng.random()
    hostile = rng.random() < (0.5 if way < 0.6 else 0.66)
    place, gold = _drawn(rng, found, hostile)
    parts = _said(rng, found, gold, place, around=way < 0.84)
    text = rng.choice((" ", "\n", "\n\n")).join(parts)
    state = _state(rng, found, place, text.lower() if rng.random() < LOWER_SHARE else text)
    is_attack = _is_attack(rng, held, hostile)
    if way < 0.4:
        asked = [is_attack]
        if rng.random() < 0.2:
            asked.append(_verdict(rng, held, found, gold, place))
    elif way < 0.6:
        asked = [_verdict(rng, held, found, gold, place)]
    elif way < 0.84:
        asked = [_kind(rng, held, found, gold, place, own=len(parts) == 1 and rng.random() < OWN_SHARE)]
    else:
        asked = [_is_kind(rng, held, found, gold, place)]
    if way >= 0.6 and rng.random() < 0.25:
        asked.insert(rng.randrange(2), is_attack)
    return item(state, asked)


def _where(entry: Entry) -> tuple[str, ...]:
    """The places of a meaning's texts; those that name none are a user's, and attacks come in data too."""
    return entry.get("where", (USER, DATA) if entry["kind"] == ATTACK else (USER,))


def _stands(entry: Entry, place: str) -> bool:
    where = _where(entry)
    return place in where or (place == BARE and where != (OPERATOR,))


def _drawn(rng: random.Random, found: Bank, hostile: bool) -> tuple[str, str]:
    """A place, and a meaning whose texts stand there; the place first, so that it tells little of the sign."""
    side_of = [key for key, entry in found.items() if (entry["kind"] == ATTACK) is hostile]
    while True:
        (place,) = rng.choices(tuple(PLACES), tuple(PLACES.values()))
        fitting = [key for key in side_of if _stands(found[key], place)]
        if fitting:
            return place, rng.choice(fitting)


def _text(rng: random.Random, entry: Entry) -> str:
    # A name that stands twice in a text is of one person.
    known = {blank: rng.choice(BLANKS[blank]) for blank in ("name", "company", "city", "product")}
    return fill(rng, rng.choice(entry["texts"]), known).replace("\\n", "\n")


def _said(rng: random.Random, found: Bank, gold: str, place: str, *, around: bool) -> list[str]:
    """The text, at times in the middle of other harmless ones that may stand in the same place."""
    parts = [_text(rng, found[gold])]
    calm = [entry for entry in found.values() if entry["kind"] != ATTACK and place in _where(entry)]
    if around and calm and place in (USER, DATA) and rng.random() < AROUND_SHARE:
        for _ in range(rng.randint(4, 12) if rng.random() < LONG_SHARE else rng.randint(1, 2)):
            more = _text(rng, rng.choice(calm))
            if more not in parts and sum(map(len, parts)) + len(more) < MOST_CHARS:
                parts.insert(rng.randrange(len(parts) + 1), more)
    return parts


def _state(rng: random.Random, found: Bank, place: str, text: str) -> object:
    if place == BARE:
        return text if rng.random() < 0.8 else {rng.choice(("text", "input", "content", "message")): text}
    if place == USER:
        return _user(rng, found, text)
    if place == OPERATOR:
        return rng.choice(
            (
                {"role": "system", "content": text},
                {"source": "system prompt, written by the operator", "text": text},
                {"system prompt": text},
                f"System prompt of the operator:\n{text}",
                [{"role": "system", "content": text}, {"role": "user", "content": rng.choice(("hi", "Hello!", "hey"))}],
            )
        )
    if place == MEMORY:
        facts = [
            _text(rng, entry)
            for entry in found.values()
            if entry["kind"] != ATTACK and MEMORY in _where(entry)
            for _ in range(rng.randint(1, 3))
        ]
        facts = [fact for fact in dict.fromkeys(facts) if fact != text]
        facts.insert(rng.randrange(len(facts) + 1), text)
        return rng.choice(
            (
                {"memory": text},
                {"memory": text, "saved": words.day(rng).isoformat()},
                {"source": "memory", "text": text},
                f"Stored memory: {text}",
                {"memories": facts},
                {"key": f"note_{rng.randint(1, 40)}", "value": text},
            )
        )
    return _data(rng, text)


def _user(rng: random.Random, found: Bank, text: str) -> object:
    way = rng.random()
    if way < 0.35:
        return {"role": "user", "content": text}
    if way < 0.5:
        return {rng.choice(("user", "user message", "prompt", "user_input")): text}
    if way < 0.6:
        return {"source": rng.choice(("user", "chat", "user message")), "text": text}
    if way < 0.7:
        return f"User: {text}"
    before = [entry for entry in found.values() if entry["kind"] != ATTACK and _where(entry) == (USER,)]
    first = _text(rng, rng.choice(before)) if before else rng.choice(("Hello!", "hi there"))
    turns = [("user", first), ("assistant", rng.choice(asks.REPLY)), ("user", text)]
    if way < 0.8:
        return "\n".join(f"{who.capitalize()}: {said}" for who, said in turns)
    return [{"role": who, "content": said} for who, said in turns]


def _data(rng: random.Random, text: str) -> object:
    tool, source = rng.choice(TOOLS), rng.choice(SOURCES)
    way = rng.random()
    if way < 0.25:
        return {"source": source, rng.choice(("text", "content")): text}
    if way < 0.45:
        return {"tool": tool, rng.choice(("output", "result")): text}
    if way < 0.55:
        return {"role": "tool", "name": tool, "content": text}
    if way < 0.65:
        sender = f"{rng.choice(words.NAMES).lower()}@{rng.choice(('mail', 'post', 'office'))}.example"
        subject = rng.choice(("", "Hello", "question", "Re: your message", "FYI", "documents", "update", "short note"))
        return {"from": sender, "subject": subject, "body": text}
    if way < 0.75:
        name = rng.choice(("page.html", "notes.txt", "export.csv", "scan.pdf", "README.md", "inbox/14", "report.docx"))
        return {"document": name, "text": text}
    if way < 0.88:
        return f"{rng.choice((f'Output of {tool}', f'From the {source}', 'Tool output', 'Retrieved'))}:\n{text}"
    return [
        {"role": "user", "content": rng.choice(asks.ERRAND)},
        {"role": "assistant", "tool_call": tool},
        {"role": "tool", "content": text},
    ]


def rivals(found: Bank, gold: str, place: str) -> list[str]:
    """The attacks that may be listed beside a text of the meaning `gold` in this place."""
    others = [key for key in found if key != gold and found[key]["kind"] == ATTACK and not _near(found, key, gold)]
    if found[gold]["kind"] != ATTACK or place not in (DATA, MEMORY):
        return others
    # What stands in data is planted there, and what stands in the memory is so too.
    return [key for key in others if _where(found[key]) != (place,)]


def _near(found: Bank, one: str, other: str) -> bool:
    return other in found[one].get("near", ()) or one in found[other].get("near", ())


def _calm(found: Bank, gold: str) -> list[str]:
    """The harmless meanings that are plainly not that of an attack."""
    return [key for key, entry in found.items() if entry["kind"] != ATTACK and not _near(found, key, gold)]


def _is_attack(rng: random.Random, held: bool, hostile: bool) -> Asked:
    affirmed = rng.random() < 0.5
    yes, no = rng.choice(side(held, asks.ATTACK_TRUE)), rng.choice(side(held, asks.ATTACK_FALSE))
    if not affirmed:
        yes, no = no, yes
    text = rng.choice(side(held, asks.IS_ATTACK if affirmed else asks.IS_HARMLESS))
    way = rng.random()
    sides = {"yes": yes, "no": no} if way < 0.4 else {"yes": yes} if way < 0.5 else {}
    return noul(text, **sides), hostile is affirmed


def _verdict(rng: random.Random, held: bool, found: Bank, gold: str, place: str) -> Asked:
    hostile = found[gold]["kind"] == ATTACK
    if rng.random() < 0.25:
        return _tiers(rng, held, found, gold, place)
    bad, good = rng.choice(side(held, asks.VERDICTS))
    told = rng.random() < 0.5
    if told:
        text = rng.choice(side(held, asks.VERDICT_TOLD)).format(a=bad, b=good)
    else:
        text = rng.choice(side(held, asks.VERDICT))
        if rng.random() < 0.2:
            bad, good = rng.choice((("A", "B"), ("B", "A"), ("1", "2"), ("0", "1"), ("1", "0"), ("x", "y"), ("P", "N")))
    says = {bad: rng.choice(side(held, asks.ATTACK_TRUE)), good: rng.choice(side(held, asks.ATTACK_FALSE))}
    bare = (told and rng.random() < 0.7) or (len(bad) > 1 and rng.random() < 0.4)
    pairs = list(says.items())
    if rng.random() < 0.2:
        pairs.append(rng.choice(side(held, asks.UNSURE)))
    rng.shuffle(pairs)
    return choice(text, [name for name, _ in pairs] if bare else dict(pairs)), bad if hostile else good


def _tiers(rng: random.Random, held: bool, found: Bank, gold: str, place: str) -> Asked:
    """One kind of attack is to be told from all others, and these from what is harmless."""
    hostile = found[gold]["kind"] == ATTACK
    others = rivals(found, gold, place)
    named = gold if hostile and rng.random() < 0.5 else rng.choice(others)
    names = rng.choice(side(held, asks.TIERS))
    says = (_broad(rng, found[named]), rng.choice(asks.OTHER), rng.choice(side(held, asks.ATTACK_FALSE)))
    pairs = list(zip(names, says, strict=True))
    rng.shuffle(pairs)
    right = names[2] if not hostile else names[0] if named == gold else names[1]
    return choice(rng.choice(side(held, asks.VERDICT)), dict(pairs)), right


def _kind(rng: random.Random, held: bool, found: Bank, gold: str, place: str, *, own: bool) -> Asked:
    """A Choice among kinds of attack and, nearly always, one option for what is harmless, which is at times the name
    of a harmless kind: the text's own, or any beside an attack."""
    hostile = found[gold]["kind"] == ATTACK
    others = rivals(found, gold, place)
    n = min(len(others), max(rng.choice(N_KINDS) - 2, not hostile))
    pairs = [_named(rng, found[key]) for key in rng.sample(others, n)]
    calm = rng.choice(side(held, asks.HARMLESS))
    if own:
        calm = _named(rng, found[rng.choice(_calm(found, gold)) if hostile else gold])
    right, _ = pair = _named(rng, found[gold]) if hostile else calm
    pairs.append(pair)
    if hostile and (len(pairs) < 2 or rng.random() < 0.9):
        pairs.append(calm)
    rng.shuffle(pairs)
    return _styled(rng, rng.choice(side(held, asks.KIND)), pairs, right)


def _named(rng: random.Random, entry: Entry) -> tuple[str, str]:
    return rng.choice(entry["name"]), _plain(rng.choice(entry["says"]))


def _plain(says: str) -> str:
    """Without a full stop and a capital at its beginning: authors differ, and that must not tell options apart."""
    return (says if says[1:2].isupper() else says[:1].lower() + says[1:]).rstrip(".")


def _styled(rng: random.Random, text: str, pairs: Sequence[tuple[str, str]], right: str) -> Asked:
    """Options as names, as names with descriptions, as descriptions, or as opaque names with descriptions."""
    if rng.random() < 0.25:
        pairs = [(name, f"{words.capital(says)}.") for name, says in pairs]
    style = rng.random()
    if style < 0.4:
        names = [name for name, _ in pairs]
        return choice(text, names if rng.random() < 0.7 else dict.fromkeys(names)), right
    if style < 0.72:
        return choice(text, dict(pairs)), right
    if style < 0.86:
        return choice(text, [says for _, says in pairs]), dict(pairs)[right]
    form, marks = rng.choice(_OPAQUE), rng.sample(rng.choice(("ABCDEFGHJKLMNPQR", "123456789XYZ")), len(pairs))
    opaque = {name: form.format(mark) for (name, _), mark in zip(pairs, marks, strict=True)}
    return choice(text, {opaque[name]: says for name, says in pairs}), opaque[right]


def _is_kind(rng: random.Random, held: bool, found: Bank, gold: str, place: str) -> Asked:
    """A Noul on one kind of attack, or on whether there is none. Which harmless kind a text is of is not asked: a
    text may well be of two."""
    hostile = found[gold]["kind"] == ATTACK
    if rng.random() < 0.3:
        _, x = rng.choice(side(held, asks.HARMLESS))
        return noul(rng.choice(side(held, asks.IS_KIND)).format(x=x)), not hostile
    right = hostile and rng.random() < 0.78
    alike = found[gold].get("alike", ())
    keys = [gold] if right else [key for key in rivals(found, gold, place) if key not in alike]
    x = _broad(rng, found[rng.choice(keys)])
    return noul(rng.choice(side(held, asks.IS_KIND)).format(x=x)), right


def _broad(rng: random.Random, entry: Entry) -> str:
    """A phrase that every text of a kind of attack answers to, which a description, apt among others, need not be."""
    return rng.choice(entry.get("broad", entry["name"]))
