"""The forward of a decoder over packed tokens: embed, mix and transform layer by layer, read at the slots.

It refuses to know checkpoints and back ends; a linear layer is a callable, all between two of them is in `ops`.
Trap: what is rounded where is transformers' order, to the letter: the residual stream is added in the model's dtype, a
gate is rounded before it multiplies, decays are float32. Another order is as good, and fails parity in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from decider.backbone.spec import AttentionSpec, DecoderSpec, DeltaSpec
from decider.ops.fp8 import Fp8Product, is_large
from decider.ops.norms import Norm
from decider.ops.pack_ops import Gates, PackOps, Sight, as_heads, plain_ops
from decider.ops.rotary import Rotation
from decider.ops.rows import VALUES, Form, Rows

Linear = Callable[[Any], Tensor]
"""[N, in] → [N, out] in the same dtype. An `Fp8Product` also takes its rows quantised."""
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
class Attention:
    """Softmax attention: [N, hidden] → [N, heads · head_dim], before the output projection, in the model's dtype."""

    spec: AttentionSpec
    project: Linear
    """hidden → query, key, value, gate (if there is one)."""
    norm: Norm | None
    """Of each head of the query and the key; weight [heads + kv_heads, head_dim]."""

    @property
    def reads(self) -> Form:
        """The form of its input."""
        return form_for(self.project)

    def __call__(self, x: Rows, rotation: Rotation, tree: Sight, ops: PackOps, _: Form) -> Rows:
        spec = self.spec
        merged = self.project(x.best)
        keys = spec.kv_heads * spec.head_dim
        v, gate = merged[:, spec.width + keys :].split_with_sizes((keys, spec.width * spec.output_gate), dim=-1)
        turned = ops.norm_and_turn(merged, self.norm, rotation, spec.heads + spec.kv_heads, spec.head_dim)
        q, k = turned.split_with_sizes((spec.heads, spec.kv_heads), dim=1)
        v = as_heads(v, spec.head_dim)
        # A product in FP8 quantises these itself: a row's largest number is known when all of its heads are.
        return Rows(ops.attention(q, k, v, gate if spec.output_gate else None, tree, spec.head_dim**-0.5))


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """The gated delta rule: [N, hidden] → [N, value_heads · value_dim], before the output projection."""

    spec: DeltaSpec
    project: Linear
    """hidden → query, key and value in one, output gate, and unless `rates` has them, β's and the decay's logits a
    value head."""
    rates: Linear | None
    """hidden → β's and the decay's logits, where the projection is coarser than these can bear."""
    convolution: Tensor
    """[channels, taps]"""
    decay_rate: Tensor
    """[value_heads], −exp(A), float32 at least."""
    decay_bias: Tensor
    """[value_heads]"""
    norm: Norm
    """Weight [value_dim], no offset."""

    @property
    def reads(self) -> Form:
        """The form of its input."""
        return form_for(self.project)._replace(values=True)

    def __call__(self, x: Rows, _: Rotation, tree: Sight, ops: PackOps, form: Form) -> Rows:
        spec = self.spec
        merged = self.project(x.best)
        qkv, gate, logits = merged.tensor_split((spec.channels, spec.channels + spec.width), dim=-1)
        beta, decay = (logits if self.rates is None else self.rates(x.whole)).chunk(2, dim=-1)
        q, k, v = ops.convolved(qkv, self.convolution, spec, tree)
        mixed = ops.delta_rule(q, k, v, Gates(beta, decay, self.decay_rate, self.decay_bias), tree)
        return ops.gated_norm(mixed, as_heads(gate, spec.value_dim), self.norm, form)


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """x ← x + mix(norm x);   x ← x + W (silu(gate) · up), both of norm x."""

    mixer_norm: Norm
    mixer: Attention | Delta
    output: Linear
    mlp_norm: Norm
    gate_up: Linear
    down: Linear

    def __call__(
        self, x: Tensor, added: Tensor | None, rotation: Rotation, tree: Sight, rows: Tensor | None, ops: PackOps
    ) -> tuple[Tensor, Tensor]:
        """(x, what is to be added to it), both [N, hidden] → the same after the layer.

        The sum is left to the norm that comes next, which needs it. With `rows`, both are [len(rows), hidden], at these
        rows: no row needs another once they are mixed.
        """
        x, normed = ops.add_norm(x, added, self.mixer_norm, self.mixer.reads)
        mixed = self.mixer(normed, rotation, tree, ops, form_for(self.output) if rows is None else VALUES)
        if rows is not None:
            x, mixed = x.index_select(0, rows), Rows(mixed.whole.index_select(0, rows))
        x, normed = ops.add_norm(x, self.output(mixed.best), self.mlp_norm, form_for(self.gate_up))
        return x, self.down(ops.swiglu(self.gate_up(normed.best), form_for(self.down)).best)


