"""Solvers of everyday decisions: which labelled sentences stand in a state, and what their labels say.

Reads the sentences' files anew. Trap: sentences may be mistyped by a letter, so most come to light by their pairs of
words; reports and summaries are never mistyped, and are found exactly.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from solvers.reading import Answer

FOLDER = Path(__file__).parents[3] / "src" / "decider" / "data" / "families" / "daily" / "texts"
ENOUGH = 0.55
MORE = (
    "still|go on|missing|remain|more work|continue|not been reached|unfinished|too early|further|not there|too soon"
    "|steps left"
)
OFF = (
    "off topic|outside|turn this away|nothing to do|out of place|unrelated|beyond|wrong door|out of scope"
    "|somewhere else|wrong one|foreign|none of"
)
DENIED = "contradict|odds|wrong|ruled? .*out|liar|impossible|clash|refuted|excluded|to be false"
ERRORS = (
    "does not|mistake|beyond|twist|error|correct|unsupported|changed|mislead|wrong|object|lack|unfaithful"
    "|send the summary back"
)
STANDINGS = (
    {
        *("it follows", "supported", "true", "entailment", "confirmed", "correct", "must be so", "right"),
        "the text says so",
    },
    {
        *("it is ruled out", "contradicted", "false", "contradiction", "refuted", "incorrect", "cannot be so", "wrong"),
        "the text says otherwise",
    },
    {
        *("it is left open", "neither", "cannot be told", "neutral", "not settled", "unproven", "may be so or not"),
        *("undecided", "the text leaves it open"),
    },
)
Bank = dict[str, dict[str, list[str]]]


@cache
def bank(name: str) -> Bank:
    found = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return {key: {field: text.strip().split("\n") for field, text in entry.items()} for key, entry in found.items()}


def flat(state: Any) -> str:
    if isinstance(state, str):
        return state
    values = state.values() if isinstance(state, dict) else state if isinstance(state, list) else [str(state)]
    return " \n ".join(flat(value) for value in values)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower().replace("'", ""))


@cache
def _pairs(template: str) -> tuple[tuple[str, str], ...]:
    parts = [_words(part) for part in re.split(r"\{\w+\}", template)]
    return tuple(pair for part in parts for pair in itertools.pairwise(part))


@cache
def _state_pairs(text: str) -> frozenset[tuple[str, str]]:
    found = _words(text)
    return frozenset(itertools.pairwise(found))


def rank(template: str, text: str) -> tuple[float, int]:
    """The share of a sentence's word pairs that stand in the text, and how many they are."""
    pairs = _pairs(template)
    held = sum(pair in _state_pairs(text) for pair in pairs)
    return (held / len(pairs) if pairs else 0.0), held


def best(labelled: Iterable[tuple[Any, str]], text: str) -> Any:
    """The label of the sentence that stands in the text most plainly, or None."""
    ranked = [(rank(template, text), label) for label, template in labelled]
    top, label = max(ranked, key=lambda each: each[0])
    return label if top[0] >= ENOUGH else None


def _class_of(name: str, text: str) -> str:
    found = best(((key, each) for key, entry in bank(name).items() for each in entry["text"]), text)
    assert found is not None, text
    return str(found)


def _named(name: str, text: str) -> str:
    """The class whose name or description stands in a question; the longest, as descriptions may hold other names."""
    inside = [
        (len(each), key)
        for key, entry in bank(name).items()
        for each in (*entry["names"], *entry["says"])
        if re.search(rf"(?<!\w){re.escape(each.rstrip('?'))}(?!\w)", text)
    ]
    assert inside, text
    return max(inside)[1]


def _option(name: str, label: str, question: dict[str, Any]) -> set[str]:
    criteria = question["criteria"]
    pairs = criteria.items() if isinstance(criteria, dict) else ((each, None) for each in criteria)
    own = {*bank(name)[label]["names"], *bank(name)[label]["says"]}
    return {option for option, says in pairs if option in own or says in own}


def solve_class(name: str, state: Any, text: str, question: dict[str, Any]) -> Answer:
    label = _class_of(name, flat(state))
    return _option(name, label, question) if question["type"] == "choice" else _named(name, text) == label


def solve_step(state: Any, text: str, question: dict[str, Any]) -> Answer:
    ends = [(entry, sign) for entry in bank("goals").values() for sign in ("done", "open")]
    goals = [(sign == "done", each) for entry, sign in ends for each in entry[sign]]
    whole = flat(state)
    if not ((isinstance(state, dict) and "goal" in state) or whole.startswith(("Goal: ", "The task was: "))):
        return solve_class("steps", state, text, question)
    if question["type"] == "choice":
        return {option for option in question["criteria"] if best(goals, option)}
    done = best(goals, whole)
    assert done is not None, state
    return bool(done) is not bool(re.search(MORE, text.lower()))


def _remark(name: str, state: Any, text: str) -> bool:
    (entry,) = [entry for entry in bank(name).values() if text in entry["ask"]]
    return best([(sign == "yes", each) for sign in ("yes", "no") for each in entry[sign]], flat(state)) is True


