"""Root mean square norms as Triton kernels: with the residual sum before them, with a gate after them, or quantised.

It refuses to be imported without Triton. Every number is rounded where `ops/norms.py` rounds it. Trap: what follows a
residual sum must read the sum as it was rounded to the model's dtype, or the stream and what is made of it drift apart.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from decider.ops.fp8 import E4M3, E4M3_MAX, LEAST_AMAX
from decider.ops.launches import HEADS, NORM, launch_for
from decider.ops.rows import Rows

# Triton comes with torch for CUDA alone, and the type checker must do without it.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


# Triton evaluates annotations as it does its own code, and knows no `Any`.
@triton.jit
def scale_of(largest, least, inverse_max):  # type: ignore[no-untyped-def]
    """The scale of a row with this largest magnitude, and its inverse, to the bits of `quantise_rows`."""
    scale = tl.maximum(largest, least, propagate_nan=tl.PropagateNan.ALL) * inverse_max
    return scale, tl.div_rn(tl.full([], 1.0, tl.float32), scale)


@triton.jit  # type: ignore[untyped-decorator]
def _add_norm_row(  # type: ignore[no-untyped-def]
    x, added, weight, total, normed, codes, scales, x_stride, added_stride, n_features,
    eps, offset, least, inverse_max,
    adds: tl.constexpr, shifted: tl.constexpr, keeps: tl.constexpr, quantises: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    inside = columns < n_features
    dtype = x.dtype.element_ty
    wide = tl.load(x + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    if adds:
        wide += tl.load(added + row * added_stride + columns, mask=inside, other=0.0).to(tl.float32)
        rounded = wide.to(dtype)
        tl.store(total + row * n_features + columns, rounded, mask=inside)
        wide = rounded.to(tl.float32)
    scaled = wide * tl.rsqrt(tl.sum(wide * wide, axis=0) / n_features + eps)
    factor = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    result = (scaled * (offset + factor) if shifted else scaled.to(dtype).to(tl.float32) * factor).to(dtype)
    if keeps:
        tl.store(normed + row * n_features + columns, result, mask=inside)
    if quantises:
        exact = result.to(tl.float32)
        scale, inverse = scale_of(tl.max(tl.abs(exact), axis=0), least, inverse_max)
        tl.store(codes + row * n_features + columns, (exact * inverse).to(codes.dtype.element_ty), mask=inside)
        tl.store(scales + row, scale)


@triton.jit  # type: ignore[untyped-decorator]
def _gated_norm_token(  # type: ignore[no-untyped-def]
    x, gate, weight, result, codes, scales, gate_stride, eps, least, inverse_max,
    n_heads: tl.constexpr, dim: tl.constexpr, quantises: tl.constexpr,
    heads_block: tl.constexpr, dim_block: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    heads, columns = tl.arange(0, heads_block)[:, None], tl.arange(0, dim_block)[None, :]
    inside = (heads < n_heads) & (columns < dim)
    places = heads * dim + columns
    dtype = x.dtype.element_ty
    wide = tl.load(x + token * (n_heads * dim) + places, mask=inside, other=0.0).to(tl.float32)
    scaled = wide * tl.rsqrt(tl.sum(wide * wide, axis=1) / dim + eps)[:, None]
    factor = tl.load(weight + columns, mask=columns < dim, other=0.0).to(tl.float32)
    normed = (scaled.to(dtype).to(tl.float32) * factor).to(dtype).to(tl.float32)
    opening = tl.load(gate + token * gate_stride + places, mask=inside, other=0.0).to(tl.float32)
    found = (opening * tl.sigmoid(opening) * normed).to(dtype)
    if quantises:
        exact = found.to(tl.float32)
        scale, inverse = scale_of(tl.max(tl.max(tl.abs(exact), axis=1), axis=0), least, inverse_max)
        tl.store(codes + token * (n_heads * dim) + places, (exact * inverse).to(codes.dtype.element_ty), mask=inside)
        tl.store(scales + token, scale)
    else:
        tl.store(result + token * (n_heads * dim) + places, found, mask=inside)


def empty_codes(n_rows: int, n_features: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Room for quantised rows: e4m3 [rows, features], float32 [rows, 1]."""
    codes = torch.empty(n_rows, n_features, dtype=E4M3, device=device)
    return codes, torch.empty(n_rows, 1, dtype=torch.float32, device=device)


def add_norm_in_one_pass(
    x: Tensor, added: Tensor | None, weight: Tensor, eps: float, offset: float, *, values: bool, codes: bool
) -> tuple[Tensor, Rows]:
    """`plain_add_norm` (ops/pack_ops.py) of float32 and halves, up to the order of a sum; rows dense along features."""
    n_rows, n_features = x.shape
    total = x if added is None else torch.empty(n_rows, n_features, dtype=x.dtype, device=x.device)
    normed = torch.empty(n_rows, n_features, dtype=x.dtype, device=x.device) if values else None
    quantised = empty_codes(n_rows, n_features, x.device) if codes else None
    launch = launch_for(NORM, n_rows)
    _add_norm_row[(n_rows,)](
        x,
        added,
        weight,
        total,
        normed,
        *(quantised or (None, None)),
        x.stride(0),
        0 if added is None else added.stride(0),
        n_features,
        eps,
        offset,
        LEAST_AMAX,
        1.0 / E4M3_MAX,
        adds=added is not None,
        shifted=offset != 0.0,
        keeps=values,
        quantises=codes,
        block=triton.next_power_of_2(n_features),
        num_warps=launch.warps,
    )
    return total, Rows(normed, quantised)


def gated_norm_in_one_pass(x: Tensor, gate: Tensor, weight: Tensor, eps: float, *, codes: bool) -> Rows:
    """`plain_gated_norm` (ops/pack_ops.py); x [N, heads, d] contiguous, of `gate` [N, heads, d] the last two dense."""
    n_tokens, n_heads, dim = x.shape
    result = None if codes else torch.empty(n_tokens, n_heads * dim, dtype=x.dtype, device=x.device)
    quantised = empty_codes(n_tokens, n_heads * dim, x.device) if codes else None
    launch = launch_for(HEADS, n_tokens)
    _gated_norm_token[(n_tokens,)](
        x,
        gate,
        weight,
        result,
        *(quantised or (None, None)),
        gate.stride(0),
        eps,
        LEAST_AMAX,
        1.0 / E4M3_MAX,
        n_heads=n_heads,
        dim=dim,
        quantises=codes,
        heads_block=triton.next_power_of_2(n_heads),
        dim_block=triton.next_power_of_2(dim),
        num_warps=launch.warps,
    )
    return Rows(result, quantised)
