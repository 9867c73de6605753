"""Tool choice, out of `bfcl-eval` (Berkeley function calling leaderboard): which function serves a request, if any.

It refuses to judge arguments of calls. Trap: a distractor that also serves the request makes the gold wrong, so none
shares a word of its name with the right function.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from decider.data.archive import Archive
from decider.data.items import Item, choice, noul

FOLDER = "bfcl_eval/data/"
SEVERAL = ("multiple", "live_multiple")
SINGLE = ("simple_python", "simple_java", "simple_javascript", "live_simple")
NONE_FITS = ("irrelevance", "live_irrelevance")
DISTRACTORS = 7
MAX_REQUEST_CHARS = 1500
MAX_FUNCTIONS_CHARS = 2500

WHICH = "Which of these functions should be called to serve the request?"
FITS = "Can one of the listed functions serve this request?"


@dataclass(frozen=True, slots=True)
class _Call:
    """A request, the functions offered with it (name → description), and the name of the right one or None."""

    request: str
    functions: Mapping[str, str]
    gold: str | None


def tool_choice(archive: Archive) -> Iterator[Item]:
    """Two functions or more, one of them right."""
    for call in _calls(archive, SEVERAL):
        if len(call.functions) > 1 and call.gold is not None:
            yield _pick(call.request, call.functions, call.gold)


def tool_routing(archive: Archive) -> Iterator[Item]:
    """One right function among seven of other requests, in an order by hash."""
    calls = list(_calls(archive, SINGLE))
    known: dict[str, str] = {}
    for call in _calls(archive, (*SINGLE, *SEVERAL)):
        for name, description in call.functions.items():
            known[name] = min(description, known.get(name, description))
    for call in calls:
        assert call.gold is not None, call.request
        own = _words(call.gold)
        ranked = sorted(known, key=lambda name: _rank(call.request, name))
        others = [name for name in ranked if not own & _words(name)][:DISTRACTORS]
        names = sorted([call.gold, *others], key=lambda name: _rank(name, call.request))
        options = {name: call.functions.get(name, known[name]) for name in names}
        yield _pick(call.request, options, call.gold)


def tool_fits(archive: Archive) -> Iterator[Item]:
    """Whether any of the functions at hand serves the request."""
    for call in _calls(archive, (*SINGLE, *SEVERAL, *NONE_FITS)):
        listed = [{"name": name, "description": text} for name, text in call.functions.items()]
        yield Item(
            {"request": call.request, "functions": listed},
            {"fits": noul(FITS)},
            {"fits": call.gold is not None},
            group=call.request,
        )


def _pick(request: str, functions: Mapping[str, str], gold: str) -> Item:
    return Item(request, {"tool": choice(WHICH, dict(functions))}, {"tool": gold}, group=request)


def _calls(archive: Archive, sets: tuple[str, ...]) -> Iterator[_Call]:
    for name in sets:
        file = f"BFCL_v4_{name}.json"
        gold: dict[str, str] = {}
        if name not in NONE_FITS:
            for answer in _lines(archive, f"possible_answer/{file}"):
                gold[answer["id"]] = next(iter(answer["ground_truth"][0]))
        for entry in _lines(archive, file):
            turns = [(message["role"], message["content"].strip()) for message in entry["question"][0]]
            functions = {function["name"]: function["description"].strip() for function in entry["function"]}
            request = turns[-1][1]
            # Longer talks and system turns are other decisions than the one asked here.
            plain = [role for role, _ in turns] == ["user"] and request and len(request) <= MAX_REQUEST_CHARS
            apart = 0 < len(functions) == len(entry["function"])
            if plain and apart and sum(map(len, (*functions, *functions.values()))) <= MAX_FUNCTIONS_CHARS:
                yield _Call(request, functions, gold.get(entry["id"]))


def _lines(archive: Archive, file: str) -> Iterator[Any]:
    for line in archive.read(FOLDER + file).decode().splitlines():
        yield json.loads(line)


def _words(name: str) -> set[str]:
    """The words of a name, split at punctuation and capitals."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def _rank(*parts: str) -> bytes:
    return hashlib.sha256("\n".join(parts).encode()).digest()
