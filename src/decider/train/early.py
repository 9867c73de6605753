"""When a run has learned what it can: the best evaluation so far, and how many there were since.

It refuses to know models and data. Trap: NLL, and no accuracy: probabilities are what is served. But they are served
after a calibration. A model that grows surer of everything loses NLL while it still learns, and a temperature mends
that; so the NLL that counts is the one at the temperature that suits it best.
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
    temperature: float
    """The one at which the mean of the tasks' NLL is least."""
    calibrated_nll: float
    """That least mean."""

    @property
    def nll(self) -> float:
        """The mean of the tasks' means at temperature 1: no task decides by its size."""
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
        fitted = {"temperature": self.temperature, "calibrated_nll": self.calibrated_nll}
        return {"step": self.step, "nll": self.nll, "accuracy": self.accuracy, **fitted, "tasks": tasks}


def evaluation_of(entry: Mapping[str, Any]) -> Evaluation:
    """What `Evaluation.to_json` wrote."""
    tasks = {name: TaskFigures(**own) for name, own in entry["tasks"].items()}
    return Evaluation(entry["step"], tasks, entry["temperature"], entry["calibrated_nll"])


@dataclass(frozen=True, slots=True)
class Watch:
    """Early stopping. `patience` evaluations without a lower NLL (calibrated) end the run."""

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
