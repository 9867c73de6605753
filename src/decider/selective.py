"""Answers under a calibration: the map of P(yes), the prediction set, and whether to abstain at an error rate.

It refuses to know how thresholds are found. What they promise holds for questions exchangeable with those they were
calibrated on, read in the same way, so everything that changes the reading is refused. Trap: the promise of the sets is
on average over questions and calibration sets; one set says nothing of its own question's chance.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decider.errors import QuestionError
from decider.questions.answers import Selection
from decider.questions.confidence import argmax
from decider.questions.faults import show
from decider.questions.request import Request
from decider.questions.types import Choice, Question, Score
from decider.tokens.calibration import Calibration, IsotonicMap, PlattMap, Thresholds

Float64Array = NDArray[np.float64]

_LOC = ("error_rate",)


def noul_mapped(p_yes: float | Float64Array, noul_map: PlattMap | IsotonicMap) -> Float64Array:
    """P(yes) after `noul_map`, float64 of the shape of `p_yes`; values beyond [0, 1] count as the nearer end."""
    p = np.clip(np.asarray(p_yes, dtype=np.float64), 0.0, 1.0)
    if isinstance(noul_map, IsotonicMap):
        return np.asarray(np.interp(p, noul_map.x, noul_map.y))
    # At 0 and 1 the log-odds are infinite, and the map's limit is the same end.
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(1 / (1 + np.exp(-(noul_map.a * (np.log(p) - np.log1p(-p)) + noul_map.b))))


def rate_index(thresholds: Thresholds, error_rate: float) -> int | None:
    """Where in `thresholds.error_rates` the largest rate ≤ `error_rate` is; None if all are larger."""
    place = bisect_right(thresholds.error_rates, error_rate)
    return place - 1 if place else None


def prediction_set(
    probabilities: Sequence[float], thresholds: Thresholds, error_rate: float, kind: str, names: Sequence[str]
) -> tuple[int, ...]:
    """Indices, ascending, of the options i with 1 − pᵢ ≤ their threshold (split conformal; Sadinle et al., 2019).

    The likeliest option is always among them, and a Score's set is filled up to a range of levels; both only enlarge
    it. Where thresholds are class-conditional, an option of another name than the calibrated ones is always in.
    """
    index = rate_index(thresholds, error_rate)
    assert index is not None, (error_rate, thresholds.error_rates)
    if thresholds.by_class:
        own = [thresholds.by_class.get(name) for name in names]
        limits = [1.0 if found is None else found[1][index] for found in own]
    else:
        limits = [thresholds.set_thresholds[index]] * len(probabilities)
    chosen = {option for option, (p, limit) in enumerate(zip(probabilities, limits, strict=True)) if 1 - p <= limit}
    chosen.add(argmax(probabilities))
    return tuple(range(min(chosen), max(chosen) + 1)) if kind == "score" else tuple(sorted(chosen))


def abstains(probabilities: Sequence[float], thresholds: Thresholds, error_rate: float) -> bool:
    """Whether the largest probability is below what answers must have at `error_rate`, or nothing is enough."""
    index = rate_index(thresholds, error_rate)
    assert index is not None, (error_rate, thresholds.error_rates)
    least = thresholds.accept[index]
    return least is None or max(probabilities) < least


def class_names(question: Question) -> tuple[str, ...]:
    """What class-conditional thresholds call the options: a Choice's names, a Score's indices, `no` and `yes`."""
    if isinstance(question, Choice):
        return question.names
    return tuple(map(str, range(len(question.levels)))) if isinstance(question, Score) else ("no", "yes")


@dataclass(frozen=True, slots=True)
class Selector:
    """The thresholds for one request, found to hold for it by `selector_for`."""

    error_rate: float
    by_kind: Mapping[str, Thresholds]

    def select(self, question: Question, probabilities: Sequence[float]) -> Selection:
        """The selection for `question` by its distribution. A lone option is the set, and never abstained from."""
        if len(probabilities) == 1:
            indices: tuple[int, ...] = (0,)
            abstain = False
        else:
            thresholds = self.by_kind[question.kind]
            names = class_names(question)
            indices = prediction_set(probabilities, thresholds, self.error_rate, question.kind, names)
            abstain = abstains(probabilities, thresholds, self.error_rate)
        if isinstance(question, Choice):
            return Selection(self.error_rate, tuple(question.names[index] for index in indices), abstain)
        chosen = indices if isinstance(question, Score) else tuple(map(bool, indices))
        return Selection(self.error_rate, chosen, abstain)


def selector_for(
    request: Request, calibration: Calibration, *, layout: str, permutations: int, overridden: bool
) -> Selector | None:
    """The selector of a request read in `layout` and `permutations`; None if it asks for no error rate.

    `overridden`: an explicit temperature is in force. Raises QuestionError where the thresholds do not hold for the
    answers to come: none are calibrated for a type or so small a rate, or the answers come about in another way.
    """
    rate, selective = request.error_rate, calibration.selective
    if rate is None:
        return None
    if selective is None:
        raise QuestionError(
            "this model has no thresholds for error rates in the precision it runs in; calibrate it with `decider "
            "calibrate` and name the file that this writes (--decider-config FILE), or ask without an error rate",
            loc=_LOC,
        )
    if not request.independent:
        # Calibration reads each question alone; in a joint row its distribution depends on the others' text.
        raise QuestionError(
            "questions that share a row (independent=False) are read in another way than was calibrated; ask them "
            "independently, or without an error rate",
            loc=_LOC,
        )
    if overridden:
        raise QuestionError(
            "an explicit temperature switches off what was calibrated; leave the temperature or the error rate out",
            loc=_LOC,
        )
    for what, now, calibrated, otherwise in (
        ("layout", layout, selective.layout, "calibrate in this one by `decider calibrate --layout`"),
        # Calibration asks every Choice in one order.
        ("permutations", permutations, selective.permutations, "without an error rate"),
    ):
        if now != calibrated:
            raise QuestionError(
                f"{what} is {now!r}, and error rates were calibrated with {calibrated!r}; ask with that, or "
                f"{otherwise}",
                loc=_LOC,
            )
    for question_id, question in request.questions.items():
        if not (isinstance(question, Choice) and len(question.names) == 1):
            thresholds = _of_kind(question.kind, selective.by_kind.get(question.kind), rate)
            if isinstance(question, Score):
                _check_form(question_id, question, thresholds, isolated_levels=selective.isolated_levels)
    return Selector(rate, selective.by_kind)


def _of_kind(kind: str, thresholds: Thresholds | None, rate: float) -> Thresholds:
    if thresholds is None:
        raise QuestionError(
            f"no error rate was calibrated for questions of type {kind}; calibrate with labelled ones by `decider "
            "calibrate`, or ask without an error rate",
            loc=_LOC,
        )
    if rate_index(thresholds, rate) is None:
        raise QuestionError(
            f"error_rate is {rate}, and the smallest with thresholds for questions of type {kind} is "
            f"{thresholds.error_rates[0]}; ask for no less",
            loc=_LOC,
        )
    return thresholds


def _check_form(question_id: str, question: Score, thresholds: Thresholds, *, isolated_levels: bool) -> None:
    """Raises QuestionError for a Score that is read in another form than the calibrated ones."""
    isolated = isolated_levels if question.isolated is None else question.isolated
    if isolated != thresholds.isolated:
        forms = ("all levels in one row", "each level in a row of its own (isolated)")
        raise QuestionError(
            f"the score {show(question_id)} is asked with {forms[isolated]}, and error rates were calibrated with "
            f"{forms[thresholds.isolated]}; ask it with `isolated` {str(thresholds.isolated).lower()}, or without an "
            "error rate",
            loc=_LOC,
        )
