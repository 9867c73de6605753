"""A checkpoint's tensors to a `Backbone`: each taken once; those with the same input are merged into one.

It refuses to know files. Trap: a tensor that is left over means that the forward is not the model's, so which names
there must be comes from a trial build on no device, never from a list beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from decider.backbone.decoder import Attention, Backbone, Delta, Dense, Layer, Linear, MakeLinear, fp8_linear
from decider.backbone.families import REMEDY
from decider.backbone.spec import DecoderSpec, DeltaSpec
from decider.errors import ModelError
from decider.model.checkpoint import PREFIXES
from decider.ops.norms import Norm

HEAD = "lm_head.weight"
# A buffer that old checkpoints hold, layer by layer.
_COMPUTED = "rotary_emb.inv_freq"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors by name, read one at a time, so that a large model never lies in memory twice."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], Tensor]
    """Name → tensor, on any device and in any dtype."""

    @property
    def prefix(self) -> str:
        """What stands before the names of the text model. Raises ModelError if there is none."""
        for prefix in PREFIXES:
            if f"{prefix}embed_tokens.weight" in self.shapes:
                return prefix
        raise ModelError(
            f"{self.name!r} has no tensor model.embed_tokens.weight among its {len(self.shapes)}; check that it is a "
            f"causal language model, or {REMEDY}"
        )


def build(
    spec: DecoderSpec, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype, linear: MakeLinear = Dense
) -> Backbone:
    """`spec` with the weights of `checkpoint`; what is not merged and already as asked is shared with it.

    `linear` makes every linear layer but the output embedding. Raises ModelError if a weight is missing, has another
    shape, or is a layer's and not used.
    """
    prefix = checkpoint.prefix
    needed = _needed(spec)
    names = {name: name if name == HEAD else prefix + name for name in needed}
    lacking = sorted(full for name, full in names.items() if checkpoint.shapes.get(full) != needed[name])
    if lacking:
        raise ModelError(
            f"{checkpoint.name!r} lacks {len(lacking)} of its weights, or has them in another shape "
            f"({_few(lacking)}); fetch the checkpoint again, or {REMEDY}"
        )
    layers = [name for name in checkpoint.shapes if name.startswith(f"{prefix}layers.") and _COMPUTED not in name]
    surplus = sorted(set(layers) - set(names.values()))
    if surplus:
        raise ModelError(
            f"{checkpoint.name!r} has {len(surplus)} layer weights that a {spec.family} decoder does not use "
            f"({_few(surplus)}): its config.json and its weights do not belong together, or it is no plain model of "
            f"that family; {REMEDY}"
        )
    if spec.tied and HEAD in checkpoint.shapes:
        check_tied(checkpoint)

    def take(name: str, *_: int) -> Tensor:
        return checkpoint.read(names[name]).detach().to(device=device, dtype=dtype)

    return _Builder(spec, take, linear).backbone(sum(prod(shape) for shape in needed.values()))


def _needed(spec: DecoderSpec) -> dict[str, tuple[int, ...]]:
    """Every name a build takes, without prefix, with its shape."""
    needed: dict[str, tuple[int, ...]] = {}

    def take(name: str, *shape: int) -> Tensor:
        assert name not in needed, name
        needed[name] = shape
        return torch.empty(shape, device="meta")

    _Builder(spec, take, Dense).backbone(0)
    return needed


def check_tied(checkpoint: Checkpoint) -> None:
    """Raises ModelError if the head beside a tied embedding is not the same: which one is meant is not known."""
    head, embedding = checkpoint.read(HEAD), checkpoint.read(f"{checkpoint.prefix}embed_tokens.weight")
    if head.data_ptr() != embedding.data_ptr() and not torch.equal(head, embedding):
        raise ModelError(
            f"{checkpoint.name!r} sets tie_word_embeddings to True, and its {HEAD} is not its embedding; set it to "
            f"False in its config.json, or {REMEDY}"
        )


def _few(names: list[str]) -> str:
    return f"{', '.join(names[:3])}{', …' if len(names) > 3 else ''}"


@dataclass(frozen=True, slots=True)
class _Builder:
    spec: DecoderSpec
    take: Callable[..., Tensor]
    """(name without prefix, *shape) → tensor"""
    linear: MakeLinear

    def backbone(self, n_parameters: int) -> Backbone:
        spec = self.spec
        embedding = self.take("embed_tokens.weight", spec.vocab, spec.hidden)
        return Backbone(
            spec=spec,
            embedding=embedding,
            layers=tuple(self._layer(f"layers.{index}.", kind == "delta") for index, kind in enumerate(spec.layers)),
            norm=self._norm("norm", spec.hidden),
            output_embedding=embedding if spec.tied else self.take(HEAD, spec.vocab, spec.hidden),
            frequencies=torch.tensor(spec.rotary.frequencies, dtype=torch.float32, device=embedding.device),
            n_parameters=n_parameters,
        )

    def _layer(self, at: str, is_delta: bool) -> Layer:
        spec = self.spec
        hidden, inner = spec.hidden, spec.intermediate
        mixer, output = self._delta(f"{at}linear_attn.") if is_delta else self._attention(f"{at}self_attn.")
        parts = [self.take(f"{at}mlp.{part}_proj.weight", inner, hidden) for part in ("gate", "up")]
        return Layer(
            mixer_norm=self._norm(f"{at}input_layernorm", hidden),
            mixer=mixer,
            output=output,
            mlp_norm=self._norm(f"{at}post_attention_layernorm", hidden),
            gate_up=self.linear(torch.cat(parts), None),
            down=self.linear(self.take(f"{at}mlp.down_proj.weight", hidden, inner), None),
        )

    def _attention(self, at: str) -> tuple[Attention, Linear]:
        spec, hidden = self.spec.attention, self.spec.hidden
        keys = spec.kv_heads * spec.head_dim

        def merged(part: str, *inner: int) -> Tensor:
            rows = self.take(f"{at}q_proj.{part}", spec.width * (2 if spec.output_gate else 1), *inner)
            # The checkpoint has query and gate head by head.
            q, *gate = (each.flatten(0, 1) for each in rows.view(spec.heads, -1, spec.head_dim, *inner).unbind(1))
            k, v = (self.take(f"{at}{name}_proj.{part}", keys, *inner) for name in ("k", "v"))
            return torch.cat((q, k, v, *gate))

        project = self.linear(merged("weight", hidden), merged("bias") if spec.qkv_bias else None)
        norm = None
        if spec.qk_norm:
            q, k = (self.take(f"{at}{name}_norm.weight", spec.head_dim) for name in ("q", "k"))
            weight = torch.cat((q.expand(spec.heads, -1), k.expand(spec.kv_heads, -1)))
            norm = Norm(weight, self.spec.norm_eps, self.spec.norm_offset)
        weight = self.take(f"{at}o_proj.weight", hidden, spec.width)
        bias = self.take(f"{at}o_proj.bias", hidden) if spec.output_bias else None
        return Attention(spec, project, norm), self.linear(weight, bias)

    def _delta(self, at: str) -> tuple[Delta, Linear]:
        spec, hidden = self._delta_spec, self.spec.hidden
        sizes = {"qkv": spec.channels, "z": spec.width, "b": spec.value_heads, "a": spec.value_heads}
        parts = [self.take(f"{at}in_proj_{part}.weight", size, hidden) for part, size in sizes.items()]
        # What β and the decay are made of stays in the model's dtype: an error there adds up along the whole row.
        rates = Dense(torch.cat(parts[2:]), None) if self.linear is fp8_linear else None
        rate = self.take(f"{at}A_log", spec.value_heads)
        precision = torch.promote_types(rate.dtype, torch.float32)
        mixer = Delta(
            spec=spec,
            project=self.linear(torch.cat(parts if rates is None else parts[:2]), None),
            rates=rates,
            convolution=self.take(f"{at}conv1d.weight", spec.channels, 1, spec.taps).squeeze(1),
            decay_rate=-rate.to(precision).exp(),
            decay_bias=self.take(f"{at}dt_bias", spec.value_heads),
            norm=Norm(self.take(f"{at}norm.weight", spec.value_dim), self.spec.norm_eps, 0.0),
        )
        return mixer, self.linear(self.take(f"{at}out_proj.weight", hidden, spec.width), None)

    @property
    def _delta_spec(self) -> DeltaSpec:
        assert self.spec.delta is not None
        return self.spec.delta

    def _norm(self, name: str, size: int) -> Norm:
        return Norm(self.take(f"{name}.weight", size), self.spec.norm_eps, self.spec.norm_offset)
