"""Attention over a pack as one Triton kernel: a program for each tile of queries and each head.

It refuses to be imported without Triton, and to make tables: a tile and where a token's own span starts are read from
`StaticTables`. Trap: keys of the trunk and of the tile's own spans are two ranges with other tokens between them. A
range's last step reads beyond its end, and what is there must count neither as a key nor as a value: 0 · NaN is NaN.

Softmax over steps of keys with a running largest score and sum (Milakov and Gimelshein 2018, "Online normalizer
calculation for softmax"), in float32; its weights are rounded to the dtype of the values, before they are divided by
their sum where the plain form rounds after that.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from decider.ops.launches import attention_launch
from decider.plan.tables import TILE_TOKENS

# Triton comes with torch for CUDA alone, and the type checker must do without it.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")

SMALLEST_HEAD = 16
"""What a product of the matrix units takes at least."""
LARGEST_HEAD = 256
LOG2_E = 1.4426950408889634


# Triton evaluates annotations as it does its own code, and knows no `Any`.
@triton.jit  # type: ignore[untyped-decorator]
def _over_keys(  # type: ignore[no-untyped-def]
    q, largest, weight, mixed, keys, values, first, stop, own_start, rows, key_stride, value_stride, scale,
    whole: tl.constexpr, own: tl.constexpr, dim: tl.constexpr, dim_block: tl.constexpr, keys_block: tl.constexpr,
):  # fmt: skip
    """Keys [first, stop) added to what the queries have seen; with `own`, those of a query's span up to itself.

    With `whole`, steps of keys that all are there and that every query sees: most of a long range, without a mask.
    """
    columns = tl.arange(0, dim_block)
    for start in range(first, stop, keys_block):
        at = start + tl.arange(0, keys_block)
        inside = (columns < dim)[None, :]
        if not whole:
            is_key = at < stop
            inside = is_key[:, None] & inside
        k = tl.load(keys + at.to(tl.int64)[:, None] * key_stride + columns[None, :], mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if not whole:
            seen = is_key[None, :]
            if own:
                seen = seen & (at[None, :] <= rows[:, None]) & (at[None, :] >= own_start[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        # The scale is positive, so the largest score stays the largest.
        higher = tl.maximum(largest, tl.max(scores, axis=1) * scale)
        # A query that has seen nothing yet has no largest score to subtract.
        base = higher if whole else tl.where(higher == float("-inf"), 0.0, higher)
        kept = tl.exp2(largest - base)
        part = tl.exp2(scores * scale - base[:, None])
        weight = weight * kept + tl.sum(part, axis=1)
        v = tl.load(values + at.to(tl.int64)[:, None] * value_stride + columns[None, :], mask=inside, other=0.0)
        mixed = mixed * kept[:, None] + tl.dot(part.to(v.dtype), v, input_precision="ieee")
        largest = higher
    return largest, weight, mixed


@triton.jit  # type: ignore[untyped-decorator]
def _attend_tile(  # type: ignore[no-untyped-def]
    query, key, value, gate, result, tiles, own_starts,
    query_stride, key_stride, value_stride, gate_stride, result_stride, scale,
    shared: tl.constexpr, gated: tl.constexpr, has_trunks: tl.constexpr,
    dim: tl.constexpr, dim_block: tl.constexpr, tile_rows: tl.constexpr, keys_block: tl.constexpr,
):  # fmt: skip
    head, tile = tl.program_id(0), tiles + tl.program_id(1) * 5
    start, stop, own_first = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)
    if start < stop:
        rows = start + tl.arange(0, tile_rows)
        columns = tl.arange(0, dim_block)
        is_query = rows < stop
        inside = is_query[:, None] & (columns < dim)[None, :]
        places = head * dim + columns[None, :]
        wide_rows = rows.to(tl.int64)[:, None]
        q = tl.load(query + wide_rows * query_stride + places, mask=inside, other=0.0)
        own_start = tl.load(own_starts + rows, mask=is_query, other=0)
        keys, values = key + (head // shared) * dim, value + (head // shared) * dim
        largest = tl.full([tile_rows], float("-inf"), tl.float32)
        weight = tl.zeros([tile_rows], tl.float32)
        mixed = tl.zeros([tile_rows, dim_block], tl.float32)
        if has_trunks:
            trunk_first, trunk_stop = tl.load(tile + 3), tl.load(tile + 4)
            middle = trunk_first + (trunk_stop - trunk_first) // keys_block * keys_block
            largest, weight, mixed = _over_keys(
                q, largest, weight, mixed, keys, values, trunk_first, middle, own_start, rows,
                key_stride, value_stride, scale, True, False, dim, dim_block, keys_block,
            )  # fmt: skip
            largest, weight, mixed = _over_keys(
                q, largest, weight, mixed, keys, values, middle, trunk_stop, own_start, rows,
                key_stride, value_stride, scale, False, False, dim, dim_block, keys_block,
            )  # fmt: skip
        # Where the tile is of a single span, its queries see all of what comes before them.
        is_single = tl.max(tl.where(is_query, own_start, 0), axis=0) == own_first
        middle = own_first + tl.where(is_single, (start - own_first) // keys_block * keys_block, 0)
        largest, weight, mixed = _over_keys(
            q, largest, weight, mixed, keys, values, own_first, middle, own_start, rows,
            key_stride, value_stride, scale, True, False, dim, dim_block, keys_block,
        )  # fmt: skip
        largest, weight, mixed = _over_keys(
            q, largest, weight, mixed, keys, values, middle, stop, own_start, rows,
            key_stride, value_stride, scale, False, True, dim, dim_block, keys_block,
        )  # fmt: skip
        dtype = result.dtype.element_ty
        # Every query sees itself; only the rows beside the queries have seen nothing.
        found = (mixed / tl.where(is_query, weight, 1.0)[:, None]).to(dtype)
        if gated:
            opening = tl.load(gate + wide_rows * gate_stride + places, mask=inside, other=0.0).to(tl.float32)
            found = (found.to(tl.float32) * tl.sigmoid(opening).to(dtype).to(tl.float32)).to(dtype)
        tl.store(result + wide_rows * result_stride + places, found, mask=inside)


def attention_over_tiles(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    gate: Tensor | None,
    tiles: Tensor,
    own_start: Tensor,
    *,
    scale: float,
    has_trunks: bool,
) -> Tensor:
    """`plain_attention` (ops/pack_ops.py): [N, heads · d] at all tokens of the tiles; others stay as memory was.

    query [N, heads, d], key and value [N, kv_heads, d], gate [N, heads · d] or None: the heads of a token dense, tokens
    at any stride. tiles int32 [tiles, 5] and own_start int32 [N] of `StaticTables`. `has_trunks`: a tile may name one.
    float32 and halves, d from `SMALLEST_HEAD` to `LARGEST_HEAD`.
    """
    n_tokens, n_heads, dim = query.shape
    assert SMALLEST_HEAD <= dim <= LARGEST_HEAD, dim
    result = torch.empty(n_tokens, n_heads * dim, dtype=query.dtype, device=query.device)
    launch = attention_launch(dim, query.element_size())
    _attend_tile[(n_heads, tiles.shape[0])](
        query,
        key,
        value,
        gate,
        result,
        tiles,
        own_start,
        query.stride(0),
        key.stride(0),
        value.stride(0),
        0 if gate is None else gate.stride(0),
        result.stride(0),
        scale * LOG2_E,
        shared=n_heads // key.shape[1],
        gated=gate is not None,
        has_trunks=has_trunks,
        dim=dim,
        dim_block=triton.next_power_of_2(dim),
        tile_rows=TILE_TOKENS,
        keys_block=launch.block,
        num_warps=launch.warps,
        num_stages=launch.stages,
    )
    return result
