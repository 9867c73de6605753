"""Solver of `fields`: reads a record out of any of its ways of writing, and works the test of the question out anew.

Shares no code with the generator. Trap: a wording is found by its form in `texts/fields.toml`, which also names the
test; what holds comes from the state's text alone.
"""

from __future__ import annotations

import datetime
import json
import re
from functools import cache
from typing import Any

from solvers.daily import bank
from solvers.reading import Answer

NOTHING = {"none", "-", "not set", "n/a", ""}
MONTHS = tuple(datetime.date(2024, month, 1).strftime("%B") for month in range(1, 13))
ORDER = {"gt": (1,), "ge": (0, 1), "lt": (-1,), "le": (-1, 0), "eq": (0,)}


def _snake(name: str) -> str:
    return re.sub(r"([A-Z])", r"_\1", name[:1].lower() + name[1:]).replace(" ", "_").lower()


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in (line.strip("|").split("|") if line.startswith("|") else line.split(","))]


def _from_json(state: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    flat: dict[str, Any] = {}
    rows: dict[str, dict[str, Any]] = {}
    waiting = list(state.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = {str(next(iter(row.values()))): {_snake(key): each for key, each in row.items()} for row in value}
        elif isinstance(value, dict) and name in ("items", "entries", "list"):
            rows = {key: {_snake(field): each for field, each in row.items()} for key, row in value.items()}
        elif isinstance(value, dict):
            waiting += value.items()
        else:
            flat[_snake(name)] = value
    return flat, rows


def _from_sentence(text: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    if not text.startswith("In this "):
        return {}, _told_rows(text)
    told, _, after = text.partition(". ")
    told = told.rstrip(".").split(", the ", 1)[1]
    pairs = [re.split(r" (?:is|are) ", part, maxsplit=1) for part in told.split(", the ")]
    return {_snake(name): value for name, value in pairs}, _told_rows(after)


def _told_rows(after: str) -> dict[str, dict[str, Any]]:
    rows = {name: {"count": n} for n, name in re.findall(r"(\d+) (\w+)", after)} if "There are" in after else {}
    if after.startswith("The list: "):
        for part in after.removeprefix("The list: ").rstrip(".").split("; "):
            name, cells = part.split(" has ")
            found = [re.fullmatch(r"([a-z_ ]+?) (not set|\S+)", cell) for cell in cells.split(", ")]
            rows[name] = {_snake(cell[1]): cell[2] for cell in found if cell}
    return rows


def _read(state: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    if isinstance(state, str) and state.startswith(("{", "[")):
        state = json.loads(state)
    if isinstance(state, list):
        state = {"items": state}
    if isinstance(state, dict):
        return _from_json(state)
    if state.startswith(("In this ", "There are ", "The list: ")):
        return _from_sentence(state)
    told, _, table = state.partition("\n\n")
    if not table and ("," in told.splitlines()[0] or (told.startswith("|") and "| field |" not in told)):
        told, table = "", told
    if told.startswith("|"):
        pairs = [_cells(line) for line in told.splitlines()[2:]]
    else:
        pairs = [line.split(": ", 1) for line in told.splitlines()]
    lines = [_cells(line) for line in table.splitlines() if "---" not in line]
    rows = {row[0]: dict(zip(map(_snake, lines[0][1:]), row[1:], strict=True)) for row in lines[1:]}
    return {_snake(name): value for name, value in pairs}, rows


def _missing(value: Any) -> bool:
    return value is None or value == [] or (isinstance(value, str) and value in NOTHING)


def _listed(value: Any) -> list[str]:
    return [] if _missing(value) else value if isinstance(value, list) else value.split(" and ")


def _amount(value: Any) -> float:
    text = str(value)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return datetime.date.fromisoformat(text).toordinal()
    if long := re.fullmatch(r"(\d+) ([A-Z][a-z]+) (\d{4})", text):
        return datetime.date(int(long[3]), MONTHS.index(long[2]) + 1, int(long[1])).toordinal()
    hours, _, minutes = text.partition(":")
    return float(hours) * 60 + float(minutes) if minutes else float(text)


@cache
def _forms() -> list[tuple[re.Pattern[str], str, str]]:
    found = []
    for key, entry in bank("fields").items():
        for field in ("yes", "no", "text"):
            for wording in entry.get(field, ()):
                parts = re.split(r"\{(\w+)\}", wording)
                seen: set[str] = set()
                form = ""
                for place, part in enumerate(parts):
                    form += re.escape(part) if place % 2 == 0 else rf"(?P={part})" if part in seen else ""
                    if place % 2 and part not in seen:
                        form += rf"(?P<{part}>{'[0-9]+' if part == 'n' else '[A-Za-z0-9]+'})"
                        seen.add(part)
                found.append((re.compile(form), key, field))
    return found


class _Solved:
    """One record and the blanks of one question."""

    def __init__(self, state: Any, blanks: dict[str, str]) -> None:
        self.flat, self.rows = _read(state)
        self.blanks = blanks

    def compared(self, word: str, one: Any, other: str) -> bool:
        first, second = _amount(one), _amount(self.flat.get(other, other))
        return (first > second) - (first < second) in ORDER[word]

    def holds(self, test: str) -> bool:
        return all(self.part(part.removeprefix("!")) != part.startswith("!") for part in test.split(" & "))

    def part(self, part: str) -> bool:
        word, name, *rest = part.format(**self.blanks).split(" ")
        if word in ORDER:
            return self.compared(word, self.flat[name], rest[0])
        if word in ("rowgt", "rowge"):
            return self.compared(word.removeprefix("row"), self.rows[name][rest[0]], rest[1])
        if word == "any":
            return any(str(row[name]) == rest[0] for row in self.rows.values())
        if word == "flag":
            return str(self.flat[name]).lower() in ("true", "yes")
        if word == "overlap":
            return any(each in _listed(self.flat[rest[0]]) for each in _listed(self.flat[name]))
        if word == "has":
            return rest[0] in _listed(self.flat[name])
        return _missing(self.flat[name]) is (word == "empty")

    def named(self, test: str) -> set[str]:
        word, *rest = test.format(**self.blanks).split(" ")
        if word == "which":
            for label in test.removeprefix("which ").split(" / "):
                name, _, when = label.partition(" = ")
                if not when or self.holds(when):
                    return {name}
        if word in ("value", "size"):
            value = self.flat[rest[0]]
            return {str(value)} if word == "value" else {str(len(_listed(value)))}
        if word == "rows":
            return {str(len(self.rows))}
        if word == "cell":
            return {str(self.rows[rest[1]][rest[0]])}
        column = {name: row[rest[0]] for name, row in self.rows.items()}
        if word == "unset":
            return {name for name, value in column.items() if _missing(value)}
        sizes = {name: _amount(value) for name, value in column.items() if not _missing(value)}
        if word in ("most", "least"):
            end = max(sizes.values()) if word == "most" else min(sizes.values())
            return {name for name, size in sizes.items() if size == end}
        if word == "one":
            return {name for name, size in sizes.items() if size == float(rest[1])}
        how = "ge" if word == "countge" else "eq"
        return {str(sum(self.compared(how, size, rest[1]) for size in sizes.values()))}


def solve_fields(state: Any, text: str, question: dict[str, Any]) -> Answer:
    matches = [(found, key, field) for form, key, field in _forms() if (found := form.fullmatch(text))]
    # A wording without a blank may also have the form of one with a blank.
    fewest = min(len(found.groups()) for found, _, _ in matches)
    ((found, key, field),) = [each for each in matches if len(each[0].groups()) == fewest]
    (test,) = bank("fields")[key]["test"]
    solved = _Solved(state, found.groupdict())
    return solved.named(test) if question["type"] == "choice" else solved.holds(test) is (field == "yes")
