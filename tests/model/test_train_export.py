"""What a run leaves to be served: the model folder is what its adapter's file gives, in whatever that is stored.

Refuses to train; pairs here are of random numbers. Trap: an adapter that is stored in fewer bits than it was trained in
is another adapter, and a model merged from the trained one would not be what is served of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from made_adapters import weights_of

from decider import Choice, Decider
from decider.model.adapter import ADAPTER_NAME, STORED, load_adapter, merged, write_merged
from decider.settings import load_settings
from decider.train.base import Base, open_base
from decider.train.export import export
from decider.train.weights import Trainee, trainee

TinyFolder = Callable[[str], Path]
CPU = torch.device("cpu")
QUESTION = {"q": Choice("Which?", ["red", "blue", "green"])}


def trained(folder: Path, dtype: torch.dtype) -> tuple[Base, Trainee]:
    """Pairs that are not nothing."""
    settings = load_settings({"model": str(folder), "device": "cpu"}, environ={})
    base = open_base(settings, max_state_tokens=64, schema_first=False, say=lambda _: None)
    own = trainee(base.weights, method="lora", device=CPU, dtype=dtype, rank=4, scale=2.0, seed=0)
    source = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in own.trained.values():
            tensor.copy_(0.1 * torch.randn(tensor.shape, generator=source))
    return base, own


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stored", [None, *STORED])
def test_the_model_is_what_the_adapters_file_gives(
    tiny_folder: TinyFolder, tmp_path: Path, family: str, dtype: torch.dtype, stored: str | None
) -> None:
    base, own = trained(tiny_folder(family), dtype)
    export(base, own, tmp_path, version="t", adapter_dtype=stored)
    adapter = load_adapter(tmp_path / ADAPTER_NAME)
    expected = {name: weight.to(dtype) for name, weight in base.weights.items()}
    for name, pair in adapter.pairs.items():
        expected[name] = (expected[name].float() + adapter.scale * (pair.b @ pair.a)).to(dtype)
    found = weights_of(tmp_path)
    limit = 1e-6 if dtype == torch.float32 else 2**-8
    for name, weight in expected.items():
        assert found[name].dtype == dtype
        # A sum that lies between two numbers may be rounded to either.
        assert torch.allclose(found[name].float(), weight.float(), rtol=limit, atol=1e-6)
    exact = stored == "float32" or (stored is None and dtype == torch.float32)
    for name, pair in own.pairs().items():
        same = all(torch.equal(a, b) for a, b in zip(adapter.pairs[name], pair, strict=True))
        assert same == exact
    half = [torch.equal(part, part.bfloat16().float()) for pair in adapter.pairs.values() for part in pair]
    assert all(half) == (stored == "bfloat16" or (stored is None and dtype == torch.bfloat16))


@pytest.mark.parametrize("stored", list(STORED))
def test_the_folder_and_its_adapter_alone_answer_alike(tiny_folder: TinyFolder, tmp_path: Path, stored: str) -> None:
    """Of a run in the precision of the base's own weights the two are equal to the bit."""
    folder = tiny_folder("llama")
    base, own = trained(folder, torch.float32)
    out, alone = tmp_path / "out", tmp_path / "alone"
    export(base, own, out, version="t", adapter_dtype=stored)
    alone.mkdir()
    write_merged(folder, load_adapter(out / ADAPTER_NAME), alone)
    ours, theirs = weights_of(out), weights_of(alone)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(weight, theirs[name]) for name, weight in ours.items())
    assert any(
        not torch.equal(weight, base.weights[name])
        for name, weight in merged(base.weights, load_adapter(out / ADAPTER_NAME)).items()
    )
    answers = []
    for model in (out, alone):
        with Decider(model, device="cpu", dtype="float32", say=lambda _: None) as decider:
            answers.append(decider.ask("The box is red.", QUESTION)["q"])
    assert answers[0] == answers[1]
