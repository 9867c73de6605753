"""How one quantity goes with another: a rule, a case that is more or less of the one, and what is so of the other.

It refuses to know the world beyond the rule, which common sense has too and which is at times left unsaid. Trap: in a
predicate such as "loses [less|more] heat" the first word is the one that goes with more of the first quantity, so gold
never needs the sign; only the bare nouns ("the loss of heat rises") do.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from decider.data.families import words
from decider.data.families.daily import relation_asks as asks
from decider.data.families.daily import relation_cases as cases
from decider.data.families.daily.banks import Entry, bank
from decider.data.families.daily.sorting import side
from decider.data.families.daily.writing import mistyped
from decider.data.families.making import Asked, item
from decider.data.items import Item, choice, noul

PAIRS = (("the first {}", "the second {}"), ("the {} on the left", "the {} on the right"), ("this {}", "that {}"))
LETTERED = (("{} A", "{} B"), ("{} 1", "{} 2"), ("{} X", "{} Y"), ("{} I", "{} II"))
RULE_KEYS = ("fact", "rule", "known", "background", "principle", "knowledge", "what we know")
CASE_KEYS = ("case", "situation", "observed", "example", "scene", "report", "what happened")
FOLLOWS = (("it follows", "it does not follow"), ("that is right", "that is wrong"), ("so it is", "it is the reverse"))
INTRO_SHARE = 0.5
"""How often a rule does not stand bare."""
DISTRACTED, OPEN_SHARE, WAY_OUT_SHARE, UNSAID_SHARE = 0.3, 0.05, 0.14, 0.3
"""How often another relation stands in the state; how often the two cases are equal, and how often nothing is told of
them; how often the way out stands there although one of the two is right; how often the rule is left to common sense.
"""


@dataclass(frozen=True, slots=True)
class _Two:
    """Two things to compare, or the one that changes and another one."""

    s: str
    t: str
    who: str
    one: str
    short: tuple[str, str]
    """What they are called as options where the question asks for `who`."""


@dataclass(frozen=True, slots=True)
class _Case:
    """What is told: of two, or of one that changes (`s`); `more` says whether `s` has more of the first quantity."""

    text: str
    more: bool
    asked: str
    """The field that questions ask for: `x` or `y`."""
    open: str = ""
    """`equal` or `silent` where the case settles nothing."""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _say(template: str, **parts: str) -> str:
    """The template filled; `{Who}` is `{who}` with a capital."""
    return template.format(**parts, **{key.capitalize(): _capital(text) for key, text in parts.items()})


def _two(rng: random.Random, entry: Entry) -> _Two:
    kind, thing = entry["kind"][0], entry["thing"][0]
    if kind in ("person", "place"):
        s, t = rng.sample(words.NAMES if kind == "person" else words.CITIES, 2)
        who = "who" if kind == "person" and rng.random() < 0.6 else f"which {thing}"
        return _Two(s, t, who, "the person who" if who == "who" else f"the {thing} that", (s, t))
    if kind == "owned" and rng.random() < 0.5:
        a, b = rng.sample(words.NAMES, 2)
        s, t = f"{a}'s {thing}", f"{b}'s {thing}"
        if rng.random() < 0.6:
            return _Two(s, t, f"whose {thing}", f"the {thing} that", (a, b) if rng.random() < 0.6 else (s, t))
    else:
        lettered = not re.search(r"\b(?:of|in|on|at|to)\b", thing) and rng.random() < 0.4
        pair = list(rng.choice(LETTERED if lettered else PAIRS))
        if rng.random() < 0.5:
            pair.reverse()
        s, t = (each.format(thing) for each in pair)
    return _Two(s, t, f"which {thing}", f"the {thing} that", (s, t))


def _sides(predicate: str) -> tuple[str, str, str]:
    """The predicate for more of the first quantity, for less of it, and with a gap at `{gap}`."""
    found = re.fullmatch(r"(.*)\[(.+)\|(.+)\](.*)", predicate)
    assert found, predicate
    before, first, second, after = found.groups()
    return f"{before}{first}{after}", f"{before}{second}{after}", f"{before}{{gap}}{after}"


def _words(predicate: str) -> tuple[str, str]:
    first, second = predicate[predicate.index("[") + 1 : predicate.index("]")].split("|")
    return first, second


def _options(rng: random.Random, question: str, right: str, wrong: str, way_out: str | None, *, out: bool) -> Asked:
    """A Choice of two, or of three with a way out, which is right where `out` says so."""
    names = [right, wrong]
    rng.shuffle(names)
    if way_out is not None:
        names.insert(rng.choice((2, 2, 0, 1)), way_out)
    if way_out is None and len(right) > 12 and rng.random() < 0.12:
        marks = rng.choice((("A", "B"), ("1", "2"), ("(a)", "(b)"), ("I", "II")))
        return choice(question, dict(zip(marks, names, strict=True))), marks[names.index(right)]
    assert not out or way_out is not None
    return choice(question, names), way_out if out and way_out is not None else right


def _paired(rng: random.Random, held: bool, entry: Entry, two: _Two) -> _Case:
    """Two cases, told by clauses or by a comparison, forwards or backwards, or not told apart at all."""
    more = rng.random() < 0.5
    lot = rng.random()
    if lot < 2 * OPEN_SHARE:
        kind = "equal" if lot < OPEN_SHARE else "silent"
        s, t = rng.sample((two.s, two.t), 2)
        template = rng.choice(side(held, cases.EQUAL if kind == "equal" else cases.SILENT))
        return _Case(_say(template, s=s, t=t, x=entry["xn"][0]), more, "y", kind)
    if lot < 0.65:
        said = [
            rng.choice(entry["hi" if more else "lo"]).replace("{S}", two.s),
            rng.choice(entry["lo" if more else "hi"]).replace("{S}", two.t),
        ]
        rng.shuffle(said)
        text = _say(rng.choice(side(held, cases.PAIR)), one=said[0], other=said[1])
        return _Case(text, more, "x" if rng.random() < 0.1 else "y")
    told = "x" if lot < 0.74 else "y"
    told_of_s = rng.random() < 0.5
    s, t = (two.s, two.t) if told_of_s else (two.t, two.s)
    first, second, _ = _sides(rng.choice(entry[told]))
    text = _say(rng.choice(side(held, cases.COMPARED)), s=s, t=t, p=first if more is told_of_s else second)
    return _Case(text, more, "y" if told == "x" else "x")


def _changing(rng: random.Random, held: bool, entry: Entry, two: _Two) -> _Case:
    """One case that changes, told by a clause, or backwards by what came of it."""
    ways = [(field, each) for field in ("up", "down") for each in entry.get(field, ())]
    if ways and rng.random() < 0.75:
        field = rng.choice(sorted({field for field, _ in ways}))
        clause = rng.choice([each for way, each in ways if way == field]).replace("{S}", two.s)
        return _Case(_say(rng.choice(side(held, cases.CHANGED)), c=clause), field == "up", "y")
    more = rng.random() < 0.5
    told = "x" if rng.random() < 0.3 else "y"
    first, second, _ = _sides(rng.choice(entry[told]))
    text = _say(rng.choice(side(held, cases.BECAME)), s=two.s, p=first if more else second)
    return _Case(text, more, "y" if told == "x" else "x")


def _which(rng: random.Random, held: bool, entry: Entry, two: _Two, case: _Case) -> Asked:
    up = rng.random() < 0.5
    counter = not case.open and rng.random() < 0.15
    template = rng.choice(side(held, asks.COUNTER if counter else asks.WHICH))
    first, second, _ = _sides(rng.choice(entry[case.asked]))
    s, t = rng.sample((two.s, two.t), 2)
    question = _say(template, who=two.who, one=two.one, p=first if up else second, s=s, t=t)
    names = two.short if "{who}" in template or "{Who}" in template else (two.s, two.t)
    right = 0 if (case.more is up) is not counter else 1
    return _options(rng, question, names[right], names[1 - right], _way_out(rng, case), out=bool(case.open))


def _way_out(rng: random.Random, case: _Case) -> str | None:
    if case.open:
        return rng.choice(asks.FORMS["alike" if case.open == "equal" else "untold"])
    return rng.choice((*asks.FORMS["alike"], *asks.FORMS["untold"])) if rng.random() < WAY_OUT_SHARE else None


def _about(rng: random.Random, two: _Two, case: _Case, paired: bool) -> tuple[str, str, bool]:
    """Whom a claim is about, beside whom, and whether that one has more of the first quantity."""
    if paired and rng.random() < 0.5:
        return two.t, two.s, not case.more
    return two.s, two.t, case.more


def _gap(rng: random.Random, held: bool, entry: Entry, two: _Two, case: _Case, paired: bool) -> Asked:
    s, t, more = _about(rng, two, case, paired)
    predicate = rng.choice(entry[case.asked])
    gapped = _sides(predicate)[2].format(gap=rng.choice(asks.FORMS["blank"]))
    claim = _say(rng.choice(asks.FORMS["pair" if paired else "change"]), s=s, t=t, p=gapped)
    question = _say(rng.choice(side(held, asks.GAP)), g=_capital(claim))
    right, wrong = _words(predicate) if more else _words(predicate)[::-1]
    return _options(rng, question, right, wrong, _way_out(rng, case) if paired else None, out=bool(case.open))


def _ending(rng: random.Random, held: bool, entry: Entry, two: _Two, case: _Case, paired: bool) -> Asked:
    s, t, more = _about(rng, two, case, paired)
    first, second, _ = _sides(rng.choice(entry[case.asked]))
    bases = [each for each in asks.FORMS["pair" if paired else "change"] if each.endswith("{p}")]
    begun = _say(rng.choice(bases).removesuffix(" {p}"), s=s, t=t)
    question = _say(rng.choice(side(held, asks.ENDING)), b=_capital(begun))
    return _options(rng, question, first if more else second, second if more else first, None, out=False)


def _sentence(rng: random.Random, held: bool, entry: Entry, two: _Two, case: _Case, paired: bool) -> Asked:
    s, t, more = _about(rng, two, case, paired)
    first, second, _ = _sides(rng.choice(entry[case.asked]))
    base = rng.choice(asks.FORMS["pair" if paired else "change"])
    right, wrong = (_capital(_say(base, s=s, t=t, p=p)) + "." for p in ((first, second) if more else (second, first)))
    return _options(rng, rng.choice(side(held, asks.SENTENCE)), right, wrong, None, out=False)


def _claim(rng: random.Random, held: bool, entry: Entry, two: _Two, case: _Case, paired: bool) -> Asked:
    s, t, more = _about(rng, two, case, paired)
    true, doubt = rng.random() < 0.5, rng.random() < 0.2
    first, second, _ = _sides(rng.choice(entry[case.asked]))
    claim = _say(rng.choice(asks.FORMS["pair" if paired else "change"]), s=s, t=t, p=first if true is more else second)
    question = _say(rng.choice(side(held, asks.DOUBT if doubt else asks.CLAIM)), c=claim)
    if not doubt and rng.random() < 0.15:
        yes, no = rng.choice(FOLLOWS)
        return noul(question, yes=yes, no=no), true
    return noul(question), true is not doubt


def _gap_of(rng: random.Random, template: str) -> tuple[str, tuple[str, str]]:
    """The wording with its gap left open, and the pair of words for it."""
    found = re.search(r"\{(rises|rise|risen|higher)\}", template)
    pair = rng.choice(asks.GAPS[found[1] if found else ""])
    return (template.replace(found[0], rng.choice(asks.FORMS["blank"])) if found else template), pair


def _measure(rng: random.Random, held: bool, entry: Entry, case: _Case) -> Asked:
    """What the quantity does that is not told, in bare nouns."""
    undone = rng.random() < 0.15
    template, pair = _gap_of(rng, rng.choice(side(held, asks.UNDONE if undone else asks.MEASURE)))
    against = case.asked == "y" and entry["sign"][0] == "opposite"
    up = case.more is not (undone is not against)
    question = _say(template, y=entry[f"{case.asked}n"][0])
    return _options(rng, question, pair[0 if up else 1], pair[1 if up else 0], None, out=False)


def _law(rng: random.Random, held: bool, entry: Entry) -> Asked:
    """What one quantity does if the other one goes up, goes down or stays; asked of the rule alone."""
    # Not the other way round: what follows does not bring about what it follows from.
    x, y = entry["xn"][0], entry["yn"][0]
    rises, falls = rng.choice(asks.GAPS["rises"])
    up = rng.random() < 0.5
    stays = rng.random() < 0.06
    moves = "does not change" if stays else rises if up else falls
    template, pair = _gap_of(rng, rng.choice(side(held, asks.LAW)))
    if entry["sign"][0] == "opposite":
        up = not up
    way_out = rng.choice(asks.FORMS["stays"]) if stays or rng.random() < WAY_OUT_SHARE else None
    question = _say(template, x=x, y=y, up=moves)
    return _options(rng, question, pair[0 if up else 1], pair[1 if up else 0], way_out, out=stays)


def _state(rng: random.Random, rule: Sequence[str], case: str) -> object:
    """The rule and the case as a text, as lines, or in fields."""
    lines, way = list(rule), rng.random()
    if case and way < 0.2:
        keys = [(rng.choice(RULE_KEYS), " ".join(lines)), (rng.choice(CASE_KEYS), case)]
        return dict(keys if rng.random() < 0.75 else keys[::-1])
    if case and way < 0.25:
        return [*lines, case]
    if not case and way < 0.2:
        return {rng.choice(RULE_KEYS): " ".join(lines)}
    told = [*lines, case] if rng.random() < 0.75 else [case, *lines]
    return ("\n" if way > 0.85 else " ").join(each for each in told if each)


def relations(rng: random.Random, held: bool) -> Item:
    """A rule and a case, in the state or in the question, and one to three questions."""
    found = bank("relations", held)
    key, other = rng.sample(sorted(found), 2)
    entry, aside = found[key], found[other]
    two = _two(rng, entry)
    rule = rng.choice(entry["rule"])
    if rng.random() < 0.06:
        rule = mistyped(rng, rule)
    if rng.random() < INTRO_SHARE:
        rule = _say(rng.choice(side(held, cases.INTRO)), r=rule)
    told = [rule]
    if rng.random() < DISTRACTED and not set(entry["yn"] + entry["xn"]) & set(aside["yn"] + aside["xn"]):
        extra = rng.choice(aside["rule"])
        if rng.random() < 0.3:
            clause = rng.choice(aside[rng.choice(("hi", "lo"))]).replace("{S}", _two(rng, aside).s)
            extra += f" {_capital(clause)}."
        told.insert(rng.randrange(2), extra)
    lot = rng.random()
    if lot < 0.15:
        asked = [_law(rng, held, entry) for _ in range(rng.choice((1, 1, 2, 3)))]
        return item(_state(rng, told, ""), asked)
    paired = lot < 0.65
    case = (_paired if paired else _changing)(rng, held, entry, two)
    first = partial(_which, rng, held, entry, two, case) if paired else partial(_measure, rng, held, entry, case)
    about = (rng, held, entry, two, case, paired)
    kinds: list[Callable[[], Asked]] = [first, first, partial(_gap, *about), partial(_gap, *about)]
    if not case.open:
        kinds += [partial(each, *about) for each in (_ending, _sentence, _claim, _claim)]
    asked = [rng.choice(kinds)() for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    place = rng.random()
    speaks_of_it = any("rule" in str(question["instructions"]).lower() for question, _ in asked)
    if rng.random() < UNSAID_SHARE and not case.open and not speaks_of_it:
        return item(_state(rng, [each for each in told if each != rule], case.text), asked)
    if place < 0.6:
        return item(_state(rng, told, case.text), asked)
    before = rule if place < 0.75 else case.text
    led = [({**question, "instructions": f"{before} {question['instructions']}"}, gold) for question, gold in asked]
    return item(_state(rng, [case.text], "") if place < 0.75 else _state(rng, told, ""), led)
