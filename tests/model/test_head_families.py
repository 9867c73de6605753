"""What families do to logits besides the product: scales, divisors, biases and soft-caps, and a float64 model.

Refuses to use our forward as its own judge: the oracle is `module(...).logits`. Trap: a wrong scale keeps the ranking.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    CohereConfig,
    Gemma2Config,
    GraniteConfig,
    PhiConfig,
    PreTrainedConfig,
)

from decider.errors import ModelError
from decider.model.head import LabelHead, check_head, label_head, last_hidden
from decider.model.load import LoadedModel, load_module
from decider.model.source import ModelFolder

LABEL_IDS = list(range(40, 80))
TinyFolder = Callable[[str], Path]
SHAPE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS: dict[str, PreTrainedConfig] = {
    "cohere": CohereConfig(logit_scale=0.25, **SHAPE),
    "granite": GraniteConfig(logits_scaling=4.0, **SHAPE),
    "gemma2": Gemma2Config(final_logit_softcapping=5.0, head_dim=16, **SHAPE),
    "phi": PhiConfig(**SHAPE),
}
# What each family adds, and the same head without it.
FORGETFUL: dict[str, Callable[[LabelHead], LabelHead]] = {
    "cohere": lambda head: replace(head, scale=1.0),
    "granite": lambda head: replace(head, scale=1.0),
    "gemma2": lambda head: replace(head, soft_cap=None),
    "phi": lambda head: replace(head, bias=None),
}


def load(folder: Path, dtype: str = "float32") -> LoadedModel:
    return load_module(ModelFolder(folder, "tiny", "a test"), device="cpu", dtype=dtype, attention="eager")


@pytest.mark.parametrize("family", CONFIGS)
@torch.inference_mode()
def test_a_family_that_changes_its_logits_is_followed(tmp_path: Path, family: str) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[family])
    for parameter in model.parameters():
        parameter.normal_(0.0, 0.3)
    model.save_pretrained(tmp_path)
    loaded = load(tmp_path)
    head = label_head(loaded, LABEL_IDS)
    check_head(loaded, head, LABEL_IDS)
    input_ids = torch.randint(3, 300, (2, 30), generator=torch.Generator().manual_seed(1))
    own = loaded.module(input_ids=input_ids).logits[..., LABEL_IDS]
    assert own.abs().max() > 0.2
    assert (own - head(last_hidden(loaded.module, input_ids))).abs().max() <= 1e-5
    with pytest.raises(ModelError, match="this family is not supported"):
        check_head(loaded, FORGETFUL[family](head), LABEL_IDS)


@torch.inference_mode()
def test_a_float64_model_keeps_its_precision(tiny_folder: TinyFolder) -> None:
    loaded = load(tiny_folder("llama"), dtype="float64")
    head = label_head(loaded, LABEL_IDS)
    check_head(loaded, head, LABEL_IDS)
    assert head.weight.dtype == head(torch.randn(3, 64, dtype=torch.float64)).dtype == torch.float64


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    BertForMaskedLM(
        BertConfig(vocab_size=300, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    ).save_pretrained(tmp_path)
    loaded = load(tmp_path)
    with pytest.raises(ModelError, match="this family is not supported"):
        check_head(loaded, label_head(loaded, LABEL_IDS), LABEL_IDS)
