"""The loss of decisions: cross-entropy over each slot's own options, with smoothing or a share of the Brier score.

Where a question is asked in two orders at once, what its two distributions differ by may count, too.

It refuses to know models. Trap: a slot's logits span the whole label table. What is beyond its own options is no
option, and must take part neither in the softmax nor in the smoothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LossSpec:
    """(1 − brier) · cross-entropy + brier · Σ(p − y)², the targets y smoothed: 1 − ε, and ε spread over all options."""

    smoothing: float = 0.0
    """ε, in [0, 1)."""
    brier: float = 0.0
    """In [0, 1)."""
    consistency: float = 0.0
    """What the divergence of a question's two orders counts beside the losses of both; 0 or more."""


def own_log_probabilities(logits: Tensor, n_options: Tensor) -> Tensor:
    """logits [slots, labels], n_options [slots] → log-softmax over the first options; −∞ beyond them."""
    beyond = torch.arange(logits.shape[1], device=logits.device) >= n_options[:, None]
    return logits.masked_fill(beyond, -torch.inf).log_softmax(-1)


def decision_losses(logits: Tensor, n_options: Tensor, targets: Tensor, spec: LossSpec) -> Tensor:
    """[slots] from logits [slots, labels]; `targets` [slots] is the right option's index."""
    logs = own_log_probabilities(logits, n_options)
    own = logs.isfinite()
    right = torch.nn.functional.one_hot(targets, logs.shape[1]).to(logs.dtype)
    share = spec.smoothing / n_options.to(logs.dtype)
    wanted = right * (1 - spec.smoothing) + own * share[:, None]
    # 0 · −∞ is no number.
    finite = torch.where(own, logs, 0.0)
    losses = -(wanted * finite).sum(-1)
    if not spec.brier:
        return losses
    score = ((torch.where(own, finite.exp(), 0.0) - wanted) ** 2).sum(-1)
    return (1 - spec.brier) * losses + spec.brier * score


def twin_losses(logits: Tensor, n_options: Tensor, twins: Tensor, orders: Tensor) -> Tensor:
    """[slots] Kullback–Leibler divergence of a slot's distribution from its twin's, as in R-Drop (Liang et al. 2021).

    `twins` [slots] is the slot of the same question in another order, the slot itself where there is none (its loss is
    then 0); `orders` [slots, k] the place of each option among the twin's. A slot with a twin has at most k options.
    """
    logs = own_log_probabilities(logits, n_options)[:, : orders.shape[1]]
    own = logs.isfinite()
    finite = torch.where(own, logs, 0.0)
    there = finite[twins].gather(1, orders[:, : logs.shape[1]])
    return (torch.where(own, finite.exp(), 0.0) * (finite - there)).sum(-1)
