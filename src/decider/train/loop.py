"""The run: steps until the end, the held-out items now and then, checkpoints, and a line about it all.

It refuses to know words of commands and what is written at the end. Trap: whatever a step depends on follows from the
recipe and the step's number, or is in the checkpoint. A count kept anywhere else makes a resumed run another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from math import floor
from pathlib import Path
from typing import Any

import torch

from decider.errors import ConfigError
from decider.model.wheel import Say
from decider.train import checkpoint as checkpoints
from decider.train.checkpoint import Checkpoint
from decider.train.early import Evaluation, Watch, evaluation_of
from decider.train.feed import Kitchen, Serve, StepBatch, steps
from decider.train.gradients import Gradients
from decider.train.held import HeldOut
from decider.train.model import Model
from decider.train.recipe import Recipe
from decider.train.step import (
    learning_rate,
    optimizer_of,
    optimizer_tensors,
    put_optimizer_tensors,
    set_learning_rate,
    train_step,
)
from decider.train.stop import told_to_stop

SAY_EVERY_S = 10.0
CHECKPOINT_S = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to. The model holds its best weights."""

    step: int
    elapsed_s: float
    history: tuple[Mapping[str, Any], ...]
    before: Evaluation | None
    best: Evaluation | None
    """None where nothing is held out; the last weights stay then."""
    stopped_early: bool


