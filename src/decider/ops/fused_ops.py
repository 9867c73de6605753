"""The kernels as a table of operations, and whether a device can have them.

It refuses to know layers. Trap: Triton is there only where torch has CUDA, so the modules of kernels are imported when
the table is made.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor

from decider.ops.launches import shared_bytes
from decider.ops.norms import Norm
from decider.ops.pack_ops import DeltaSizes, Gates, Heads, PackOps, Sight
from decider.ops.rotary import Rotation
from decider.ops.rows import Form, Rows
from decider.plan.tables import StaticTables

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def why_not_fused(device: torch.device, dtype: torch.dtype, *, head_dim: int, has_delta: bool) -> str | None:
    """Why a decoder on `device` in `dtype` runs plain operations, in a few words; None if it can have the kernels.

    `head_dim`: of its attention. `has_delta`: it has layers with the gated delta rule.
    """
    if device.type != "cuda":
        return f"kernels are for CUDA, not {device.type}"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if dtype not in DTYPES:
        return f"not for {str(dtype).removeprefix('torch.')}"
    from decider.ops.attention_kernel import LARGEST_HEAD, SMALLEST_HEAD

    if not SMALLEST_HEAD <= head_dim <= LARGEST_HEAD:
        return f"heads of {head_dim} are not between {SMALLEST_HEAD} and {LARGEST_HEAD}"
    # Halves want the most of it, but for small heads.
    needed = max(shared_bytes(head_dim, has_delta=has_delta), 150_000 if dtype is torch.float32 else 0)
    facts: Any = torch.cuda.get_device_properties(device)
    found: int = facts.shared_memory_per_block_optin
    if found < needed:
        return f"kernels want {needed:,} bytes of shared memory a block, and this card has {found:,}"
    return None


def fused_ops() -> PackOps:
    """Kernels over `StaticTables`, for what `why_not_fused` is None. None of them waits for the device."""
    from decider.ops import attention_kernel, convolution_kernel, delta_kernels, head_kernels, norm_kernels

    def add_norm(x: Tensor, added: Tensor | None, norm: Norm, form: Form) -> tuple[Tensor, Rows]:
        return norm_kernels.add_norm_in_one_pass(
            x, added, norm.weight, norm.eps, norm.offset, values=form.values, codes=form.codes
        )

    def norm_and_turn(projected: Tensor, norm: Norm | None, rotation: Rotation, n_heads: int, head_dim: int) -> Tensor:
        weight, eps, offset = (None, 0.0, 0.0) if norm is None else (norm.weight, norm.eps, norm.offset)
        return head_kernels.norm_and_turn_in_one_pass(
            projected, weight, eps, offset, *rotation, n_heads=n_heads, head_dim=head_dim
        )

    def attention(q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, tables: Sight, scale: float) -> Tensor:
        assert isinstance(tables, StaticTables)
        return attention_kernel.attention_over_tiles(
            q, k, v, gate, tables.tiles, tables.own_start, scale=scale, has_trunks=tables.is_tree
        )

    def convolved(x: Tensor, weight: Tensor, sizes: DeltaSizes, tables: Sight) -> Heads:
        assert isinstance(tables, StaticTables)
        return convolution_kernel.convolved_in_one_pass(
            x,
            weight,
            tables.look_back,
            key_heads=sizes.key_heads,
            key_dim=sizes.key_dim,
            value_heads=sizes.value_heads,
            value_dim=sizes.value_dim,
        )

    def delta_rule(q: Tensor, k: Tensor, v: Tensor, gates: Gates, tables: Sight) -> Tensor:
        assert isinstance(tables, StaticTables)
        return delta_kernels.delta_rule_in_two_passes(q, k, v, gates, tables)

    def gated_norm(x: Tensor, gate: Tensor, norm: Norm, form: Form) -> Rows:
        return norm_kernels.gated_norm_in_one_pass(x, gate, norm.weight, norm.eps, codes=form.codes)

    def swiglu(merged: Tensor, form: Form) -> Rows:
        return head_kernels.swiglu_in_one_pass(merged, codes=form.codes)

    return PackOps(
        name="fused kernels",
        add_norm=add_norm,
        norm_and_turn=norm_and_turn,
        attention=attention,
        convolved=convolved,
        delta_rule=delta_rule,
        gated_norm=gated_norm,
        swiglu=swiglu,
    )
