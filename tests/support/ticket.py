"""One request with a question of each type, and its answers as plain numbers. Trap: a noul is the one number of yes."""

from __future__ import annotations

from decider import Choice, Noul, Question, Score
from decider.questions.answered import Answers

STATE = "My card was charged twice for order 4417."
QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", {"billing": "charges", "technical": None, "sales": None}),
    "severity": Score("How severe?", ["none", "mild", "severe"]),
    "urgent": Noul("Is it urgent?"),
}


def flat(answers: Answers) -> dict[str, list[float]]:
    numbers = {}
    for name, answer in answers.items():
        wire = answer.to_wire()
        probabilities = wire.get("probabilities", {"yes": wire.get("noul")})
        assert isinstance(probabilities, dict)
        numbers[name] = list(probabilities.values())
    return numbers
