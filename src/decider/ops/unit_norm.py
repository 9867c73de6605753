"""Vectors to unit length before the gated delta rule, in plain torch.

It refuses to know heads and layers. Trap: the small number is added to the sum of squares, under the root. Added to the
length, or as a lower bound of it, it gives other vectors than checkpoints were trained with.
"""

from __future__ import annotations

import torch
from torch import Tensor

# As flash-linear-attention and transformers have it.
EPSILON = 1e-6


def unit_vectors(vectors: Tensor) -> Tensor:
    """x / √(Σx² + ε) over the last dimension, computed in float32 at least; shape and dtype stay."""
    wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + EPSILON)).to(vectors.dtype)
