"""The gated delta rule in transformers' own torch, where kernels that multiply coarsely are installed for it.

Refuses to need kernels: a function that rounds stands where transformers puts them. Trap: the name is the library's
own, so a test that replaces it must put it back.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_graphs import load_tiny
from torch import Tensor

from decider.backbone.load import backbone_of
from decider.model.head import last_hidden
from decider.model.load import LoadedModel
from decider.model.twin import twin
from decider.ops.delta_rule import DELTA_RULE, use_torch_rule
from decider.ops.rebind import users
from decider.plan.packs import PackLimits
from decider.run.backbone_check import check_backbone
from decider.run.packed import PackedExecutor

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]
LIMITS = PackLimits(max_tokens=256, max_sequences=8, max_slots=32)
IDS = torch.arange(70)[None] * 7 % 1024


def states(loaded: LoadedModel) -> Tensor:
    with torch.inference_mode():
        return last_hidden(loaded.module, IDS)


def install_coarse_kernels(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As transformers does it for an installed package, but for a function that rounds to ten bits; calls by tokens."""
    home = importlib.import_module(type(users(loaded.module, DELTA_RULE)[0]).__module__)
    exact = getattr(home, DELTA_RULE)
    calls: list[int] = []

    @functools.wraps(exact)
    def coarse(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **others: Any) -> Any:
        calls.append(query.shape[1])
        return exact(*(each.half().float() * 1.02 for each in (query, key, value)), *rest, **others)

    monkeypatch.setattr(home, DELTA_RULE, coarse)
    return calls


def test_a_twin_computes_the_rule_in_torch(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, _ = load_tiny(tiny_folder("qwen3_5"), quieter=4.0)
    exact = states(loaded)
    calls = install_coarse_kernels(loaded, monkeypatch)
    own = twin(loaded)
    assert use_torch_rule(own.module) == 3
    assert torch.equal(states(own), exact)
    assert calls == []
    assert not torch.allclose(states(loaded), exact, rtol=1e-4)
    assert calls == [70] * 3


def test_a_model_without_the_rule_has_none_to_change(tiny_folder: TinyFolder) -> None:
    loaded, _ = load_tiny(tiny_folder("llama"))
    assert use_torch_rule(loaded.module) == 0


def test_a_sound_backbone_passes_beside_coarse_kernels(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, head = load_tiny(tiny_folder("qwen3_5"), quieter=4.0)
    calls = install_coarse_kernels(loaded, monkeypatch)
    check_backbone(PackedExecutor(backbone_of(loaded), head, LIMITS), loaded, head)
    assert calls == []
    # The model itself still has them.
    states(loaded)
    assert calls == [70] * 3
