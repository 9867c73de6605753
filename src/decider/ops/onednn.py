"""Linear layers on an x86 processor by oneDNN, over weights that are laid out for it once.

It refuses to know models. Trap: these operations are torch's own, made for its compiler, and not in its documentation;
so a torch that lacks them, or a processor they do not serve, gets the plain product, and `why_not_onednn` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16)
_OPERATIONS = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")


@dataclass(frozen=True, slots=True, eq=False)
class OneDnnLinear:
    """x Wᵀ + b for x [N, in] with N at least 1, up to rounding."""

    packed: Tensor
    """The weight in oneDNN's layout; opaque to other operations."""
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return out


def why_not_onednn(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why linear layers in `dtype` on `device` stay plain, in a few words; None if oneDNN can have them."""
    if device.type != "cpu":
        return f"{device.type} is no processor"
    known = all(hasattr(torch.ops.mkldnn, name) for name in _OPERATIONS)
    if not torch.backends.mkldnn.is_available() or not known:  # type: ignore[no-untyped-call]
        return "this torch has no oneDNN, or not these operations of it"
    if dtype not in DTYPES:
        return f"not for {str(dtype).removeprefix('torch.')}"
    if dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "oneDNN has no bfloat16 for this processor"
    return None


def onednn_linear(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The product with `weight` [out, in] and `bias`, for what `why_not_onednn` is None. The weight is copied."""
    with torch.inference_mode():
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    return OneDnnLinear(packed, bias)
