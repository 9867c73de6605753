"""`quantise_rows` as one Triton kernel: a row's largest magnitude, its scale and the cast while it is in registers.

It refuses to be imported without Triton. Trap: Triton's own `/` is an approximation; only `div_rn` gives the bits of
the plain form, and one bit of a scale moves the codes of values that lie between two numbers.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from decider.ops.fp8 import E4M3, E4M3_MAX, LEAST_AMAX, Quantised, quantise_rows

# Triton comes with torch for CUDA alone, and the type checker must do without it.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")

# A longer row does not fit in the registers of one block.
MOST_FEATURES = 32768


# Triton evaluates annotations as it does its own code, and knows no `Any`.
@triton.jit  # type: ignore[untyped-decorator]
def _quantise_row(  # type: ignore[no-untyped-def]
    values, codes, scales, stride, n_features, least, inverse_max, block: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    inside = columns < n_features
    wide = tl.load(values + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(wide), axis=0), least) * inverse_max
    scaled = wide * tl.div_rn(tl.full([], 1.0, tl.float32), scale)
    tl.store(codes + row * n_features + columns, scaled.to(codes.dtype.element_ty), mask=inside)
    tl.store(scales + row, scale)


def quantise_rows_in_one_pass(values: Tensor) -> Quantised:
    """The bits of `quantise_rows` for finite values [rows, features] on CUDA; its NaN are in the same rows."""
    n_rows, n_features = values.shape
    if not n_rows or n_features > MOST_FEATURES:
        return quantise_rows(values)
    values = values if values.stride(1) == 1 else values.contiguous()
    codes = torch.empty(n_rows, n_features, dtype=E4M3, device=values.device)
    scales = torch.empty(n_rows, 1, dtype=torch.float32, device=values.device)
    block = triton.next_power_of_2(n_features)
    warps = min(16, max(1, block // 512))
    _quantise_row[(n_rows,)](
        values, codes, scales, values.stride(0), n_features, LEAST_AMAX, 1.0 / E4M3_MAX, block=block, num_warps=warps
    )
    return codes, scales
