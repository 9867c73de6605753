"""The forward of a decoder over packed tokens: embed, mix and transform layer by layer, read at the slots.

It refuses to know checkpoints and back ends; a linear layer is a callable, an operation over a tree comes from `ops`.
Trap: what is rounded where is transformers' order, to the letter: the residual stream is added in the model's dtype, a
gate is rounded before it multiplies, decays are float32. Another order is as good, and fails parity in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from decider.backbone.spec import AttentionSpec, DecoderSpec, DeltaSpec
from decider.ops.norms import gated_rms_norm, rms_norm
from decider.ops.rotary import rotary
from decider.ops.tree import Tree
from decider.ops.tree_attention import tree_attention
from decider.ops.tree_convolution import tree_convolution
from decider.ops.tree_delta import tree_delta_rule

Linear = Callable[[Tensor], Tensor]
"""[N, in] → [N, out] in the same dtype."""
MakeLinear = Callable[[Tensor, Tensor | None], Linear]
"""A weight [out, in] and a bias [out], both as the model has them, to the product with it."""


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """x Wᵀ + b, as torch does it."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """x / √(mean x² + ε) · (offset + weight) over the last dimension."""

    weight: Tensor
    eps: float
    offset: float

    def __call__(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps, offset=self.offset)


class Rotation(NamedTuple):
    """What a pack's positions turn heads by; both [N, rotary dim] in the model's dtype, their halves equal."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """Softmax attention: [N, hidden] → [N, heads · head_dim], before the output projection."""

    spec: AttentionSpec
    project: Linear
    """hidden → query, key, value, gate (if there is one)."""
    norm: Norm | None
    """Of each head of the query and the key; weight [heads + kv_heads, head_dim]."""

    def __call__(self, x: Tensor, rotation: Rotation, tree: Tree) -> Tensor:
        spec = self.spec
        keys = spec.kv_heads * spec.head_dim
        gates = spec.width if spec.output_gate else 0
        qk, v, gate = self.project(x).split_with_sizes((spec.width + keys, keys, gates), dim=-1)
        qk, v = (_heads(each, spec.head_dim) for each in (qk, v))
        if self.norm is not None:
            qk = self.norm(qk)
        turned = rotary(qk, *rotation, rotation.cos.shape[-1])
        q, k = turned.split_with_sizes((spec.heads, spec.kv_heads), dim=1)
        mixed = tree_attention(q, k, v, tree, scale=spec.head_dim**-0.5).flatten(-2)
        return mixed * torch.sigmoid(gate) if spec.output_gate else mixed


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """The gated delta rule: [N, hidden] → [N, value_heads · value_dim], before the output projection."""

    spec: DeltaSpec
    project: Linear
    """hidden → query, key and value in one, output gate, β's and the decay's logits a value head."""
    convolution: Tensor
    """[channels, taps]"""
    decay_rate: Tensor
    """[value_heads], −exp(A), float32 at least."""
    decay_bias: Tensor
    """[value_heads]"""
    norm: Tensor
    """[value_dim]"""
    eps: float

    def __call__(self, x: Tensor, _: Rotation, tree: Tree) -> Tensor:
        spec = self.spec
        sizes = (spec.channels, spec.width, spec.value_heads, spec.value_heads)
        qkv, gate, rate, decay = self.project(x).split_with_sizes(sizes, dim=-1)
        qkv = functional.silu(tree_convolution(qkv, self.convolution, None, tree))
        keys = spec.key_heads * spec.key_dim
        q, k, v = qkv.split_with_sizes((keys, keys, spec.width), dim=-1)
        q, k = (_heads(each, spec.key_dim) for each in (q, k))
        v, gate = (_heads(each, spec.value_dim) for each in (v, gate))
        log_decay = self.decay_rate * functional.softplus(decay.to(self.decay_rate.dtype) + self.decay_bias)
        mixed = tree_delta_rule(q, k, v, log_decay, rate.sigmoid(), tree)
        return gated_rms_norm(mixed, gate, self.norm, self.eps).flatten(-2)


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """x ← x + mix(norm x);   x ← x + W (silu(gate) · up), both of norm x."""

    mixer_norm: Norm
    mixer: Attention | Delta
    output: Linear
    mlp_norm: Norm
    gate_up: Linear
    down: Linear

    def __call__(self, x: Tensor, rotation: Rotation, tree: Tree, rows: Tensor | None) -> Tensor:
        """[N, hidden] → [N, hidden], or [len(rows), hidden] at these rows: no row needs another once they are mixed."""
        mixed = self.mixer(self.mixer_norm(x), rotation, tree)
        if rows is not None:
            x, mixed = x.index_select(0, rows), mixed.index_select(0, rows)
        x = x + self.output(mixed)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate).mul_(up))


@dataclass(frozen=True, slots=True, eq=False)
class Backbone:
    """A decoder on one device in one dtype. It keeps nothing of a forward, so any thread may use it."""

    spec: DecoderSpec
    embedding: Tensor
    """[vocab, hidden]"""
    layers: tuple[Layer, ...]
    norm: Norm
    output_embedding: Tensor
    """[vocab, hidden]; of a tied model, `embedding` itself. Logits are the product with it, without bias and scale."""
    frequencies: Tensor
    """[rotary dim / 2] float32"""
    n_parameters: int
    """Of the checkpoint's text model, embeddings included; tied ones count once."""

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    def hidden_at_slots(self, ids: Tensor, tree: Tree) -> Tensor:
        """ids int64 [N] → [n_slots, hidden] after the final norm, in the order of `tree.slots`.

        `tree` is made with `n_taps=spec.taps`. Only the slots' rows go through the last layer's output projection and
        MLP.
        """
        x = functional.embedding(ids, self.embedding)
        rotation = self._rotation(tree.positions)
        for layer in self.layers[:-1]:
            x = layer(x, rotation, tree, None)
        return self.norm(self.layers[-1](x, rotation, tree, tree.slots))

    def _rotation(self, positions: Tensor) -> Rotation:
        """Angles in float32, also in a float64 model: transformers' own are, and a model is what it was trained as."""
        angles = positions[:, None].to(torch.float32) * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return Rotation(angles.cos().to(self.dtype), angles.sin().to(self.dtype))


def _heads(x: Tensor, size: int) -> Tensor:
    """[N, heads · size] → [N, heads, size], a view."""
    return x.view(x.shape[0], -1, size)
