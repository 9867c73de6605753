"""The rotary embedding against transformers', to the bit, whole and partial. Refuses frequencies.

Trap: with equal halves of a head a swap of them does not show; the heads here are random.
"""

from __future__ import annotations

import pytest
import torch
from transformers.models.llama import modeling_llama
from transformers.models.qwen3_5 import modeling_qwen3_5
from tree_packs import normal

from decider.ops.rotary import rotary

TOKENS, DIM = 11, 16


def angles(rotary_dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    half = normal(5, TOKENS, rotary_dim // 2) * 9
    both = torch.cat((half, half), dim=-1)
    return both.cos().to(dtype), both.sin().to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rotary_dim", [2, 4, DIM])
def test_it_is_transformers_own(rotary_dim: int, dtype: torch.dtype) -> None:
    query, key = normal(1, TOKENS, 4, DIM, dtype=dtype), normal(2, TOKENS, 2, DIM, dtype=dtype)
    before = query.clone(), key.clone()
    cos, sin = angles(rotary_dim, dtype)
    families = [modeling_qwen3_5, modeling_llama] if rotary_dim == DIM else [modeling_qwen3_5]
    for family in families:
        wanted = family.apply_rotary_pos_emb(query, key, cos, sin, unsqueeze_dim=1)
        for x, theirs in zip((query, key), wanted, strict=True):
            found = rotary(x, cos, sin, rotary_dim)
            assert found.dtype == dtype
            assert torch.equal(found, theirs)
    assert torch.equal(query, before[0])
    assert torch.equal(key, before[1])


def test_a_turn_keeps_lengths_and_the_differences_of_positions() -> None:
    """q at m times k at n depends on m − n alone."""
    frequencies = torch.tensor([1.0, 0.1], dtype=torch.float64)

    def at(x: torch.Tensor, position: int) -> torch.Tensor:
        half = position * frequencies
        both = torch.cat((half, half))[None]
        return rotary(x, both.cos(), both.sin(), 4)

    q, k = normal(1, 1, 1, 4), normal(2, 1, 1, 4)
    assert float((at(q, 7).norm() - q.norm()).abs()) < 1e-14
    assert float(((at(q, 7) * at(k, 3)).sum() - (at(q, 104) * at(k, 100)).sum()).abs()) < 1e-12
