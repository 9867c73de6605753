"""Checkpoints of models that also see: their text model is loaded, every weight filled, and answers as the whole does.

Refuses to test images. Trap: the names of the weights differ between the two classes; a name that is not mapped leaves
a random tensor, and a random tensor answers with confidence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    PreTrainedModel,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
)

from decider.model.head import check_head, label_head, last_hidden
from decider.model.load import load_module
from decider.model.source import ModelFolder

LABEL_IDS = list(range(40, 80))
POSITIONS = 512
TEXT: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": POSITIONS,
}
LINEAR = dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2) | dict.fromkeys(
    ("linear_key_head_dim", "linear_value_head_dim"), 16
)
VISION: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}


def qwen3_5(*, tied: bool) -> PreTrainedModel:
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64}
    text = {**TEXT, **LINEAR, "tie_word_embeddings": tied}
    return Qwen3_5ForConditionalGeneration(
        Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=tied)
    )


def gemma3() -> PreTrainedModel:
    text, vision = {**TEXT, "sliding_window": 16}, {**VISION, "image_size": 28, "patch_size": 14}
    return Gemma3ForConditionalGeneration(Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4))


def gemma4() -> PreTrainedModel:
    text = {
        **TEXT,
        "sliding_window": 16,
        "global_head_dim": 32,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 16,
        "vocab_size_per_layer_input": 300,
        "final_logit_softcapping": 5.0,
    }
    vision = {**VISION, "num_key_value_heads": 2, "head_dim": 16}
    return Gemma4ForConditionalGeneration(Gemma4Config(text_config=text, vision_config=vision, audio_config=None))


@pytest.mark.parametrize(
    ("make", "model_type", "soft_cap"),
    [
        pytest.param(lambda: qwen3_5(tied=True), "qwen3_5_text", None, id="qwen3_5-tied"),
        pytest.param(lambda: qwen3_5(tied=False), "qwen3_5_text", None, id="qwen3_5"),
        pytest.param(gemma3, "gemma3_text", None, id="gemma3"),
        pytest.param(gemma4, "gemma4_text", 5.0, id="gemma4"),
    ],
)
@torch.inference_mode()
def test_the_text_model_answers_as_the_whole_checkpoint(
    tmp_path: Path, make: Callable[[], PreTrainedModel], model_type: str, soft_cap: float | None
) -> None:
    torch.manual_seed(0)
    whole = make().eval()
    for parameter in whole.parameters():
        if parameter.dim() >= 2:
            parameter.normal_(0.0, 0.3)
    whole.save_pretrained(tmp_path)
    loaded = load_module(ModelFolder(tmp_path, "tiny", "a test"), device="cpu", dtype="float32", attention="eager")
    head = label_head(loaded, LABEL_IDS)
    check_head(loaded, head, LABEL_IDS)
    input_ids = torch.randint(3, 300, (1, 40), generator=torch.Generator().manual_seed(1))
    own = whole(input_ids=input_ids).logits[..., LABEL_IDS]
    assert own.abs().max() > 0.5
    assert (head(last_hidden(loaded.module, input_ids)) - own).abs().max() <= 1e-4
    assert (loaded.model_type, loaded.max_positions, head.soft_cap) == (model_type, POSITIONS, soft_cap)
