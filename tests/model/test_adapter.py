"""Adapters as files: back as they were written, merged into their own base alone, served from a folder without weights.

Refuses to train. Trap: a merge into the wrong base loads and answers; only the digest says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_adapters import made_adapter as made
from made_adapters import weights_of
from safetensors.torch import load_file, save_file
from tiny_models import link_checkpoint

from decider import Choice, Decider, ModelError
from decider.model.adapter import (
    ADAPTER_NAME,
    FORMAT,
    STORED,
    Pair,
    added,
    load_adapter,
    merged,
    quantised,
    save_adapter,
    write_merged,
)
from decider.model.checkpoint import read_tensors, short_names

TinyFolder = Callable[[str], Path]


def test_a_file_gives_back_what_was_written(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    adapter = made(tiny_folder("llama"), "org/base")
    assert len(adapter.pairs) == 2 * 7
    save_adapter(tmp_path / ADAPTER_NAME, adapter)
    found = load_adapter(tmp_path / ADAPTER_NAME)
    assert (found.base, found.base_sha256, found.scale) == ("org/base", adapter.base_sha256, 0.05)
    assert found.pairs.keys() == adapter.pairs.keys()
    for name, pair in adapter.pairs.items():
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found.pairs[name], pair, strict=True))
    save_adapter(tmp_path / "half", adapter, torch.bfloat16)
    assert (tmp_path / "half").stat().st_size < 0.6 * (tmp_path / ADAPTER_NAME).stat().st_size
    assert load_adapter(tmp_path / "half").pairs["layers.0.mlp.up_proj.weight"].a.dtype == torch.float32


def test_it_is_added_and_only_to_its_own_base(tiny_folder: TinyFolder) -> None:
    weights, adapter = weights_of(tiny_folder("qwen3_5")), made(tiny_folder("qwen3_5"), "x")
    assert any("linear_attn.in_proj_qkv" in name for name in adapter.pairs)
    together = merged(weights, adapter)
    assert together.keys() == weights.keys()
    for name, weight in together.items():
        pair = adapter.pairs.get(name)
        expected = weights[name] if pair is None else weights[name] + 0.05 * (pair.b @ pair.a)
        assert (weight - expected).abs().max() <= 1e-6
    name = next(iter(adapter.pairs))
    with pytest.raises(ModelError, match="belongs to other weights"):
        merged(weights | {name: weights[name] + 1}, adapter)
    with pytest.raises(ModelError, match="belongs to other weights"):
        merged({other: weight for other, weight in weights.items() if other != name}, adapter)


def test_the_sum_is_rounded_once() -> None:
    weight = torch.ones(2, 2, dtype=torch.bfloat16)
    pair = Pair(torch.full((1, 2), 2.0**-9), torch.full((2, 1), 3.0))
    assert torch.equal(added(weight, pair, 1.0), (torch.ones(2, 2) + 3 * 2.0**-9).bfloat16())


def test_a_folder_with_an_adapter_alone_is_served(
    tiny_folder: TinyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DECIDER_CACHE", str(tmp_path / "cache"))
    base = tiny_folder("llama")
    adapter = made(base, str(base))
    folder = tmp_path / "mine"
    folder.mkdir()
    save_adapter(folder / ADAPTER_NAME, adapter)
    (folder / "decider_config.json").write_text('{"version": "mine"}')
    by_hand = tmp_path / "by hand"
    by_hand.mkdir()
    write_merged(base, adapter, by_hand)
    question = {"q": Choice("Which?", ["red", "blue", "green"])}
    said: list[str] = []
    answers = []
    for model in (folder, by_hand, base):
        with Decider(model, device="cpu", dtype="float32", say=said.append) as decider:
            answers.append(decider.ask("The box is red.", question)["q"])
    assert answers[0] == answers[1] != answers[2]
    assert sum("merging" in line for line in said) == 1
    # The second time it is there.
    with Decider(folder, device="cpu", dtype="float32", say=said.append) as decider:
        assert decider.name == "decider-mine"
    assert sum("merging" in line for line in said) == 1
    save_adapter(folder / ADAPTER_NAME, replace(adapter, base_sha256="0" * 64))
    with pytest.raises(ModelError, match="belongs to other weights"):
        Decider(folder, device="cpu", say=said.append)


def test_int8_is_within_half_a_step_of_its_row_and_a_quarter_of_the_size(
    tiny_folder: TinyFolder, tmp_path: Path
) -> None:
    adapter = made(tiny_folder("llama"), "org/base", rank=32)
    name = next(iter(adapter.pairs))
    # A row of nothing, one of very little, and one with an outlier.
    adapter.pairs[name].a[0], adapter.pairs[name].a[1], adapter.pairs[name].a[2, 0] = 0.0, 1e-44, -300.0
    sizes = {}
    for stored, dtype in STORED.items():
        save_adapter(tmp_path / stored, adapter, dtype)
        sizes[stored] = (tmp_path / stored).stat().st_size
    assert sizes["int8"] < 0.65 * sizes["bfloat16"] < 0.4 * sizes["float32"]
    found = load_adapter(tmp_path / "int8")
    assert (found.base, found.base_sha256, found.scale) == (adapter.base, adapter.base_sha256, adapter.scale)
    assert found.pairs.keys() == adapter.pairs.keys()
    for key, pair in adapter.pairs.items():
        for ours, theirs in zip(found.pairs[key], pair, strict=True):
            assert ours.dtype == torch.float32
            steps = theirs.abs().amax(1, keepdim=True) / 127
            assert ((ours - theirs).abs() <= 0.5001 * steps + 1e-43).all()
            assert torch.allclose(ours.abs().amax(1), theirs.abs().amax(1), rtol=1e-6, atol=1e-43)
    # What is read is what the file says, to the bit, and writing it again changes no whole number.
    raw = load_file(tmp_path / "int8")
    part = "layers.1.mlp.down_proj.lora_B"
    assert torch.equal(found.pairs["layers.1.mlp.down_proj.weight"].b, raw[f"{part}.weight"] * raw[f"{part}.scale"])
    assert torch.equal(quantised(found.pairs["layers.1.mlp.down_proj.weight"].b)[0], raw[f"{part}.weight"])


def test_equal_adapters_are_equal_files(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    adapter = made(tiny_folder("llama"), "a base", seed=0)
    found = set()
    for _ in range(12):
        save_adapter(tmp_path / "file", adapter)
        found.add((tmp_path / "file").read_bytes())
    assert len(found) == 1


def test_files_of_the_first_format_are_read(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    adapter = made(tiny_folder("llama"), "org/base")
    save_adapter(tmp_path / "new", adapter)
    about = {"base": "org/base", "base_sha256": adapter.base_sha256, "scale": adapter.scale}
    save_file(
        load_file(tmp_path / "new"), tmp_path / "old", {"format": "decider-adapter-1", "adapter": json.dumps(about)}
    )
    old, new = load_adapter(tmp_path / "old"), load_adapter(tmp_path / "new")
    assert all(torch.equal(a, b) for name in new.pairs for a, b in zip(old.pairs[name], new.pairs[name], strict=True))
    save_file({}, tmp_path / "newer", {"format": "decider-adapter-3"})
    with pytest.raises(ModelError, match=f"is no adapter of decider .*{FORMAT}"):
        load_adapter(tmp_path / "newer")


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("lora_A.scale", None),
        ("lora_A.scale", torch.ones(3)),
        ("lora_A.scale", torch.ones(3, 1, dtype=torch.float16)),
        ("lora_B.weight", None),
        ("lora_A.weight", torch.ones(3, 64, dtype=torch.int16)),
        ("lora_C.weight", torch.ones(3, 1)),
        ("lora_A", torch.ones(3, 1)),
    ],
)
def test_a_file_that_does_not_fit_itself_is_refused(
    tiny_folder: TinyFolder, tmp_path: Path, part: str, changed: torch.Tensor | None
) -> None:
    adapter = made(tiny_folder("llama"), "org/base")
    save_adapter(tmp_path / "file", adapter, torch.int8)
    tensors = load_file(tmp_path / "file")
    key = f"layers.0.mlp.up_proj.{part}"
    tensors.pop(key, None)
    about = json.dumps({"base": "b", "base_sha256": "0", "scale": 1.0})
    save_file(
        tensors | ({} if changed is None else {key: changed}), tmp_path / "file", {"format": FORMAT, "adapter": about}
    )
    with pytest.raises(ModelError, match="cannot read the adapter"):
        load_adapter(tmp_path / "file")


def test_what_is_no_adapter_is_named(tmp_path: Path) -> None:
    file = tmp_path / ADAPTER_NAME
    with pytest.raises(ModelError, match="cannot read the adapter"):
        load_adapter(file)
    save_file({"a": torch.ones(1)}, file)
    with pytest.raises(ModelError, match="is no adapter of decider"):
        load_adapter(file)


def test_folders_without_weights_are_named(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    folder = link_checkpoint(tiny_folder("llama"), tmp_path / "bare", without="safetensors")
    with pytest.raises(ModelError, match=r"needs model\.safetensors"):
        read_tensors(folder)
    with pytest.raises(ModelError, match="no tensor embed_tokens"):
        short_names(["lm_head.weight"], folder)
