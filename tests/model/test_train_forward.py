"""The forward in training: the served model's logits, and gradients that know nothing of sharing.

Refuses to train. Trap: random rows share nothing by themselves, so families of one trunk are planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_graphs import LABEL_IDS as TINY_LABEL_IDS
from fake_graphs import load_tiny
from packed_rows import KNOWN, LABEL_IDS, Family, load_known, packed_logits, rows_of

from decider.backbone.load import backbone_head, backbone_of
from decider.model.checkpoint import short_names
from decider.model.load import LoadedModel
from decider.ops.delta import unit_lower_inverse
from decider.plan.pack import Group, Pack, make_pack
from decider.plan.packs import PackLimits, plan_packs
from decider.run.packed import PackedExecutor
from decider.settings import Settings, load_settings
from decider.tokens.rows import Row
from decider.train.base import check_forward, open_base
from decider.train.examples import Example
from decider.train.feed import batch_of
from decider.train.forward import Weights, label_logits
from decider.train.gradients import pack_loss
from decider.train.loss import LossSpec
from decider.train.model import Model
from decider.train.tables import on_device, tables_of
from decider.train.weights import trainee

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]

CPU = torch.device("cpu")
FAMILIES = (Family(30, (5, 9, 40)), Family(70), Family(3, (1, 2)), Family(9), Family(130, (1, 70)))
LIMITS = PackLimits(4096, 64, 256)
TRAINED = ("llama", "llama_tied", "qwen3", "qwen3_5")


def weights_of(loaded: LoadedModel, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    state = loaded.module.state_dict()
    names = short_names(state, Path("tiny"))
    return {names[name]: tensor.to(dtype).clone() for name, tensor in state.items() if name in names}


def ours(weights: Weights, loaded: LoadedModel, pack: Pack, label_ids: Sequence[int]) -> torch.Tensor:
    spec = backbone_of(loaded).spec
    return label_logits(weights, spec, on_device(tables_of(pack, spec.taps), CPU), torch.tensor(label_ids))


@pytest.mark.parametrize("name", KNOWN)
def test_logits_of_a_pack_are_the_backbones(name: str) -> None:
    loaded = load_known(name, quieter=4.0)
    backbone = backbone_of(loaded)
    rows, groups = rows_of(FAMILIES)
    theirs = packed_logits(backbone, backbone_head(backbone, LABEL_IDS), rows, groups)
    pack = make_pack(rows, groups, n_tokens=_tokens(rows, groups) + 7)
    logits = ours(weights_of(loaded), loaded, pack, LABEL_IDS).split_with_sizes(
        [len(rows[index].slots) for index in pack.rows]
    )
    by_row = dict(zip(pack.rows, logits, strict=True))
    found = torch.cat([by_row[index] for index in range(len(rows))])
    assert theirs.abs().max() > 1
    assert (found - theirs).abs().max() <= 1e-5


@pytest.mark.parametrize("family", TRAINED)
def test_logits_are_those_that_the_packed_executor_serves(tiny_folder: TinyFolder, family: str) -> None:
    loaded, head = load_tiny(tiny_folder(family), quieter=4.0)
    rows, _ = rows_of(FAMILIES, seed=1)
    served = PackedExecutor(backbone_of(loaded), head, LIMITS).label_logits(rows)
    [pack] = plan_packs(rows, LIMITS)
    assert pack.n_branches
    logits = ours(weights_of(loaded), loaded, pack, TINY_LABEL_IDS)
    for index, found in zip(pack.rows, logits.split_with_sizes([len(rows[i].slots) for i in pack.rows]), strict=True):
        assert np.abs(found.numpy() - served[index]).max() <= 1e-5


@pytest.mark.parametrize("family", TRAINED)
def test_our_forward_is_the_librarys(tiny_folder: TinyFolder, family: str) -> None:
    settings = _settings(tiny_folder(family))
    base = open_base(settings, max_state_tokens=64, schema_first=False, say=lambda _: None)
    check_forward(base)
    assert set(base.names.values()) == set(base.weights)
    assert len(base.label_ids) > 26


@pytest.mark.parametrize("name", ["llama", "qwen3", "qwen3_5", "qwen3_bias"])
@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_gradient_of_a_shared_trunk_is_the_sum_of_full_rows(name: str, method: str) -> None:
    loaded = load_known(name, quieter=4.0)
    rows, groups = rows_of(FAMILIES[:3])
    shared = _gradients(loaded, rows, [make_pack(rows, groups, n_tokens=_tokens(rows, groups) + 3)], method)
    alone = [make_pack(rows, [Group((index,), 0)], n_tokens=None) for index in range(len(rows))]
    full = _gradients(loaded, rows, alone, method)
    assert shared.keys() == full.keys()
    for weight, gradient in full.items():
        assert (gradient - shared[weight]).abs().max() <= 1e-9, weight
    largest = {weight: float(gradient.abs().max()) for weight, gradient in full.items()}
    # Of pairs, only the half behind the zeros has a gradient at first.
    assert all(size > 0 for weight, size in largest.items() if not weight.endswith(".lora_a"))


def test_the_inverse_has_its_own_gradient() -> None:
    system = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(unit_lower_inverse, (system,))
    with torch.no_grad():
        plain = unit_lower_inverse(system)
    assert torch.equal(unit_lower_inverse(system), plain)


def _gradients(loaded: LoadedModel, rows: Sequence[Row], packs: Sequence[Pack], method: str) -> dict[str, torch.Tensor]:
    """Of the sum of all losses, in float64."""
    spec = backbone_of(loaded).spec
    own = trainee(weights_of(loaded), method=method, device=CPU, dtype=torch.float64, rank=3, scale=2.0, seed=0)
    model = Model(own, spec, torch.tensor(LABEL_IDS))
    for pack in packs:
        mine = [rows[index] for index in pack.rows]
        examples = [Example((row,), ((1,) * len(row.slots),), ((0.5,) * len(row.slots),)) for row in mine]
        targets = batch_of(examples, PackLimits(8192, 64, 256), spec.taps).packs[0][1]
        # One right option and weight for all, so that the order of slots is of no matter.
        pack_loss(model, own.weights(), tables_of(pack, spec.taps), targets, LossSpec(0.1)).backward()  # type: ignore[no-untyped-call]
    return {name: tensor.grad for name, tensor in own.trained.items() if tensor.grad is not None}


def _tokens(rows: Sequence[Row], groups: Sequence[Group]) -> int:
    return sum(g.trunk_tokens + sum(len(rows[i].ids) - g.trunk_tokens for i in g.rows) for g in groups)


def _settings(folder: Path) -> Settings:
    return load_settings({"model": str(folder)}, environ={})
