"""A decoder layer compiled by torch, with attention by blocks: the fast forward and backward of training on a card.

It refuses to know packs' tables and other layers than attention's. What it replaces is `forward.attention_layer`, which
it compiles as it stands. Trap: a layer is compiled once a shape, and compiling takes half a minute. So packs of this
forward are padded to one size, and the first layer's input has a gradient like any other's, though nobody reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from decider.backbone.spec import DecoderSpec
from decider.train.forward import Layer, LayersOf, Rotation, Weights, attention_layer
from decider.train.tables import DeviceSight

SMALLEST_HEAD, LARGEST_TUNED_HEAD = 16, 128
KERNEL_OPTIONS: Mapping[str, int] = MappingProxyType(
    {
        "fwd_BLOCK_M": 64,
        "fwd_BLOCK_N": 64,
        "fwd_num_warps": 4,
        "fwd_num_stages": 3,
        "bwd_BLOCK_M1": 64,
        "bwd_BLOCK_N1": 64,
        "bwd_BLOCK_M2": 64,
        "bwd_BLOCK_N2": 64,
        "bwd_num_warps": 4,
        "bwd_num_stages": 3,
    }
)
"""Tiles for short sequences in bfloat16. torch's own, of 128, take 3.6 times as long forwards (docs/log.md)."""
"""What the kernel's matrix products take at least."""


def why_not_compiled(spec: DecoderSpec, device: torch.device) -> str | None:
    """Why layers of `spec` cannot run compiled on `device`; None if they can."""
    if device.type != "cuda":
        return f"the kernels have no backward on {device.type}"
    if "delta" in spec.layers:
        return "delta-rule layers have no kernels here"
    if spec.attention.head_dim < SMALLEST_HEAD:
        return f"heads of {spec.attention.head_dim} are smaller than the kernels' {SMALLEST_HEAD}"
    return None


def compiled_layers(spec: DecoderSpec) -> LayersOf:
    """The layers of `spec`, which the first calls compile: once with gradients, once without, for each size of pack."""

    def whole(x: Tensor, own: Weights, rotation: Rotation, mask: BlockMask) -> Tensor:
        return attention_layer(x, own, spec, rotation, lambda q, k, v, scale: by_blocks(q, k, v, mask, scale))

    run: Any = torch.compile(whole, fullgraph=True, dynamic=False)

    def over(sight: DeviceSight) -> Layer:
        mask = block_mask(sight)

        def layer(x: Tensor, own: Weights, rotation: Rotation) -> Tensor:
            if torch.is_grad_enabled() and not x.requires_grad:
                x = x.detach().requires_grad_()
            output: Tensor = run(x, own, rotation, mask)
            return output

        return layer

    return over


def block_mask(sight: DeviceSight) -> BlockMask:
    """What torch's block attention takes."""
    own_start, trunk_start, trunk_stop = sight.own_start, sight.trunk_start, sight.trunk_stop

    def sees(_batch: Tensor, _head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        in_trunk = (k >= trunk_start[q]) & (k < trunk_stop[q])
        return (k <= q) & ((k >= own_start[q]) | in_trunk)

    n = own_start.shape[0]
    made: BlockMask = BlockMask.from_kv_blocks(
        sight.counts[None, None], sight.blocks[None, None], mask_mod=sees, seq_lengths=(n, n)
    )
    return made


def by_blocks(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float) -> Tensor:
    """query [N, heads, d], key and value [N, kv_heads, d] → [N, heads, d]; as `attention.attend`."""
    q, k, v = (each.transpose(0, 1)[None] for each in (query, key, value))
    tuned = query.dtype == torch.bfloat16 and query.shape[2] <= LARGEST_TUNED_HEAD
    options: Any = dict(KERNEL_OPTIONS) if tuned else None
    grouped = query.shape[1] != key.shape[1]
    mixed = flex_attention(q, k, v, block_mask=mask, scale=scale, enable_gqa=grouped, kernel_options=options)
    assert isinstance(mixed, Tensor)
    return mixed[0].transpose(0, 1)
