"""What an evaluation says of decisions: figures of every group of them, and confusion matrices.

It refuses to know where decisions came from, and how a figure is computed: `metrics`, `bins`, `selection` and
`bootstrap` do.

Trap: a group may hold decisions of several types and option counts, whose chance differs; an accuracy says little
without the chance beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from decider.decisions import (
    KINDS,
    NOUL,
    SCORE,
    BoolArray,
    Decisions,
    Float64Array,
    IntArray,
    item_and_question,
    item_codes,
)
from decider.evaluate import bins, bootstrap, metrics, selection
from decider.evaluate.bins import Binning, NoiseFloor, Reliability
from decider.evaluate.bootstrap import Interval, Resamples
from decider.evaluate.selection import RiskCoverage

FAMILIARITY = ((0, 24), (25, 49), (50, 74), (75, 100))
"""Whole percent of a question's runs of words that training had."""
BY = ("all", "type", "task", "task and type", "options", "length", "familiarity")
"""What `Group.by` may be, in the order of a report."""
MOST_TASKS = 100
"""Figures of more tasks are left out, those of the fewest decisions; it is said."""
FEW = 100
"""A type or a task of fewer decisions is warned of."""
MOST_NAMED = 8
"""In one warning."""
MOST_CONFUSED, LEAST_CONFUSED = 12, 10
"""A confusion matrix has no more options than this, and no fewer decisions."""
LONGEST_ALONE = 4
"""Option counts up to this are groups of their own; above it and for lengths, groups end at powers of two."""
SHORTEST_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and its 95 % interval, which is None where there is none: no resamples, or a single item."""

    value: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Calibrated:
    """An ECE of the likeliest option's probability, the ECE that chance alone would make, and the bins of both."""

    ece: Figure
    floor: NoiseFloor
    bins: Reliability


@dataclass(frozen=True, slots=True)
class Group:
    """Figures of `n` ≥ 1 decisions. What is None is undefined there."""

    by: str
    """Of `BY`."""
    name: str
    n: int
    accuracy: Figure
    chance: float
    """The mean of 1 / options."""
    nll: Figure
    """In nats; infinite where a right option has probability 0."""
    n_infinite: int
    """How many of those there are."""
    brier: Figure
    equal_width: Calibrated
    equal_mass: Calibrated
    aurc: Figure
    curve: RiskCoverage
    auroc: Figure | None
    """Of P(yes), of a group of Nouls where both answers are right somewhere."""
    mae: Figure | None
    """Of the expected level, in levels, of a group of Scores; so is `rps`."""
    rps: Figure | None


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often each option was right (a row) and answered (a column), for a question whose options never differ."""

    task: str
    question: str
    kind: str
    options: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """All groups, in the order of `BY`; the first is of all decisions."""

    groups: tuple[Group, ...]
    confusions: tuple[Confusion, ...]
    warnings: tuple[str, ...]
    answers: IntArray
    """[N], the likeliest option of each decision; what follows is [N] too."""
    confidence: Float64Array
    nll: Float64Array
    brier: Float64Array


def summarise(decisions: Decisions, probabilities: Float64Array, *, resamples: int, seed: int) -> Summary:
    """Every group of `decisions` (at least one) with distributions [N, W]; with `resamples` 0 there are no intervals.

    Raises MissingDependencyError without scipy where there are resamples.
    """
    assert len(decisions), "no decisions"
    scores = _Scores.of(decisions, probabilities)
    tasks, left_out = _tasks(decisions)
    groups = scores.grouped(_memberships(decisions, tasks), resamples, seed)
    return Summary(
        groups=tuple(groups),
        confusions=tuple(_confusions(decisions, scores.answers)),
        warnings=(*left_out, *_warnings(groups)),
        answers=scores.answers,
        confidence=scores.confidence,
        nll=scores.nll,
        brier=scores.brier,
    )


def grouped(
    decisions: Decisions,
    probabilities: Float64Array,
    memberships: Iterable[tuple[str, str, IntArray]],
    *,
    resamples: int,
    seed: int,
) -> tuple[Group, ...]:
    """Groups of one's own: (by, name, rows) of each. One without rows is left out. Raises as `summarise` does."""
    assert len(decisions), "no decisions"
    return tuple(_Scores.of(decisions, probabilities).grouped(memberships, resamples, seed))


