"""Rotary position embedding: pairs of one head's two halves turned by the angle of their token.

It refuses to know frequencies and scaling; the angles come as cosines and sines. Trap: the pairs are (i, i + half) of
the turned part, not neighbours, and of a partly turned head the first `rotary_dim` are turned.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """What a pack's positions turn heads by; both [N, rotary dim] in the model's dtype, their halves equal."""

    cos: Tensor
    sin: Tensor


def rotary(x: Tensor, cos: Tensor, sin: Tensor, rotary_dim: int) -> Tensor:
    """As transformers' `apply_rotary_pos_emb` in Llama and Qwen3.5, to the bit; shape and dtype of `x`, a new tensor.

    x [N, heads, d]; cos and sin [N, rotary_dim] in the dtype of `x`, their halves equal; rotary_dim even, at most d.
    """
    assert cos.shape == sin.shape == (x.shape[0], rotary_dim), (cos.shape, sin.shape, rotary_dim)
    head = x[..., :rotary_dim]
    first, second = head.chunk(2, dim=-1)
    turned = (head * cos[:, None]).add_(torch.cat((-second, first), dim=-1).mul_(sin[:, None]))
    return turned if rotary_dim == x.shape[-1] else torch.cat((turned, x[..., rotary_dim:]), dim=-1)
