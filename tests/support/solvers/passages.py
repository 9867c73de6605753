"""Whether a passage answers a question: which sentences of the bank stand in a state, and what they answer.

Reads the passages' file anew. Trap: a passage may lack one sentence; then only what is marked as alone in another
sentence is known to be answered.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from solvers.daily import bank, flat
from solvers.reading import Answer

LACKING = (
    "missing|leave|fail|does not tell|is not answered|not settle|unanswe|elsewhere|impossible|more information"
    "|no answer|left out|decline|useless|unsaid|a guess|must .* guess|in the dark|beyond|lack|in vain|not stated"
    "|without an answer|cannot|too little|another source|stays open|absent|silent|too thin|does not know"
    "|without answering|does not hold"
)
"""What a wording says that asks whether the answer is missing."""
LEFT_OPEN = (
    "leave|cannot|has no answer|unanswerable|unanswered|but one are answered|but one. which one is it|strike out|isn.t"
    "|another source|nowhere|does not help|only guess|does not tell|put to the author|silent|goes beyond|remains open"
    "|not settled|too little"
)
"""What it says that asks for the question without an answer."""
GIVEN = (
    *("not stated", "the text does not say", "unknown", "not answered in the passage", "cannot be told from the text"),
    *("not mentioned", "no answer given", "the passage leaves it open", "NOT_IN_TEXT", "insufficient information"),
    *("unanswerable", "It is not said.", "no answer in the text", "n/a: the text is silent on this", "not given"),
    *("the text leaves this open", "cannot be answered"),
)


def _split(text: str) -> list[str]:
    return [each for each in re.split(r"(?<=[.!?]) (?=[A-Z“‘0-9])", text) if each]


@cache
def _known() -> dict[str, list[tuple[str, str | None, bool]]]:
    """Question → passage, answer (None for a miss) and whether one sentence alone answers it."""
    found: dict[str, list[tuple[str, str | None, bool]]] = {}
    for key, entry in bank("passages").items():
        for line in entry["asks"]:
            question, answer, *mark = (part.strip() for part in line.split("|"))
            found.setdefault(question, []).append((key, answer, bool(mark)))
        for question in entry["misses"]:
            found.setdefault(question, []).append((key, None, False))
    return found


def _answer(question: str, text: str) -> str | None:
    """What the text answers, or None."""
    for key, answer, alone in _known()[question]:
        whole = bank("passages")[key]["text"][0]
        if answer is None:
            continue
        if whole in text:
            return answer
        if alone:
            (sentence,) = [each for each in _split(whole) if answer in each]
            if sentence in text:
                return answer
        else:
            assert not any(each in text for each in _split(whole)), (question, "is not known to be answered")
    return None


def _asked(text: str) -> str:
    """The longest question of the bank that stands in a text."""
    return max((each for each in _known() if each in text), key=len)


def solve_answered(state: Any, text: str, question: dict[str, Any]) -> Answer:
    whole = flat(state)
    criteria = question.get("criteria", ())
    if question["type"] == "choice":
        pairs = dict(criteria) if isinstance(criteria, dict) else {each: each for each in criteria}
        if all(each in _known() for each in pairs.values()):
            open_one = re.search(LEFT_OPEN, text.lower())
            return {name for name, each in pairs.items() if (_answer(each, whole) is None) is bool(open_one)}
        found = _answer(_asked(text), whole)
        return {name for name in pairs if name == found} if found is not None else set(GIVEN) & set(pairs)
    inside = not any(each in text for each in _known())
    asked = _asked(whole if inside else text)
    lacking = re.search(LACKING, text.replace(asked, "").lower())
    return (_answer(asked, whole) is not None) is not bool(lacking)
