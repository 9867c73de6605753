"""FP8 linear layers: the arithmetic against float64, rows that do not touch each other, and what is replaced.

Refuses speed and cards; torch multiplies e4m3 on a CPU too. Trap: a bound wide enough for 3-bit mantissas hides a scale
that is off by a few percent, so the product is also compared with that of the codes themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fp8_bounds
import pytest
import torch
from fake_graphs import LABEL_IDS, load_tiny
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

from decider.errors import DeviceError, ModelError
from decider.model.head import label_head
from decider.model.load import LoadedModel
from decider.model.twin import twin
from decider.ops.fp8 import E4M3, Fp8Linear, check_fp8, quantise_rows, to_fp8
from decider.run.forward import make_forward, no_packed_sequences

TinyFolder = Callable[[str], Path]


def values(rows: int, features: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, features, generator=torch.Generator().manual_seed(seed))


def linear(*, bias: bool) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(1024, 1040, bias=bias).bfloat16().requires_grad_(False)


def test_codes_times_scale_are_the_values() -> None:
    x = values(7, 1024) * torch.logspace(-20, 20, 7)[:, None]
    codes, scales = quantise_rows(x)
    assert (codes.dtype, scales.dtype, scales.shape) == (E4M3, torch.float32, (7, 1))
    error = (codes.double() * scales.double() - x.double()).abs()
    assert bool((error <= fp8_bounds.rounding(x, scales)).all())
    assert codes.float().abs().amax(1).tolist() == [448.0] * 7


def test_a_row_of_zeros_stays_zeros_and_what_is_not_finite_stays_in_its_row() -> None:
    x = values(5, 1024)
    alone, scales = quantise_rows(x[4:])
    x[0], x[1], x[2, 3], x[3, 7] = 0.0, 1e-38, float("nan"), float("inf")
    codes, all_scales = quantise_rows(x)
    wide = codes.float() * all_scales
    assert bool((wide[0] == 0).all())
    assert wide.isfinite().all(1).tolist() == [True, True, False, False, True]
    assert torch.equal(codes[4:].view(torch.uint8), alone.view(torch.uint8))
    assert torch.equal(all_scales[4:], scales)


@pytest.mark.parametrize("bias", [True, False])
def test_the_product_is_that_of_the_codes(bias: bool) -> None:
    """Exact but for float32 sums and one rounding to bfloat16."""
    original = linear(bias=bias)
    x = values(6, 1024).bfloat16().view(2, 3, 1024)
    out = Fp8Linear(original)(x)
    assert (out.dtype, out.shape) == (torch.bfloat16, (2, 3, 1040))
    x_codes, x_scales = quantise_rows(x.view(6, 1024))
    w_codes, w_scales = quantise_rows(original.weight)
    a, w = x_codes.double() * x_scales, w_codes.double() * w_scales
    wanted = a @ w.t() + (original.bias.double() if bias else 0.0)
    allowed = 2.0**-8 * wanted.abs() + 1024 * 2.0**-24 * (a.abs() @ w.abs().t())
    # torch may round to bfloat16 before it adds the bias.
    allowed += 2.0**-8 * (a @ w.t()).abs() if bias else 0.0
    assert bool(((out.view(6, 1040).double() - wanted).abs() <= allowed).all())


def test_the_product_is_that_of_the_weights_within_the_rounding_of_e4m3() -> None:
    original = linear(bias=False)
    x = values(64, 1024).bfloat16()
    wanted = x.double() @ original.weight.double().t()
    error = Fp8Linear(original)(x).double() - wanted
    assert bool((error.abs() <= fp8_bounds.product(x, original.weight)).all())
    relative = float(error.square().mean().sqrt() / wanted.square().mean().sqrt())
    assert 0.01 < relative < fp8_bounds.RELATIVE_RMS


def test_padding_reaches_no_other_row() -> None:
    layer = Fp8Linear(linear(bias=True))
    x = values(4, 1024).bfloat16()
    alone = layer(x)
    x[1], x[2], x[3] = 0.0, float("nan"), 1e30
    mixed = layer(x)
    assert torch.equal(mixed[0], alone[0])
    assert layer.bias is not None
    assert torch.equal(mixed[1], layer.bias)
    assert mixed.isfinite().all(1).tolist() == [True, True, False, True]


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_fp8_needs_cuda(device: str) -> None:
    with pytest.raises(DeviceError, match=f"not {device}; leave fp8 off"):
        check_fp8(torch.device(device))


def test_fp8_needs_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    capabilities = iter([(8, 9), (9, 0), (10, 0), (12, 1)])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: next(capabilities))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a card")
    with pytest.raises(DeviceError, match=r"9\.0 \(Hopper\) or later, and cuda:0 \(a card\) has 8\.9; leave fp8 off"):
        check_fp8(torch.device("cuda:0"))
    for _ in range(3):
        check_fp8(torch.device("cuda:0"))


class Doubled(nn.Linear):
    """More than a product."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(hidden)


class Block(nn.Module):
    """Linear layers to replace and to leave."""

    def __init__(self) -> None:
        super().__init__()
        self.large = nn.Linear(1024, 1040)
        self.again = self.large
        self.narrow = nn.Linear(1024, 1008)
        self.odd = nn.Linear(1032, 1024)
        self.within = nn.Sequential(nn.Linear(1040, 1024), nn.ReLU())
        self.head = nn.Linear(1024, 2048)
        self.doubled = Doubled(1024, 1040)


def test_what_is_replaced() -> None:
    block = Block()
    assert to_fp8(block, keep=[block.head]) == 2
    changed = {name for name, each in block.named_modules(remove_duplicate=False) if isinstance(each, Fp8Linear)}
    assert changed == {"large", "again", "within.0"}
    assert block.again is block.large


def test_nothing_to_replace_is_an_error(tiny_folder: TinyFolder) -> None:
    with pytest.raises(ModelError, match=r"at least 1,024 × 1,024 .* leave fp8 off"):
        to_fp8(twin(load_tiny(tiny_folder("llama"))[0]).module, keep=())


@torch.inference_mode()
def test_a_twin_in_fp8_beside_its_original() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=1024,
        intermediate_size=1024,
        num_hidden_layers=1,
        num_attention_heads=8,
    )
    module: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    module.eval().requires_grad_(False)
    loaded = LoadedModel(module, "one layer", "llama", 2048, "cpu", "bfloat16")
    head = label_head(loaded, LABEL_IDS)
    ids, slots = torch.arange(40).view(2, 20), torch.tensor([3, 39])
    plain = make_forward(loaded, head)(ids, slots)
    other = twin(loaded)
    assert to_fp8(other.module, keep=[other.module.get_output_embeddings()]) == 7
    with no_packed_sequences():
        fp8 = make_forward(other, head)(ids, slots)
    assert torch.equal(make_forward(loaded, head)(ids, slots), plain)
    # The longest way goes through four products: v, o, gate or up, down.
    assert 0.01 < float((fp8 - plain).norm() / plain.norm()) < 4 * fp8_bounds.RELATIVE_RMS
    linears = [each for each in loaded.module.get_decoder().modules() if isinstance(each, nn.Linear)]
    assert len(linears) == 7
    left = {id(tensor) for tensor in (*other.module.parameters(), *other.module.buffers())}
    assert not left & {id(each.weight) for each in linears}
    assert type(other.module.get_output_embeddings()) is nn.Linear
