"""The convolution of a pack, silu, unit vectors and the split into heads as one Triton kernel.

It refuses to be imported without Triton. Trap: the sum over the taps is rounded to the model's dtype before silu, and
silu before the length of a vector is taken; a kernel that stays wide in between gives other vectors than training did.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from decider.ops.launches import CONVOLUTION, launch_for
from decider.ops.unit_norm import EPSILON

# Triton comes with torch for CUDA alone, and the type checker must do without it.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


# Triton evaluates annotations as it does its own code, and knows no `Any`.
@triton.jit(do_not_specialize=["n_tokens"])  # type: ignore[untyped-decorator]
def _convolved_head(  # type: ignore[no-untyped-def]
    x, weight, look_back, query, key, value, n_tokens, stride, epsilon,
    n_back: tl.constexpr, key_heads: tl.constexpr, value_heads: tl.constexpr, key_dim: tl.constexpr,
    value_dim: tl.constexpr, tokens_block: tl.constexpr, dim_block: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    tokens = tl.program_id(0) * tokens_block + tl.arange(0, tokens_block)
    columns = tl.arange(0, dim_block)
    is_value = head >= 2 * key_heads
    dim = tl.where(is_value, value_dim, key_dim)
    first = tl.where(is_value, 2 * key_heads * key_dim + (head - 2 * key_heads) * value_dim, head * key_dim)
    known, used = tokens < n_tokens, columns < dim
    inside = known[:, None] & used[None, :]
    channels = first + columns
    dtype = x.dtype.element_ty
    rows = tokens.to(tl.int64)[:, None]
    total = tl.load(x + rows * stride + channels[None, :], mask=inside, other=0.0).to(tl.float32)
    total *= tl.load(weight + channels * (n_back + 1) + n_back, mask=used, other=0.0).to(tl.float32)[None, :]
    for back in tl.static_range(n_back):
        seen = tl.load(look_back + tokens * n_back + back, mask=known, other=-1)
        earlier = tl.load(
            x + seen.to(tl.int64)[:, None] * stride + channels[None, :], mask=inside & (seen >= 0)[:, None], other=0.0
        ).to(tl.float32)
        factor = tl.load(weight + channels * (n_back + 1) + (n_back - 1 - back), mask=used, other=0.0).to(tl.float32)
        total += earlier * factor[None, :]
    total = total.to(dtype).to(tl.float32)
    found = (total * tl.sigmoid(total)).to(dtype)
    if is_value:
        places = rows * (value_heads * value_dim) + (head - 2 * key_heads) * value_dim + columns[None, :]
        tl.store(value + places, found, mask=inside)
    else:
        wide = found.to(tl.float32)
        unit = (wide * tl.rsqrt(tl.sum(wide * wide, axis=1) + epsilon)[:, None]).to(dtype)
        if head >= key_heads:
            tl.store(
                key + rows * (key_heads * key_dim) + (head - key_heads) * key_dim + columns[None, :], unit, mask=inside
            )
        else:
            tl.store(query + rows * (key_heads * key_dim) + head * key_dim + columns[None, :], unit, mask=inside)


def convolved_in_one_pass(
    x: Tensor, weight: Tensor, look_back: Tensor, *, key_heads: int, key_dim: int, value_heads: int, value_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Query and key as unit vectors [N, key_heads, dk], value [N, value_heads, dv], of `x` [N, channels], rows dense.

    weight [channels, taps] and look_back [N, taps − 1] contiguous. `plain_convolved` (ops/pack_ops.py), but for the
    unit vectors, which the plain rule makes itself.
    """
    n_tokens, n_back = look_back.shape
    query = torch.empty(n_tokens, key_heads, key_dim, dtype=x.dtype, device=x.device)
    key = torch.empty_like(query)
    value = torch.empty(n_tokens, value_heads, value_dim, dtype=x.dtype, device=x.device)
    launch = launch_for(CONVOLUTION, n_tokens)
    _convolved_head[(triton.cdiv(n_tokens, launch.block), 2 * key_heads + value_heads)](
        x,
        weight,
        look_back,
        query,
        key,
        value,
        n_tokens,
        x.stride(0),
        EPSILON,
        n_back=n_back,
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        tokens_block=launch.block,
        dim_block=triton.next_power_of_2(max(key_dim, value_dim)),
        num_warps=launch.warps,
    )
    return query, key, value
