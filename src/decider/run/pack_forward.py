"""One pack through a backbone: eagerly, from a tree of its own shape, or from static tables, as graphs run it.

It refuses to plan and to capture. Trap: whoever runs packs runs them through here, the checks at load too. A second way
to a tree would be checked by nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from decider.backbone.decoder import Backbone
from decider.backbone.spec import DecoderSpec
from decider.model.head import LabelHead
from decider.ops.fused_ops import fused_ops, why_not_fused
from decider.ops.tree import Tree, tree_of
from decider.plan.pack import Pack, Span
from decider.plan.tables import Capacity, StaticTables

PackForward = Callable[[StaticTables[Tensor]], Tensor]
"""Static tables → logits [their slots, labels]. It reads contents on the device alone, or it cannot be captured."""


def states_at_slots(backbone: Backbone, pack: Pack) -> Tensor:
    """[slots of the pack, hidden] after the final norm, in the backbone's dtype and in the order of `pack.slots`."""
    tree = tree_of(pack, backbone.device, backbone.spec.taps)
    ids = torch.from_numpy(np.array(pack.ids)).to(backbone.device)
    return backbone.for_rows(pack.n_tokens, len(pack.slots)).hidden_at_slots(ids, tree)


def for_shape(backbone: Backbone, capacity: Capacity) -> Backbone:
    """What the graph of a shape runs."""
    return backbone.for_rows(capacity.shape.n_tokens, capacity.n_slots)


def why_not_static(spec: DecoderSpec, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why no forward of such a decoder reads static tables, in a few words; None if `static_forward` can make one."""
    return why_not_fused(device, dtype, head_dim=spec.attention.head_dim, has_delta=spec.delta is not None)


def static_forward(backbone: Backbone, head: LabelHead) -> PackForward:
    """The forward that is captured: kernels that read the tables. `why_not_static` must be None of it."""
    fused = replace(backbone, ops=fused_ops())
    return lambda tables: head(for_shape(fused, tables.capacity).hidden_at_slots(tables.ids, tables))


def read_back_forward(backbone: Backbone, head: LabelHead) -> PackForward:
    """The same without kernels, for devices that capture nothing: it makes a tree of what the tables say each time."""

    def forward(tables: StaticTables[Tensor]) -> Tensor:
        own = for_shape(backbone, tables.capacity)
        return head(own.hidden_at_slots(tables.ids.to(torch.int64), tree_from(tables)))

    return forward


def tree_from(tables: StaticTables[Tensor]) -> Tree:
    """The tree of the pack that was written into `tables`, padding and surplus slots included; it reads them back."""
    edges = tables.offsets.tolist()
    lengths = [stop - start for start, stop in pairwise(edges)]
    parents = tables.parents.tolist() if tables.is_tree else [-1] * len(lengths)
    spans = tuple(
        Span(start, length, None if parent < 0 else parent)
        for start, length, parent in zip(edges, lengths, parents, strict=False)
        if length
    )
    positions, look_back = (each.to(torch.int64) for each in (tables.positions, tables.look_back))
    pack = Pack(
        ids=tables.ids.cpu().numpy().astype(np.int64),
        positions=positions.cpu().numpy(),
        spans=spans,
        n_trunks=sum(span.parent is None for span in spans),
        n_real_tokens=tables.n_tokens,
        slots=tables.slots.cpu().numpy().astype(np.int64),
        rows=(),
        oversize=False,
    )
    n_taps = look_back.shape[1] + 1
    return replace(tree_of(pack, tables.ids.device, n_taps), positions=positions, look_back=look_back)
