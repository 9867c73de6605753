"""When a run has learned what it can: the best evaluation so far, and how many there were since.

It refuses to know models and data. Trap: NLL, and no accuracy. A model that grows surer of its errors loses NLL long
before it loses accuracy, and probabilities are what is served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """Of one task's decisions."""

    n: int
    nll: float
    """Mean, in nats."""
    accuracy: float
    chance: float
    """Mean of 1 / options."""
    ece: float
    """Of the likeliest option's probability, in 15 bins of equal width."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The held-out decisions after `step` steps."""

    step: int
    tasks: Mapping[str, TaskFigures]

    @property
    def nll(self) -> float:
        """The mean of the tasks' means: no task decides by its size."""
        return fmean(task.nll for task in self.tasks.values())

    @property
    def accuracy(self) -> float:
        """The mean of the tasks' means."""
        return fmean(task.accuracy for task in self.tasks.values())

    def to_json(self) -> dict[str, Any]:
        """Figures by task, and their means."""
        tasks = {
            name: {"n": own.n, "nll": own.nll, "accuracy": own.accuracy, "chance": own.chance, "ece": own.ece}
            for name, own in self.tasks.items()
        }
        return {"step": self.step, "nll": self.nll, "accuracy": self.accuracy, "tasks": tasks}


def evaluation_of(entry: Mapping[str, Any]) -> Evaluation:
    """What `Evaluation.to_json` wrote."""
    return Evaluation(entry["step"], {name: TaskFigures(**own) for name, own in entry["tasks"].items()})


@dataclass(frozen=True, slots=True)
class Watch:
    """Early stopping. `patience` evaluations without a lower NLL end the run."""

    patience: int
    best_nll: float = float("inf")
    best_step: int = 0
    n_worse: int = 0

    def after(self, nll: float, step: int) -> Watch:
        """With one more evaluation. An NLL that is no number is no improvement."""
        if nll < self.best_nll:
            return Watch(self.patience, nll, step, 0)
        return Watch(self.patience, self.best_nll, self.best_step, self.n_worse + 1)

    @property
    def is_over(self) -> bool:
        return self.n_worse >= self.patience
