"""Packs as static tables on a device, and what the kernels and the plain operations say of the same numbers.

Refuses to know kernels. Trap: a tree of a pack ends at its last token and static tables with padding, so only the
pack's own tokens are compared; of padding it counts that it is finite.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decider.ops.delta import chunk_gated_delta_rule
from decider.ops.pack_ops import Sight
from decider.ops.rows import Rows
from decider.plan.fill import fill
from decider.plan.pack import Pack
from decider.plan.tables import PackShape, StaticTables, block_ints, capacity_of, tables_over

TAPS = 4


def static_tables(pack: Pack, n_tokens: int, device: torch.device, taps: int = TAPS) -> StaticTables[Tensor]:
    """The tables of `pack`, padded to `n_tokens`."""
    capacity = capacity_of(PackShape(n_tokens, pack.n_branches > 0))
    # What no table covers must not matter.
    block = np.full(block_ints(capacity, taps), 1 << 30, np.int32)
    fill(tables_over(block, capacity, taps), pack)
    return tables_over(torch.from_numpy(block).to(device), capacity, taps)


def delta_by_spans(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, rate: Tensor, tables: Sight) -> Tensor:
    """The gated delta rule over static tables, one span after the other, in torch."""
    assert isinstance(tables, StaticTables)
    offsets = tables.offsets.tolist()
    parents = tables.parents.tolist() or [-1] * len(offsets)
    out = torch.zeros_like(v)
    states: list[Tensor | None] = []
    for start, stop, parent in zip(offsets, offsets[1:], parents, strict=False):
        if start == stop:
            continue
        found, state = chunk_gated_delta_rule(
            q[None, start:stop],
            k[None, start:stop],
            v[None, start:stop],
            g=log_decay[None, start:stop],
            beta=rate[None, start:stop],
            initial_state=states[parent] if parent >= 0 else None,
            output_final_state=True,
        )
        out[start:stop] = found[0]
        states.append(state)
    return out


def ulps(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, in units of the last place of the larger of 1/64 of the largest number and the number."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    exact, other = wanted.double(), found.double()
    size = exact.abs().clamp_min(float(exact.abs().max()) / 64)
    return float(((other - exact).abs() / (size * torch.finfo(wanted.dtype).eps)).max())


def decoded(rows: Rows) -> Tensor:
    """float32 numbers of quantised rows."""
    assert rows.codes is not None
    codes, scales = rows.codes
    return codes.float() * scales
