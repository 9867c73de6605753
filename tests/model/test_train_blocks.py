"""Attention by blocks in training answers as the plain forward does.

Refuses to compile, and to check gradients, which the kernels have on a card alone. Trap: padding must fill whole
blocks, so a pack has a size of its own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from packed_rows import LABEL_IDS, Family, load_known, rows_of

from decider.backbone.load import backbone_of
from decider.backbone.spec import DecoderSpec
from decider.model.checkpoint import short_names
from decider.plan.packs import PackLimits, plan_packs
from decider.train.compiled import block_mask, by_blocks, why_not_compiled
from decider.train.forward import Layer, LayersOf, Rotation, Weights, attention_layer, label_logits
from decider.train.tables import DeviceSight, on_device, tables_of

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
FAMILIES = (Family(30, (5, 9, 40)), Family(70), Family(3, (1, 2)), Family(9), Family(130, (1, 70)))


def uncompiled(spec: DecoderSpec) -> LayersOf:
    def over(sight: DeviceSight) -> Layer:
        mask = block_mask(sight)

        def layer(x: torch.Tensor, own: Weights, rotation: Rotation) -> torch.Tensor:
            return attention_layer(x, own, spec, rotation, lambda q, k, v, scale: by_blocks(q, k, v, mask, scale))

        return layer

    return over


@pytest.mark.parametrize("name", ["llama", "qwen3", "qwen3_bias"])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_logits_are_the_plain_forwards(name: str) -> None:
    loaded = load_known(name, quieter=4.0)
    spec = backbone_of(loaded).spec
    state = loaded.module.state_dict()
    names = short_names(state, Path("tiny"))
    weights = {names[full]: tensor for full, tensor in state.items() if full in names}
    rows, _ = rows_of(FAMILIES)
    [pack] = plan_packs(rows, PackLimits(512, 64, 256, (512,)))
    labels = torch.tensor(LABEL_IDS)
    with torch.no_grad():
        plain = label_logits(weights, spec, on_device(tables_of(pack, 1), CPU), labels, uncompiled(spec))
        tables = on_device(tables_of(pack, 1, by_blocks=True), CPU)
        blocks = label_logits(weights, spec, tables, labels, uncompiled(spec))
    assert tables.sight is not None
    assert not tables.spans
    assert plain.abs().max() > 1
    assert (plain - blocks).abs().max() <= 1e-5


def test_a_pack_beyond_the_one_size_is_run_plainly() -> None:
    rows, _ = rows_of((Family(300),))
    [pack] = plan_packs(rows, PackLimits(256, 64, 256, (256,)))
    tables = tables_of(pack, 1, by_blocks=True)
    assert pack.oversize
    assert tables.sight is None
    assert tables.spans


def test_where_layers_cannot_be_compiled_the_reason_is_said() -> None:
    spec = backbone_of(load_known("llama", quieter=4.0)).spec
    hybrid = backbone_of(load_known("qwen3_5", quieter=4.0)).spec
    card = torch.device("cuda")
    wide = replace(spec, attention=replace(spec.attention, head_dim=64))
    assert why_not_compiled(wide, card) is None
    assert why_not_compiled(wide, CPU) == "the kernels have no backward on cpu"
    assert "delta-rule layers" in (why_not_compiled(hybrid, card) or "")
    assert "heads of 8" in (why_not_compiled(replace(spec, attention=replace(spec.attention, head_dim=8)), card) or "")
