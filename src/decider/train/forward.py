"""The forward of a decoder over a pack, with gradients, from weights by the names of the checkpoint.

It is what `backbone.decoder` computes, written for gradients instead of speed: nothing in place, nothing merged. It
refuses to know which weights are trained, and in what they are stored. Trap: what is rounded where is the served
model's order; in bfloat16 another order trains another model than is served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from decider.backbone.spec import AttentionSpec, DecoderSpec, DeltaSpec
from decider.ops.delta import chunk_gated_delta_rule
from decider.train.attention import attend, gathered
from decider.train.tables import DeviceSight, DeviceTables

Weights = Mapping[str, Tensor]
"""By name without prefix: `layers.0.mlp.up_proj.weight`; all in one dtype, on one device."""
Rotation = tuple[Tensor, Tensor]
"""Cosines and sines, [N, 1, rotary dim]."""
Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""(query [N, heads, d], key and value [N, kv_heads, d], scale) → [N, heads, d], over one pack."""
Layer = Callable[[Tensor, Weights, Rotation], Tensor]
"""(x [N, hidden], the layer's own weights, rotation) → [N, hidden]."""
LayersOf = Callable[[DeviceSight], Layer]
"""What stands in for `attention_layer` over the pack of a sight."""
HEAD = "lm_head.weight"
EMBEDDING = "embed_tokens.weight"


def hidden_at_slots(
    weights: Weights,
    spec: DecoderSpec,
    tables: DeviceTables,
    layers: LayersOf | None = None,
    frequencies: Tensor | None = None,
) -> Tensor:
    """[slots, hidden] after the final norm, in the order of `tables.slots`, in the dtype of the weights.

    `layers`, where the tables have a sight for them, take the place of `attention_layer`. `frequencies` are
    `rotary_frequencies`, where they lie on the device already.
    """
    layer = None if layers is None or tables.sight is None else layers(tables.sight)
    x = functional.embedding(tables.ids, weights[EMBEDDING])
    if frequencies is None:
        frequencies = rotary_frequencies(spec, x.device)
    rotation = _rotation(frequencies, tables.positions, x.dtype)
    for index, kind in enumerate(spec.layers):
        own = _of_layer(weights, index)
        if layer is not None:
            x = layer(x, own, rotation)
            continue
        slots = tables.slots if index == len(spec.layers) - 1 else None
        if kind == "delta":
            x = _delta_layer(x, own, spec, tables, slots)
        else:
            x = attention_layer(x, own, spec, rotation, lambda q, k, v, scale: attend(q, k, v, tables, scale), slots)
    if layer is not None:
        x = x.index_select(0, tables.slots)
    return _norm(x, weights["norm.weight"], spec)


def label_logits(
    weights: Weights,
    spec: DecoderSpec,
    tables: DeviceTables,
    label_ids: Tensor,
    layers: LayersOf | None = None,
    frequencies: Tensor | None = None,
) -> Tensor:
    """[slots, labels] in float32 at least: the product with the label rows of the output embedding."""
    hidden = hidden_at_slots(weights, spec, tables, layers, frequencies)
    precision = torch.promote_types(hidden.dtype, torch.float32)
    rows = weights[EMBEDDING if spec.tied else HEAD].index_select(0, label_ids)
    return functional.linear(hidden.to(precision), rows.to(precision))


def attention_layer(
    x: Tensor, own: Weights, spec: DecoderSpec, rotation: Rotation, attend: Attend, slots: Tensor | None = None
) -> Tensor:
    """A whole layer over x [N, hidden], `own` its weights by names without the layer's; [slots, hidden] with `slots`,
    after which only those tokens go on.
    """
    mixed = _attention(own, spec, _norm(x, own["input_layernorm.weight"], spec), rotation, attend)
    return _rest(x, mixed, own, "self_attn.o_proj", spec, slots)


def _delta_layer(x: Tensor, own: Weights, spec: DecoderSpec, tables: DeviceTables, slots: Tensor | None) -> Tensor:
    assert spec.delta is not None
    mixed = _delta(own, spec.delta, spec.norm_eps, _norm(x, own["input_layernorm.weight"], spec), tables)
    return _rest(x, mixed, own, "linear_attn.out_proj", spec, slots)