PARTS = ("mixer", "output", "gate_up", "down")
"""The parts of a layer that multiply by weights."""


def part_name(layer: Layer, part: str) -> str:
    """What parts of one kind are called: `delta in`, `attention out`, `gate up`."""
    if part in ("gate_up", "down"):
        return part.replace("_", " ")
    return f"{'delta' if isinstance(layer.mixer, Delta) else 'attention'} {'in' if part == 'mixer' else 'out'}"


@dataclass(frozen=True, slots=True, eq=False)
class Coarse:
    """Layers with products in a coarser dtype beside those of a decoder, and where they take their place."""

    layers: tuple[Layer, ...]
    from_rows: Mapping[str, int]
    """`part_name` → the least number of rows; a part that is not named never does."""

    def taken(self, n_rows: int) -> frozenset[str]:
        """Names of the parts that are coarse in forwards of `n_rows`."""
        return frozenset(name for name, least in self.from_rows.items() if n_rows >= least)


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
    ops: PackOps = field(default_factory=plain_ops)
    """What it does between products; `replace` it with those of the device."""
    coarse: Coarse | None = None
    """Of a decoder that only `for_rows` makes one that runs."""

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    def for_rows(self, n_tokens: int, n_slots: int) -> Backbone:
        """What runs forwards of `n_tokens` read at `n_slots`: itself, or a mixture of its two kinds of layers."""
        if self.coarse is None:
            return self
        layers = []
        for index, (own, coarse) in enumerate(zip(self.layers, self.coarse.layers, strict=True)):
            # Behind its mixer, the last layer has the slots' rows alone.
            behind = n_slots if index == len(self.layers) - 1 else n_tokens
            taken = {
                part: getattr(coarse, part)
                for part in PARTS
                if part_name(own, part) in self.coarse.taken(n_tokens if part == "mixer" else behind)
            }
            layers.append(replace(own, **taken))
        return replace(self, layers=tuple(layers), coarse=None)

    def hidden_at_slots(self, ids: Tensor, tree: Sight) -> Tensor:
        """ids [N] → [n_slots, hidden] after the final norm, in the order of `tree.slots`.

        `tree` is what `ops` reads, made for the `taps` of the spec. Only the slots' rows go through the last layer's
        output projection and MLP.
        """
        assert self.coarse is None, "for_rows says what runs"
        x, added = functional.embedding(ids, self.embedding), None
        rotation = self._rotation(tree.positions)
        for layer in self.layers[:-1]:
            x, added = layer(x, added, rotation, tree, None, self.ops)
        x, added = self.layers[-1](x, added, rotation, tree, tree.slots, self.ops)
        return self.ops.add_norm(x, added, self.norm, VALUES)[1].whole

    def _rotation(self, positions: Tensor) -> Rotation:
        """Angles in float32, also in a float64 model: transformers' own are, and a model is what it was trained as."""
        angles = positions[:, None].to(torch.float32) * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return Rotation(angles.cos().to(self.dtype), angles.sin().to(self.dtype))


def fp8_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """The product in FP8 where it gains by that, else as it is; for models in bfloat16."""
    return Fp8Product.of(weight, bias) if is_large(weight) else Dense(weight, bias)


def form_for(linear: Linear) -> Form:
    """The form in which `linear` takes its rows."""
    return Form(values=False, codes=True) if isinstance(linear, Fp8Product) else VALUES
