"""The held-out items through the model in training: figures by task.

It refuses to judge. Trap: they are asked as they are, without any change, and in the training's own precision: what is
measured is what would be served.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decider.calibrate.likelihood import Likelihood
from decider.calibrate.newton import minimise
from decider.decisions import Float64Array, IntArray
from decider.errors import InputError
from decider.evaluate import bins, metrics
from decider.evaluate.labelled import LabelledItem
from decider.plan.packs import plan_packs
from decider.read import log_probabilities, normalise_levels
from decider.tokens.rows import Row
from decider.train.early import Evaluation, TaskFigures
from decider.train.examples import YES
from decider.train.feed import Kitchen
from decider.train.tables import PackTables, tables_of

Forward = Callable[[PackTables], Tensor]
"""A pack → [slots, labels], without gradients."""
MOST_TEMPERATURE = 20.0
"""And the least is one over it."""


@dataclass(frozen=True, slots=True)
class _Decision:
    """One held-out decision: its task, its right option, and its slots as (row, slot in the row)."""

    task: str
    gold: int
    slots: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Held-out items, laid out once."""

    packs: tuple[tuple[PackTables, tuple[int, ...]], ...]
    """With the rows of each, in the order of its slots."""
    rows: tuple[Row, ...]
    decisions: tuple[_Decision, ...]
    n_refused: int

    def evaluate(self, step: int, forward: Forward) -> Evaluation:
        """Figures by task, in the order of the tasks' first items."""
        distributions = self.distributions(forward)
        figures = {}
        for task in dict.fromkeys(decision.task for decision in self.decisions):
            mine = [index for index, decision in enumerate(self.decisions) if decision.task == task]
            figures[task] = _figures([self.decisions[i] for i in mine], [distributions[i] for i in mine])
        weights = np.array([1 / (len(figures) * figures[decision.task].n) for decision in self.decisions])
        return Evaluation(step, figures, *_calibrated(self.decisions, distributions, weights))

    @torch.no_grad()
    def _logits(self, forward: Forward) -> dict[int, Float64Array]:
        """By row, [slots, labels]."""
        found: dict[int, Float64Array] = {}
        for tables, members in self.packs:
            logits = forward(tables).cpu().double().numpy()
            ends = np.cumsum([len(self.rows[index].slots) for index in members])
            found.update(zip(members, np.split(logits, ends[:-1]), strict=True))
        return found

    def distributions(self, forward: Forward) -> list[Float64Array]:
        """One a decision, at temperature 1."""
        logits = self._logits(forward)
        made = []
        for decision in self.decisions:
            logs = [
                log_probabilities(logits[row][slot], self.rows[row].n_options[slot], 1.0)
                for row, slot in decision.slots
            ]
            isolated = len(logs) > 1
            made.append(normalise_levels([log[YES] for log in logs]) if isolated else np.exp(logs[0]))
        return made


def held_out(items: Sequence[LabelledItem], kitchen: Kitchen) -> HeldOut:
    """All of `items` that the model can take, in packs as the kitchen's. A question of one option is no decision."""
    rows: list[Row] = []
    decisions: list[_Decision] = []
    n_refused = 0
    for item in items:
        try:
            built = kitchen.reading.built(item.request)
        except InputError:
            n_refused += 1
            continue
        for name, gold in item.gold.items():
            slots = tuple((len(rows) + slot.row, slot.index) for slot in built.places[name])
            if slots:
                decisions.append(_Decision(item.task, gold, slots))
        rows += built.rows
    packs = tuple(
        (tables_of(pack, kitchen.n_taps, by_blocks=kitchen.by_blocks), pack.rows)
        for pack in plan_packs(rows, kitchen.limits)
    )
    return HeldOut(packs, tuple(rows), tuple(decisions), n_refused)


def _calibrated(
    decisions: Sequence[_Decision], distributions: Sequence[Float64Array], weights: Float64Array
) -> tuple[float, float]:
    """The temperature of the least weighted mean NLL, and that NLL; convex in 1/T (Guo et al., 2017)."""
    if not all(np.isfinite(each).all() for each in distributions):
        return 1.0, float("nan")
    counts = np.array([len(each) for each in distributions])
    starts = np.cumsum(counts) - counts
    logs = np.log(np.maximum(np.concatenate(distributions), np.finfo(np.float64).tiny))
    logs -= np.repeat(np.maximum.reduceat(logs, starts), counts)
    gold = starts + np.array([decision.gold for decision in decisions])
    data = Likelihood(logs, starts, gold, np.zeros(len(decisions), np.bool_))

    def evaluate(beta: Float64Array) -> tuple[float, Float64Array, Float64Array]:
        curve = data.curve(float(beta[0]))
        return float(weights @ curve.nll), np.array([weights @ curve.slope]), np.array([[weights @ curve.bend]])

    beta = minimise(evaluate, np.ones(1), np.array([1 / MOST_TEMPERATURE]), np.array([MOST_TEMPERATURE]))
    return float(1 / beta[0]), evaluate(beta)[0]


def _figures(decisions: Sequence[_Decision], distributions: Sequence[Float64Array]) -> TaskFigures:
    widest = max(map(len, distributions))
    probabilities = np.array([np.pad(each, (0, widest - len(each))) for each in distributions])
    gold: IntArray = np.array([decision.gold for decision in decisions], np.int64)
    correct = metrics.correct_of(probabilities, gold)
    confidence = metrics.confidence_of(probabilities)
    return TaskFigures(
        n=len(decisions),
        nll=float(metrics.nll_of(probabilities, gold).mean()),
        accuracy=float(correct.mean()),
        chance=float(np.mean([1 / len(each) for each in distributions])),
        ece=bins.ece(bins.equal_width(confidence), confidence, correct) or 0.0,
    )
