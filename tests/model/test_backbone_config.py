"""Configurations with one wrong value: refused by name, or computed as transformers computes them.

Refuses to say which of the two: what transformers accepts changes with its version. Trap: transformers changes a
configuration when it makes a model of it, so each is read from its file twice.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from packed_rows import LLAMA3
from prefix_rows import one_thread
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, Qwen3_5Config

from decider.backbone.families import read_spec
from decider.backbone.load import backbone_from, load_hf_config
from decider.errors import ModelError
from decider.model.source import ModelFolder
from decider.ops.tree import tree_of
from decider.plan.pack import Group, make_pack
from decider.tokens.rows import Row

N_TOKENS = 24
IDS = tuple(torch.randint(0, 40, (N_TOKENS,), generator=torch.Generator().manual_seed(0)).tolist())
ROW = Row(IDS, tuple(range(N_TOKENS)), (2,) * N_TOKENS, 0)
PACK = make_pack([ROW], [Group((0,), 0)], n_tokens=None)
CPU = torch.device("cpu")
SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-6,
    "sliding_window": None,
    "attention_bias": False,
    "tie_word_embeddings": False,
}
FULL: dict[str, Any] = {"layer_types": ["full_attention"] * 2}
HYBRID: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": FULL,
    "qwen3": FULL,
    "qwen3_5_text": HYBRID,
}
"""What each has besides. With layer types the first two are another family."""
ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 50.0},
    "linear": {"rope_type": "linear", "rope_theta": 50.0, "factor": 3.0},
    "llama3": {**LLAMA3, "rope_theta": 50.0, "original_max_position_embeddings": 16},
}
WRONG: tuple[Any, ...] = (None, "3", -1, 0, 1, math.nan, True, [], {})


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with one_thread(), torch.inference_mode():
        yield


def raw(family: str, rope: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What a config.json holds."""
    return {"model_type": family, **SIZES, **FAMILIES[family], "rope_parameters": rope, **changes}


def saved(folder: Path, values: dict[str, Any]) -> ModelFolder:
    (folder / "config.json").write_text(json.dumps(values))
    return ModelFolder(folder, "tiny", "a test")


def theirs(folder: ModelFolder) -> tuple[Tensor, dict[str, Tensor]] | None:
    """[tokens, vocabulary] logits of a random model, and its weights; None if transformers has no answer."""
    try:
        config = AutoConfig.from_pretrained(folder.path)
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float64, attn_implementation="eager").eval()
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.5)
        return model(torch.tensor([IDS])).logits[0], model.state_dict()
    # It raises whatever comes first where a number is none.
    except Exception:  # noqa: BLE001
        return None


def difference(folder: ModelFolder) -> float | None:
    """Of our logits from transformers', relative to the largest; None if it has none. Raises ModelError if we do."""
    config = load_hf_config(folder)
    spec = read_spec(config, "tiny")
    answer = theirs(folder)
    if answer is None:
        return None
    expected, state = answer
    ours = backbone_from(config, state, name="tiny", device=CPU, dtype=torch.float64)
    logits = ours.hidden_at_slots(torch.tensor(IDS), tree_of(PACK, CPU, spec.taps)) @ ours.output_embedding.T
    return float((logits - expected).abs().max() / expected.abs().max())


def changes_of(family: str, rope: str) -> Iterator[dict[str, Any]]:
    """Every key of a configuration with every wrong value; those that have nothing to do with `rope` only once."""
    for wrong in WRONG:
        if rope == "default":
            keys = raw(family, {}).keys() - {"model_type"}
            yield from ({key: wrong} for key in sorted(keys))
        for key in (*ROPES[rope], "partial_rotary_factor"):
            yield {"rope_parameters": ROPES[rope] | {key: wrong}}
        for key in ("rope_theta", "original_max_position_embeddings", "partial_rotary_factor"):
            yield {key: wrong}


# Of the largest logit. Measured are at most 1e-6, as transformers has norms in float32; wrong ones are off by 0.1 and
# more.
BOUND = 1e-3


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_one_wrong_value_is_refused_or_computed_as_transformers_does(tmp_path: Path, family: str, rope: str) -> None:
    right = difference(saved(tmp_path, raw(family, ROPES[rope])))
    assert right is not None
    assert right <= BOUND
    n_refused = n_alike = 0
    for change in changes_of(family, rope):
        try:
            found = difference(saved(tmp_path, raw(family, ROPES[rope], **change)))
        except ModelError:
            n_refused += 1
            continue
        assert found is None or found <= BOUND, change
        n_alike += found is not None
    assert min(n_refused, n_alike) >= 9


