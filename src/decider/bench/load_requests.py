"""What a load asks: a small built-in set, or the lines of a JSONL file, cycled.

It refuses to check questions; a server does, and its refusals are figures too. Trap: a labelled file has more keys than
a request (`id`, `gold`). They are ignored on the wire, so lines go as they stand, with a model where none is named.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from decider.errors import ConfigError, InputError
from decider.questions.jsontext import JsonValue, loads
from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.wire import MODEL_ALIAS

_TEAM: JsonValue = {
    "type": "choice",
    "instructions": "Which team should handle this message?",
    "criteria": {
        "billing": "charges, invoices and refunds",
        "technical": "bugs, outages and how-to questions",
        "sales": "new orders and upgrades",
        "none of the above": None,
    },
}
_URGENCY: JsonValue = {
    "type": "score",
    "instructions": "How soon must somebody act?",
    "criteria": ["never", "this week", "today", "at once"],
}
_ANGRY: JsonValue = {"type": "noul", "instructions": "Is the writer angry?"}
_STATES = (
    "My card was charged twice for order 4417. Please return one of the two.",
    "Since this morning the app closes as soon as I open a report. We present to our board at noon, and need it back.",
    "Could you send an offer for forty more seats? We would like to start in January, if the yearly price holds.",
    "Three days and no answer. I asked for a refund, was promised one, and now nobody picks up the telephone. I need "
    "the money before Friday, or I cancel the contract and tell everyone why.",
)


def built_in() -> tuple[dict[str, JsonValue], ...]:
    """Four short messages, three questions each."""
    questions: dict[str, JsonValue] = {"team": _TEAM, "urgency": _URGENCY, "angry": _ANGRY}
    return tuple({"model": MODEL_ALIAS, "state": state, "questions": questions} for state in _STATES)


def read_requests(path: Path) -> tuple[dict[str, JsonValue], ...]:
    """One JSON object a line, empty lines skipped. Raises ConfigError, naming the line."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"--requests {str(path)!r:.120} cannot be read: {error.strerror}; name another") from error
    found: list[dict[str, JsonValue]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            request = loads(line, DEFAULT_LIMITS)
        except InputError as error:
            raise ConfigError(f"--requests {str(path)!r:.120}, line {number}: {error}") from error
        if not isinstance(request, dict):
            raise ConfigError(f"--requests {str(path)!r:.120}, line {number} is no object; a request is one")
        found.append({"model": MODEL_ALIAS, **request})
    if not found:
        raise ConfigError(f"--requests {str(path)!r:.120} holds no request; write one JSON object a line")
    return tuple(found)


def bodies(requests: Sequence[dict[str, JsonValue]]) -> tuple[bytes, ...]:
    """As they are sent: compact JSON in UTF-8."""
    return tuple(json.dumps(each, ensure_ascii=False, separators=(",", ":")).encode() for each in requests)