class Run:
    """One run in the folder `out`."""

    def __init__(
        self,
        model: Model,
        gradients: Gradients,
        kitchen: Kitchen,
        held: HeldOut | None,
        recipe: Recipe,
        *,
        out: Path,
        facts: Mapping[str, Any],
        say: Say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model, self._gradients, self._kitchen = model, gradients, kitchen
        self._held, self._recipe = held, recipe
        self._out, self._facts, self._say, self._clock = out, facts, say, clock
        self._optimizer = optimizer_of(model.trainee, recipe)
        self._step = self._n_refused = 0
        self._before_s, self._began = 0.0, clock()
        self._history: list[Mapping[str, Any]] = []
        self._watch = Watch(recipe.patience)
        self._told_at, self._told_tokens = self._began, 0
        self._saved_at = self._began

    def resume(self) -> bool:
        """Go on from the folder's checkpoint; False if there is none. Raises ConfigError if it is of another run."""
        found = checkpoints.load(self._out)
        if found is None:
            return False
        for name, value in self._facts.items():
            if found.facts.get(name) != value:
                raise ConfigError(
                    f"the checkpoint in {self._out} is of a run with another {name} "
                    f"({found.facts.get(name)!r:.80}, not {value!r:.80}); resume with the same words, or name another "
                    "folder"
                )
        self._put(found.trained)
        put_optimizer_tensors(self._optimizer, self._model.trainee, dict(found.optimizer))
        self._step, self._before_s, self._history = found.step, found.elapsed_s, list(found.history)
        self._watch = Watch(**found.watch)
        self._history.append({"resumed": self._step, "elapsed_s": round(self._before_s, 3)})
        return True

    def train(self, serve: Serve, *, workers: int) -> Outcome:
        """To the end, or to where nothing more is learned. Raises EngineError if the loss is not finite.

        SIGINT and SIGTERM end it, too, after a checkpoint: raises KeyboardInterrupt then.
        """
        self._began = self._told_at = self._saved_at = self._clock()
        with told_to_stop() as told, steps(self._kitchen, serve, first=self._step, workers=workers) as feed:
            # Beside it, workers read their data.
            if self._step == 0:
                self._evaluate(best=False)
            batches = chain((next(feed),), feed)
            # What is loaded and compiled until here is no sign of the time to come.
            self._began = self._told_at = self._clock()
            while (progress := self._progress()) < 1 and not self._watch.is_over:
                if told():
                    self.save()
                    self._say(f"told to stop, and saved at step {self._step:,}; go on with --resume")
                    raise KeyboardInterrupt
                self._one(next(batches), progress)
                now = self._progress()
                # Also where the last step ends: n · 1.
                if floor(now * self._recipe.evaluations) > floor(progress * self._recipe.evaluations):
                    self._evaluate(best=True)
                    self.save()
                elif self._clock() - self._saved_at >= CHECKPOINT_S:
                    self.save()
                if self._clock() - self._told_at >= SAY_EVERY_S:
                    self._tell(now)
        self.save()
        return self._outcome()

    def save(self) -> None:
        """A checkpoint of now."""
        state = optimizer_tensors(self._optimizer, self._model.trainee)
        checkpoints.save(
            self._out,
            Checkpoint(
                step=self._step,
                elapsed_s=self._elapsed_s,
                facts=self._facts,
                history=tuple(self._history),
                watch=asdict(self._watch),
                trained=self._model.trainee.trained,
                optimizer=state,
            ),
        )
        self._saved_at = self._clock()

    @property
    def _elapsed_s(self) -> float:
        return self._before_s + self._clock() - self._began

    def _progress(self) -> float:
        """Share of the run, from 0."""
        if self._recipe.minutes is not None:
            return min(1.0, self._elapsed_s / (60 * self._recipe.minutes))
        assert self._n_steps is not None
        return min(1.0, self._step / self._n_steps)

    @property
    def _n_steps(self) -> int | None:
        """Of the run; None where the clock ends it."""
        if self._recipe.epochs is None:
            return None
        return max(1, round(self._recipe.epochs * self._kitchen.steps_per_epoch))

    def _one(self, batch: StepBatch, progress: float) -> None:
        # In the middle of the step, or a short run's first and last would hardly move.
        rate = learning_rate(self._recipe, progress + (0.5 / self._n_steps if self._n_steps else 0))
        set_learning_rate(self._optimizer, rate)
        self._n_refused += batch.n_refused
        self._step += 1
        if not batch.weight:
            return
        figures = train_step(self._model.trainee, self._gradients, self._optimizer, batch, self._recipe)
        self._told_tokens += batch.pack_tokens
        self._history.append(
            {
                "step": self._step,
                "loss": figures.loss,
                "gradient_norm": figures.gradient_norm,
                "rate": rate,
                "tokens": batch.pack_tokens,
                "row_tokens": batch.row_tokens,
                "decisions": batch.weight,
                "elapsed_s": round(self._elapsed_s, 3),
            }
        )

    def _evaluate(self, *, best: bool) -> None:
        """The held-out items; with `best`, the weights may be kept and the run may end."""
        if self._held is None:
            return
        trainee = self._model.trainee
        with torch.no_grad():
            weights = trainee.weights()
            found = self._held.evaluate(self._step, lambda tables: self._model.logits(weights, tables))
        self._history.append({"step": self._step, "held_out": found.to_json()})
        if best:
            self._watch = self._watch.after(found.calibrated_nll, self._step)
            if self._watch.best_step == self._step:
                checkpoints.save_best(self._out, self._step, trainee.trained)
        self._say(
            f"step {self._step:,}: held-out NLL {found.nll:.4f}, {found.calibrated_nll:.4f} at temperature "
            f"{found.temperature:.2f}, accuracy {found.accuracy:.3f} "
            f"(means of {len(found.tasks)} {'task' if len(found.tasks) == 1 else 'tasks'})"
        )

    def _tell(self, progress: float) -> None:
        now = self._clock()
        rate = self._told_tokens / max(1e-9, now - self._told_at)
        recent = [entry["loss"] for entry in self._history[-50:] if "loss" in entry]
        loss = sum(recent) / max(1, len(recent))
        held = [entry["held_out"]["calibrated_nll"] for entry in self._history if "held_out" in entry]
        said = f", held-out NLL {held[-1]:.4f}" if held else ""
        left = self._elapsed_s * (1 - progress) / max(progress, 1e-9)
        self._say(
            f"step {self._step:,}, {100 * progress:.0f} %: loss {loss:.4f}{said}, {rate:,.0f} tokens a second, "
            f"{duration(left)} left"
        )
        self._told_at, self._told_tokens = now, 0

    def _outcome(self) -> Outcome:
        evaluations = [evaluation_of(entry["held_out"]) for entry in self._history if "held_out" in entry]
        best = next((each for each in evaluations if each.step == self._watch.best_step and each.step), None)
        if best is not None and best.step != self._step:
            self._put(checkpoints.load_best(self._out, best.step))
        if self._n_refused:
            self._say(f"{self._n_refused:,} times an item was left out that the model cannot take")
        return Outcome(
            step=self._step,
            elapsed_s=self._elapsed_s,
            history=tuple(self._history),
            before=evaluations[0] if evaluations and evaluations[0].step == 0 else None,
            best=best,
            stopped_early=self._watch.is_over,
        )

    @torch.no_grad()
    def _put(self, tensors: Mapping[str, torch.Tensor]) -> None:
        trained = self._model.trainee.trained
        if trained.keys() != tensors.keys():
            raise ConfigError(f"the checkpoint in {self._out} is of another model; name another folder")
        for name, tensor in trained.items():
            tensor.copy_(tensors[name])


def duration(seconds: float) -> str:
    """In the unit that a reader waits in."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
