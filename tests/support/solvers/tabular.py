"""Solvers of the families on records: look-up, verification, comparison, counting, dates.

Trap: a question that no template here takes is an error; a new wording needs its solver.
"""

from __future__ import annotations

import datetime
from typing import Any

from solvers.reading import Answer, limited, records, taken

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
PLACES = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
COUNTS = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def solve_record(state: Any, text: str, kind: str) -> Answer:
    """Any question on records."""
    rows = records(state)
    for solver in (_by_place, _by_key, _by_value, _verify, _dates, _compare, _count):
        answer = solver(rows, text, kind)
        if answer is not None:
            return answer
    raise AssertionError(f"no solver takes {text!r}")


def _by_key(rows: dict[str, dict[str, str]], text: str, _kind: str) -> Answer | None:
    found = taken(
        text, "What is the {f} of {noun} {k}?", "{F} of {k}?", "Give the {f} recorded for {k}.",
        "Which {f} does the record of {k} show?",
        "Look up {noun} {k}: what is the {f}?", "Choose the {f} of {noun} {k}.",
    )  # fmt: skip
    if found and found["k"] in rows | {}:
        value = rows[found["k"]].get(found["f"])
        return set() if value is None else {value}
    if found:
        return set()
    asked = taken(
        text, "Does the text say what the {f} of {noun} {k} is?", "Can the {f} of {k} be found here?",
        "Is there enough here to tell the {f} of {noun} {k}?",
    )  # fmt: skip
    return asked["f"] in rows.get(asked["k"], {}) if asked else None


def _by_place(rows: dict[str, dict[str, str]], text: str, _kind: str) -> Answer | None:
    for name in [*PLACES, "last", "second to last"]:
        place = -1 if name == "last" else -2 if name == "second to last" else PLACES.index(name)
        found = taken(
            text, f"What is the {{f}} of the {name} {{noun}} listed?", f"Take the {name} record: what is its {{f}}?",
            f"{{F}} of the {name} {{noun}} in the list?", f"Which {{noun}} is listed {name}?",
        )  # fmt: skip
        if found:
            key = list(rows)[place]
            return {rows[key][found["f"]]} if "f" in found else {key}
    return None


def _by_value(rows: dict[str, dict[str, str]], text: str, _kind: str) -> Answer | None:
    found = taken(
        text, "Which {noun} has the {f} {v} as well as the {g} {w}?",
        "Find the {noun} whose {f} is {v} while the {g} is {w}.", "Which {noun} has the {f} {v}?",
        "For which {noun} is the {f} {v}?", "Find the {noun} whose {f} is {v}.",
    )  # fmt: skip
    if not found:
        return None
    return {
        key
        for key, row in rows.items()
        if row[found["f"]] == found["v"] and ("g" not in found or row[found["g"]] == found["w"])
    }


def _verify(rows: dict[str, dict[str, str]], text: str, kind: str) -> Answer | None:
    if kind != "noul":
        return None
    for negated, templates in (
        (True, ("Is the {f} of {noun} {k} something other than {v}?",
                "True or false: the {f} of {noun} {k} is not {v}.",
                "Is it wrong to say that the {f} of {k} is {v}?")),
        (False, ("Does the record of {k} show {v} as the {f}?", "Does {noun} {k} have the {f} {v}?")),
    ):  # fmt: skip
        found = taken(text, *templates)
        if found:
            return (rows[found["k"]][found["f"]] == found["v"]) is not negated
    side = taken(text, "Is the {f} of {noun} {k} before {v}?", "Is the {f} of {noun} {k} after {v}?")
    if side:
        mine, other = datetime.date.fromisoformat(rows[side["k"]][side["f"]]), _day(side["v"])
        return mine < other if side["form"] == "0" else mine > other
    limit = taken(text, "Is the {f} of {noun} {k} {limit} {n}?", "True or false: the {f} of {k} is {limit} {n}.")
    if limit:
        return limited(limit["limit"], int(rows[limit["k"]][limit["f"]]), int(limit["n"]))
    order = taken(text, "Is the {f} of {k} earlier than that of {l}?", "Is the {f} of {k} later than that of {l}?")
    if order:
        mine, other = (datetime.date.fromisoformat(rows[order[name]][order["f"]]) for name in "kl")
        return mine < other if order["form"] == "0" else mine > other
    for word in ("higher", "larger", "lower", "smaller"):
        pair = taken(
            text,
            f"Is the {{f}} of {{noun}} {{k}} {word} than that of {{l}}?",
            f"Does {{k}} have a {word} {{f}} than {{l}}?",
        )
        if pair:
            one, two = (int(rows[pair[name]][pair["f"]]) for name in "kl")
            return one > two if word in ("higher", "larger") else one < two
    found = taken(text, "Is the {f} of {noun} {k} {v}?", "True or false: the {f} of {noun} {k} is {v}.")
    return rows[found["k"]][found["f"]] == found["v"] if found else None


def _compare(rows: dict[str, dict[str, str]], text: str, _kind: str) -> Answer | None:
    for rank in ("", "second "):
        for word in ("highest", "largest", "lowest", "smallest"):
            found = taken(
                text, f"Which {{noun}} has the {rank}{word} {{f}}?", f"Whose record shows the {rank}{word} {{f}}?",
                f"Find the {rank}{word} {{f}}.",
            )  # fmt: skip
            if found:
                values = sorted({int(row[found["f"]]) for row in rows.values()}, reverse=word in ("highest", "largest"))
                value = str(values[1 if rank else 0])
                keys = {key for key, row in rows.items() if row[found["f"]] == value}
                assert len(keys) == 1
                return {value} if found["form"] == "2" else keys
    return None


def _count(rows: dict[str, dict[str, str]], text: str, kind: str) -> Answer | None:
    over = taken(text, "How many {plural} have a {f} {limit} {n}?", "Count the {plural} with a {f} {limit} {n}.")
    equal = taken(text, "How many {plural} have the {f} {v}?", "Count the {plural} whose {f} is {v}.")
    if over:
        n = sum(limited(over["limit"], int(row[over["f"]]), int(over["n"])) for row in rows.values())
    elif equal:
        n = sum(row[equal["f"]] == equal["v"] for row in rows.values())
    elif taken(text, "How many {plural} are there?", "Count the {plural} listed."):
        n = len(rows)
    else:
        return None
    return min(n, 6) if kind == "score" else {str(n), COUNTS[n]} if n < len(COUNTS) else {str(n)}


def _dates(rows: dict[str, dict[str, str]], text: str, _kind: str) -> Answer | None:
    for word, first in (("earliest", True), ("latest", False)):
        found = taken(text, f"Which {{noun}} has the {word} {{f}}?", f"What is the {word} {{f}}?")
        if found:
            days = sorted(row[found["f"]] for row in rows.values())
            day = days[0] if first else days[-1]
            keys = {key for key, row in rows.items() if row[found["f"]] == day}
            assert len(keys) == 1
            return keys if found["form"] == "0" else {day}
    found = taken(
        text, "In which month is the {f} of {noun} {k}?", "In which year is the {f} of {noun} {k}?",
        "How is the {f} of {k} written out?",
    )  # fmt: skip
    if not found:
        return None
    year, month, day = rows[found["k"]][found["f"]].split("-")
    name = MONTHS[int(month) - 1]
    return {(name, year, f"{int(day)} {name} {year}")[int(found["form"])]}


def _day(text: str) -> datetime.date:
    if text[:4].isdigit():
        return datetime.date.fromisoformat(text)
    day, month, year = text.split()
    return datetime.date(int(year), MONTHS.index(month) + 1, int(day))
