"""A Hugging Face configuration to a `DecoderSpec`, or a refusal that names the key.

It refuses to guess: each key that could change an answer is either read or must have the one value we compute. Trap: a
configuration class fills in keys its file does not have, and keeps keys that its model never reads; what counts is what
transformers' model does, and the parity tests are with that.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from decider.backbone.spec import AttentionSpec, DecoderSpec, DeltaSpec, LayerKind, Rotary
from decider.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

REMEDY = "use --executor grid"


@dataclass(frozen=True, slots=True)
class _Family:
    """What a model type does that its configuration does not say."""

    qkv_bias: bool | None
    """None: `attention_bias` says it, for the output projection too."""
    qk_norm: bool = False
    hybrid: bool = False
    """Layers of both kinds, an output gate, partial rotary, norms by (1 + w)."""


_FAMILIES: Mapping[str, _Family] = {
    "llama": _Family(qkv_bias=None),
    "mistral": _Family(qkv_bias=False),
    "qwen2": _Family(qkv_bias=True),
    "qwen3": _Family(qkv_bias=None, qk_norm=True),
    "qwen3_5_text": _Family(qkv_bias=None, qk_norm=True, hybrid=True),
}
# Their text model is one of the above, under other names of its weights.
_MULTIMODAL = frozenset({"qwen3_5"})
_KINDS: Mapping[str, LayerKind] = {
    "full_attention": "attention",
    "sliding_attention": "attention",
    "linear_attention": "delta",
}
# What these keys must be, where they are there at all.
_ONLY: Mapping[str, tuple[object, ...]] = {
    "hidden_act": ("silu",),
    "mlp_bias": (False,),
    "is_causal": (True,),
    "quantization_config": (None,),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "logit_scale": (None, 1.0),
    "logits_scaling": (None, 1.0),
    "num_experts": (None, 0),
    "num_local_experts": (None, 0),
    "n_routed_experts": (None, 0),
}


def read_spec(config: PreTrainedConfig, name: str) -> DecoderSpec:
    """The decoder that `config` describes; of a multimodal one, its text model. `name` is for messages.

    Raises ModelError, which names key, value and remedy, for whatever is not known here.
    """
    text = config.get_text_config()
    if config.model_type not in _FAMILIES.keys() | _MULTIMODAL or text.model_type not in _FAMILIES:
        raise _refusal(name, "model_type", config.model_type, ", ".join(sorted(_FAMILIES.keys() | _MULTIMODAL)))
    family = _FAMILIES[text.model_type]
    for key, allowed in _ONLY.items():
        # Quantised checkpoints of several parts say so on top.
        for part in (config, text):
            value = getattr(part, key, allowed[0])
            if value not in allowed:
                raise _refusal(name, key, value, f"only {allowed[-1]!r}")
    positions = getattr(text, "max_position_embeddings", None)
    if not _is_size(positions):
        raise _refusal(name, "max_position_embeddings", positions, "a number above 0")
    heads, kv_heads = _shared(text, name, "num_attention_heads", "num_key_value_heads")
    hidden = _size(text, name, "hidden_size")
    head_dim = hidden // heads if getattr(text, "head_dim", None) is None else _size(text, name, "head_dim")
    bias = bool(getattr(text, "attention_bias", False))
    layers = _layers(text, name, hybrid=family.hybrid)
    return DecoderSpec(
        family=text.model_type,
        vocab=_size(text, name, "vocab_size"),
        hidden=hidden,
        intermediate=_size(text, name, "intermediate_size"),
        layers=layers,
        attention=AttentionSpec(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            qkv_bias=bias if family.qkv_bias is None else family.qkv_bias,
            output_bias=bias and family.qkv_bias is None,
            qk_norm=family.qk_norm,
            output_gate=family.hybrid,
        ),
        delta=_delta(text, name) if "delta" in layers else None,
        rotary=_rotary(text, name, head_dim, partial=family.hybrid),
        norm_eps=float(_number(name, "rms_norm_eps", text.rms_norm_eps)),
        norm_offset=1.0 if family.hybrid else 0.0,
        tied=bool(text.tie_word_embeddings),
        max_positions=positions,
    )


def _layers(text: Any, name: str, *, hybrid: bool) -> tuple[LayerKind, ...]:
    """Raises ModelError for a window that a row can be longer than, and for a layer the family does not have."""
    n_layers = _size(text, name, "num_hidden_layers")
    types = getattr(text, "layer_types", None)
    if types is None:
        types = ["full_attention"] * n_layers
    if not isinstance(types, list) or len(types) != n_layers:
        raise _malformed(name, "layer_types", types, f"a list of num_hidden_layers, {n_layers}, names")
    window = getattr(text, "sliding_window", None)
    # Mistral slides in every layer, without a word in `layer_types`.
    slides = "sliding_attention" in types or text.model_type == "mistral"
    if slides and window is not None and not (_is_size(window) and window >= text.max_position_embeddings):
        limit = f"None or at least max_position_embeddings, {text.max_position_embeddings}"
        raise _refusal(name, "sliding_window", window, limit)
    known = [kind for kind in _KINDS if hybrid or kind != "linear_attention"]
    for kind in types:
        if kind not in known:
            raise _refusal(name, "layer_types", kind, ", ".join(sorted(known)))
    return tuple(_KINDS[kind] for kind in types)


def _delta(text: Any, name: str) -> DeltaSpec:
    value_heads, key_heads = _shared(text, name, "linear_num_value_heads", "linear_num_key_heads")
    return DeltaSpec(
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=_size(text, name, "linear_key_head_dim"),
        value_dim=_size(text, name, "linear_value_head_dim"),
        taps=_size(text, name, "linear_conv_kernel_dim"),
    )


def _rotary(text: Any, name: str, head_dim: int, *, partial: bool) -> Rotary:
    """Frequencies θ^(−2i / dim), slowed down as `rope_type` says; in float32 steps, as transformers computes them."""
    given = text.rope_parameters
    if not isinstance(given, Mapping):
        raise _malformed(name, "rope_parameters", given, "a mapping")
    kind = given.get("rope_type")
    if kind not in ("default", "linear", "llama3"):
        raise _refusal(name, "rope_parameters.rope_type", kind, "default, linear and llama3")
    turned = _rope_number(given, name, "partial_rotary_factor", 1.0)
    if turned != 1.0 and not partial:
        raise _refusal(name, "rope_parameters.partial_rotary_factor", turned, "only 1.0 in this family")
    dim = int(head_dim * turned)
    if dim % 2 or not 2 <= dim <= head_dim:
        raise _refusal(name, "rope_parameters.partial_rotary_factor", turned, "an even part of a head")
    base = _rope_number(given, name, "rope_theta")
    frequencies = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
    if kind == "linear":
        frequencies = frequencies / _rope_number(given, name, "factor")
    elif kind == "llama3":
        frequencies = _llama3(frequencies, text, name)
    return Rotary(tuple(frequencies.tolist()))


def _llama3(frequencies: torch.Tensor, text: Any, name: str) -> torch.Tensor:
    """Llama 3.1's scaling, by the number of turns in the old context: fewer than low_freq_factor are slowed down by
    `factor`, more than high_freq_factor stay, and between them the two are mixed linearly.
    """
    given = text.rope_parameters
    factor, low, high = (_rope_number(given, name, key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    old_context = "original_max_position_embeddings"
    # The model overwrites its rope parameters with the key on top of them, if there is one.
    if hasattr(text, old_context):
        context = _number(name, old_context, getattr(text, old_context))
    else:
        context = _rope_number(given, name, old_context)
    lengths = 2 * math.pi / frequencies
    share = (context / lengths - low) / (high - low)
    mixed = (1 - share) * frequencies / factor + share * frequencies
    slow = frequencies / factor
    return torch.where(lengths > context / low, slow, torch.where(lengths < context / high, frequencies, mixed))


def _shared(text: Any, name: str, key: str, shared_key: str) -> tuple[int, int]:
    """How many heads, and how many of the others they share; the first is a multiple of the second."""
    heads, shared = _size(text, name, key), _size(text, name, shared_key)
    if heads % shared:
        raise _refusal(name, key, heads, f"a multiple of the {shared} heads they share")
    return heads, shared


def _size(text: Any, name: str, key: str) -> int:
    value = getattr(text, key, None)
    if not _is_size(value):
        raise _malformed(name, key, value, "a whole number above 0")
    return value


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _rope_number(given: Mapping[str, Any], name: str, key: str, default: float | None = None) -> float:
    return _number(name, f"rope_parameters.{key}", given.get(key, default))


def _number(name: str, key: str, value: object) -> float:
    """`value` as it is: transformers computes with whole numbers where it is given them."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= sys.float_info.max:
        raise _malformed(name, key, value, "a finite number above 0")
    return value


def _refusal(name: str, key: str, value: object, known: str) -> ModelError:
    return ModelError(f"{name!r} sets {key} to {value!r:.60}, and our own decoders know {known}; {REMEDY}")


def _malformed(name: str, key: str, value: object, must: str) -> ModelError:
    return ModelError(
        f"{name!r} sets {key} to {value!r:.60}, which must be {must}; correct its config.json, or fetch it again"
    )
