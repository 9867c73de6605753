"""Decoders with products in FP8: the numbers are those of the codes, and what cannot bear them stays as it is.

Refuses speed; torch multiplies e4m3 on a CPU too. Trap: a decoder whose FP8 never took place is as good as the plain
one, so it must also differ from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from packed_rows import load_known
from prefix_rows import one_thread
from torch import Tensor
from torch.nn import functional
from tree_packs import tree_for

from decider.backbone.decoder import Backbone, Delta, Dense, Layer, Linear, fp8_linear
from decider.backbone.load import backbone_of
from decider.ops import fp8
from decider.ops.fp8 import Fp8Product, Quantised, quantise_rows
from decider.ops.norms import Norm
from decider.ops.pack_ops import plain_add_norm, plain_ops, plain_swiglu
from decider.ops.rows import VALUES, Form, Rows

TREE = [(20, (3, 9)), (5, ())]
N = 37
CODES = Form(values=False, codes=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Tiny layers are large here.
    monkeypatch.setattr(fp8, "LEAST_FEATURES", 16)
    with one_thread(), torch.inference_mode():
        yield


def states(backbone: Backbone) -> Tensor:
    ids = torch.randint(1024, (N,), generator=torch.Generator().manual_seed(0))
    return backbone.hidden_at_slots(ids, tree_for(TREE, taps=backbone.spec.taps)).float()


def apart(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).square().mean().sqrt() / wanted.square().mean().sqrt())


def by_codes(linear: Linear) -> Linear:
    """What an `Fp8Product` computes, in float32."""
    assert isinstance(linear, Fp8Product)
    weight, bias = linear.codes.float() * linear.scales.T, None if linear.bias is None else linear.bias.float()

    def product(x: Tensor | Quantised) -> Tensor:
        codes, scales = quantise_rows(x) if isinstance(x, Tensor) else x
        return functional.linear(codes.float() * scales, weight, bias).bfloat16()

    return product


def widened(layer: Layer) -> Layer:
    """`layer` with its products by their codes. They take values, which they quantise."""
    mixer = replace(layer.mixer, project=by_codes(layer.mixer.project))
    output, gate_up, down = map(by_codes, (layer.output, layer.gate_up, layer.down))
    return replace(layer, mixer=mixer, output=output, gate_up=gate_up, down=down)


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "qwen3_5"])
def test_products_are_those_of_the_codes(name: str) -> None:
    loaded = load_known(name, "bfloat16", quieter=4.0)
    coarse, plain = backbone_of(loaded, linear=fp8_linear), states(backbone_of(loaded))
    found = states(coarse)
    wanted = states(replace(coarse, layers=tuple(map(widened, coarse.layers))))
    assert apart(found, plain) > 4 * apart(found, wanted)
    # Tiny random hybrids turn what FP8 rounds off into much.
    assert apart(found, plain) < (0.8 if name == "qwen3_5" else 0.2)


def test_rates_of_the_delta_rule_stay_and_forms_are_what_products_take() -> None:
    loaded = load_known("qwen3_5", "bfloat16", quieter=4.0)
    plain, coarse = backbone_of(loaded), backbone_of(loaded, linear=fp8_linear)
    norms, gates = set(), set()

    def add_norm(x: Tensor, added: Tensor | None, norm: Norm, form: Form) -> tuple[Tensor, Rows]:
        norms.add(form)
        return plain_add_norm(x, added, norm, form)

    def swiglu(merged: Tensor, form: Form) -> Rows:
        gates.add(form)
        return plain_swiglu(merged, form)

    states(replace(coarse, ops=replace(plain_ops(), add_norm=add_norm, swiglu=swiglu)))
    # Both for the projections of the delta rule; values for the final norm.
    assert norms == {Form(values=True, codes=True), CODES, VALUES}
    assert gates == {CODES}
    for layer, other in zip(coarse.layers, plain.layers, strict=True):
        if isinstance(layer.mixer, Delta):
            assert isinstance(layer.mixer.project, Fp8Product)
            assert isinstance(layer.mixer.rates, Dense)
            assert isinstance(other.mixer, Delta)
            assert other.mixer.rates is None
            assert isinstance(other.mixer.project, Dense)
            assert torch.equal(layer.mixer.rates.weight, other.mixer.project.weight[-len(layer.mixer.rates.weight) :])
