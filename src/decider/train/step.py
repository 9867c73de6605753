"""One optimiser step: the gradients of the step's packs, clipping, AdamW.

It refuses to know data, files and how gradients come about. Trap: a gradient that is not finite has spoiled nothing
yet; it is looked at before the optimiser moves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from decider.errors import EngineError
from decider.train.feed import StepBatch
from decider.train.gradients import Gradients
from decider.train.recipe import Recipe
from decider.train.weights import Trainee

BETAS = (0.9, 0.98)


@dataclass(frozen=True, slots=True)
class StepFigures:
    """What came of a step."""

    loss: float
    gradient_norm: float
    """Before clipping."""


def optimizer_of(trainee: Trainee, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019) with decay on matrices alone."""
    decayed = list(trainee.decayed())
    known = set(map(id, decayed))
    others = [tensor for tensor in trainee.trained.values() if id(tensor) not in known]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
    on_card = any(tensor.is_cuda for tensor in trainee.trained.values())
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=recipe.learning_rate, betas=BETAS, fused=on_card
    )


def learning_rate(recipe: Recipe, progress: float) -> float:
    """At `progress` of the run, in [0, 1]: a line up to the end of the warm-up, then half a cosine."""
    if progress < recipe.warmup:
        # The first step moves, too.
        return recipe.learning_rate * max(progress / recipe.warmup, 0.01)
    fallen = (progress - recipe.warmup) / (1 - recipe.warmup)
    share = 0.5 * (1 + math.cos(math.pi * min(1.0, fallen)))
    return recipe.learning_rate * (recipe.final_rate + (1 - recipe.final_rate) * share)


def train_step(
    trainee: Trainee, gradients: Gradients, optimizer: torch.optim.Optimizer, batch: StepBatch, recipe: Recipe
) -> StepFigures:
    """Change what is trained by one step; raises EngineError, and changes nothing, if the loss is not finite."""
    total = gradients.of(batch)
    norm = torch.nn.utils.clip_grad_norm_(list(trainee.trained.values()), recipe.clip)
    figures = StepFigures(float(total), float(norm))
    if not (math.isfinite(figures.loss) and math.isfinite(figures.gradient_norm)):
        raise EngineError(
            f"the loss is {figures.loss} and its gradient {figures.gradient_norm}; lower --learning-rate and resume"
        )
    optimizer.step()
    return figures


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The rate of every group."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer, trainee: Trainee) -> dict[str, Tensor]:
    """What the optimiser knows of each trained tensor, as `name/field`."""
    return {
        f"{name}/{field}": value
        for name, tensor in trainee.trained.items()
        for field, value in optimizer.state.get(tensor, {}).items()
    }


def put_optimizer_tensors(optimizer: torch.optim.Optimizer, trainee: Trainee, tensors: dict[str, Tensor]) -> None:
    """What `optimizer_tensors` gave, back into the optimiser of a trainee of the same names."""
    for key, value in tensors.items():
        name, _, field = key.rpartition("/")
        tensor = trainee.trained[name]
        # The count of steps lies on the CPU unless the optimiser is a fused one.
        fused = bool(optimizer.defaults.get("fused"))
        home = torch.device("cpu") if field == "step" and not fused else tensor.device
        optimizer.state[tensor][field] = value.to(home)
