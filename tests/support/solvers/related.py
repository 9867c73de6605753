"""A solver of relations: what a case tells of the first quantity, and which claim about the second agrees with it.

Reads the bank anew. Trap: a case may stand in the question, in front of what is asked, so the last claim in a question
is the one asked and an earlier one is told.
"""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import Any

from solvers.daily import ENOUGH, bank, flat, rank
from solvers.reading import Answer

ALIKE = {"both alike", "no difference", "the same", "neither", "they do not differ"}
UNTOLD = {"cannot be told", "it does not say", "impossible to tell", "no way to know"}
STAYS = {"stays the same", "no change", "does not change", "it stays as it is"}
UP = r"ris|\bgo(es|ne)? up|increas|gr[oe]w|climb|\bup|higher|greater|\+"
EXCHANGED = (
    "other way (round|about)|swap|mixed up|exchange|upside down|traded|in the position|opposite|interchanged|confused"
    "|wrong way round"
)
MOVES = (
    r"(it )?(gets )?(an? )?(rises?|risen|goes|go|gone|up|down|upwards|downwards|falls?|fallen"
    r"|increased?s?|decreased?s?|grows?|shrinks?|climbs|drops|higher|lower|greater|smaller|[+-])( up| down)?"
)
VERBS = "goes up|goes down|rises|falls|increases|decreases|grows|shrinks|climbs|drops|does not change"
UNDONE = "opposite|reverse|other way|contrary|turn the change|other direction"
DOUBT = (
    "false\\?$|wrong|mistake|contradict|ruled out|against this|opposite of this|as an error|refuted|untrue|clash"
    "|incorrect"
)
ENDS = (
    r"of the two, (?P<s>{c})|compared with (?:{c}), (?P<s>{c})|(?P<s>{c}), unlike (?:{c}),|from now on, (?P<s>{c})"
    r"|as a result, (?P<s>{c})|after this, (?P<s>{c})|(?P<s>{c}) now"
)
BLANK = r"(?:_+|…|\[\.\.\.\]|\(\?\))"


