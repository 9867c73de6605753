"""Seconds a row takes here, measured first, and what a time budget can pay for by them.

It refuses to know what the rows are for. Trap: attention makes long rows dearer than their tokens. Beyond the longest
row that was timed, a price grows with the square of the length: too much is left out rather than run for hours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from decider.run.executor import Executor
from decider.tokens.rows import Row

TIMED_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096)
# No timed row is to take longer than this; four times the previous, half as long one is the most it should take.
LONGEST_TIMED_S = 3.0

Item = TypeVar("Item")
Run = Callable[[Sequence[Row]], object]


@dataclass(frozen=True, slots=True)
class Point:
    """One row of `n_tokens`: the seconds of judging it (the oracle, and a yardstick if there is one) and of running."""

    n_tokens: int
    judge_s: float
    run_s: float


@dataclass(frozen=True, slots=True)
class Pace:
    """Timed rows of rising length, at least one."""

    points: tuple[Point, ...]

    def seconds(self, n_tokens: int, *, runs: int, judged: int = 1) -> float:
        """What `judged` rows of `n_tokens` cost the judge and `runs` of them the executor."""
        judge_s, run_s = self._at(n_tokens)
        return judged * judge_s + runs * run_s

    def _at(self, n_tokens: int) -> tuple[float, float]:
        lower = upper = self.points[0]
        for point in self.points:
            lower, upper = upper, point
            if n_tokens <= upper.n_tokens:
                break
        else:
            growth = (n_tokens / upper.n_tokens) ** 2
            return growth * upper.judge_s, growth * upper.run_s
        if lower is upper or n_tokens <= lower.n_tokens:
            return upper.judge_s, upper.run_s
        share = (n_tokens - lower.n_tokens) / (upper.n_tokens - lower.n_tokens)
        return (
            lower.judge_s + share * (upper.judge_s - lower.judge_s),
            lower.run_s + share * (upper.run_s - lower.run_s),
        )

    def __str__(self) -> str:
        first, last = self.points[0], self.points[-1]
        each = (
            f"{one.n_tokens:,} tokens {one.judge_s:.2g} + {one.run_s:.2g} s" for one in dict.fromkeys((first, last))
        )
        return f"one row, oracle + executor: {', '.join(each)}"


def measure_pace(
    judges: Sequence[Executor],
    run: Run,
    make_row: Callable[[int], Row],
    *,
    most_tokens: int,
    repeats: int,
) -> Pace:
    """Time rows of `TIMED_TOKENS`, at most `most_tokens` each, as long as they are quick. The best of `repeats`."""
    points: list[Point] = []
    for n_tokens in sorted({min(n, most_tokens) for n in TIMED_TOKENS}):
        if points and 4 * max(points[-1].judge_s, points[-1].run_s) > LONGEST_TIMED_S:
            break
        row = make_row(n_tokens)
        # The first forward of a process loads, tunes and allocates.
        tries = repeats if points else repeats + 1
        judge_s = sum(_best_s(judge.label_logits, row, tries) for judge in judges)
        points.append(Point(n_tokens, judge_s, _best_s(run, row, tries)))
    return Pace(tuple(points))


def _best_s(run: Run, row: Row, tries: int) -> float:
    taken = []
    for _ in range(tries):
        began = time.perf_counter()
        run([row])
        taken.append(time.perf_counter() - began)
    return min(taken)


def afford(
    items: Sequence[Item], price_s: Callable[[Item], float], budget_s: float, *, least: int
) -> tuple[list[Item], float]:
    """The first of `items` that `budget_s` seconds pay for, never fewer than `least`, and the price of these."""
    kept: list[Item] = []
    spent = 0.0
    for item in items:
        price = price_s(item)
        if len(kept) >= least and spent + price > budget_s:
            break
        kept.append(item)
        spent += price
    return kept, spent
