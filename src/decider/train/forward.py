"""The forward of a decoder over a pack, with gradients, from weights by the names of the checkpoint.

It is what `backbone.decoder` computes, written for gradients instead of speed: nothing in place, nothing merged. It
refuses to know which weights are trained, and in what they are stored. Trap: what is rounded where is the served
model's order; in bfloat16 another order trains another model than is served.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from decider.backbone.spec import AttentionSpec, DecoderSpec, DeltaSpec
from decider.ops.delta import chunk_gated_delta_rule
from decider.train.attention import Attend, attend, gathered
from decider.train.tables import DeviceTables

Weights = Mapping[str, Tensor]
"""By name without prefix: `layers.0.mlp.up_proj.weight`; all in one dtype, on one device."""
HEAD = "lm_head.weight"
EMBEDDING = "embed_tokens.weight"


def hidden_at_slots(weights: Weights, spec: DecoderSpec, tables: DeviceTables, attention: Attend = attend) -> Tensor:
    """[slots, hidden] after the final norm, in the order of `tables.slots`, in the dtype of the weights."""
    x = functional.embedding(tables.ids, weights[EMBEDDING])
    rotation = _rotation(spec, tables.positions, x.dtype)
    for index, kind in enumerate(spec.layers):
        at = f"layers.{index}."
        normed = _norm(x, weights[f"{at}input_layernorm.weight"], spec)
        if kind == "delta":
            assert spec.delta is not None
            mixed = _delta(weights, f"{at}linear_attn.", spec.delta, spec.norm_eps, normed, tables)
            output = f"{at}linear_attn.out_proj"
        else:
            mixed = _attention(weights, f"{at}self_attn.", spec, normed, rotation, tables, attention)
            output = f"{at}self_attn.o_proj"
        if index == len(spec.layers) - 1:
            x, mixed = x.index_select(0, tables.slots), mixed.index_select(0, tables.slots)
        x = x + _linear(weights, output, mixed)
        normed = _norm(x, weights[f"{at}post_attention_layernorm.weight"], spec)
        gate, up = (_linear(weights, f"{at}mlp.{part}_proj", normed) for part in ("gate", "up"))
        x = x + _linear(weights, f"{at}mlp.down_proj", functional.silu(gate) * up)
    return _norm(x, weights["norm.weight"], spec)


def label_logits(
    weights: Weights, spec: DecoderSpec, tables: DeviceTables, label_ids: Tensor, attention: Attend = attend
) -> Tensor:
    """[slots, labels] in float32 at least: the product with the label rows of the output embedding."""
    hidden = hidden_at_slots(weights, spec, tables, attention)
    precision = torch.promote_types(hidden.dtype, torch.float32)
    rows = weights[EMBEDDING if spec.tied else HEAD].index_select(0, label_ids)
    return functional.linear(hidden.to(precision), rows.to(precision))


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    return functional.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def _norm(x: Tensor, weight: Tensor, spec: DecoderSpec) -> Tensor:
    """As `ops.norms.rms_norm`."""
    scaled = _scaled(x, spec.norm_eps)
    if spec.norm_offset == 0.0:
        return scaled.to(x.dtype) * weight
    return (scaled * (spec.norm_offset + weight.to(scaled.dtype))).to(x.dtype)


def _scaled(x: Tensor, eps: float) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)


def _rotation(spec: DecoderSpec, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [N, 1, rotary dim]; angles in float32, as the served model has them."""
    frequencies = torch.tensor(spec.rotary.frequencies, dtype=torch.float32, device=positions.device)
    angles = positions[:, None].to(torch.float32) * frequencies
    angles = torch.cat((angles, angles), dim=-1)[:, None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _rotary(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """As `ops.rotary.rotary`."""
    cos, sin = rotation
    head, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    first, second = head.chunk(2, dim=-1)
    turned = head * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned


def _attention(
    weights: Weights,
    at: str,
    spec: DecoderSpec,
    x: Tensor,
    rotation: tuple[Tensor, Tensor],
    tables: DeviceTables,
    attention: Attend,
) -> Tensor:
    """[N, heads · head_dim], before the output projection."""
    own: AttentionSpec = spec.attention
    q, k, v = (_linear(weights, f"{at}{part}_proj", x) for part in ("q", "k", "v"))
    k, v = _heads(k, own.head_dim), _heads(v, own.head_dim)
    gate = None
    if own.output_gate:
        # Query and gate stand head by head.
        q, gate = q.view(x.shape[0], own.heads, 2, own.head_dim).unbind(2)
    else:
        q = _heads(q, own.head_dim)
    if own.qk_norm:
        q, k = _norm(q, weights[f"{at}q_norm.weight"], spec), _norm(k, weights[f"{at}k_norm.weight"], spec)
    mixed = attention(_rotary(q, rotation), _rotary(k, rotation), v, tables, own.head_dim**-0.5)
    if gate is not None:
        mixed = mixed * torch.sigmoid(gate)
    return mixed.flatten(1)


def _heads(x: Tensor, size: int) -> Tensor:
    """[N, heads · size] → [N, heads, size]."""
    return x.reshape(x.shape[0], -1, size)


def _delta(weights: Weights, at: str, spec: DeltaSpec, eps: float, x: Tensor, tables: DeviceTables) -> Tensor:
    """[N, value_heads · value_dim], before the output projection."""
    qkv, gate, rate, decay = (_linear(weights, f"{at}in_proj_{part}", x) for part in ("qkv", "z", "b", "a"))
    qkv = functional.silu(_convolution(qkv, weights[f"{at}conv1d.weight"].squeeze(1), tables))
    keys = spec.key_heads * spec.key_dim
    q, k, v = qkv.split_with_sizes((keys, keys, spec.width), dim=-1)
    q, k = (_heads(each, spec.key_dim) for each in (q, k))
    v, gate = (_heads(each, spec.value_dim) for each in (v, gate))
    precision = torch.promote_types(x.dtype, torch.float32)
    speed = -weights[f"{at}A_log"].to(precision).exp()
    log_decay = speed * functional.softplus(decay.to(precision) + weights[f"{at}dt_bias"])
    mixed = _delta_rule(q, k, v, log_decay, rate.sigmoid(), tables)
    normed = _scaled(mixed, eps).to(x.dtype) * weights[f"{at}norm.weight"]
    return (functional.silu(gate.to(precision)) * normed).to(x.dtype).flatten(1)


def _convolution(x: Tensor, weight: Tensor, tables: DeviceTables) -> Tensor:
    """As `ops.tree_convolution`, by a gather for each tap; x [N, channels], weight [channels, taps]."""
    precision = torch.promote_types(x.dtype, torch.float32)
    wide, factors = x.to(precision), weight.to(precision).flip(1).unbind(1)
    total = wide * factors[0]
    for seen, factor in zip(tables.look_back.unbind(1), factors[1:], strict=True):
        earlier = wide.index_select(0, seen.clamp(min=0)).masked_fill((seen < 0)[:, None], 0)
        total = total + earlier * factor
    return total.to(x.dtype)


def _delta_rule(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, tables: DeviceTables) -> Tensor:
    """As `ops.tree_delta`: roots from an empty state, branches from where their trunks ended."""
    outputs: list[Tensor] = []
    states: list[Tensor] = []
    for spans in tables.spans:
        start = None if spans.parents is None else torch.cat(states).index_select(0, spans.parents)
        real = spans.real[..., None]
        output, state = chunk_gated_delta_rule(
            gathered(query, spans.tokens),
            gathered(key, spans.tokens),
            gathered(value, spans.tokens),
            # A padded token writes nothing and lets nothing decay.
            g=gathered(decay, spans.tokens).masked_fill(~real, 0),
            beta=gathered(beta, spans.tokens).masked_fill(~real, 0),
            initial_state=start,
            output_final_state=spans.parents is None,
            use_qk_l2norm_in_kernel=True,
        )
        outputs.append(output.flatten(0, 1))
        if state is not None:
            states.append(state)
    return torch.cat(outputs).index_select(0, tables.order)
