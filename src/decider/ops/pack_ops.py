"""What a decoder does between its matrix products, as one table of functions: in plain torch, or as a few kernels.

It refuses to know layers and back ends' names; `ops/fused_ops.py` has the kernels. Trap: the functions of one table
belong together. Both forms of a convolution are followed by a delta rule that wants its vectors as that form leaves
them, so no function of one table goes into another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor
from torch.nn import functional

from decider.ops.fp8 import quantise_rows
from decider.ops.norms import Norm, gated_rms_norm
from decider.ops.rotary import Rotation, rotary
from decider.ops.rows import Form, Rows
from decider.ops.tree import Tree
from decider.ops.tree_attention import tree_attention
from decider.ops.tree_convolution import tree_convolution
from decider.ops.tree_delta import tree_delta_rule
from decider.plan.tables import StaticTables

Sight = Tree | StaticTables[Tensor]
"""A pack's tables. Plain operations walk through a `Tree`; kernels read `StaticTables`, as int32 on their device."""

Heads = tuple[Tensor, Tensor, Tensor]
"""Query, key and value, [N, heads, d] each."""


class Gates(NamedTuple):
    """What log decay, rate · softplus(decay + bias), and β, a sigmoid, are made of."""

    beta: Tensor
    """[N, value_heads] logits."""
    decay: Tensor
    """[N, value_heads] logits."""
    rate: Tensor
    """[value_heads], below 0, float32 at least."""
    bias: Tensor
    """[value_heads]"""


class DeltaSizes(Protocol):
    """Of a layer with the gated delta rule; a `DeltaSpec` is one."""

    @property
    def key_heads(self) -> int: ...
    @property
    def key_dim(self) -> int: ...
    @property
    def value_heads(self) -> int: ...
    @property
    def value_dim(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PackOps:
    """N tokens; each function makes new tensors and changes none that it is given."""

    name: str
    """As `describe()` says it."""
    add_norm: Callable[[Tensor, Tensor | None, Norm, Form], tuple[Tensor, Rows]]
    """(x, what is to be added to it, norm, form) → x + added, and its norm [N, features] in that form."""
    norm_and_turn: Callable[[Tensor, Norm | None, Rotation, int, int], Tensor]
    """(projection, head norm, rotation, heads, d) → the first heads · d numbers of each row, normed head by head with
    weights [heads, d], then turned: [N, heads, d]."""
    attention: Callable[[Tensor, Tensor, Tensor, Tensor | None, Sight, float], Tensor]
    """(query, key, value, gate, tables, scale) → [N, heads · d], times the sigmoid of the gate [N, heads · d]."""
    convolved: Callable[[Tensor, Tensor, DeltaSizes, Sight], Heads]
    """(x [N, channels], weight [channels, taps], sizes, tables) → silu of the convolution, in heads, queries and keys
    as `delta_rule` wants them."""
    delta_rule: Callable[[Tensor, Tensor, Tensor, Gates, Sight], Tensor]
    """(query, key, value, gates, tables) → [N, value_heads, dv] by the gated delta rule."""
    gated_norm: Callable[[Tensor, Tensor, Norm, Form], Rows]
    """(x, gate, norm, form) → norm x · silu(gate), both [N, heads, d], as rows of heads · d; one form."""
    swiglu: Callable[[Tensor, Form], Rows]
    """([N, 2 · inner], form) → silu of the first half · the second; one form."""


def plain_ops() -> PackOps:
    """In torch, on any device and in any dtype, over a `Tree`; every number rounded where transformers rounds it."""
    return PackOps(
        name="torch's own",
        add_norm=plain_add_norm,
        norm_and_turn=plain_norm_and_turn,
        attention=plain_attention,
        convolved=plain_convolved,
        delta_rule=plain_delta_rule,
        gated_norm=plain_gated_norm,
        swiglu=plain_swiglu,
    )


def plain_add_norm(x: Tensor, added: Tensor | None, norm: Norm, form: Form) -> tuple[Tensor, Rows]:
    """See `PackOps.add_norm`."""
    total = x if added is None else x + added
    return total, in_form(norm(total), form)


def plain_norm_and_turn(
    projected: Tensor, norm: Norm | None, rotation: Rotation, n_heads: int, head_dim: int
) -> Tensor:
    """See `PackOps.norm_and_turn`."""
    heads = as_heads(projected[:, : n_heads * head_dim], head_dim)
    if norm is not None:
        heads = norm(heads)
    return rotary(heads, *rotation, rotation.cos.shape[-1])


def plain_attention(
    query: Tensor, key: Tensor, value: Tensor, gate: Tensor | None, tables: Sight, scale: float
) -> Tensor:
    """See `PackOps.attention`."""
    assert isinstance(tables, Tree)
    mixed = tree_attention(query, key, value, tables, scale=scale).flatten(-2)
    return mixed if gate is None else mixed * gate.sigmoid()


def plain_convolved(x: Tensor, weight: Tensor, sizes: DeltaSizes, tables: Sight) -> Heads:
    """See `PackOps.convolved`. Queries and keys are of any length."""
    assert isinstance(tables, Tree)
    mixed = functional.silu(tree_convolution(x, weight, None, tables))
    keys, values = sizes.key_heads * sizes.key_dim, sizes.value_heads * sizes.value_dim
    q, k, v = mixed.split_with_sizes((keys, keys, values), dim=-1)
    return as_heads(q, sizes.key_dim), as_heads(k, sizes.key_dim), as_heads(v, sizes.value_dim)


def opened(gates: Gates) -> tuple[Tensor, Tensor]:
    """Log decay in the dtype of the rate, and β in that of its logits: [N, value_heads] each."""
    return gates.rate * functional.softplus(gates.decay.to(gates.rate.dtype) + gates.bias), gates.beta.sigmoid()


def plain_delta_rule(query: Tensor, key: Tensor, value: Tensor, gates: Gates, tables: Sight) -> Tensor:
    """See `PackOps.delta_rule`. Makes unit vectors of queries and keys."""
    assert isinstance(tables, Tree)
    return tree_delta_rule(query, key, value, *opened(gates), tables)


def plain_gated_norm(x: Tensor, gate: Tensor, norm: Norm, form: Form) -> Rows:
    """See `PackOps.gated_norm`. The norm has no offset."""
    return in_form(gated_rms_norm(x, gate, norm.weight, norm.eps).flatten(-2), form)


def plain_swiglu(merged: Tensor, form: Form) -> Rows:
    """See `PackOps.swiglu`."""
    gate, up = merged.chunk(2, dim=-1)
    return in_form(functional.silu(gate).mul_(up), form)


def in_form(values: Tensor, form: Form) -> Rows:
    """`values` in the form asked for."""
    return Rows(values if form.values else None, quantise_rows(values) if form.codes else None)


def as_heads(x: Tensor, size: int) -> Tensor:
    """[N, heads · size] → [N, heads, size], a view."""
    return x.view(x.shape[0], -1, size)
