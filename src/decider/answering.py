"""From the scores of a request's rows to its answers: rows that belong together, averages, the map, the selection.

It refuses to know models and engines; scores are log-probabilities. Trap: a Score whose levels were judged one by one
has a row a level, and its slots are not the options of one softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decider.questions.answered import Answers
from decider.questions.answers import read_answer
from decider.questions.rotate import Rotation
from decider.questions.types import Noul
from decider.read import Float64Array, normalise_levels
from decider.selective import Selector, noul_mapped
from decider.tokens.calibration import IsotonicMap, PlattMap
from decider.tokens.layout import Layout
from decider.tokens.rows import Row, Rows, Slot, input_tokens

NO, YES = 0, 1
"""A Noul's options are always (no, yes)."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """A question as the model answers it, to calibrate by; `decider.decisions` makes distributions of many."""

    logits: Float64Array
    """[n_options] log-probabilities at temperature 1; for isolated levels, log-odds of yes a level."""
    isolated: bool
    row_tokens: int
    """Tokens of the longest row it was read from; 0 for a lone option, which is not read."""
    familiarity: float | None = None
    """Of the question, where the model has wordings to compare with."""


@dataclass(frozen=True, slots=True)
class LaidOut:
    """One asking in token ids."""

    asking: Rotation
    built: Rows
    layout: Layout
    temperatures: list[list[float]]
    """One a slot of each row, in the rows' order."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, ready to be scored, and how its scores are read."""

    askings: Sequence[LaidOut]
    noul_map: PlattMap | IsotonicMap | None
    selector: Selector | None

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of all askings, in order."""
        return tuple(row for one in self.askings for row in one.built.rows)

    @property
    def temperatures(self) -> tuple[Sequence[float], ...]:
        """One a slot of each of `rows`."""
        return tuple(row for one in self.askings for row in one.temperatures)

    def read_rows(self, scores: Sequence[Sequence[Float64Array]], model: str) -> Answers:
        """`read` of the scores of `rows`, in their order."""
        each = iter(scores)
        return self.read([[next(each) for _ in one.built.rows] for one in self.askings], model)

    def read(self, scores: Sequence[Sequence[Sequence[Float64Array]]], model: str) -> Answers:
        """The answers to the first asking, each averaged over all in which its question stands, then mapped."""
        request = self.askings[0].asking.request
        answers = {}
        for question_id, question in request.questions.items():
            asked = [
                (one, _distribution(own, one.built.places[question_id]))
                for one, own in zip(self.askings, scores, strict=True)
                if question_id in one.built.places
            ]
            shares = [one.asking.back(question_id, distribution.tolist()) for one, distribution in asked]
            mean: list[float] = shares[0] if len(shares) == 1 else np.mean(shares, axis=0).tolist()
            if isinstance(question, Noul) and self.noul_map is not None:
                p_yes = float(noul_mapped(mean[YES], self.noul_map))
                mean = [1 - p_yes, p_yes]
            answers[question_id] = read_answer(
                question,
                mean,
                truncated=any(question_id in one.built.truncated for one, _ in asked),
                selection=None if self.selector is None else self.selector.select(question, mean),
            )
        return Answers(answers, model, input_tokens(self.rows, self.askings[0].layout))


def raw_answers(built: Rows, scores: Sequence[Sequence[Float64Array]]) -> dict[str, RawAnswer]:
    """By question id, from the `scores` of a request's rows: log-probabilities [n_options] a slot, at temperature 1."""
    raw = {}
    for question_id, slots in built.places.items():
        logs = [scores[slot.row][slot.index] for slot in slots]
        isolated = len(logs) > 1
        logits = np.array([log[YES] - log[NO] for log in logs]) if isolated else logs[0] if logs else np.zeros(1)
        longest = max((len(built.rows[slot.row].ids) for slot in slots), default=0)
        raw[question_id] = RawAnswer(logits, isolated, longest)
    return raw


def _distribution(scores: Sequence[Sequence[Float64Array]], slots: Sequence[Slot]) -> Float64Array:
    """A question's distribution: a lone option's certainty, one slot's softmax, or the levels' share of yes."""
    logs = [scores[slot.row][slot.index] for slot in slots]
    if not logs:
        return np.ones(1)
    if len(logs) == 1:
        return np.exp(logs[0])
    return normalise_levels([log[YES] for log in logs])
