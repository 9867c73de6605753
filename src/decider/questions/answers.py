"""Typed answers, read from one distribution each, and their wire form.

It refuses to know logits and temperatures. Trap: names and legends are the caller's own, never the words that the model
was shown in their place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from decider.questions.confidence import argmax, certainty, choice_confidence, clamp, score_confidence
from decider.questions.jsontext import JsonValue
from decider.questions.types import Choice, Question, Score


@dataclass(frozen=True, slots=True)
class Selection:
    """What calibrated thresholds make of an answer at the `error_rate` that was asked for."""

    error_rate: float
    prediction_set: tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]
    """Option names, levels, or booleans in the order asked, the answer's own among them. Over questions exchangeable
    with the calibration's, the right one is missing at most at `error_rate`."""
    abstain: bool
    """Whether the answer is better not used: of those that are, at most a share `error_rate` is wrong."""

    def to_wire(self) -> dict[str, object]:
        """The fields that an answer on the wire has more."""
        return {
            "x_error_rate": self.error_rate,
            "x_set": list(self.prediction_set),
            "x_abstain": self.abstain,
        }


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The likeliest option's name, and every option's probability in the order asked."""

    choice: str
    confidence: float
    """In [0, 1]; 0 for a uniform distribution (`choice_confidence`)."""
    probabilities: Mapping[str, float]
    truncated: bool
    """The model saw only the start of the state."""
    selection: Selection | None = None
    """Only where an error rate was asked for."""

    @property
    def p_max(self) -> float:
        """The largest probability."""
        return max(self.probabilities.values())

    @property
    def certainty(self) -> float:
        """1 less the normalised entropy, in [0, 1]."""
        return certainty(tuple(self.probabilities.values()))

    def to_wire(self) -> dict[str, object]:
        """The wire answer: the documented fields, then ours."""
        return {
            "type": "choice",
            "choice": self.choice,
            "confidence": self.confidence,
            "probabilities": dict(self.probabilities),
            **_ours(self),
        }


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """The expected level Σ i·pᵢ in [0, n − 1], the likeliest level, and every level's description and probability."""

    score: float
    level: int
    confidence: float
    """In [0, 1]; 0 for a wide distribution (`score_confidence`)."""
    legend: tuple[JsonValue, ...]
    probabilities: tuple[float, ...]
    truncated: bool
    """The model saw only the start of the state."""
    selection: Selection | None = None
    """Only where an error rate was asked for."""

    @property
    def p_max(self) -> float:
        """The largest probability."""
        return max(self.probabilities)

    @property
    def certainty(self) -> float:
        """1 less the normalised entropy, in [0, 1]."""
        return certainty(self.probabilities)

    def to_wire(self) -> dict[str, object]:
        """The wire answer: the documented fields, then ours."""
        return {
            "type": "score",
            "score": self.score,
            "confidence": self.confidence,
            "legend": {str(level): description for level, description in enumerate(self.legend)},
            "probabilities": {str(level): p for level, p in enumerate(self.probabilities)},
            **_ours(self),
        }


@dataclass(frozen=True, slots=True)
class NoulAnswer:
    """P(yes)."""

    noul: float
    truncated: bool
    """The model saw only the start of the state."""
    selection: Selection | None = None
    """Only where an error rate was asked for."""

    @property
    def p_max(self) -> float:
        """The larger of P(yes) and P(no)."""
        return max(self.noul, 1 - self.noul)

    @property
    def certainty(self) -> float:
        """1 less the normalised entropy, in [0, 1]."""
        return certainty((1 - self.noul, self.noul))

    def to_wire(self) -> dict[str, object]:
        """The wire answer: the documented fields, then ours. The alias `bool` is answered as `noul` too."""
        return {"type": "noul", "noul": self.noul, **_ours(self)}


Answer: TypeAlias = ChoiceAnswer | ScoreAnswer | NoulAnswer


def read_answer(
    question: Question, probabilities: Sequence[float], *, truncated: bool, selection: Selection | None = None
) -> Answer:
    """The answer to `question` from its distribution: one probability an option or level, (no, yes) for a Noul."""
    # In [0, 1] but for the last bits of a softmax; a NaN fails here too.
    assert all(-1e-6 <= p <= 1 + 1e-6 for p in probabilities), probabilities
    assert abs(math.fsum(probabilities) - 1) < 1e-3, probabilities
    shares = tuple(clamp(p) for p in probabilities)
    if isinstance(question, Choice):
        by_name = dict(zip(question.names, shares, strict=True))
        return ChoiceAnswer(question.names[argmax(shares)], choice_confidence(shares), by_name, truncated, selection)
    if isinstance(question, Score):
        levels = question.levels
        assert len(levels) == len(shares), (len(levels), len(shares))
        score = clamp(math.fsum(level * p for level, p in enumerate(shares)), high=len(levels) - 1)
        return ScoreAnswer(score, argmax(shares), score_confidence(shares), levels, shares, truncated, selection)
    _, yes = shares
    return NoulAnswer(yes, truncated, selection)


def _ours(answer: Answer) -> dict[str, object]:
    return {
        "x_p_max": answer.p_max,
        "x_certainty": answer.certainty,
        "x_truncated": answer.truncated,
        **(answer.selection.to_wire() if answer.selection else {}),
    }
