"""Solvers of what is told in sentences: moves, counters and queues; spans of days, small sums, levels.

Trap: events are taken in the order they are told; "at first" is before all of them.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

from solvers.reading import Answer, limited
from solvers.tabular import MONTHS


def _date(text: str) -> datetime.date:
    if "-" in text:
        return datetime.date.fromisoformat(text)
    day, month, year = text.split()
    return datetime.date(int(year), MONTHS.index(month) + 1, int(day))


def solve_days(state: Any, text: str, _question: dict[str, Any]) -> Answer:
    if isinstance(state, dict):
        start, end, length = state["lent on"], state["back on"], state["days allowed"]
    else:
        found = re.fullmatch(r"\w+ borrowed the \w+ on (.+) for at most (\d+) days\. It came back on (.+)\.", state)
        assert found, state
        start, length, end = found[1], int(found[2]), found[3]
    taken = (_date(end) - _date(start)).days
    if " was " in text and text.startswith("For how many days"):
        return {str(length)}
    more = re.search(r"for more than (\d+) days", text)
    if more:
        return taken > int(more[1])
    if text.startswith("For how many days"):
        return {str(taken)}
    if text.startswith("On which day"):
        due = _date(start) + datetime.timedelta(days=length)
        return {due.isoformat() if "-" in start else f"{due.day} {MONTHS[due.month - 1]} {due.year}"}
    return taken <= int(length) if "within the days allowed" in text else taken > int(length)


def solve_sums(state: Any, text: str, _question: dict[str, Any]) -> Answer:
    if isinstance(state, dict):
        have = {each["thing"]: (each["count"], each["price"]) for each in state["stock"]}
    else:
        found = re.findall(r"has (\d+) of the thing '(\w+)' at a price of (\d+) each", state)
        have = {thing: (int(n), int(price)) for n, thing, price in found}
    named = [word for word in re.findall(r"\w+", text) if word in have]
    if text.startswith(("How many does", "Add up")):
        return {str(sum(have[thing][0] for thing in named))}
    if text.startswith("Are there more"):
        return bool(have[named[0]][0] > have[named[1]][0])
    if text.startswith("How many more"):
        return {str(have[named[0]][0] - have[named[1]][0])}
    if text.startswith("What are all"):
        return {str(have[named[0]][0] * have[named[0]][1])}
    wanted = re.search(r"give away (\d+)", text)
    assert wanted, text
    return int(have[named[0]][0]) >= int(wanted[1])


def solve_levels(state: Any, text: str, question: dict[str, Any]) -> Answer:
    told = state if isinstance(state, str) else ""
    if isinstance(state, dict):
        reading = state.get("reading", state)
        (value,) = [each for each in reading.values() if isinstance(each, int)]
    else:
        value = int(re.findall(r"(\d+) \w+\.$", told)[0])
    limit = re.search(r"(above|below|at least|at most) (\d+)", text)
    if limit and question["type"] == "noul":
        return limited(limit[1], value, int(limit[2]))
    spans = dict(re.findall(r"([a-z ]+): ((?:below )?\d+(?: to \d+| or more)?)", told.split(". ")[0]))
    if isinstance(state, dict) and "levels" in state:
        spans = state["levels"]
    if not spans:
        spans = {level: level.rpartition(": ")[2] for level in question["criteria"]}
    names = [name.removeprefix("Levels in ").strip() for name, span in spans.items() if _in(span, value)]
    assert len(names) == 1, (state, question)
    if question["type"] == "choice":
        return set(names)
    return list(question["criteria"]).index(names[0])


def _in(span: str, value: int) -> bool:
    low, high = 0, 10**9
    if span.startswith("below "):
        high = int(span[6:]) - 1
    elif span.endswith(" or more"):
        low = int(span.split()[0])
    else:
        low, high = (int(each) for each in span.split(" to "))
    return low <= value <= high


def solve_tracking(state: Any, text: str, _question: dict[str, Any]) -> Answer:
    told = state["events"] if isinstance(state, dict) else re.split(r"(?<=\.)[ \n]", state)
    for sign, solver in (
        ("The queue,", _queue), ("A press of", _lamps), ("Number of things", _counter), (" at first.", _moves),
        (" has the ", _swaps), (" is in the ", _rooms),
    ):  # fmt: skip
        if sign in told[0]:
            return solver(told, text)
    raise AssertionError(state)


def _ask(pattern: str, text: str) -> re.Match[str] | None:
    return re.fullmatch(pattern, text)


def _moves(told: list[str], text: str) -> Answer:
    places: dict[str, list[str]] = {}
    mover = {}
    for line in told:
        first = _ask(r"The (\w+) is in the (\w+) at first\.", line)
        move = _ask(r"(\w+) (?:moves|puts) the (\w+) (?:in)?to the (\w+)\.", line)
        if first:
            places[first[1]] = [first[2]]
        else:
            assert move, line
            places[move[2]].append(move[3])
            mover[move[2]] = move[1]
    thing = next(word for word in re.findall(r"\w+", text) if word in places)
    if text.startswith("Who moved"):
        return {mover[thing]}
    if "at first" in text:
        return {places[thing][0]}
    if "just before" in text:
        return {places[thing][-2]}
    at = _ask(r"Is the \w+ in the (\w+) at the end\?", text)
    return at[1] == places[thing][-1] if at else {places[thing][-1]}


def _rooms(told: list[str], text: str) -> Answer:
    where: dict[str, str] = {}
    holder: dict[str, str] = {}
    for line in told:
        go = _ask(r"(\w+) (?:is in|goes to) the (\w+)\.", line)
        take = _ask(r"(\w+) (takes|drops) the (\w+)\.", line)
        if go:
            where[go[1]] = go[2]
            where |= {thing: go[2] for thing, who in holder.items() if who == go[1]}
        else:
            assert take, line
            where[take[3]] = where[take[1]]
            if take[2] == "takes":
                holder[take[3]] = take[1]
            else:
                del holder[take[3]]
    holds = _ask(r"Does (\w+) hold the (\w+) at the end\?", text)
    if holds:
        return holder.get(holds[2]) == holds[1]
    same = _ask(r"Are (\w+) and (\w+) in the same room at the end\?", text)
    if same:
        return where[same[1]] == where[same[2]]
    room = _ask(r"In which room is (?:the )?(\w+) at the end\?", text)
    assert room, text
    return {where[room[1]]}


def _counter(told: list[str], text: str) -> Answer:
    start = n = int(re.findall(r"\d+", told[0])[-1])
    for line in told[1:]:
        step = int(re.findall(r"\d+", line)[0])
        n += -step if "taken out" in line or "removes" in line else step
    if text.startswith("Are there more"):
        return n > start
    if text.endswith("at first?"):
        return {str(start)}
    return n == 0 if text.startswith("Is the") else {str(n)}


def _lamps(told: list[str], text: str) -> Answer:
    on: dict[str, bool] = {}
    for line in told[1:]:
        first = _ask(r"The lamp in the (\w+) is (on|off)\.", line)
        press = _ask(r"\w+ presses the switch in the (\w+)\.", line)
        turn = _ask(r"\w+ turns the lamp in the (\w+) (on|off)\.", line)
        if press:
            on[press[1]] = not on[press[1]]
        else:
            found = first or turn
            assert found, line
            on[found[1]] = found[2] == "on"
    asked = _ask(r"Is the lamp in the (\w+) (on|off) at the end\?", text)
    return on[asked[1]] is (asked[2] == "on") if asked else {str(list(on.values()).count(True))}


def _swaps(told: list[str], text: str) -> Answer:
    has: dict[str, str] = {}
    for line in told:
        first = _ask(r"(\w+) has the (\w+)\.", line)
        if first:
            has[first[1]] = first[2]
        else:
            one, other = re.findall(r"\w+", line)[0], re.findall(r"\w+", line)[2]
            has |= {one: has[other], other: has[one]}
    what = _ask(r"What does (\w+) have at the end\?", text)
    if what:
        return {has[what[1]]}
    who = _ask(r"Who has the (\w+) at the end\?", text)
    assert who, text
    return {name for name, thing in has.items() if thing == who[1]}


def _queue(told: list[str], text: str) -> Answer:
    line = told[0].rstrip(".").split(": ")[1].split(", ")
    for each in told[1:]:
        name = each.split()[0]
        if "joins" in each:
            line = [*line, name]
        elif "let in" in each:
            line = [name, *line]
        else:
            line = [other for other in line if other != name]
    if text.startswith("How many"):
        return {str(len(line))}
    nearer = _ask(r"Is (\w+) nearer to the front than (\w+) now\?", text)
    if nearer:
        return line.index(nearer[1]) < line.index(nearer[2])
    return {line[0] if "front" in text else line[-1]}
