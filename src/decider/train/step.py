"""One optimiser step: forward and backward over the step's packs, clipping, AdamW.

It refuses to know data and files. Trap: a step is several packs, and its loss the mean over all their decisions. Each
pack's sum is divided by the weight of the whole step; means of means would let a decision in a small pack count more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from decider.backbone.spec import DecoderSpec
from decider.errors import EngineError
from decider.train.attention import Attend, attend
from decider.train.feed import StepBatch, Targets
from decider.train.forward import Weights, label_logits
from decider.train.loss import LossSpec, decision_losses
from decider.train.recipe import Recipe
from decider.train.tables import PackTables, on_device
from decider.train.weights import Trainee

BETAS = (0.9, 0.98)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """What computes label logits in training."""

    trainee: Trainee
    spec: DecoderSpec
    label_ids: Tensor
    """[labels] on the device."""
    attention: Attend = attend

    @property
    def device(self) -> torch.device:
        return self.label_ids.device

    def logits(self, weights: Weights, tables: PackTables) -> Tensor:
        """[slots, labels] with gradients, where `weights` have them."""
        return label_logits(weights, self.spec, on_device(tables, self.device), self.label_ids, self.attention)


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


def train_step(model: Model, optimizer: torch.optim.Optimizer, batch: StepBatch, recipe: Recipe) -> StepFigures:
    """Change what is trained by one step; raises EngineError, and changes nothing, if the loss is not finite."""
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros((), device=model.device)
    for tables, targets in batch.packs:
        loss = pack_loss(model, model.trainee.weights(), tables, targets, recipe.loss) / batch.weight
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    parameters = [tensor for tensor in model.trainee.trained.values() if tensor.grad is not None]
    norm = torch.nn.utils.clip_grad_norm_(parameters, recipe.clip)
    figures = StepFigures(float(total), float(norm))
    if not (math.isfinite(figures.loss) and math.isfinite(figures.gradient_norm)):
        raise EngineError(
            f"the loss is {figures.loss} and its gradient {figures.gradient_norm}; lower --learning-rate and resume"
        )
    optimizer.step()
    return figures


def pack_loss(model: Model, weights: Weights, tables: PackTables, targets: Targets, spec: LossSpec) -> Tensor:
    """The weighted sum of a pack's losses."""
    logits = model.logits(weights, tables)
    n_options, right, weight = (
        _moved(each, logits.device) for each in (targets.n_options, targets.right, targets.weight)
    )
    # The columns that any slot of this pack may choose.
    widest = int(targets.n_options.max())
    return (decision_losses(logits[:, :widest], n_options, right, spec) * weight).sum()


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


def _moved(table: object, device: torch.device) -> Tensor:
    tensor = torch.as_tensor(table)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
