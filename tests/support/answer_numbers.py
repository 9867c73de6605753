"""Answers as numbers that can be compared: every probability in the order of questions and options.

Refuses to compare. Trap: a Noul has no distribution on the wire, and gives its P(yes) alone.
"""

from __future__ import annotations

from decider.questions.answered import Answers


def numbers(answers: Answers) -> list[float]:
    found: list[float] = []
    for answer in answers.values():
        wire = answer.to_wire()
        probabilities = wire.get("probabilities", {"yes": wire.get("noul")})
        assert isinstance(probabilities, dict)
        found += probabilities.values()
    return found
