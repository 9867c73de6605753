"""How a question reads: its text and its options, as the published checkpoints were trained on them.

It refuses to know labels, layouts and tokens. Trap: `neutralize_none` changes what the model reads, never what an
answer carries, and its test is on the whole option text: "none: nothing fits" and the score level "0: none" stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from decider.errors import TooLargeError
from decider.questions.jsontext import JsonValue, dumps, utf8_bytes
from decider.questions.limits import Limits
from decider.questions.types import Choice, Instructions, Question, Score, is_described

DEFAULT_TEXT = "Which answer fits the context?"
NEUTRAL_OPTION = "not listed here"
NO_YES = ("no", "yes")

_NONE_PREFIX = "none of the above"
_NONE_TEXTS = frozenset({"none", "n/a", "none of these"})
_OWN_NUMBER = re.compile(r"\A\s*-?\d+\s*:\s+")


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads of one row's question: its text, and its options in order, without labels."""

    text: str
    options: tuple[str, ...]


def prompt(question: Question, *, neutralize_none: bool) -> Prompt:
    """A question with all its options; a Score in list form, a Noul with the options (no, yes)."""
    options = _options(question)
    if neutralize_none:
        options = tuple(NEUTRAL_OPTION if _says_none(option) else option for option in options)
    return Prompt(_text(question.instructions), options)


def level_prompts(question: Score) -> tuple[Prompt, ...]:
    """A Score with isolated levels: one no/yes prompt a level, without the number its description may start with."""
    text = _text(question.instructions)
    levels = (_OWN_NUMBER.sub("", _written(level)) for level in question.levels)
    return tuple(Prompt(f"{text}\nProposed answer: {level}\nDoes the proposed answer fit?", NO_YES) for level in levels)


def check_size(question: Question, limits: Limits) -> None:
    """Raises TooLargeError if the question's text and options together exceed `max_question_bytes` in UTF-8."""
    size = sum(map(utf8_bytes, (_text(question.instructions), *_options(question))))
    if size > limits.max_question_bytes:
        raise TooLargeError(
            f"the question has {size:,} bytes of text and options, over the limit of {limits.max_question_bytes:,} "
            "(max_question_bytes), which no model's maximum context length can use; shorten it"
        )


def _text(instructions: Instructions) -> str:
    return _written(cast("JsonValue", instructions)) if instructions else DEFAULT_TEXT


def _options(question: Question) -> tuple[str, ...]:
    if isinstance(question, Choice):
        return tuple(map(_option, question.names, question.descriptions))
    if isinstance(question, Score):
        return tuple(f"{index}: {_written(level)}" for index, level in enumerate(question.levels))
    return tuple(map(_option, NO_YES, (question.false, question.true)))


def _option(name: str, description: JsonValue) -> str:
    return f"{name}: {_written(description)}" if is_described(description) else name


def _written(value: JsonValue) -> str:
    return value if isinstance(value, str) else dumps(value)


def _says_none(option: str) -> bool:
    bare = option.strip().lower()
    return bare.startswith(_NONE_PREFIX) or bare in _NONE_TEXTS
