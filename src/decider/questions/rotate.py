"""The same questions with the options of each Choice in another order, and the way back.

It refuses to know answers and models. Trap: a small model prefers some places in a list. Asking in two orders shows
that; only orders in which every option has stood in many places average it away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from decider.questions.request import Request
from decider.questions.types import Choice, Question


@dataclass(frozen=True, slots=True)
class Rotation:
    """One more asking of a request."""

    request: Request
    """Only the questions that are asked again, unless they share a row."""
    offsets: Mapping[str, int]
    """By question id: how many options moved from the front to the back."""

    def back(self, question_id: str, probabilities: Sequence[float]) -> list[float]:
        """What this asking gave for a question, in the order of its own options."""
        offset = self.offsets[question_id]
        cut = len(probabilities) - offset
        return [*probabilities[cut:], *probabilities[:cut]] if offset else list(probabilities)


def rotations(request: Request, n_orders: int) -> tuple[Rotation, ...]:
    """The askings beside the first: each Choice in `n_orders` orders in all, or in as many as it has options.

    Order j of n options begins with option j · n / orders, rounded down, so that the places are spread evenly. A
    question of another type is asked again only where all share one row.
    """
    assert n_orders >= 1, n_orders
    askings = []
    for turn in range(1, n_orders):
        offsets = {name: _offset(question, turn, n_orders) for name, question in request.questions.items()}
        asked = {
            name: _rotated(question, offsets[name])
            for name, question in request.questions.items()
            if offsets[name] or not request.independent
        }
        if any(offsets.values()):
            moved = replace(request, questions=MappingProxyType(asked))
            askings.append(Rotation(moved, MappingProxyType({name: offsets[name] for name in asked})))
    return tuple(askings)


def _offset(question: Question, turn: int, n_orders: int) -> int:
    """0 where this turn has no order of its own for the question."""
    if not isinstance(question, Choice):
        return 0
    n_options = len(question.names)
    orders = min(n_orders, n_options)
    return turn * n_options // orders if turn < orders else 0


def _rotated(question: Question, offset: int) -> Question:
    if not isinstance(question, Choice) or not offset:
        return question
    options = list(zip(question.names, question.descriptions, strict=True))
    return Choice(question.instructions, dict(options[offset:] + options[:offset]))
