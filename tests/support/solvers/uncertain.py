"""Odds of what is drawn by lot, read out of the state's text; and what of a question stands in a state that is silent.

Reads the sentences' file anew. Trap: a number in a sentence may be a count, a share or how many there are in all, so a
sentence is told apart by all of its words, and its numbers by their blanks.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from solvers.daily import flat

FOLDER = Path(__file__).parents[3] / "src" / "decider" / "data" / "families" / "uncertain" / "texts"
NUMBERS = {"n": r"(?P<n>\d+)", "k": r"(?P<k>\d+)", "m": r"(?P<m>\d+)", "p": r"(?P<p>\d+)"}
Odds = Mapping[Any, Fraction]
"""Answer → probability: of a Choice by name, of a Score by level, of a Noul by truth."""


@cache
def bank(name: str) -> dict[str, dict[str, list[str]]]:
    found = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return {key: {field: text.strip().split("\n") for field, text in entry.items()} for key, entry in found.items()}


@cache
def pattern(template: str) -> re.Pattern[str]:
    seen: set[str] = set()
    said = ""
    for place, part in enumerate(re.split(r"\{(\w+)\}", template)):
        if place % 2 and part in NUMBERS:
            said += rf"(?P={part})" if part in seen else NUMBERS[part]
            seen.add(part)
        else:
            said += "(?P<counts>.+)" if place % 2 and part == "counts" else ".+?" if place % 2 else re.escape(part)
    return re.compile(said)


@cache
def scene(state_json: str) -> tuple[str, dict[str, Fraction]]:
    """The scene that a state is of, and the share of every outcome; of a rate, of its two sides."""
    state = json.loads(state_json)
    for name, entry in bank("chance").items():
        if isinstance(state, dict):
            heads = entry["json"][0].split(" | ")
            if heads[0] not in state:
                continue
            first = state[heads[0]]
            return name, shares(first) if isinstance(first, dict) else sides(entry, state[heads[1]], first)
        for template in entry["says"]:
            found = pattern(template).fullmatch(state)
            if found is None:
                continue
            given = found.groupdict()
            if "counts" in given:
                unit = re.escape(entry["unit"][0]).replace(r"\{n\}", r"(?P<n>\d+)").replace(r"\{x\}", "(?P<x>.+)")
                parts = [re.fullmatch(unit, part) for part in re.split(", | and ", given["counts"])]
                assert all(parts), given
                return name, shares({part["x"]: int(part["n"]) for part in parts if part})
            if given.get("p"):
                return name, sides(entry, int(given["p"]), 100)
            if "n" in given:
                return name, sides(entry, int(given["k"]), int(given["n"]))
            return name, sides(entry, int(given["k"]), int(given["k"]) + int(given["m"]))
    raise AssertionError(state)


def shares(counts: Mapping[str, int]) -> dict[str, Fraction]:
    return {name: Fraction(n, sum(counts.values())) for name, n in counts.items()}


def sides(entry: Mapping[str, list[str]], k: int, n: int) -> dict[str, Fraction]:
    happens, otherwise = entry["pair"][0].split(" | ")
    return {happens: Fraction(k, n), otherwise: Fraction(n - k, n)}


def odds(state: Any, text: str, question: dict[str, Any]) -> Odds:
    name, found = scene(json.dumps(state))
    entry = bank("chance")[name]
    if question["type"] == "choice":
        assert set(question["criteria"]) == set(found), question
        return found
    if question["type"] == "score":
        return {level: found[outcome] for level, outcome in enumerate(question["criteria"])}
    if "pair" in entry:
        happens = next(iter(found.values()))
        true = happens if any(pattern(each).fullmatch(text) for each in entry["yes"]) else 1 - happens
        return {True: true, False: 1 - true}
    for field in ("one", "other"):
        for template in entry[field]:
            about = [outcome for outcome in found if template.replace("{x}", outcome) == text]
            if about:
                true = found[about[0]] if field == "one" else 1 - found[about[0]]
                return {True: true, False: 1 - true}
    raise AssertionError((state, text))


def told(state: Any, text: str, question: dict[str, Any]) -> list[str]:
    """What a question puts forward as an answer and its state holds: options, or the two sides of a Noul."""
    names = list(question["criteria"]) if question["type"] == "choice" else []
    if question["type"] == "noul":
        for entry in bank("unsaid").values():
            for template in entry["pair"]:
                said = re.escape(template)
                said = re.sub(r"\\\{(\w+)\\\}", lambda m: rf"(?P<{m[1]}>.+?)" if m[1] in "xy" else ".+?", said)
                said = re.sub(r"(?<=.)\(\?P<([xy])>\.\+\?\)(.*)\(\?P<\1>\.\+\?\)", r"(?P<\1>.+?)\2(?P=\1)", said)
                if "{x}" in template and (found := re.fullmatch(said, text)):
                    names = [found["x"], found["y"]]
                    break
    whole = " ".join([flat(state), *keys(state)]).lower()
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", whole)]


def keys(state: Any) -> list[str]:
    if isinstance(state, dict):
        return [*state, *(key for value in state.values() for key in keys(value))]
    return [key for value in state for key in keys(value)] if isinstance(state, list) else []