@pytest.mark.parametrize("family", FAMILIES)
def test_the_old_context_on_top_wins(tmp_path: Path, family: str) -> None:
    folder = saved(tmp_path, raw(family, ROPES["llama3"], original_max_position_embeddings=8))
    found = difference(folder)
    assert found is not None
    assert found <= BOUND
    inner = {**ROPES["llama3"], "original_max_position_embeddings": 8}
    spec = read_spec(load_hf_config(folder), "tiny")
    assert spec == read_spec(load_hf_config(saved(tmp_path, raw(family, inner))), "tiny")
    assert spec != read_spec(load_hf_config(saved(tmp_path, raw(family, ROPES["llama3"]))), "tiny")


def hybrid() -> PreTrainedConfig:
    return AutoConfig.for_model(**raw("qwen3_5_text", ROPES["default"] | {"partial_rotary_factor": 1.0}))


SIZE_KEYS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim")
SHARED_KEYS = ("num_key_value_heads", "linear_num_key_heads", "linear_num_value_heads")
DELTA_KEYS = ("linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim")


@pytest.mark.parametrize("key", [*SIZE_KEYS, *SHARED_KEYS, *DELTA_KEYS])
def test_a_size_that_is_no_size_is_refused_by_name(key: str) -> None:
    """Past transformers' own checks, which another version may not have."""
    for wrong in WRONG:
        config = hybrid()
        config.__dict__[key] = wrong
        if (wrong is None and key == "head_dim") or (wrong == 1 and not isinstance(wrong, bool)):
            continue
        said = (
            rf"^'tiny' sets {key} to {re.escape(repr(wrong))}, which must be a whole number above 0; correct its config"
        )
        with pytest.raises(ModelError, match=said):
            read_spec(config, "tiny")


NO_NUMBERS: tuple[Any, ...] = (None, "3", -1, 0, 0.0, -2.5, math.nan, math.inf, 10**400, True, [], {})


@pytest.mark.parametrize("rope", ROPES)
def test_a_rope_parameter_that_is_no_number_is_refused_by_name(rope: str) -> None:
    for key in (*(ROPES[rope].keys() - {"rope_type"}), "partial_rotary_factor"):
        for wrong in NO_NUMBERS:
            config = AutoConfig.for_model(**raw("llama", dict(ROPES[rope])))
            config.rope_parameters[key] = wrong
            value = re.escape(f"{wrong!r:.60}")
            said = (
                rf"^'tiny' sets rope_parameters\.{key} to {value}, which must be a finite number above 0; correct its"
            )
            with pytest.raises(ModelError, match=said):
                read_spec(config, "tiny")


@pytest.mark.parametrize(
    ("key", "wrong", "said"),
    [
        ("rms_norm_eps", None, "to None, which must be a finite number above 0"),
        ("rms_norm_eps", math.nan, "to nan, which must be a finite number above 0"),
        ("rope_parameters", None, "to None, which must be a mapping"),
        ("rope_parameters", [], r"to \[\], which must be a mapping"),
        (
            "layer_types",
            ["full_attention"],
            r"to \['full_attention'\], which must be a list of num_hidden_layers, 2, names",
        ),
        ("layer_types", 2, "to 2, which must be a list"),
        ("layer_types", [[], "full_attention"], r"to \[\], and our own decoders know full_attention"),
        ("max_position_embeddings", True, "to True, and our own decoders know a number above 0"),
    ],
)
def test_what_has_another_form_is_refused_by_name(key: str, wrong: object, said: str) -> None:
    config = hybrid()
    config.__dict__[key] = wrong
    with pytest.raises(ModelError, match=rf"^'tiny' sets {key} {said}"):
        read_spec(config, "tiny")


@pytest.mark.parametrize("window", ["64", math.nan, True, 31, []])
def test_a_window_that_is_not_wide_enough_is_refused(window: object) -> None:
    config = AutoConfig.for_model(**raw("mistral", ROPES["default"]))
    config.__dict__["sliding_window"] = window
    with pytest.raises(
        ModelError, match=r"^'tiny' sets sliding_window to .*None or at least max_position_embeddings, 32"
    ):
        read_spec(config, "tiny")


@pytest.mark.parametrize("factor", [0.01, 0.2, 1.5])
def test_an_odd_part_of_a_head_is_refused(factor: float) -> None:
    config = hybrid()
    config.rope_parameters["partial_rotary_factor"] = factor
    with pytest.raises(ModelError, match=rf"partial_rotary_factor to {factor}, and our .* an even part of a head"):
        read_spec(config, "tiny")


@pytest.mark.parametrize("part", ["whole", "text"])
def test_quantisation_is_refused_wherever_a_multimodal_configuration_says_it(part: str) -> None:
    config: Any = Qwen3_5Config(text_config=hybrid().to_dict())
    assert read_spec(config, "tiny").family == "qwen3_5_text"
    (config if part == "whole" else config.text_config).quantization_config = {"quant_method": "fp8"}
    with pytest.raises(ModelError, match=r"^'tiny' sets quantization_config to \{'quant_method': 'fp8'\}"):
        read_spec(config, "tiny")
