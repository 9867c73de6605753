"""The loss against its formula, number by number.

Refuses to train. Trap: a masked logit that leaks moves the loss a little and raises nothing.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from decider.read import log_probabilities
from decider.train.loss import LossSpec, decision_losses, twin_losses

N_OPTIONS = (2, 5, 3, 1)
RIGHT = (1, 4, 0, 0)


def given() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logits = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return logits.requires_grad_(), torch.tensor(N_OPTIONS), torch.tensor(RIGHT)


@pytest.mark.parametrize(("smoothing", "brier"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.5), (0.2, 0.3)])
def test_it_is_its_formula(smoothing: float, brier: float) -> None:
    logits, n_options, right = given()
    losses = decision_losses(logits, n_options, right, LossSpec(smoothing, brier))
    for row, (n, gold) in enumerate(zip(N_OPTIONS, RIGHT, strict=True)):
        logs = log_probabilities(logits.detach().numpy()[row], n, 1.0)
        wanted = np.full(n, smoothing / n)
        wanted[gold] += 1 - smoothing
        expected = (1 - brier) * -(wanted * logs).sum() + brier * ((np.exp(logs) - wanted) ** 2).sum()
        assert losses[row].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("spec", [LossSpec(), LossSpec(0.1, 0.4)])
def test_what_is_beyond_the_options_has_no_gradient(spec: LossSpec) -> None:
    logits, n_options, right = given()
    decision_losses(logits, n_options, right, spec).sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    beyond = torch.arange(6) >= n_options[:, None]
    assert logits.grad[beyond].abs().max() == 0
    assert logits.grad[0, :2].abs().min() > 0


def test_two_orders_of_a_question_differ_by_their_divergence() -> None:
    logits, n_options, _ = given()
    # The first and the third question are one, of two options; the second stands alone.
    n_options = torch.tensor([2, 5, 2, 1])
    orders = torch.arange(6).repeat(4, 1)[:, :5]
    orders[0, :2] = orders[2, :2] = torch.tensor([1, 0])
    losses = twin_losses(logits, n_options, torch.tensor([2, 1, 0, 3]), orders)
    first, third = (np.exp(log_probabilities(logits.detach().numpy()[row], 2, 1.0)) for row in (0, 2))
    assert losses[0].item() == pytest.approx(float((first * np.log(first / third[::-1])).sum()), abs=1e-12)
    assert losses[2].item() == pytest.approx(float((third * np.log(third / first[::-1])).sum()), abs=1e-12)
    assert losses[[1, 3]].tolist() == [0, 0]
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[0, :2].abs().min() > 0
    assert logits.grad[1].abs().max() < 1e-12
    # Equal where the same is said, in whatever order.
    same = torch.stack([logits.detach()[0, :2], logits.detach()[0, :2].flip(0)])
    swapped = torch.tensor([[1, 0], [1, 0]])
    assert twin_losses(same, torch.tensor([2, 2]), torch.tensor([1, 0]), swapped).abs().max() < 1e-12
