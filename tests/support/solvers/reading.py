"""Records out of a state in any of the ways they are written, and questions taken apart by their words.

Refuses to know answers. Trap: fields and values may have two words, so fields are named here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

FIELDS = (
    *("badge colour", "desk number", "number of replies", "waiting time", "last service", "start date", "order date"),
    *("due date", "delivery date", "department", "city", "age", "customer", "status", "destination", "total", "weight"),
    *("queue", "priority", "owner", "opened", "site", "operator", "serial", "temperature", "load", "species", "keeper"),
    *("collar", "arrival", "author", "language", "shelf", "length", "price", "content", "recipient", "label"),
)
NOUNS = ("employee", "order", "ticket", "machine", "animal", "book", "parcel")
_FIELD = "|".join(FIELDS)
_NOUN = "|".join(NOUNS)
_BLANKS = {
    "f": rf"(?P<f>{_FIELD})",
    "F": rf"(?P<f>(?i:{_FIELD}))",
    "g": rf"(?P<g>{_FIELD})",
    "noun": rf"(?:{_NOUN})",
    "plural": rf"(?:{_NOUN})s",
    "k": r"(?P<k>\S+?)",
    "l": r"(?P<l>\S+?)",
    "v": r"(?P<v>.+?)",
    "w": r"(?P<w>.+?)",
    "n": r"(?P<n>\d+)",
    "limit": r"(?P<limit>above|below|at least|at most)",
}

Records: TypeAlias = dict[str, dict[str, str]]
Answer: TypeAlias = set[str] | bool | int
"""Of a Choice every name that would be right, of a Noul a truth value, of a Score a level."""


def taken(question: str, *templates: str) -> dict[str, str] | None:
    """The blanks' contents if the question has the form of a template, with the template's place as `form`."""
    for place, template in enumerate(templates):
        parts = re.split(r"\{(\w+)\}", template)
        pattern = "".join(_BLANKS[part] if index % 2 else re.escape(part) for index, part in enumerate(parts))
        found = re.fullmatch(pattern, question)
        if found:
            groups = {key: value for key, value in found.groupdict().items() if value is not None}
            if "f" in groups:
                groups["f"] = groups["f"].lower()
            return groups | {"form": str(place)}
    return None


def records(state: Any) -> Records:
    """Key → field → value, as text, in order."""
    if isinstance(state, dict):
        (first, *_) = state.values()
        rows = [list(row.items()) for row in first] if isinstance(first, list) else []
        if rows:
            return {str(row[0][1]): {field: str(value) for field, value in row[1:]} for row in rows}
        return {key: {field: str(value) for field, value in row.items()} for key, row in state.items()}
    facts = re.findall(rf"The ({_FIELD}) of (?:{_NOUN}) (\S+) is ([^.]+)\.", state)
    found: Records = {}
    if facts:
        for field, key, value in facts:
            found.setdefault(key, {})[field] = value
        return found
    for line in state.splitlines():
        named = re.fullmatch(rf"(?i:{_NOUN}) (\S+): (.*)\.", line)
        if named:
            pairs = [re.fullmatch(rf"({_FIELD}) (.*)", part) for part in named[2].split(", ")]
            found[named[1]] = {pair[1]: pair[2] for pair in pairs if pair}
    if found:
        return found
    table = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in state.splitlines() if line.startswith("|")
    ]
    if not table:
        table = [line.split(", ") for line in state.splitlines()]
        heads = [place for place, row in enumerate(table) if row[0] in NOUNS and len(row) > 1]
        table = table[heads[0] :] if heads else []
        table = [row for row in table if len(row) == len(table[0])]
    if table:
        head, *rows = table
        return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows if set(row[0]) != {"-"}}
    for block in state.split("\n\n"):
        lines = [line.split(": ", 1) for line in block.splitlines()]
        if lines[0][0] in NOUNS:
            found[lines[0][1]] = dict(lines[1:])
    assert found, state
    return found


def limited(limit: str, value: int, number: int) -> bool:
    """Whether the value is above, below, at least, at most the number."""
    return {"above": value > number, "below": value < number, "at least": value >= number}.get(limit, value <= number)


def shown(question: Mapping[str, Any]) -> list[str]:
    """The options' names."""
    return list(question["criteria"])
