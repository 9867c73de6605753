"""How often sets hold the right option, over 200 seeded splits a task, against the exact law of split conformal.

With n scores to calibrate on, m to test and l = ⌊(n + 1)α⌋, the number covered is beta-binomial (m; n + 1 − l, l) where
scores do not tie, and stochastically larger where they do. Sets are those of `decider.selective`, which users get.

Refuses to say what a good set size is. Trap: over-coverage looks like success; where nothing ties the mean has to stay
below the interval's upper end as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import betabinom  # type: ignore[attr-defined]

from decider.calibrate.conformal import EVERY_OPTION, ROUNDING, nonconformity
from decider.calibrate.selective_fit import one_per_item, selective_of
from decider.decisions import CHOICE, KINDS, NOUL, SCORE, Decisions, Float64Array, IntArray, distributions
from decider.evaluate.saved import load_decisions
from decider.selective import prediction_set
from decider.tokens.calibration import Thresholds

SPLITS = 200
LEVEL = 0.999
EMBEDDED = Path(__file__).parents[2] / "data" / "embedded-decisions.npz"
LEAST_OF_TASK = 100
LEAST_TASKS = 8


@cache
def _transform(m: int, n: int, lost: int, length: int) -> NDArray[np.complex128]:
    """The discrete Fourier transform of the law of how many of m are covered."""
    law = np.zeros(length)
    if lost:
        law[: m + 1] = betabinom.pmf(np.arange(m + 1), m, n + 1 - lost, lost)
    else:
        law[m] = 1.0
    return np.fft.rfft(law)


def interval(sizes: Sequence[tuple[int, int]], thousandths: int) -> tuple[int, int]:
    """Central `LEVEL` interval of the covered in all splits together; `sizes` are their (n, m), α is in thousandths."""
    length = sum(m for _, m in sizes) + 1
    product = np.ones(length // 2 + 1, dtype=np.complex128)
    for n, m in sizes:
        product *= _transform(m, n, (n + 1) * thousandths // 1000, length)
    below = np.cumsum(np.fft.irfft(product, length))
    return int(np.searchsorted(below, (1 - LEVEL) / 2)), int(np.searchsorted(below, (1 + LEVEL) / 2))


@dataclass(frozen=True, slots=True)
class Task:
    """A world to draw decisions from. The model's logits only loosely follow what is right."""

    kind: int
    most_options: int
    skill: float
    skew: float = 0.0
    """How much likelier each option is than the next, in nats."""
    vary: bool = False
    """Option counts from 2 on; else always `most_options`."""
    isolated: bool = False
    step: float | None = None
    """Logits are multiples of it, so that they tie."""


TASKS = {
    "two options": Task(CHOICE, 2, 0.3),
    "three, skewed": Task(CHOICE, 3, 0.5, skew=0.8),
    "up to six": Task(CHOICE, 6, 0.8, vary=True),
    "twenty": Task(CHOICE, 20, 1.5),
    "fifty, skewed": Task(CHOICE, 50, 2.0, skew=0.05),
    "five levels": Task(SCORE, 5, 0.5, skew=0.3),
    "ten levels": Task(SCORE, 10, 1.0),
    "isolated levels": Task(SCORE, 4, 0.7, isolated=True),
    "yes or no": Task(NOUL, 2, 0.4),
    "rarely yes": Task(NOUL, 2, 0.1, skew=0.6),
    "tied options": Task(CHOICE, 4, 1.0, step=1.0),
    "tied levels": Task(SCORE, 6, 0.5, step=1.5),
    "one tie": Task(NOUL, 2, 0.0, step=100.0),
    "nearly always right": Task(CHOICE, 5, 6.0),
}
ALWAYS_TIE = {"tied options", "tied levels", "one tie", "nearly always right"}


def draw(task: Task, n: int, rng: np.random.Generator) -> Decisions:
    width = task.most_options
    counts = rng.integers(2, width + 1, size=n) if task.vary else np.full(n, width)
    there = np.arange(width) < counts[:, None]
    prior = np.where(there, np.exp(-task.skew * np.arange(width)), 0.0)
    gold = (rng.random((n, 1)) * prior.sum(axis=1, keepdims=True) > np.cumsum(prior, axis=1)).sum(axis=1)
    logits = rng.normal(0, 1, (n, width))
    # Levels beside the right one profit too.
    logits += task.skill * np.exp(-np.abs(np.arange(width) - gold[:, None]) * (1.0 if task.kind == SCORE else 9.0))
    if task.step:
        logits = np.round(logits / task.step) * task.step
    return Decisions(
        key=tuple(f"{item}/q" for item in range(n)),
        task=("task",) * n,
        kind=np.full(n, task.kind),
        n_options=counts,
        gold=gold,
        logits=np.where(there, logits, -np.inf),
        isolated=np.full(n, task.isolated),
        row_tokens=np.full(n, 9),
        option_lists=tuple(tuple(f"option {i}" for i in range(count)) for count in range(width + 1)),
        option_list=counts,
    )


def class_of(decisions: Decisions, row: int, option: int) -> str:
    """Written out again: what an option is called when a set is made."""
    kind = int(decisions.kind[row])
    names = decisions.option_lists[int(decisions.option_list[row])]
    return names[option] if kind == CHOICE else str(option) if kind == SCORE else ("no", "yes")[option]


