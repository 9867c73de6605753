"""The causal depthwise convolution as a sum over taps: pointwise, so a compiler fuses it with what stands beside it.

It refuses to know models beyond the name under which transformers calls its convolution. Trap: libraries convolve
without reversing the kernel, so the last tap is that of the current token, and tap j sees k − 1 − j tokens back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from decider.ops.rebind import Function, rebind, users

# transformers ≥ 5.17: every hybrid and state-space family calls its convolution by this name, with the weights of its
# nn.Conv1d, whose own `forward` is never run.
CONVOLUTION = "causal_conv1d_fn"


def unrolled_convolution(
    hidden_states: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None, **_: Any
) -> Tensor:
    """y[t] = activation(bias + Σ_j weight[j] · x[t − (k − 1) + j]), with x[t] = 0 before the first token.

    hidden_states [batch, channels, tokens], weight [channels, k], bias [channels]; the result is of the shape and
    dtype of `hidden_states`. Sums are taken in float32 (float64 for such a model). Takes the arguments of transformers'
    `causal_conv1d_fn` in that order, and like it ignores further ones.
    """
    tokens, taps = hidden_states.shape[-1], weight.shape[-1]
    precision = torch.promote_types(weight.dtype, torch.float32)
    padded = nn.functional.pad(hidden_states, (taps - 1, 0))
    terms = [padded[..., tap : tap + tokens].to(precision) * weight[:, tap, None].to(precision) for tap in range(taps)]
    total = terms[0] if bias is None else terms[0] + bias[:, None].to(precision)
    for term in terms[1:]:
        total = total + term
    # The model's own is rounded before the activation.
    total = total.to(weight.dtype)
    return (total if activation is None else ACT2FN[activation](total)).to(hidden_states.dtype)


def unroll_convolutions(module: nn.Module) -> int:
    """In a twin, let every module that convolves causally along the tokens do it with `unrolled_convolution`.

    Returns how many there are: 0 for a model of attention alone. Their weights stay where they are.
    """
    found = users(module, CONVOLUTION)
    rebind(found, CONVOLUTION, _unrolled)
    return len(found)


def _unrolled(_: str) -> Function:
    return unrolled_convolution
