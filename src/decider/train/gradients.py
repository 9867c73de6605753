"""The gradients of a step: one pack after the other into the trained tensors' `.grad`, plainly.

It refuses to know optimisers. Trap: a step is several packs, and its loss the mean over all their decisions. Each
pack's sum is divided by the weight of the whole step; means of means would let a decision in a small pack count more.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from decider.train.feed import StepBatch, Targets
from decider.train.forward import Weights
from decider.train.loss import LossSpec, decision_losses, twin_losses
from decider.train.model import Model
from decider.train.tables import PackTables, moved


class Gradients(Protocol):
    """How the gradients of a step come about."""

    def of(self, batch: StepBatch) -> Tensor:
        """Set every trained tensor's `.grad`; the step's loss, on the device and without a gradient."""
        ...


class PlainGradients:
    """Each pack forward and backward as it comes."""

    def __init__(self, model: Model, loss: LossSpec) -> None:
        self._model, self._loss = model, loss

    def of(self, batch: StepBatch) -> Tensor:
        """See `Gradients`."""
        for tensor in self._model.trainee.trained.values():
            tensor.grad = None
        total = torch.zeros((), device=self._model.device)
        for tables, targets in batch.packs:
            total += self.add(tables, targets, batch.weight)
        return total

    def add(self, tables: PackTables, targets: Targets, weight: float) -> Tensor:
        """Add one pack's gradient, of its loss over the step's `weight`; that loss."""
        loss = pack_loss(self._model, self._model.trainee.weights(), tables, targets, self._loss) / weight
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def pack_loss(model: Model, weights: Weights, tables: PackTables, targets: Targets, spec: LossSpec) -> Tensor:
    """The weighted sum of a pack's losses."""
    logits = model.logits(weights, tables)
    device = logits.device
    given = (targets.n_options, targets.right, targets.weight, targets.twin, targets.order)
    n_options, right, weight, twin, order = (moved(each, device) for each in given)
    # The columns that any slot of this pack may choose.
    widest = int(targets.n_options.max())
    return loss_of(logits[:, :widest], n_options, right, weight, twin, order, spec)


def loss_of(
    logits: Tensor, n_options: Tensor, right: Tensor, weight: Tensor, twin: Tensor, order: Tensor, spec: LossSpec
) -> Tensor:
    """The weighted sum of the losses at a pack's slots, from their logits; tables as in `feed.Targets`."""
    losses = decision_losses(logits, n_options, right, spec)
    if spec.consistency:
        losses = losses + spec.consistency * twin_losses(logits, n_options, twin, order)
    return (losses * weight).sum()
