"""Models of a published shape with random weights: time does not depend on what the weights are.

It refuses to know executors. Trap: random weights make near-ties common, so whatever counts changed answers on them
must leave out prompts whose two best options are about equal.
"""

from __future__ import annotations

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedConfig

from decider.bench.configs import CONFIGS
from decider.model.load import DTYPES, LoadedModel
from decider.model.quiet import quiet_transformers


def config_of(shape: str) -> PreTrainedConfig:
    """The text model's configuration; `shape` is one of `SHAPES`, or `TINY`."""
    assert shape in CONFIGS, shape
    wanted = CONFIGS[shape]
    made: PreTrainedConfig = getattr(transformers, wanted.config_class)(**wanted.numbers)
    return made


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
