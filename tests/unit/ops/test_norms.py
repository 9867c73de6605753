"""Norms against transformers', to the bit where it computes in the same precision. Refuses float64 there.

Trap: transformers takes its norms in float32 for a float64 model too; ours are float64 then.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5RMSNorm, Qwen3_5RMSNormGated
from tree_packs import normal

from decider.ops.norms import gated_rms_norm, rms_norm

EPS = 1e-5
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def filled(norm: nn.Module, dtype: torch.dtype) -> Tensor:
    """Gives `norm` a random weight, and returns it."""
    weight = nn.Parameter(normal(7, 96).to(dtype), requires_grad=False)
    norm.register_parameter("weight", weight)
    return weight


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("norm", "offset"), [(LlamaRMSNorm, 0.0), (Qwen2RMSNorm, 0.0), (Qwen3RMSNorm, 0.0), (Qwen3_5RMSNorm, 1.0)]
)
def test_a_norm_is_that_of_its_family(norm: type[nn.Module], offset: float, dtype: torch.dtype) -> None:
    theirs = norm(96, eps=EPS)
    weight = filled(theirs, dtype)
    x = normal(1, 40, 3, 96).mul(30).to(dtype)
    before = x.clone()
    found = rms_norm(x, weight, EPS, offset=offset)
    assert found.dtype == dtype
    assert torch.equal(found, theirs(x))
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gated_norm_is_that_of_qwen3_5(dtype: torch.dtype) -> None:
    theirs = Qwen3_5RMSNormGated(96, eps=EPS)
    weight = filled(theirs, dtype)
    x, gate = normal(1, 40, 96).mul(30).to(dtype), normal(2, 40, 96).mul(4).to(dtype)
    before = x.clone(), gate.clone()
    found = gated_rms_norm(x, gate, weight, EPS)
    assert found.dtype == dtype
    assert torch.equal(found, theirs(x, gate))
    assert torch.equal(x, before[0])
    assert torch.equal(gate, before[1])


def test_float64_stays_float64() -> None:
    x, weight, gate = normal(1, 7, 12), normal(2, 12), normal(3, 7, 12)
    unit = x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt()
    silu = gate / (1 + (-gate).exp())
    for found, wanted in (
        (rms_norm(x, weight, EPS), unit * weight),
        (rms_norm(x, weight, EPS, offset=1.0), unit * (1 + weight)),
        (gated_rms_norm(x, gate, weight, EPS), unit * weight * silu),
    ):
        assert found.dtype == torch.float64
        assert float((found - wanted).abs().max()) < 1e-14
