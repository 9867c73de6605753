"""Root mean square norms as the model families compute them, with what is rounded where.

It refuses to know families. Trap: Llama and Qwen3 round before they multiply by the weight, Qwen3.5 multiplies by one
plus its weight and rounds after that; in bfloat16 these are different numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """x / √(mean x² + ε) · (offset + weight) over the last dimension."""

    weight: Tensor
    eps: float
    offset: float

    def __call__(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps, offset=self.offset)


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, offset: float = 0.0) -> Tensor:
    """x / √(mean x² + ε) · (offset + weight) over the last dimension, in float32 at least; shape and dtype of `x`.

    Without an offset the quotient is rounded to the dtype of `x` before it is multiplied (transformers' LlamaRMSNorm,
    Qwen2RMSNorm, Qwen3RMSNorm); with one the product is rounded, once (Qwen3_5RMSNorm, offset 1).
    """
    scaled = _scaled(x, eps)
    if offset == 0.0:
        return scaled.to(x.dtype).mul_(weight)
    return scaled.mul_(offset + weight.to(scaled.dtype)).to(x.dtype)


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """rms_norm(x, weight) · silu(gate), as transformers' Qwen3_5RMSNormGated; shape and dtype of `x`.

    x and gate [..., d], weight [d]. The norm is rounded to the dtype of `x` before and after its weight; the gate stays
    as it is until the product is rounded.
    """
    normed = rms_norm(x, weight, eps)
    return functional.silu(gate.to(_precision(gate))).mul_(normed).to(x.dtype)


def _scaled(x: Tensor, eps: float) -> Tensor:
    """A new tensor."""
    wide = x.to(_precision(x))
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)


def _precision(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