def covered(
    decisions: Decisions, p: Float64Array, row: int, thresholds: Thresholds, rates: Sequence[float]
) -> list[bool]:
    """Whether the right option is in the set, at each rate."""
    own = p[row, : decisions.n_options[row]].tolist()
    names = [class_of(decisions, row, option) for option in range(len(own))]
    gold, kind = int(decisions.gold[row]), KINDS[decisions.kind[row]]
    return [gold in prediction_set(own, thresholds, rate, kind, names) for rate in rates]


@dataclass(slots=True)
class Tally:
    """What 200 splits came to at one error rate."""

    sizes: list[tuple[int, int]]
    hits: int = 0
    reached_tie: bool = False
    """A threshold lay at 0, the score of every decision whose likeliest option is right."""


def thresholds_of(decisions: Decisions, p: Float64Array, rates: Sequence[float], by_class: bool) -> Thresholds:
    found = selective_of(
        decisions, p, layout="plain", permutations=1, class_conditional=by_class, error_rates=rates, seed=5
    )
    (thresholds,) = found.by_kind.values()
    return thresholds


def tally_up(
    split: Callable[[int], tuple[Decisions, Decisions]], thousandths: Sequence[int], by_class: bool
) -> dict[int, Tally]:
    """Calibrate on the first part of each split, and count in the second."""
    rates = [each / 1000 for each in thousandths]
    tallies = {each: Tally([]) for each in thousandths}
    for seed in range(SPLITS):
        calibration, test = split(seed)
        thresholds = thresholds_of(calibration, distributions(calibration, 1.3), rates, by_class)
        p = distributions(test, 1.3)
        names = [class_of(test, row, int(test.gold[row])) for row in range(len(test))]
        sizes: list[tuple[int, int]] = [(thresholds.n, len(test))]
        limits = [(thresholds.set_thresholds, len(test))]
        if by_class:
            counts = {name: names.count(name) for name in sorted(set(names))}
            own = {name: thresholds.by_class.get(name, (0, (EVERY_OPTION,) * len(rates))) for name in counts}
            sizes = [(own[name][0], count) for name, count in counts.items()]
            limits = [(own[name][1], count) for name, count in counts.items()]
        hits = np.sum([covered(test, p, row, thresholds, rates) for row in range(len(test))], axis=0)
        for index, each in enumerate(thousandths):
            tally = tallies[each]
            tally.sizes += sizes
            tally.hits += int(hits[index])
            tally.reached_tie |= any(limit[index] <= ROUNDING for limit, _ in limits)
    return tallies


def check(tallies: dict[int, Tally], ties: bool) -> int:
    """Every mean within its interval, without an upper end where scores tie; returns how many upper ends counted."""
    upper_ends = 0
    for thousandths, tally in tallies.items():
        low, high = interval(tally.sizes, thousandths)
        assert tally.hits >= low, (thousandths, tally.hits, low, high)
        if not ties and not tally.reached_tie:
            assert tally.hits <= high, (thousandths, tally.hits, low, high)
            upper_ends += 1
    return upper_ends


def test_the_interval_is_that_of_one_beta_binomial() -> None:
    law = betabinom(40, 28, 3)
    assert interval([(30, 40)], 100) == (law.ppf(0.0005), law.ppf(0.9995))
    low, high = interval([(30, 40)] * SPLITS, 100)
    spread = 3.2905 * law.std() * SPLITS**0.5
    assert low == pytest.approx(SPLITS * law.mean() - spread, rel=1e-3)
    assert high == pytest.approx(SPLITS * law.mean() + spread, rel=1e-3)
    assert interval([(8, 40)], 100) == (40, 40)


@pytest.mark.parametrize("by_class", [False, True], ids=["marginal", "by class"])
@pytest.mark.parametrize("name", TASKS)
def test_drawn_tasks_are_covered_as_the_theory_says(name: str, by_class: bool) -> None:
    task = TASKS[name]
    n, m = (60 if by_class else 29), (15 if task.most_options > 10 else 40)

    def split(seed: int) -> tuple[Decisions, Decisions]:
        drawn = draw(task, n + m, np.random.default_rng([seed, len(name)]))
        return drawn.take(np.arange(n)), drawn.take(np.arange(n, n + m))

    tallies = tally_up(split, (50, 100, 200, 400), by_class)
    # A range may take in a level whose own threshold would not.
    ties = name in ALWAYS_TIE or (by_class and task.kind == SCORE)
    upper_ends = check(tallies, ties)
    assert ties or upper_ends >= 2, tallies


def halves(decisions: Decisions, seed: int, most_tested: int = 30) -> tuple[Decisions, Decisions]:
    order: IntArray = np.random.default_rng(seed).permutation(len(decisions))
    middle = len(order) // 2
    return decisions.take(order[:middle]), decisions.take(order[middle : middle + most_tested])


def test_the_embedded_models_tasks_are_covered_as_the_theory_says() -> None:
    """A split of given decisions into parts at random has the same law, whatever they are like."""
    decisions, _ = load_decisions(EMBEDDED)
    tasks = np.array(decisions.task)
    checked, upper_ends = set(), 0
    for task in sorted(set(decisions.task)):
        of_task = decisions.take(tasks == task)
        for kind in range(len(KINDS)):
            own = of_task.take(one_per_item(of_task, kind, seed=0))
            if len(own) < LEAST_OF_TASK:
                continue
            scores = nonconformity(distributions(own, 1.3), own.gold, as_range=kind == SCORE)
            ties = bool(len(np.unique(scores[scores > 0])) < np.count_nonzero(scores))
            tallies = tally_up(partial(halves, own), (100, 200), by_class=False)
            upper_ends += check(tallies, ties)
            checked.add(task)
    assert len(checked) >= LEAST_TASKS, checked
    assert upper_ends > 0