@dataclass(frozen=True, slots=True)
class _Scores:
    """What is one number a decision; [N] each."""

    kind: IntArray
    gold: IntArray
    chance: Float64Array
    clusters: IntArray
    answers: IntArray
    confidence: Float64Array
    correct: BoolArray
    nll: Float64Array
    brier: Float64Array
    p_yes: Float64Array
    """Of any type, the second option's probability."""
    rps: Float64Array
    """Of any type, as is `error`, as if its options were levels."""
    error: Float64Array

    @classmethod
    def of(cls, decisions: Decisions, probabilities: Float64Array) -> _Scores:
        gold = decisions.gold
        return cls(
            kind=decisions.kind,
            gold=gold,
            chance=1 / decisions.n_options,
            clusters=item_codes(decisions.key),
            answers=metrics.answers_of(probabilities),
            confidence=metrics.confidence_of(probabilities),
            correct=metrics.correct_of(probabilities, gold),
            nll=metrics.nll_of(probabilities, gold),
            brier=metrics.brier_of(probabilities, gold),
            p_yes=probabilities[:, min(1, probabilities.shape[1] - 1)],
            rps=metrics.rps_of(probabilities, decisions.n_options, gold),
            error=metrics.absolute_error_of(probabilities, gold),
        )

    def grouped(self, memberships: Iterable[tuple[str, str, IntArray]], resamples: int, seed: int) -> list[Group]:
        """The groups that have rows, in order."""
        groups: list[Group] = []
        # A task of one type is a group twice, and so is a file of one task.
        made: dict[bytes, Group] = {}
        for by, name, rows in memberships:
            if not len(rows):
                continue
            known = made.get(rows.tobytes())
            group = self.group(by, name, rows, resamples, seed) if known is None else replace(known, by=by, name=name)
            made[rows.tobytes()] = group
            groups.append(group)
        return groups

    def group(self, by: str, name: str, rows: IntArray, resamples: int, seed: int) -> Group:
        """The figures of the decisions at `rows`."""
        drawn = bootstrap.resample(self.clusters[rows], seed=seed, resamples=resamples) if resamples else None
        confidence, correct = self.confidence[rows], self.correct[rows]
        binnings = bins.equal_width(confidence), bins.equal_mass(confidence)
        floors = bins.noise_floor(confidence, binnings, seed=seed)
        equal_width, equal_mass = (
            _calibrated(binning, floor, confidence, correct, drawn)
            for binning, floor in zip(binnings, floors, strict=True)
        )
        kinds = set(self.kind[rows].tolist())
        ranked = kinds == {SCORE}
        nll = self.nll[rows]
        return Group(
            by=by,
            name=name,
            n=len(rows),
            accuracy=_mean(drawn, correct),
            chance=float(self.chance[rows].mean()),
            nll=_mean(drawn, nll),
            n_infinite=metrics.n_infinite(nll),
            brier=_mean(drawn, self.brier[rows]),
            equal_width=equal_width,
            equal_mass=equal_mass,
            aurc=Figure(
                _defined(selection.aurc(confidence, correct)),
                None if drawn is None else bootstrap.aurc_interval(drawn, confidence, correct),
            ),
            curve=selection.risk_coverage(confidence, correct),
            auroc=_auroc(drawn, self.p_yes[rows], self.gold[rows] == 1) if kinds == {NOUL} else None,
            mae=_mean(drawn, self.error[rows]) if ranked else None,
            rps=_mean(drawn, self.rps[rows]) if ranked else None,
        )


def _calibrated(
    binning: Binning, floor: NoiseFloor, confidence: Float64Array, correct: BoolArray, drawn: Resamples | None
) -> Calibrated:
    return Calibrated(
        ece=Figure(
            _defined(bins.ece(binning, confidence, correct)),
            None if drawn is None else bootstrap.ece_interval(drawn, binning, confidence, correct),
        ),
        floor=floor,
        bins=bins.reliability(binning, confidence, correct),
    )


def _mean(drawn: Resamples | None, values: Float64Array | BoolArray) -> Figure:
    interval = None if drawn is None else bootstrap.mean_interval(drawn, values)
    return Figure(_defined(metrics.mean(values)), interval)


def _auroc(drawn: Resamples | None, p_yes: Float64Array, yes: BoolArray) -> Figure | None:
    value = metrics.auroc(p_yes, yes)
    if value is None:
        return None
    return Figure(value, None if drawn is None else bootstrap.auroc_interval(drawn, p_yes, yes))


def _defined(value: float | None) -> float:
    assert value is not None, "a group is never empty"
    return value


