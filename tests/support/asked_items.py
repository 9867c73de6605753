"""Labelled items of every type, and a fake decider that answers by place, for the tests of asking them.

Refuses to know tokens. Trap: the fake refuses a state by its characters, 100 of them unless a test says more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from decider.answering import RawAnswer
from decider.errors import TooLargeError
from decider.evaluate.labelled import LabelledItem
from decider.questions.request import Request, make_request
from decider.questions.types import Choice, Noul, Question, Score
from decider.selective import class_names

TEAM = Choice("Which team?", {"billing": "charges", "technical": None, "sales": None})
SEVERITY = Score("How severe?", ["none", "mild", "severe"])
LEVELS = Score("How bad?", ["a", "b", "c", "d"], isolated=True)
URGENT = Noul("Is it urgent?")
QUESTIONS: dict[str, Question] = {"team": TEAM, "severity": SEVERITY, "levels": LEVELS, "urgent": URGENT}
GOLD = {"team": 2, "severity": 1, "levels": 3, "urgent": 0}


def item(
    name: str, state: str, questions: dict[str, Question], gold: dict[str, int], *, independent: bool = True
) -> LabelledItem:
    request = make_request(state, questions, independent=independent)
    return LabelledItem(name, "mail", request, MappingProxyType(gold))


def items(n: int) -> list[LabelledItem]:
    return [item(f"t{index}", f"Charged {index} times. " * (1 + index % 3), QUESTIONS, GOLD) for index in range(n)]


def noul_items(states: Sequence[str]) -> list[LabelledItem]:
    return [item(f"t{index}", state, {"u": URGENT}, {"u": 1}) for index, state in enumerate(states)]


@dataclass
class Fake:
    """Prefers the first option it is shown, `bias` over the others; `taken` keeps what was asked together."""

    bias: float = 1.0
    longest_state: int = 100
    familiarity: float | None = None
    taken: list[list[str]] = field(default_factory=list)
    requests: list[list[Request]] = field(default_factory=list)

    def raw(self, requests: Sequence[Request]) -> list[dict[str, RawAnswer]]:
        for index, request in enumerate(requests):
            if len(request.state) > self.longest_state:
                raise TooLargeError(f"{len(request.state)} tokens", loc=("requests", index, "state"))
        self.taken.append([request.state for request in requests])
        self.requests.append(list(requests))
        return [self._answers(request) for request in requests]

    def _answers(self, request: Request) -> dict[str, RawAnswer]:
        answers = {}
        for name, question in request.questions.items():
            logits = np.zeros(len(class_names(question)))
            logits[0] = self.bias
            isolated = isinstance(question, Score) and bool(question.isolated)
            if not isolated:
                logits -= np.log(np.exp(logits).sum())
            answers[name] = RawAnswer(logits, isolated, len(request.state), self.familiarity)
        return answers


def nothing(_: str) -> None:
    """Nobody listens."""
