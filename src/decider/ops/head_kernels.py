"""Head norm and rotary embedding of queries and keys in one Triton kernel, and the gate of an MLP in another.

It refuses to be imported without Triton. Every number is rounded where the plain forms round it. Trap: both read a
merged projection in place, so a row of theirs is longer than what they take of it.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from decider.ops.fp8 import E4M3_MAX, LEAST_AMAX
from decider.ops.launches import HEADS, SWIGLU, launch_for
from decider.ops.norm_kernels import empty_codes, scale_of
from decider.ops.rows import Rows

# Triton comes with torch for CUDA alone, and the type checker must do without it.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


@triton.jit  # type: ignore[untyped-decorator]
def _weighed(  # type: ignore[no-untyped-def]
    scaled, weight, places, inside, offset, shifted: tl.constexpr, dtype: tl.constexpr
):
    """`scaled` times its weights, rounded as `rms_norm` rounds, in float32."""
    factor = tl.load(weight + places, mask=inside, other=0.0).to(tl.float32)
    found = (scaled * (offset + factor) if shifted else scaled.to(dtype).to(tl.float32) * factor).to(dtype)
    return found.to(tl.float32)


# Triton evaluates annotations as it does its own code, and knows no `Any`.
@triton.jit  # type: ignore[untyped-decorator]
def _norm_and_turn_token(  # type: ignore[no-untyped-def]
    projected, weight, cosines, sines, result, stride, eps, offset,
    norms: tl.constexpr, shifted: tl.constexpr, n_heads: tl.constexpr, dim: tl.constexpr, turned: tl.constexpr,
    heads_block: tl.constexpr, dim_block: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    heads, columns = tl.arange(0, heads_block)[:, None], tl.arange(0, dim_block)[None, :]
    inside = (heads < n_heads) & (columns < dim)
    dtype = projected.dtype.element_ty
    half: tl.constexpr = turned // 2
    # A column of the first half is paired with that of the second, and subtracts.
    other = tl.where(columns < half, columns + half, tl.where(columns < turned, columns - half, columns))
    row = projected + token * stride
    places, others = heads * dim + columns, heads * dim + other
    wide = tl.load(row + places, mask=inside, other=0.0).to(tl.float32)
    paired = tl.load(row + others, mask=inside, other=0.0).to(tl.float32)
    if norms:
        scale = tl.rsqrt(tl.sum(wide * wide, axis=1) / dim + eps)[:, None]
        wide = _weighed(wide * scale, weight, places, inside, offset, shifted, dtype)
        paired = _weighed(paired * scale, weight, others, inside, offset, shifted, dtype)
    angles = columns < turned
    cosine = tl.load(cosines + token * turned + columns, mask=angles, other=1.0).to(tl.float32)
    sine = tl.load(sines + token * turned + columns, mask=angles, other=0.0).to(tl.float32)
    paired = tl.where(columns < half, -paired, paired)
    found = ((wide * cosine).to(dtype).to(tl.float32) + (paired * sine).to(dtype).to(tl.float32)).to(dtype)
    found = tl.where(angles, found, wide.to(dtype))
    tl.store(result + token * (n_heads * dim) + places, found, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _swiglu_part(  # type: ignore[no-untyped-def]
    merged, result, codes, scales, stride, n_features, least, inverse_max, quantises: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inside = columns < n_features
    dtype = merged.dtype.element_ty
    gate = tl.load(merged + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(merged + row * stride + n_features + columns, mask=inside, other=0.0).to(tl.float32)
    found = ((gate * tl.sigmoid(gate)).to(dtype).to(tl.float32) * up).to(dtype)
    if quantises:
        exact = found.to(tl.float32)
        scale, inverse = scale_of(tl.max(tl.abs(exact), axis=0), least, inverse_max)
        tl.store(codes + row * n_features + columns, (exact * inverse).to(codes.dtype.element_ty), mask=inside)
        tl.store(scales + row, scale)
    else:
        tl.store(result + row * n_features + columns, found, mask=inside)


def norm_and_turn_in_one_pass(
    projected: Tensor,
    weight: Tensor | None,
    eps: float,
    offset: float,
    cos: Tensor,
    sin: Tensor,
    *,
    n_heads: int,
    head_dim: int,
) -> Tensor:
    """`plain_norm_and_turn` (ops/pack_ops.py): the first n_heads · head_dim of each row → [N, n_heads, head_dim]."""
    n_tokens = projected.shape[0]
    result = torch.empty(n_tokens, n_heads, head_dim, dtype=projected.dtype, device=projected.device)
    launch = launch_for(HEADS, n_tokens)
    _norm_and_turn_token[(n_tokens,)](
        projected,
        weight,
        cos,
        sin,
        result,
        projected.stride(0),
        eps,
        offset,
        norms=weight is not None,
        shifted=offset != 0.0,
        n_heads=n_heads,
        dim=head_dim,
        turned=cos.shape[1],
        heads_block=triton.next_power_of_2(n_heads),
        dim_block=triton.next_power_of_2(head_dim),
        num_warps=launch.warps,
        # Or the second product and the sum become one operation, which leaves out the product's own rounding.
        enable_fp_fusion=False,
    )
    return result


def swiglu_in_one_pass(merged: Tensor, *, codes: bool) -> Rows:
    """`plain_swiglu` (ops/pack_ops.py); rows of `merged` [N, 2 · inner] dense."""
    n_rows, n_features = merged.shape[0], merged.shape[1] // 2
    result = None if codes else torch.empty(n_rows, n_features, dtype=merged.dtype, device=merged.device)
    quantised = empty_codes(n_rows, n_features, merged.device) if codes else None
    launch = launch_for(SWIGLU, n_rows)
    # A row's scale wants the whole row in one program.
    block = triton.next_power_of_2(n_features) if codes else launch.block
    _swiglu_part[(n_rows, triton.cdiv(n_features, block))](
        merged,
        result,
        *(quantised or (None, None)),
        merged.stride(0),
        n_features,
        LEAST_AMAX,
        1.0 / E4M3_MAX,
        quantises=codes,
        block=block,
        num_warps=max(launch.warps, min(16, block // 512)) if codes else launch.warps,
    )
    return Rows(result, quantised)
