"""Models of a published shape with random weights: time does not depend on what the weights are.

It refuses to know executors. Trap: random weights make near-ties common, so whatever counts changed answers on them
must leave out prompts whose two best options are about equal.
"""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, Qwen3_5TextConfig, Qwen3Config

from decider.bench.names import SHAPES, TINY
from decider.model.load import DTYPES, LoadedModel
from decider.model.quiet import quiet_transformers

LABEL_IDS = tuple(range(1000, 1255))
"""Token ids that stand for the 255 labels."""


def config_of(shape: str) -> PreTrainedConfig:
    """The text model's configuration; `shape` is one of `SHAPES`, or `TINY`."""
    assert shape in (*SHAPES, TINY), shape
    if shape == "qwen3.5-2b":
        return Qwen3_5TextConfig(
            vocab_size=248320, hidden_size=2048, intermediate_size=6144, num_hidden_layers=24, num_attention_heads=8,
            num_key_value_heads=2, head_dim=256, linear_num_key_heads=16, linear_num_value_heads=16,
            tie_word_embeddings=True, max_position_embeddings=32768,
        )  # fmt: skip
    if shape == "qwen3-1.7b":
        return Qwen3Config(
            vocab_size=151936, hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16,
            num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, max_position_embeddings=40960,
        )  # fmt: skip
    return Qwen3Config(
        vocab_size=2048, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, max_position_embeddings=32768,
    )  # fmt: skip


def random_model(shape: str, *, device: str, dtype: str, attention: str) -> LoadedModel:
    """A model of `shape` as `load_module` would give it. The weights are the same for the same device and dtype.

    Leaves the global random state as it found it.
    """
    config = config_of(shape)
    cards = [torch.device(device)] if device.startswith("cuda") else []
    with torch.random.fork_rng(cards), quiet_transformers(), torch.device(device):
        torch.manual_seed(0)
        module = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype], attn_implementation=attention)
    module.eval().requires_grad_(False)
    positions = int(config.max_position_embeddings)
    return LoadedModel(module, f"{shape}, random weights", str(config.model_type), positions, device, dtype)
