"""Loading real checkpoints of each family, and the label head against the model's own logits.

Refuses to use our forward as its own judge: the oracle is `module(...).logits`. Trap: tiny logits hide faults.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import FAMILIES, MAX_POSITIONS, configs
from transformers.utils import logging as transformers_logging

from decider.errors import ModelError
from decider.model.head import check_head, label_head, last_hidden
from decider.model.load import LoadedModel, load_module
from decider.model.source import ModelFolder

LABEL_IDS = list(range(40, 295))
TinyFolder = Callable[[str], Path]


def load(folder: Path, dtype: str = "float32") -> LoadedModel:
    return load_module(ModelFolder(folder, "tiny", "a test"), device="cpu", dtype=dtype, attention="eager")


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_label_logits_equal_the_models_own(tiny_folder: TinyFolder, family: str) -> None:
    loaded = load(tiny_folder(family))
    head = label_head(loaded, LABEL_IDS)
    check_head(loaded, head, LABEL_IDS)
    input_ids = torch.randint(0, 1024, (2, 90), generator=torch.Generator().manual_seed(1))
    own = loaded.module(input_ids=input_ids).logits[..., LABEL_IDS]
    ours = head(last_hidden(loaded.module, input_ids))
    assert ours.dtype == torch.float32
    assert own.abs().max() > 0.5
    assert (own - ours).abs().max() <= 1e-5
    assert loaded.max_positions == MAX_POSITIONS
    assert loaded.model_type == configs()[family].model_type


@torch.inference_mode()
def test_soft_cap_bounds_the_logits(tiny_folder: TinyFolder) -> None:
    loaded = load(tiny_folder("gemma3"))
    head = label_head(loaded, LABEL_IDS)
    hidden = 100 * torch.randn(3, 64)
    assert head.soft_cap == 5.0
    assert head(hidden).abs().max() <= 5.0
    with pytest.raises(ModelError, match="this family is not supported"):
        check_head(loaded, replace(head, soft_cap=None), LABEL_IDS)


@torch.inference_mode()
def test_a_low_precision_model_still_gets_a_float32_head(tiny_folder: TinyFolder) -> None:
    loaded = load(tiny_folder("llama"), dtype="bfloat16")
    head = label_head(loaded, LABEL_IDS)
    check_head(loaded, head, LABEL_IDS)
    assert head(torch.randn(3, 64, dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize("change", ["drop", "reshape"])
def test_a_checkpoint_without_all_its_weights_is_refused(tiny_folder: TinyFolder, tmp_path: Path, change: str) -> None:
    folder = Path(shutil.copytree(tiny_folder("llama"), tmp_path / "broken"))
    weights = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    broken = weights.pop(name)
    if change == "reshape":
        weights[name] = broken[:-8].contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"cannot load|lacks 1 of its weights"):
        load(folder)


def test_a_folder_without_weights_is_refused(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    shutil.copy(tiny_folder("llama") / "config.json", tmp_path)
    with pytest.raises(ModelError, match="cannot load 'tiny'"):
        load(tmp_path)


def test_positions_must_be_known(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder("llama"), tmp_path / "endless"))
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 0
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="max_position_embeddings"):
        load(folder)


def test_loading_leaves_transformers_logging_as_it_was(tiny_folder: TinyFolder) -> None:
    before = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    load(tiny_folder("llama"))
    assert (transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()) == before
