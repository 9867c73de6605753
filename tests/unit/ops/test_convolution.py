"""The unrolled convolution against torch's, alone and in a model.

Refuses speed. Trap: a reversed kernel passes with symmetric weights, and a shifted one on rows of one token.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from fake_graphs import load_tiny
from torch import nn

from decider.model.twin import twin
from decider.ops.convolution import unroll_convolutions, unrolled_convolution
from decider.run.forward import make_forward

TinyFolder = Callable[[str], Path]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("taps", [1, 2, 4])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 9])
def test_it_is_the_causal_convolution(tokens: int, taps: int, bias: bool) -> None:
    generator = torch.Generator().manual_seed(tokens)
    conv = nn.Conv1d(6, 6, taps, groups=6, padding=taps - 1, bias=bias, dtype=torch.float64)
    x = torch.randn(2, 6, tokens, dtype=torch.float64, generator=generator)
    wanted = conv(x)[..., :tokens]
    found = unrolled_convolution(x, conv.weight.squeeze(1), conv.bias)
    assert found.shape == wanted.shape
    assert torch.allclose(found, wanted, rtol=0, atol=1e-14)
    active = unrolled_convolution(x, conv.weight.squeeze(1), conv.bias, activation="silu", seq_idx=None)
    assert torch.allclose(active, nn.functional.silu(wanted), rtol=0, atol=1e-14)


def test_sums_are_taken_in_float32() -> None:
    """1 + 2⁻⁹ − 1 loses its middle term if it is summed in bfloat16, whose step at 1 is 2⁻⁷."""
    x = torch.tensor([[[1.0, 2.0**-9, -1.0]]], dtype=torch.bfloat16)
    found = unrolled_convolution(x, torch.ones(1, 3, dtype=torch.bfloat16))
    assert found.dtype == torch.bfloat16
    assert found[0, 0, 2] == 2.0**-9


@pytest.mark.parametrize("bias", [True, False])
def test_it_rounds_to_bfloat16_before_the_activation_as_the_library_does(bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        # Of 7 bits, so that every order of sums is exact in float32, and few are in bfloat16.
        return (torch.randint(-127, 128, shape, generator=generator) / 64).bfloat16()

    conv = nn.Conv1d(6, 6, 4, groups=6, padding=3, bias=bias, dtype=torch.bfloat16).requires_grad_(False)
    conv.weight.copy_(draw(6, 1, 4))
    if conv.bias is not None:
        conv.bias.copy_(draw(6))
    x = draw(2, 6, 50)
    wanted = nn.functional.silu(conv(x)[..., :50].contiguous())
    found = unrolled_convolution(x, conv.weight.squeeze(1), conv.bias, activation="silu")
    assert torch.equal(found, wanted)


@torch.inference_mode()
def test_a_twin_is_unrolled_and_its_original_is_not(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, head = load_tiny(tiny_folder("qwen3_5"), "float64")
    other = twin(loaded)
    before = [type(module) for module in loaded.module.modules()]
    assert unroll_convolutions(other.module) == 3
    assert [type(module) for module in loaded.module.modules()] == before
    assert all(isinstance(a, cls) for a, cls in zip(other.module.modules(), before, strict=True))
    ids, slots = torch.arange(66).view(2, 33), torch.tensor([4, 65])
    wanted = make_forward(loaded, head)(ids, slots)

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("torch's convolution")

    monkeypatch.setattr(nn.functional, "conv1d", refuse)
    found = make_forward(other, head)(ids, slots)
    assert float((found - wanted).abs().max()) < 1e-10
    with pytest.raises(RuntimeError, match="torch's convolution"):
        make_forward(loaded, head)(ids, slots)


def test_a_model_of_attention_alone_has_none(tiny_folder: TinyFolder) -> None:
    assert unroll_convolutions(twin(load_tiny(tiny_folder("qwen3"))[0]).module) == 0
