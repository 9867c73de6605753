"""Solvers of rules, policies, made-up kinds, directions, orders and statements with "not".

Trap: the deduction here runs forward over facts until nothing is new; it knows no chain of kinds.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from solvers.reading import Answer, limited


def _match(pattern: str, text: str) -> re.Match[str] | None:
    return re.fullmatch(pattern, text)


def solve_rules(state: Any, text: str, _question: dict[str, Any]) -> Answer:
    if isinstance(state, dict):
        said, case = state["rules (the first that applies decides)"], {k: str(v) for k, v in state["case"].items()}
    else:
        said = re.findall(r"\d+\. (.*)", state)
        case = dict(re.findall(r"([a-z ]+): ([^;,]+)(?:[;,] |$)", state.split("Case: ")[1]))
    holds, outcomes = [], []
    for rule in said:
        found = _match(r"If (.*), (.*)\.", rule) or _match(r"(Otherwise), (.*)\.", rule)
        assert found, rule
        outcomes.append(found[2])
        holds.append(found[1] == "Otherwise" or all(_holds(part, case) for part in found[1].split(" and ")))
    first = holds.index(True)
    number = _match(r"Is the condition of rule (\d) met, whatever the other rules say\?", text)
    if number:
        return holds[int(number[1]) - 1]
    if "Which rule decides" in text:
        return {f"rule {first + 1}"}
    says = _match(r"Do the rules say here: (.*)\?", text)
    return says[1] == outcomes[first] if says else {outcomes[first]}


def _holds(condition: str, case: dict[str, str]) -> bool:
    found = _match(r"the (.+?) is (?:(above|below|at least|at most|not) )?(.+)", condition)
    assert found, condition
    field, limit, value = found.groups()
    if limit in (None, "not"):
        return (case[field] == value) is (limit is None)
    return limited(limit, int(case[field]), int(value))


def solve_policy(state: Any, text: str, _question: dict[str, Any]) -> Answer:
    if isinstance(state, dict):
        policy, case = state["policy"], {name.lower(): value for name, value in state["case"].items()}
    else:
        policy, told = state.split("\n\nThe case: ")
        case = {name.lower(): int(value) for name, value in re.findall(r"([A-Z][\w ]+): (\d+)\.", told)}
        case |= {name: flag == "" for flag, name in re.findall(r"It is (not )?true that ([^.]+)\.", told)}
    rule = re.match(
        r".*? is granted (within|for up to|with at least|for at most|from a total of|up to|from) (\d+)", policy
    )
    assert rule, policy
    (value,) = [each for each in case.values() if type(each) is int]
    ruled = value >= int(rule[2]) if rule[1] in ("with at least", "from a total of", "from") else value <= int(rule[2])
    exception = re.search(r"(?:not granted|refused, however,) if ([^.]+)\.", policy)
    back = re.search(r"(?:does not apply|is waived) if ([^.]+)\.", policy)
    assert exception
    excepted = bool(case[exception[1]])
    allowed = ruled and not (excepted and not (back and case[back[1]]))
    if "Leaving exceptions aside" in text:
        return ruled
    if "condition of the exception" in text:
        return excepted
    if text.startswith("Must "):
        return not allowed
    return {"granted" if allowed else "refused"} if text.startswith("What does the policy") else allowed


def solve_deduction(state: str, text: str, question: dict[str, Any]) -> Answer:
    lines = [line.rstrip(".") for line in re.split(r"\.[ \n]", state)]
    facts: set[tuple[str, str, bool]] = set()
    for line in lines:
        member = _match(r"(\w+) is a (\w+)", line)
        if member:
            facts.add((member[1], member[2], True))
    while True:
        new = set(facts)
        for line, (who, kind, true) in itertools.product(lines, facts):
            every = _match(rf"(Every|No) {kind} is (?:a )?(\w+)", line)
            if every and true:
                new.add((who, every[2], every[1] == "Every"))
        if new == facts:
            break
        facts = new
    found = _match(r"(?:Is|Does it follow that|Can it be concluded that) (\w+) (?:is )?(not |a )?(\w+)\?", text)
    assert found, text
    who, how, what = found.groups()
    if question["type"] == "choice":
        answers = [true for name, each, true in facts if (name, each) == (who, what)]
        return {"cannot be told" if not answers else "yes" if answers[0] else "no"}
    return (who, what, how != "not ") in facts


def solve_trend(state: Any, text: str, _question: dict[str, Any]) -> Answer:
    told = " ".join(state["relations"]) if isinstance(state, dict) else state
    links: dict[str, tuple[str, bool]] = {}
    for pattern in (
        r"When the ([a-z ]+?) goes up, the ([a-z ]+?) goes (up|down)\.",
        r"A higher ([a-z ]+?) makes the ([a-z ]+?) go (up|down)\.",
        r"As the ([a-z ]+?) rises, the ([a-z ]+?) goes (up|down)\.",
    ):
        for cause, effect, way in re.findall(pattern, told):
            links[cause] = (effect, way == "up")
    asked = _match(r"The (.+?) goes (up|down)\. What happens to the (.+)\?", text)
    claim = _match(r"If the (.+?) goes (up|down), does the (.+?) go (up|down)\?", text)
    found = asked or claim
    assert found, text
    at, up = found[1], found[2] == "up"
    while at != found[3] and at in links:
        at, same = links[at]
        up = up is same
    if at != found[3]:
        assert f"The {found[3]} does not depend" in told
        return {"stays the same"}
    return {"goes up" if up else "goes down"} if asked else up is (found[4] == "up")


SCALES = {
    "taller": ("shorter", "tallest", "shortest"),
    "older": ("younger", "oldest", "youngest"),
    "faster": ("slower", "fastest", "slowest"),
    "richer": ("poorer", "richest", "poorest"),
    "heavier": ("lighter", "heaviest", "lightest"),
    "louder": ("quieter", "loudest", "quietest"),
}


def solve_order(state: str, text: str, _question: dict[str, Any]) -> Answer:
    above = set()
    for one, word, other in re.findall(r"(\w+) is (\w+) than (\w+)\.", state):
        above.add((one, other) if word in SCALES else (other, one))
    people = {name for pair in above for name in pair}
    for middle, one, other in itertools.product(people, repeat=3):
        if (one, middle) in above and (middle, other) in above:
            above.add((one, other))
    ends = _match(r"Who is the (\w+)\?", text)
    if ends:
        top = any(ends[1] == most for _, most, _ in SCALES.values())
        return {a for a in people if all(((a, b) if top else (b, a)) in above for b in people - {a})}
    pair = _match(r"Is (\w+) (\w+) than (\w+)\?", text)
    if pair:
        return ((pair[1], pair[3]) if pair[2] in SCALES else (pair[3], pair[1])) in above
    which = _match(r"Who is (\w+), (\w+) or (\w+)\?", text)
    assert which, text
    high, low = (which[2], which[3]) if (which[2], which[3]) in above else (which[3], which[2])
    return {high if which[1] in SCALES else low}


def solve_negation(state: str, text: str, _question: dict[str, Any]) -> Answer:
    facts: dict[tuple[str, str], bool] = {}
    for line in re.split(r"(?<=\.)[ \n]", state):
        who = line.split()[0]
        positive, _, negative = line.partition(" but not ")
        if " does not " in line:
            positive, negative = "", line
        for part, true in ((positive, True), (negative, False)):
            for thing in re.findall(r"the \w+", part):
                facts[who, thing] = true
    single = _match(r"Is it true that (\w+) does not \w+ (the \w+)\?", text)
    if single:
        return not facts[single[1], single[2]]
    single = _match(r"Does (\w+) \w+ (the \w+)\?", text)
    if single:
        return facts[single[1], single[2]]
    what = _match(r"Which of these does (\w+) (not )?\w+\?", text)
    if what:
        return {thing for (who, thing), true in facts.items() if who == what[1] and true is (what[2] is None)}
    whom = _match(r"Who of these (does not )?\w+ (the \w+)\?", text)
    assert whom, text
    return {who for (who, thing), true in facts.items() if thing == whom[2] and true is (whom[1] is None)}
