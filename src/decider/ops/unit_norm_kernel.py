"""`unit_vectors` as one Triton kernel with a fixed configuration.

It refuses to be imported without Triton. It stands in for flash-linear-attention's own kernel, which is tuned anew, 25
configurations each time, for every 65,536 vectors more: most of the start-up of a grid. Trap: an integer argument that
Triton may specialise on compiles again for the first odd number of rows, after the seal.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from decider.ops.unit_norm import EPSILON, unit_vectors

# Triton comes with torch for CUDA alone, and the type checker must do without it.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")

ROWS_PER_BLOCK = 16
WARPS = 4
# A longer vector does not fit in the registers of one block beside fifteen others.
MOST_FEATURES = 512


# Triton evaluates annotations as it does its own code, and knows no `Any`.
@triton.jit(do_not_specialize=["n_rows"])  # type: ignore[untyped-decorator]
def _unit_rows(  # type: ignore[no-untyped-def]
    values, units, n_rows, epsilon, n_features: tl.constexpr, block: tl.constexpr, rows_per_block: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * rows_per_block + tl.arange(0, rows_per_block)
    columns = tl.arange(0, block)
    inside = (rows[:, None] < n_rows) & (columns[None, :] < n_features)
    places = rows[:, None] * n_features + columns[None, :]
    wide = tl.load(values + places, mask=inside, other=0.0).to(tl.float32)
    unit = wide * (1.0 / tl.sqrt(tl.sum(wide * wide, axis=1) + epsilon))[:, None]
    tl.store(units + places, unit.to(units.dtype.element_ty), mask=inside)


def unit_vectors_in_one_pass(vectors: Tensor) -> Tensor:
    """`unit_vectors` of float32 and halves on CUDA, contiguous, up to rounding."""
    n_features = vectors.shape[-1]
    if not vectors.numel() or n_features > MOST_FEATURES or vectors.dtype is torch.float64:
        return unit_vectors(vectors).contiguous()
    vectors = vectors.contiguous()
    units = torch.empty_like(vectors)
    n_rows = vectors.numel() // n_features
    _unit_rows[(triton.cdiv(n_rows, ROWS_PER_BLOCK),)](
        vectors,
        units,
        n_rows,
        EPSILON,
        n_features=n_features,
        block=triton.next_power_of_2(n_features),
        rows_per_block=ROWS_PER_BLOCK,
        num_warps=WARPS,
    )
    return units
