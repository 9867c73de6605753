"""The text pieces of questions: headers, options, answers. Each piece is tokenised on its own and joined by ids.

It refuses to know token ids and where the state goes (`rows`). Trap: where a piece ends decides how the text around it
merges, so a newline moved from one piece to its neighbour changes ids and loses what the model learned.
"""

from __future__ import annotations

from collections.abc import Sequence

from decider.questions.prompt import Prompt
from decider.tokens.labels import LabelTable

CONTEXT = "Context:\n"
ANSWER = "Answer: ("
NARROW_OPTIONS = 10
"""Questions with at most this many options have their option list tokenised as one string; the others are wide."""

Piece = str | int
"""Text to tokenise on its own, or the index of a label, whose one token is inserted."""
Pieces = tuple[Piece, ...]


def plain_questions(prompts: Sequence[Prompt], labels: LabelTable) -> list[Pieces]:
    """Per question of a plain, state-first row: header, options and answer, all one string where it is narrow."""
    asked: list[Pieces] = []
    for prompt, tag in zip(prompts, _tags(len(prompts)), strict=True):
        header, answer = f"\n\n{_header(prompt, tag)}", f"\nAnswer{tag}: ("
        if _is_narrow(prompt):
            asked.append((header + _narrow_options(prompt, labels) + answer,))
        else:
            asked.append((header, *_wide_options(prompt), answer))
    return asked


def questions(prompts: Sequence[Prompt], labels: LabelTable, *, schema_first: bool) -> list[Pieces]:
    """Per question of every other row: header, then options. A row that starts with its questions has no lead there."""
    asked: list[Pieces] = []
    for prompt, tag in zip(prompts, _tags(len(prompts)), strict=True):
        lead = "" if schema_first and not asked else "\n\n"
        block = (_narrow_options(prompt, labels),) if _is_narrow(prompt) else _wide_options(prompt)
        asked.append((lead + _header(prompt, tag), *block))
    return asked


def answers(n_questions: int, *, chat: bool) -> list[Pieces]:
    """The answer pieces of a row that has them at its end, one a question; the slot is the last token of each."""
    leads = ["" if chat else "\n\n", *["\n"] * (n_questions - 1)]
    return [(f"{lead}Answer{tag}: (",) for lead, tag in zip(leads, _tags(n_questions), strict=True)]


def _tags(n_questions: int) -> list[str]:
    """Questions are numbered from 1, and only in a row that holds more than one."""
    return [""] if n_questions == 1 else [f" {number}" for number in range(1, n_questions + 1)]


def _header(prompt: Prompt, tag: str) -> str:
    return f"Question{tag}: {prompt.text}\nOptions:"


def _is_narrow(prompt: Prompt) -> bool:
    return len(prompt.options) <= NARROW_OPTIONS


def _narrow_options(prompt: Prompt, labels: LabelTable) -> str:
    return "".join(f"\n({name}) {option}" for name, option in zip(labels.names, prompt.options, strict=False))


def _wide_options(prompt: Prompt) -> Pieces:
    return tuple(piece for index, option in enumerate(prompt.options) for piece in ("\n(", index, f") {option}"))