def _rest(x: Tensor, mixed: Tensor, own: Weights, output: str, spec: DecoderSpec, slots: Tensor | None) -> Tensor:
    """The output projection and the MLP, each with its residual."""
    if slots is not None:
        x, mixed = x.index_select(0, slots), mixed.index_select(0, slots)
    x = x + _linear(own, output, mixed)
    normed = _norm(x, own["post_attention_layernorm.weight"], spec)
    gate, up = (_linear(own, f"mlp.{part}_proj", normed) for part in ("gate", "up"))
    return x + _linear(own, "mlp.down_proj", functional.silu(gate) * up)


def _of_layer(weights: Weights, index: int) -> Weights:
    at = f"layers.{index}."
    return {name.removeprefix(at): weight for name, weight in weights.items() if name.startswith(at)}


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


def rotary_frequencies(spec: DecoderSpec, device: torch.device) -> Tensor:
    """[rotary dim / 2] float32, in radians a position."""
    return torch.tensor(spec.rotary.frequencies, dtype=torch.float32, device=device)


def _rotation(frequencies: Tensor, positions: Tensor, dtype: torch.dtype) -> Rotation:
    """Angles in float32, as the served model has them."""
    angles = positions[:, None].to(torch.float32) * frequencies
    angles = torch.cat((angles, angles), dim=-1)[:, None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _rotary(x: Tensor, rotation: Rotation) -> Tensor:
    """As `ops.rotary.rotary`."""
    cos, sin = rotation
    head, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    first, second = head.chunk(2, dim=-1)
    turned = head * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned


def _attention(weights: Weights, spec: DecoderSpec, x: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
    """[N, heads · head_dim], before the output projection."""
    own: AttentionSpec = spec.attention
    q, k, v = (_linear(weights, f"self_attn.{part}_proj", x) for part in ("q", "k", "v"))
    k, v = _heads(k, own.head_dim), _heads(v, own.head_dim)
    gate = None
    if own.output_gate:
        # Query and gate stand head by head.
        q, gate = q.view(x.shape[0], own.heads, 2, own.head_dim).unbind(2)
    else:
        q = _heads(q, own.head_dim)
    if own.qk_norm:
        q = _norm(q, weights["self_attn.q_norm.weight"], spec)
        k = _norm(k, weights["self_attn.k_norm.weight"], spec)
    mixed = attend(_rotary(q, rotation), _rotary(k, rotation), v, own.head_dim**-0.5)
    if gate is not None:
        mixed = mixed * torch.sigmoid(gate)
    return mixed.flatten(1)


def _heads(x: Tensor, size: int) -> Tensor:
    """[N, heads · size] → [N, heads, size]."""
    return x.reshape(x.shape[0], -1, size)


def _delta(weights: Weights, spec: DeltaSpec, eps: float, x: Tensor, tables: DeviceTables) -> Tensor:
    """[N, value_heads · value_dim], before the output projection."""
    qkv, gate, rate, decay = (_linear(weights, f"linear_attn.in_proj_{part}", x) for part in ("qkv", "z", "b", "a"))
    qkv = functional.silu(_convolution(qkv, weights["linear_attn.conv1d.weight"].squeeze(1), tables))
    keys = spec.key_heads * spec.key_dim
    q, k, v = qkv.split_with_sizes((keys, keys, spec.width), dim=-1)
    q, k = (_heads(each, spec.key_dim) for each in (q, k))
    v, gate = (_heads(each, spec.value_dim) for each in (v, gate))
    precision = torch.promote_types(x.dtype, torch.float32)
    speed = -weights["linear_attn.A_log"].to(precision).exp()
    log_decay = speed * functional.softplus(decay.to(precision) + weights["linear_attn.dt_bias"])
    mixed = _delta_rule(q, k, v, log_decay, rate.sigmoid(), tables)
    normed = _scaled(mixed, eps).to(x.dtype) * weights["linear_attn.norm.weight"]
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
