"""The kernel for unit vectors against the plain form, and against the delta rule that normalises by itself.

Refuses to judge speed. Trap: rows are not contiguous where the layer hands them over, a view of a transposed product.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import rounding
import torch
from fake_graphs import LABEL_IDS, load_tiny
from torch import Tensor

from decider.model.twin import twin
from decider.ops.pinned_delta import has_kernels, pin_delta_rules
from decider.ops.unit_norm import unit_vectors
from decider.run.forward import make_forward

pytestmark = pytest.mark.gpu

TinyFolder = Callable[[str], Path]

DEVICE = torch.device("cuda:0")


def unit_vectors_in_one_pass(vectors: Tensor) -> Tensor:
    # Imported late: this file is collected on machines without Triton too.
    from decider.ops import unit_norm_kernel

    return unit_norm_kernel.unit_vectors_in_one_pass(vectors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("features", [1, 16, 100, 128, 512, 600])
def test_the_kernel_is_the_plain_form(features: int, dtype: torch.dtype) -> None:
    for rows in (1, 15, 16, 17, 1000):
        vectors = torch.randn(2, rows, 3, features, device=DEVICE).to(dtype)
        vectors[0, 0, 0] = 0
        strided = vectors.transpose(1, 2)
        ours = unit_vectors_in_one_pass(strided)
        assert ours.is_contiguous()
        assert ours.dtype == dtype
        one_unit = {torch.float32: 1e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}[dtype]
        assert torch.allclose(ours.double(), unit_vectors(strided).double(), rtol=one_unit, atol=1e-9)


def test_no_rows_and_float64() -> None:
    assert unit_vectors_in_one_pass(torch.empty(0, 4, device=DEVICE)).shape == (0, 4)
    vectors = torch.randn(3, 8, device=DEVICE, dtype=torch.float64)
    assert torch.equal(unit_vectors_in_one_pass(vectors), unit_vectors(vectors))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@torch.inference_mode()
def test_a_pinned_model_answers_as_before(tiny_folder: TinyFolder, dtype: str) -> None:
    assert has_kernels()
    loaded, head = load_tiny(tiny_folder("qwen3_5"), dtype, device="cuda:0", quieter=4.0)
    pinned = twin(loaded)
    assert pin_delta_rules(pinned.module) == 3
    generator = torch.Generator().manual_seed(0)
    for shape in ((1, 64), (2, 128), (3, 200)):
        ids = torch.randint(1024, shape, generator=generator).to(DEVICE)
        slots = torch.arange(0, shape[0] * shape[1], 7, device=DEVICE)
        want, ours = (make_forward(each, head)(ids, slots) for each in (loaded, pinned))
        if dtype == "float32":
            assert float((ours - want).abs().max()) <= 5e-3
            continue
        exact = rounding.in_float32(loaded, LABEL_IDS, ids, slots)
        assert rounding.error(ours, exact) <= rounding.ALLOWED * rounding.error(want, exact)
