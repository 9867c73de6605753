"""Solvers of strings: roles in a letter, words in a list, formats, demands on a reply, spellings, tools.

Trap: formats are told apart by their characters here, with no pattern of the generator's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from solvers.reading import Answer
from solvers.tabular import MONTHS


def solve_extraction(state: Any, text: str, _question: dict[str, Any]) -> Answer:
    roles = "(current|former|wrong|second|temporary|confirmed)"
    found: dict[tuple[str, str], str] = {}
    if isinstance(state, list):
        found = {(each["kind"], each["role"]): each["text"] for each in state}
    else:
        for lead, middle in (("The", "is"), ("Please note the", r"(?::)"), ("As", "we have")):
            pattern = rf"{lead} {roles} ([a-z- ]+?)(?: {middle}|{middle}) (.+?)\.(?= [A-Z]|$)"
            for role, kind, value in re.findall(pattern, state):
                found[kind, role] = value
    asked = re.fullmatch(rf"(?:What is the|Pick out the) {roles} ([a-z- ]+)[?.]", text)
    other = re.fullmatch(rf"Which ([a-z- ]+) is given as the {roles} one\?", text)
    kind, role = (asked[2], asked[1]) if asked else (other[1], other[2]) if other else ("", "")
    assert kind, text
    return {found[kind, role]} if (kind, role) in found else set()


def solve_occurs(state: Any, text: str, question: dict[str, Any]) -> Answer:
    listed = state["words"] if isinstance(state, dict) else re.split(r", |\n", state)
    if text in ("Which of these words stands in the list?", "Which of these occurs here?"):
        return set(listed)
    if text in ("Which of these words does not stand in the list?", "Which of these is missing here?"):
        return set(question["criteria"]) - set(listed)
    if text == "Which word of the list has the most letters?":
        return {word for word in listed if all(len(word) >= len(other) for other in listed)}
    named = re.search(r"'(.+)'", text)
    if text.startswith("Does the word"):
        assert named
        return named[1] in listed
    if text.startswith("Which word comes right after"):
        assert named
        return {listed[listed.index(named[1]) + 1]}
    place = re.fullmatch(r"Which word is the (\w+) one in the list\?", text)
    assert place, text
    order = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
    return {listed[-1 if place[1] == "last" else order.index(place[1])]}


def solve_same_record(state: Any, text: str, _question: dict[str, Any]) -> Answer:
    if isinstance(state, dict):
        one, two = state["first record"], state["second record"]
    else:
        one, two = (dict(_pair(part) for part in line.split(": ", 1)[1].split("; ")) for line in state.splitlines())
    differ = {field for field in one if _plain(one[field]) != _plain(two[field])}
    field = re.fullmatch(r"Do both records give the same (.+)\?", text)
    if field:
        return field[1] not in differ
    return differ if text.startswith("In which field") else not differ


def _pair(part: str) -> tuple[str, str]:
    found = re.fullmatch(r"(name|born|city|phone|member number) (.+)", part)
    assert found, part
    return found[1], found[2]


def _plain(text: str) -> str:
    long = re.fullmatch(r"(\d+) ([A-Z][a-z]+) (\d{4})", text)
    if long:
        return f"{long[3]}-{MONTHS.index(long[2]) + 1:02d}-{int(long[1]):02d}".replace("-", "")
    return re.sub(r"[ -]", "", text).lower()


def _digits(shape: str) -> Callable[[str], bool]:
    return lambda text: re.sub(r"\d", "9", text) == shape


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text)


def _whole(text: str) -> bool:
    return text.isdigit()


def _json(kind: type) -> Callable[[str], bool]:
    def is_it(text: str) -> bool:
        try:
            return isinstance(json.loads(text), kind)
        except ValueError:
            return False

    return is_it


FORMATS: dict[str, Callable[[str], bool]] = {
    "a date as YYYY-MM-DD": _digits("9999-99-99"),
    "a date as DD/MM/YYYY": _digits("99/99/9999"),
    "a date with the month as a word": lambda text: any(f" {month} " in text for month in MONTHS),
    "a time of day as HH:MM": _digits("99:99"),
    "a whole number": _whole,
    "a number with two decimals": lambda text: text[:-3].isdigit() and _digits(".99")(text[-3:]),
    "a percentage": lambda text: text.endswith("%"),
    "an e-mail address": lambda text: "@" in text,
    "a web address": lambda text: text.startswith("https://"),
    "a colour as # and six hex digits": lambda text: text.startswith("#") and len(text) == 7,
    "an IPv4 address": lambda text: text.count(".") == 3 and all(part.isdigit() for part in text.split(".")),
    "snake_case": lambda text: "_" in text and text.islower() and all(each.isalpha() for each in text.split("_")),
    "kebab-case": lambda text: "-" in text and text.islower() and all(each.isalpha() for each in text.split("-")),
    "camelCase": lambda text: text.isalpha() and text[0].islower() and text != text.lower(),
    "UPPER_CASE with underscores": lambda text: "_" in text and text.isupper(),
    "two words, each with a capital": lambda text: (
        text.istitle() and text.replace(" ", "", 1).isalpha() and " " in text
    ),
    "one word in lower case": lambda text: text.isalpha() and text.islower(),
    "a JSON object": _json(dict),
    "a JSON array": _json(list),
    "a list of three words parted by commas": lambda text: text.count(", ") == 2 and text[0].isalpha(),
    "a phone number that begins with +": lambda text: text.startswith("+"),
    "an amount in dollars": lambda text: text.startswith("$"),
}


def solve_formats(state: Any, text: str, question: dict[str, Any]) -> Answer:
    if isinstance(state, dict) and "format" in state:
        said = state["format"]
    elif isinstance(state, str) and " has to be " in state:
        said = state.split(" has to be ")[1].removesuffix(".")
    else:
        value = state["value"] if isinstance(state, dict) else state
        asked = re.fullmatch(r"Is this (.+)\?", text)
        if asked:
            return FORMATS[asked[1]](value)
        return {name for name, has in FORMATS.items() if has(value)}
    return {name for name in question["criteria"] if FORMATS[said](name)}


def _met(demand: str, reply: str) -> bool:
    words = reply.split()
    bare = [word.strip(",.!?").lower() for word in words]
    number = re.search(r"use (exactly|at most) (\d+) words", demand)
    if number:
        return len(words) == int(number[2]) if number[1] == "exactly" else len(words) <= int(number[2])
    named = re.search(r"'(.+)'", demand)
    if named:
        word = named[1].lower()
        return bare[0] == word if demand.startswith("begin") else (word in bare) is demand.startswith("use")
    return {
        "write in lower case only": not re.search("[A-Z]", reply),
        "write in capitals only": not re.search("[a-z]", reply),
        "end with a question mark": reply[-1] == "?",
        "end with an exclamation mark": reply[-1] == "!",
        "end with a full stop": reply[-1] == ".",
        "use no comma": reply.count(",") == 0,
        "use a comma": reply.count(",") > 0,
        "use no digits": not re.search(r"\d", reply),
        "give a number in digits": bool(re.search(r"\d", reply)),
    }[demand]


def solve_follows(state: Any, text: str, question: dict[str, Any]) -> Answer:
    listed: list[str] = []
    if isinstance(state, dict):
        listed, reply = state.get("instructions", []), state["reply"]
    else:
        head, _, reply = state.rpartition("Reply: ")
        listed = re.findall(r"[A-Z][^.]+\.", head.removeprefix("Instructions: "))
    demands = [each[0].lower() + each[1:].removesuffix(".") for each in listed]
    if text.startswith("How many of the instructions"):
        return [_met(each, reply) for each in demands].count(True)
    one = re.fullmatch(r"Does the reply keep to this instruction: (.+)\?", text)
    if one:
        return _met(one[1], reply)
    if text.startswith("Which of these instructions"):
        kept = text.endswith("keep to?")
        names = [name for name in question["criteria"] if not name.startswith(("none of", "another", "not listed"))]
        return {name for name in names if _met(name, reply) is kept}
    return all(_met(each, reply) for each in demands)


SIGNS = {
    "create": ("Set up a new", "has no .* yet", "Start a fresh"),
    "delete": ("Get rid of", "wipe it", "Throw the old"),
    "send": ("Mail the", "in the inbox", "by e-mail"),
    "print": ("on paper", "through the printer", "paper copy"),
    "translate": ("only reads Polish", "in French", "into Greek"),
    "count": ("How many of the kind", "Tell me the number"),
    "lock": ("should be able to edit", "against changes"),
    "rename": ("should be called", "Change the title"),
    "compare": ("What changed", "differs from"),
    "restore": ("by mistake", "thrown away last week"),
    "schedule": ("on Monday at nine", "next Friday"),
    "summarise": ("in two sentences", "boil it down"),
}
OBJECTS = [
    "invoice",
    "report",
    "contract",
    "recipe",
    "calendar",
    "playlist",
    "letter",
    "photo",
    "timetable",
    "survey",
    "budget",
    "menu",
    "lease",
    "speech",
    "poem",
    "manual",
    "password list",
    "test plan",
    "map sheet",
    "wish list",
]


def solve_toolbox(state: Any, _text: str, question: dict[str, Any]) -> Answer:
    request = state if isinstance(state, str) else state["request"]
    (verb,) = [name for name, signs in SIGNS.items() if any(re.search(sign, request) for sign in signs)]
    (thing,) = [each for each in OBJECTS if re.search(rf"\b{each}\b", request)]
    tools = [each["name"] for each in state["tools"]] if isinstance(state, dict) and "tools" in state else []
    wanted = re.sub(r"[^a-z]", "", thing)

    def serves(name: str) -> bool:
        parts = re.sub(r"[^a-z]", "", name.lower())
        return parts in (verb + wanted, wanted + verb)

    if question["type"] == "noul":
        return any(serves(name) for name in tools)
    return {name for name in question["criteria"] if serves(name)}
