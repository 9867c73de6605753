"""Packs of rows for tests of decoders, and tiny models of every family and variant that has one of our own.

Refuses to plan: a test says which rows share a trunk. Trap: random ids share no prefix by themselves, so rows of one
trunk are made from it.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tiny_models import COMMON, MAX_POSITIONS, configs
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from decider.backbone.decoder import Backbone
from decider.model.head import LabelHead, last_hidden
from decider.model.load import DTYPES, LoadedModel
from decider.ops.tree import tree_of
from decider.plan.pack import Group, make_pack
from decider.tokens.rows import Row

VOCAB = 1024
LABEL_IDS = tuple(range(40, 72))
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def known_configs() -> dict[str, PreTrainedConfig]:
    """Every family that has a decoder of our own, with the variants of each."""
    layers: dict[str, Any] = {"num_hidden_layers": 2, "tie_word_embeddings": False}
    own = {name: config for name, config in configs().items() if name != "gemma3"}
    return own | {
        "mistral": MistralConfig(**COMMON, **layers, sliding_window=None),
        "mistral_wide": MistralConfig(**COMMON, **layers, sliding_window=MAX_POSITIONS),
        "qwen2": Qwen2Config(**{**COMMON, "head_dim": 24}, **layers),
        "qwen3_bias": Qwen3Config(**{**COMMON, "head_dim": 24}, **layers, attention_bias=True),
        "llama_bias": LlamaConfig(**COMMON, **layers, attention_bias=True),
        "llama_linear": LlamaConfig(
            **COMMON, **layers, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
        ),
        "llama_llama3": LlamaConfig(**COMMON, **layers, rope_parameters=LLAMA3),
    }


KNOWN = tuple(known_configs())


@functools.cache
def load_known(name: str, dtype: str = "float32", *, quieter: float = 1.0) -> LoadedModel:
    """A model of `known_configs` in memory; built once, so leave it as it is.

    Its matrices are as large as those of `tiny_models`, divided by `quieter`; biases and norms are moved off their
    start.
    """
    config = known_configs()[name]
    torch.manual_seed(0)
    wide = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter_name, parameter in wide.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, 0.3 / quieter)
            else:
                parameter.add_(torch.randn_like(parameter) * (0.2 if "norm" in parameter_name else 0.5))
    # Not `.to`, which would round the rotary frequencies too.
    module = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype], attn_implementation="sdpa")
    module.load_state_dict(wide.state_dict())
    module.eval().requires_grad_(False)
    return LoadedModel(module, "tiny", config.model_type, MAX_POSITIONS, "cpu", dtype)


@dataclass(frozen=True, slots=True)
class Family:
    """Rows of one trunk: its length and the lengths of what follows it; no branches means a row that shares nothing."""

    trunk: int
    branches: tuple[int, ...] = ()


def rows_of(families: Sequence[Family], *, seed: int = 0) -> tuple[list[Row], list[Group]]:
    """Random rows, each read at its last token and somewhere before it behind the trunk, and how they share trunks."""
    source = random.Random(f"{seed} {families}")
    rows: list[Row] = []
    groups: list[Group] = []
    for family in families:
        trunk = [source.randrange(VOCAB) for _ in range(family.trunk)]
        first = len(rows)
        for n_tokens in family.branches or (0,):
            ids = (*trunk, *(source.randrange(VOCAB) for _ in range(n_tokens)))
            slots = sorted({source.randrange(family.trunk if n_tokens else 0, len(ids)), len(ids) - 1})
            rows.append(Row(ids, tuple(slots), (5,) * len(slots), prefix_tokens=family.trunk))
        groups.append(Group(tuple(range(first, len(rows))), family.trunk if family.branches else 0))
    return rows, groups


@torch.inference_mode()
def packed_logits(
    backbone: Backbone, head: LabelHead, rows: Sequence[Row], groups: Sequence[Group], *, padding: int = 0
) -> Tensor:
    """[slots of all rows, labels] of one pack, with `padding` tokens behind it; row after row, as given."""
    n_tokens = sum(g.trunk_tokens + sum(len(rows[i].ids) - g.trunk_tokens for i in g.rows) for g in groups)
    pack = make_pack(rows, groups, n_tokens=n_tokens + padding)
    tree = tree_of(pack, backbone.device, backbone.spec.taps)
    hidden = backbone.hidden_at_slots(torch.tensor(pack.ids, device=backbone.device), tree)
    assert hidden.dtype == backbone.dtype
    logits = head(hidden).split_with_sizes([len(rows[index].slots) for index in pack.rows])
    by_row = dict(zip(pack.rows, logits, strict=True))
    return torch.cat([by_row[index] for index in range(len(rows))])


def single_logits(backbone: Backbone, head: LabelHead, rows: Sequence[Row]) -> Tensor:
    """[slots of all rows, labels], each row a pack of its own."""
    return torch.cat([packed_logits(backbone, head, [row], [Group((0,), 0)]) for row in rows])


@torch.inference_mode()
def own_logits(loaded: LoadedModel, head: LabelHead, rows: Sequence[Row]) -> Tensor:
    """[slots of all rows, labels] of transformers' model, one full row after the other."""
    hidden = [last_hidden(loaded.module, torch.tensor([row.ids], device=loaded.device))[0] for row in rows]
    return torch.cat([head(each[list(row.slots)]) for each, row in zip(hidden, rows, strict=True)])
