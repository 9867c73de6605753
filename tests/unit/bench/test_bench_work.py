"""What is read of a model: its linear layers, and its attention layer by layer.

Refuses to compute anything: the models have shapes and no weights. Trap: a family that transformers describes in a new
way must leave the floor open, not give a wrong one.
"""

from __future__ import annotations

import pytest
import torch
from tiny_models import COMMON, configs
from transformers import AutoModelForCausalLM, MistralConfig, PreTrainedConfig, PreTrainedModel

from decider.bench.floor import Attention
from decider.bench.shapes import config_of, random_model
from decider.bench.work import model_work

FULL = Attention(4, 16, None)
SLIDING = Attention(4, 16, 16)
# 64 → q 64, k 32, v 32, back to 64; gate, up and down between 64 and 128.
LAYER = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 128


def shapes_only(config: PreTrainedConfig) -> PreTrainedModel:
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model


@pytest.mark.parametrize(
    ("family", "attention"),
    [("llama", (FULL, FULL)), ("qwen3", (FULL, FULL)), ("gemma3", (SLIDING, FULL, SLIDING)), ("qwen3_5", (FULL,))],
)
def test_attention_layer_by_layer(family: str, attention: tuple[Attention, ...]) -> None:
    assert model_work(shapes_only(configs()[family])).attention == attention


@pytest.mark.parametrize(("family", "layers"), [("llama", 2), ("llama_tied", 2), ("qwen3", 2), ("gemma3", 3)])
def test_parameters_are_those_of_the_layers_matrices(family: str, layers: int) -> None:
    assert model_work(shapes_only(configs()[family])).matrix_parameters == layers * LAYER


def test_one_window_for_all_layers() -> None:
    config = MistralConfig(num_hidden_layers=2, sliding_window=9, **COMMON)
    assert model_work(shapes_only(config)).attention == (Attention(4, 16, 9),) * 2


def test_an_unknown_kind_leaves_the_attention_open() -> None:
    module = shapes_only(configs()["gemma3"])
    module.config.layer_types = ["sliding_attention", "chunked_attention", "sliding_attention"]
    assert model_work(module).attention is None


def test_attention_that_is_not_found_leaves_it_open() -> None:
    module = shapes_only(configs()["llama"])
    del module.model.layers[1].self_attn.head_dim
    assert model_work(module).attention is None


@pytest.mark.parametrize(("shape", "parameters", "layers"), [("qwen3.5-2b", 1.3727e9, 6), ("qwen3-1.7b", 1.4093e9, 28)])
def test_the_published_shapes(shape: str, parameters: float, layers: int) -> None:
    work = model_work(shapes_only(config_of(shape)))
    assert work.matrix_parameters == pytest.approx(parameters, rel=1e-4)
    assert work.attention is not None
    assert len(work.attention) == layers
    assert len({each.heads * each.head_dim for each in work.attention}) == 1
    assert work.attention[0].heads * work.attention[0].head_dim == 2048


def test_random_weights_are_the_same_again_and_leave_the_random_state() -> None:
    state = torch.random.get_rng_state()
    first, second = (random_model("tiny", device="cpu", dtype="bfloat16", attention="sdpa") for _ in range(2))
    assert torch.equal(state, torch.random.get_rng_state())
    assert first.module.dtype == torch.bfloat16
    assert not first.module.training
    for one, other in zip(first.module.parameters(), second.module.parameters(), strict=True):
        assert torch.equal(one, other)
        assert not one.requires_grad
