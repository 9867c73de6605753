"""Unit vectors in plain torch. Refuses the kernel, which wants a card. Trap: a zero vector must not become NaN."""

from __future__ import annotations

import pytest
import torch

from decider.ops.unit_norm import unit_vectors


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_it_is_the_formula_in_the_dtype_it_was_given(dtype: torch.dtype) -> None:
    vectors = (torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0)) * 10).to(dtype)
    units = unit_vectors(vectors)
    assert units.dtype == dtype
    exact = vectors.double() / (vectors.double().square().sum(-1, keepdim=True) + 1e-6).sqrt()
    assert torch.allclose(units.double(), exact, rtol={8: 1e-15, 4: 1e-6, 2: 4e-3}[dtype.itemsize], atol=0)


def test_small_vectors_stay_small() -> None:
    vectors = torch.tensor([[0.0, 0.0], [1e-3, 0.0], [1e-9, 0.0]])
    assert unit_vectors(vectors).flatten().tolist() == pytest.approx([0, 0, 0.5**0.5, 0, 1e-6, 0], rel=1e-6)