def _level(state: Any, text: str, question: dict[str, Any]) -> int:
    (entry,) = [entry for entry in bank("scales").values() if text in entry["ask"]]
    level = best([(n, each) for n in range(7) for each in entry.get(f"l{n}", [])], flat(state))
    place = entry["levels"].index(" | ".join(question["criteria"]))
    return int(entry["map"][place].split()[level])


def solve_ticket(state: Any, text: str, question: dict[str, Any]) -> Answer:
    if question["type"] == "choice":
        return solve_class("teams", state, text, question)
    return _level(state, text, question) if question["type"] == "score" else _remark("customer", state, text)


def solve_grading(state: Any, text: str, question: dict[str, Any]) -> Answer:
    return _level(state, text, question)


def solve_leads(state: Any, text: str, _question: dict[str, Any]) -> Answer:
    return _remark("leads", state, text)


def solve_guard(state: Any, text: str, question: dict[str, Any]) -> Answer:
    if question["type"] == "choice":
        return solve_class("scopes", state, text, question)
    if any(text in entry["ask"] for entry in bank("guard").values()):
        return _remark("guard", state, text)
    whole = flat(state)
    own = [key for key, entry in bank("scopes").items() for each in (*entry["says"], *entry["names"]) if each in whole]
    return (_class_of("scopes", whole) in own) is not bool(re.search(OFF, text.lower()))


def solve_aspects(state: Any, text: str, question: dict[str, Any]) -> Answer:
    whole = flat(state)
    found: dict[str, bool] = {}
    for key, entry in bank("aspects").items():
        good, bad = (max(rank(each, whole) for each in entry[sign]) for sign in ("praise", "blame"))
        if max(good, bad)[0] >= ENOUGH and max(good, bad)[1] > 1:
            found[key] = good > bad
    named = {name: key for key, entry in bank("aspects").items() for name in entry["names"]}
    if question["type"] == "score":
        return 1 if len(set(found.values())) == 2 else 2 * any(found.values())
    if question["type"] == "choice":
        praise = bool(re.search("like|praised|speaks for|strong", text))
        return {option for option in question["criteria"] if option in named and found.get(named[option]) is praise}
    key = max((len(name), each) for name, each in named.items() if text.rstrip("?").endswith(name))[1]
    if re.search("speak of|subject|mentioned", text):
        return key in found
    return found.get(key) is bool(re.search("praised|speak well|like", text))


@cache
def _exact(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{\w+\}", template.rstrip("."))
    return re.compile(".+?".join(map(re.escape, parts)))


def _kind(statement: str) -> tuple[str, str]:
    """The fact a sentence is about, and whether it says it, follows, denies it or leaves it open."""
    found = _kinds(statement)
    assert found, statement
    return max(found)[1:]


def _kinds(statement: str) -> list[tuple[int, str, str]]:
    return [
        (len(each), key, field)
        for key, entry in bank("facts").items()
        for field, texts in entry.items()
        for each in texts
        if _exact(each).fullmatch(statement.strip().rstrip("."))
    ]


def _asserted(question: str) -> str:
    """The statement in a question: in quotation marks, or the rest of a line after a mark."""
    quoted = re.search("“(.+)”", question)
    if quoted:
        return quoted[1]
    rests = [question[mark.end() :].split("\n")[0] for mark in re.finditer("[?:.] ", question)]
    return next(rest for rest in rests if _kinds(rest))


def _true(statement: str, text: str) -> str:
    key, field = _kind(statement)
    said = any(_exact(each).search(text) for each in bank("facts")[key]["says"])
    return field if said else "open"


def solve_entails(state: Any, text: str, question: dict[str, Any]) -> Answer:
    whole = flat(state)
    holds = ("says", "follows")
    criteria: set[str] = set(question.get("criteria", ()))
    if question["type"] == "choice" and not any(criteria & each for each in STANDINGS):
        return {option for option in criteria if _true(option, whole) in holds}
    statement = _asserted(text)
    standing = _true(statement, whole)
    if question["type"] == "choice":
        return STANDINGS[0 if standing in holds else 1 if standing == "denied" else 2] & criteria
    asks = text.replace(statement, "").lower()
    return standing == "denied" if re.search(DENIED, asks) else standing in holds


def solve_same(state: Any, _text: str, question: dict[str, Any]) -> Answer:
    parts = list(state.values()) if isinstance(state, dict) else state
    if isinstance(parts, str):
        parts = [line.removeprefix("A: ").removeprefix("B: ") for line in parts.split("\n")]
    kinds = [_kind(part) for part in parts]
    if question["type"] == "choice":
        return {option for option in question["criteria"] if _kind(option) == kinds[0]}
    return kinds[0] == kinds[1]


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=\.) (?=[A-Z])", text)


def solve_summary(state: Any, text: str, question: dict[str, Any]) -> Answer:
    def fits(short: str, whole: str) -> bool:
        return all(_true(each, whole) in ("says", "follows") for each in _sentences(short))

    if question["type"] == "choice":
        return {option for option in question["criteria"] if fits(option, flat(state))}
    whole, short = (state["text"], state["summary"]) if isinstance(state, dict) else state.split("\n\nSummary: ")
    return fits(short, whole) is not bool(re.search(ERRORS, text.lower()))
