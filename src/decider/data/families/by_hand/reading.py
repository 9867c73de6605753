"""Reads situations written by hand: a state, and below it questions, a line each; `---` stands between two.

    C: wording // another wording | option | *right option: its description
    S: wording | lowest level | *right level | highest
    N: wording | yes

It refuses to ask anything. Trap: a colon in an option may be the option's own; it parts a name from a description only
where most options of that question have one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from decider.data.items import Gold

FILES = ("business", "records", "rules", "texts", "comparing", "conditions", "processes")
"""One author each."""
BETWEEN = "---"
_QUESTION = re.compile(r"([CSN]): (.+)")
_KINDS = {"C": "choice", "S": "score", "N": "noul"}


@dataclass(frozen=True, slots=True)
class Question:
    """One question in all of its wordings."""

    kind: str
    """choice, score or noul."""
    wordings: tuple[str, ...]
    options: Mapping[str, str | None]
    """Options with their descriptions, or levels from the lowest; none of a Noul."""
    gold: Gold


@dataclass(frozen=True, slots=True)
class Situation:
    """A state, text or JSON, with its questions."""

    state: object
    questions: tuple[Question, ...]


@cache
def situations(name: str) -> tuple[Situation, ...]:
    """Those of the file `name`, one of `FILES`."""
    text = resources.files(__package__).joinpath("texts", f"{name}.txt").read_text(encoding="utf-8")
    return parsed(text)


def parsed(text: str) -> tuple[Situation, ...]:
    """All situations of a text. Raises ValueError with the line that no reader of these files understands."""
    found: list[Situation] = []
    for block in re.split(rf"^{BETWEEN}\s*$", text, flags=re.MULTILINE):
        lines = block.strip().splitlines()
        n_state = next((at for at, line in enumerate(lines) if _QUESTION.fullmatch(line)), len(lines))
        if not lines:
            continue
        if not 0 < n_state < len(lines):
            raise ValueError(f"a situation wants a state and questions below it: {block.strip()[:80]!r}")
        asked = tuple(_question(line) for line in lines[n_state:] if line.strip())
        found.append(Situation(_state("\n".join(lines[:n_state])), asked))
    return tuple(found)


def _state(text: str) -> object:
    try:
        return json.loads(text) if text[0] in "{[" else text
    # Log lines begin like a list.
    except json.JSONDecodeError:
        return text


def _question(line: str) -> Question:
    matched = _QUESTION.fullmatch(line)
    asked, *options = (part.strip() for part in (matched[2] if matched else "").split("|"))
    wordings = tuple(each.strip() for each in asked.split(" // "))
    kind = _KINDS[matched[1]] if matched else ""
    if kind == "noul" and options in (["yes"], ["no"]):
        return Question(kind, wordings, {}, options == ["yes"])
    right = [option.startswith("*") for option in options]
    plain = [option.removeprefix("*").strip() for option in options]
    if kind == "choice" and 2 * sum(": " in option for option in plain) > len(plain):
        named = dict((*option.split(": ", 1), None)[:2] for option in plain)
    else:
        named = dict.fromkeys(plain)
    distinct = len(named) == len(options) >= 2
    if kind not in ("choice", "score") or sum(right) != 1 or not distinct or not all((*wordings, *named)):
        raise ValueError(f"no question that can be asked: {line[:120]!r}")
    gold = list(named)[right.index(True)] if kind == "choice" else right.index(True)
    return Question(kind, wordings, named, gold)