def _tasks(decisions: Decisions) -> tuple[dict[str, IntArray], list[str]]:
    """The rows of each task, in the order they come, at most `MOST_TASKS`; and a sentence if some were left out."""
    distinct, first, of = np.unique(np.asarray(decisions.task, dtype=object), return_index=True, return_inverse=True)
    n = np.bincount(of)
    largest = np.argsort(-n, kind="stable")[:MOST_TASKS]
    order = sorted(largest.tolist(), key=lambda task: int(first[task]))
    left_out = len(distinct) - len(order)
    said = [f"{left_out:,} tasks of the fewest decisions have no figures of their own; {MOST_TASKS} have"]
    return {distinct[task]: np.flatnonzero(of == task) for task in order}, said if left_out else []


def _memberships(decisions: Decisions, tasks: dict[str, IntArray]) -> Iterator[tuple[str, str, IntArray]]:
    """(by, name, rows) of every group; the rows may be none."""
    yield "all", "all", np.arange(len(decisions))
    for index, kind in enumerate(KINDS):
        yield "type", kind, np.flatnonzero(decisions.kind == index)
    for task, rows in tasks.items():
        yield "task", task, rows
    for task, rows in tasks.items():
        for index, kind in enumerate(KINDS):
            yield "task and type", f"{task}: {kind}", rows[decisions.kind[rows] == index]
    most = int(decisions.n_options.max())
    for low, high in [*((n, n) for n in range(1, LONGEST_ALONE + 1)), *_doubling(LONGEST_ALONE, most)]:
        inside = (decisions.n_options >= low) & (decisions.n_options <= high)
        yield "options", f"{low}" if low == high else f"{low}–{high}", np.flatnonzero(inside)
    # 0 is what a file says that does not know.
    for low, high in [(1, SHORTEST_TOKENS), *_doubling(SHORTEST_TOKENS, int(decisions.row_tokens.max()))]:
        inside = (decisions.row_tokens >= low) & (decisions.row_tokens <= high)
        yield "length", f"{low}–{high} tokens", np.flatnonzero(inside)
    yield from by_familiarity(decisions)


def by_familiarity(decisions: Decisions) -> Iterator[tuple[str, str, IntArray]]:
    """(by, name, rows) of every group by familiarity; none where it is not known."""
    if decisions.familiarity is not None:
        percent = np.floor(100 * decisions.familiarity)
        for low, high in FAMILIARITY:
            yield "familiarity", f"{low}–{high} %", np.flatnonzero((percent >= low) & (percent <= high))


def _doubling(start: int, most: int) -> Iterator[tuple[int, int]]:
    """(start + 1, 2 · start), and so on until `most` is inside."""
    while start < most:
        yield start + 1, 2 * start
        start *= 2


def _warnings(groups: Sequence[Group]) -> Iterator[str]:
    whole = groups[0]
    few = [f"{group.name} ({group.n})" for group in groups if group.by in ("type", "task") and group.n < FEW]
    if whole.n < FEW:
        yield f"there are {whole.n} decisions; fewer than {FEW} say little, so read the intervals"
    elif few:
        more = f" and {len(few) - MOST_NAMED:,} more" if len(few) > MOST_NAMED else ""
        yield f"fewer than {FEW} decisions say little, so read the intervals of {', '.join(few[:MOST_NAMED])}{more}"
    if whole.n_infinite:
        yield f"{whole.n_infinite:,} of {whole.n:,} right answers were given probability 0, so the NLL is infinite"


def _confusions(decisions: Decisions, answers: IntArray) -> Iterator[Confusion]:
    places: dict[tuple[str, str], list[int]] = {}
    for row, (task, key) in enumerate(zip(decisions.task, decisions.key, strict=True)):
        places.setdefault((task, item_and_question(key)[1]), []).append(row)
    for (task, question), members in places.items():
        rows = np.array(members)
        kinds, lists = np.unique(decisions.kind[rows]), np.unique(decisions.option_list[rows])
        options = decisions.option_lists[int(lists[0])]
        n = len(options)
        if len(kinds) > 1 or len(lists) > 1 or len(rows) < LEAST_CONFUSED or not 2 <= n <= MOST_CONFUSED:
            continue
        counts = np.bincount(decisions.gold[rows] * n + answers[rows], minlength=n * n).reshape(n, n)
        kind = KINDS[int(kinds[0])]
        yield Confusion(task, question, kind, options, tuple(tuple(row) for row in counts.tolist()))