@cache
def _predicates() -> list[tuple[str, str, bool, str, str]]:
    """Relation, quantity, whether it goes with more of the first quantity, the words, and the words with a gap."""
    found = []
    for key, entry in bank("relations").items():
        for field in ("x", "y"):
            for each in entry[field]:
                before, first, second, after = re.split(r"[\[|\]]", each)
                gap = re.escape(before) + BLANK + re.escape(after)
                found += [
                    (key, field, True, before + first + after, gap),
                    (key, field, False, before + second + after, gap),
                ]
    return found


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Compiled once: `re` itself keeps fewer than there are predicates."""
    return re.compile(text)


def _subjects(kind: str, thing: str, text: str) -> list[str]:
    names = set(re.findall(r"\b[A-Z][a-z]+\b", text)) - {"Now", "That", "Who", "Which", "It", "Then"}
    forms = [f"the first {thing}", f"the second {thing}", f"the {thing} on the left", f"the {thing} on the right"]
    forms += [f"this {thing}", f"that {thing}"] + [
        f"{thing} {mark}" for mark in ("A", "B", "1", "2", "X", "Y", "II", "I")
    ]
    forms = sorted(names) if kind in ("person", "place") else forms + [f"{name}'s {thing}" for name in sorted(names)]
    return [each for each in forms if re.search(rf"(?<!\w){re.escape(each)}(?!\w)", text, re.I)]


def _claims(key: str, text: str, subjects: list[str]) -> list[tuple[int, str, bool]]:
    """Where a claim ends, of whom it is, and whether it means more of the first quantity."""
    found = []
    for each, _field, more, says, _gap in _predicates():
        for subject in subjects if each == key else ():
            form = rf"(?<!\w){re.escape(subject)}(?:, unlike [^,]+,)?(?: now| that)? {re.escape(says)}(?!\w)"
            found += [(hit.end(), subject, more) for hit in re.finditer(form, text, re.I)]
    return sorted(found)


def _told(key: str, text: str, subjects: list[str]) -> dict[str, bool]:
    """Who has more of the first quantity, by clauses, or by the first claim there is."""
    found = {}
    entry = bank("relations")[key]
    for more, fields in ((True, ("hi", "up")), (False, ("lo", "down"))):
        for clause in (each for field in fields for each in entry.get(field, ())):
            for subject in subjects:
                form = re.escape(clause).replace(re.escape("{S}"), re.escape(subject))
                if re.search(rf"(?<!\w){form}(?!\w)", text, re.I):
                    found[subject] = more
    if not found:
        for _, subject, more in _claims(key, text, subjects)[:1]:
            found[subject] = more
            found |= {other: not more for other in subjects if other != subject}
    return found


def _fills(gap: str, option: str, says: str) -> bool:
    return re.fullmatch(gap.replace(BLANK, re.escape(option)), says) is not None


def _key(state: str, text: str, options: list[str]) -> str:
    """The relation whose rule is given and of which the question and the options speak; any of which they speak, where
    the rule is left unsaid."""
    whole, asked = f"{state}\n{text}", "\n".join((text, *options))
    entries = bank("relations")
    marks = [
        (len(says), key)
        for key, _, _, says, gap in _predicates()
        if says in asked or (_pattern(gap).search(text) and any(_fills(gap, option, says) for option in options))
    ]
    for key, entry in entries.items():
        marks += [(len(noun), key) for field in ("xn", "yn") for noun in entry[field] if noun in asked.lower()]
    assert marks, asked
    given = {
        key for key in {key for _, key in marks} if max(rank(each, whole) for each in entries[key]["rule"])[0] >= ENOUGH
    }
    seen = [mark for mark in marks if mark[1] in given] or [mark for mark in marks if _seen(mark[1], state)]
    return max(seen or marks)[1]


def _seen(key: str, state: str) -> bool:
    """Whether the state says anything of the relation."""
    entry = bank("relations")[key]
    clauses = [max(each.split("{S}"), key=len) for field in ("hi", "lo", "up", "down") for each in entry.get(field, ())]
    said = [*clauses, *(says for each, _, _, says, _ in _predicates() if each == key)]
    return any(each.strip().lower() in state.lower() for each in said)


def _side(word: str) -> bool:
    return bool(re.search(UP, word))


def solve_relations(state: Any, text: str, question: dict[str, Any]) -> Answer:
    criteria = question.get("criteria", {}) if question["type"] == "choice" else {}
    options = {name: (criteria[name] or name) if isinstance(criteria, dict) else name for name in criteria}
    known = ALIKE | UNTOLD | STAYS
    plain = {name: says for name, says in options.items() if name not in known}
    before = flat(state)
    key = _key(before, text, list(plain.values()))
    entry = bank("relations")[key]
    whole = f"{before}\n{text}"
    subjects = _subjects(entry["kind"][0], entry["thing"][0], "\n".join((whole, *plain.values())))
    nouns = {noun: field for field in ("xn", "yn") for noun in entry[field] if noun in text.lower()}
    gapped = any(
        _pattern(gap).search(text) and _fills(gap, option, says)
        for each, _, _, says, gap in _predicates()
        for option in plain.values()
        if each == key
    )
    if options and not gapped and all(re.fullmatch(MOVES, each) for each in plain.values()):
        measured = _measured(entry, text, nouns, lambda: _told(key, whole, subjects), plain, set(options) - set(plain))
        if measured is not None:
            return measured
    asked = _claims(key, text, subjects)
    if question["type"] == "noul":
        _, subject, more = asked[-1]
        told = _told(key, whole, subjects)
        tail = text[max((hit for hit, _, _ in asked[:-1]), default=0) :]
        for phrase in (*entry["rule"], *(says for each, _, _, says, _ in _predicates() if each == key)):
            tail = tail.replace(phrase, "")
        clauses = (*entry["hi"], *entry["lo"], *entry.get("up", ()), *entry.get("down", ()))
        for clause, name in itertools.product(clauses, subjects):
            tail = re.sub(re.escape(clause.replace("{S}", name)), "", tail, flags=re.I)
        return (told[subject] is more) is not bool(re.search(DOUBT, tail.lower()))
    return _chosen(key, whole, text, plain, set(options) - set(plain), subjects)


def _measured(
    entry: Any, text: str, nouns: dict[str, str], told: Any, plain: dict[str, str], out: set[str]
) -> Answer | None:
    moved = [(noun, hit[1]) for noun in nouns for hit in re.finditer(rf"{re.escape(noun)} ({VERBS})\b", text, re.I)]
    if not nouns:
        return None
    opposite = entry["sign"] == ["opposite"]
    if moved and len(nouns) == 2:
        verb = moved[0][1].lower()
        if verb == "does not change":
            return out
        up = _side(verb) is not opposite
    else:
        last = max(nouns, key=text.lower().rindex)
        field = nouns[last]
        up = next(iter(told().values())) is not (field == "yn" and opposite)
        tail = text[-(len(last) + 110) :].lower()
        up = up is not bool(re.search(UNDONE, tail))
    return {name for name, says in plain.items() if _side(says) is up}


def _chosen(key: str, whole: str, text: str, plain: dict[str, str], out: set[str], subjects: list[str]) -> Answer:
    named = {
        name: [each for each in subjects if says.lower() in (each.lower(), each.split("'s ")[0].lower())]
        for name, says in plain.items()
    }
    gaps = [
        (hit.end(), says, gap, more)
        for each, _, more, says, gap in _predicates()
        if each == key
        for hit in re.finditer(gap, text)
    ]
    if all(named.values()):
        hits = [
            (hit.end(), more)
            for each, _, more, says, _ in _predicates()
            if each == key
            for hit in re.finditer(rf"{re.escape(says)}(?!\w)", text)
        ]
        told = (
            _told(key, whole, subjects)
            if len(hits) > 1 or any(_told(key, part, subjects) for part in (whole.replace(text, ""), text))
            else {}
        )
        if not told:
            return out & (
                ALIKE
                if re.search("same|differ|equal|identical|vary|not set|alike", whole.replace(text, "") + text)
                and out & ALIKE
                else UNTOLD
            )
        wanted = max(hits)[1] is not bool(re.search(EXCHANGED, text.lower()))
        return {name for name, found in named.items() if any(told.get(each) is wanted for each in found)}
    right = set()
    for name, says in plain.items():
        filled = [
            each for each in gaps if re.search(re.escape(says) + r"(?!\w)", each[1]) and _fills(each[2], says, each[1])
        ]
        if filled:
            _, _, gap, more = max(filled)
            form = "|".join(map(re.escape, sorted(subjects, key=len, reverse=True)))
            begun = list(re.finditer(rf"(?i:(?<!\w)({form})(?:, unlike [^,]+,)?(?: now)? {gap})", text))
            told = _told(key, whole, subjects)
            if not told:
                return out
            subject = next(each for each in subjects if each.lower() == begun[-1][1].lower())
            if told[subject] is more:
                right.add(name)
            continue
        claims = _claims(key, says, subjects)
        told = _told(key, whole, subjects)
        if claims:
            _, subject, more = claims[-1]
        else:
            form = "|".join(map(re.escape, sorted(subjects, key=len, reverse=True)))
            begun_at = [
                (hit.end(), hit["s"])
                for part in ENDS.split("|")
                for hit in re.finditer(part.format(c=form), text, re.I)
            ]
            subject = next(each for each in subjects if each.lower() == max(begun_at)[1].lower())
            (more,) = {more for each, _, more, words_, _ in _predicates() if each == key and words_ == says}
        if told.get(subject) is more:
            right.add(name)
    return right
