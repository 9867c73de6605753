"""A pack as training reads it: plain tables, made by a worker that has no device, and the same on one.

It refuses to know models. Trap: workers and the device are apart, and what lies between them is copied. So tables hold
what a forward cannot work out by itself, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decider.plan.pack import Pack
from decider.train.sight import Sight, sight_of

IntTable = NDArray[np.int64]
BoolTable = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class SpanTable:
    """Spans of one kind and of like lengths, padded on the right; behind a span's end its last token is repeated."""

    tokens: IntTable
    """[spans, longest] tokens of the pack."""
    real: BoolTable
    """[spans, longest] false behind a span's end."""
    parents: IntTable | None
    """[spans] each branch's trunk, as its place among the spans of all tables before; None for roots."""
    trunk_tokens: IntTable | None
    """[spans, longest trunk] the tokens of each branch's trunk, padded likewise; None for roots."""
    seen: BoolTable | None
    """[spans, longest, longest trunk + longest]: which of its trunk's tokens, then of its own, a branch's token sees.
    None for roots: those up to itself."""


@dataclass(frozen=True, slots=True, eq=False)
class PackTables:
    """One pack of N tokens."""

    ids: IntTable
    """[N]"""
    positions: IntTable
    """[N] each token's place in its own row."""
    look_back: IntTable
    """[N, taps − 1] the tokens before each one in its own row, the nearest first; −1 before the start."""
    slots: IntTable
    """[slots] tokens whose logits are read."""
    spans: tuple[SpanTable, ...]
    """Roots (trunks and padding), then branches; none where `sight` stands in for them."""
    order: IntTable
    """[N] each token's place in the tables' `tokens`, flattened and joined; [0] without spans."""
    sight: Sight | None
    """For the compiled forward."""

    @property
    def n_tokens(self) -> int:
        """N, with padding."""
        return len(self.ids)


def tables_of(pack: Pack, n_taps: int, *, by_blocks: bool = False) -> PackTables:
    """The tables of `pack`, for a convolution of `n_taps` taps; 1 for a model without.

    `by_blocks`: for the compiled forward, where the pack has a size of its own; an oversize one is run plainly.
    """
    sight = sight_of(pack) if by_blocks and not pack.oversize else None
    spans, order = _spans(pack) if sight is None else ((), np.empty(0, np.int64))
    return PackTables(
        ids=np.array(pack.ids),
        positions=np.array(pack.positions),
        look_back=np.array(pack.look_back(n_taps - 1)),
        slots=np.array(pack.slots),
        spans=spans,
        order=order,
        sight=sight,
    )


def _spans(pack: Pack) -> tuple[tuple[SpanTable, ...], IntTable]:
    """By the powers of two above their own and their trunk's length, so that padding never doubles the work."""
    by_size: dict[tuple[bool, int, int], list[int]] = {}
    for index, span in enumerate(pack.spans):
        trunk = 0 if span.parent is None else pack.spans[span.parent].length
        size = (span.parent is not None, (span.length - 1).bit_length(), trunk.bit_length())
        by_size.setdefault(size, []).append(index)
    tables: list[SpanTable] = []
    places: dict[int, int] = {}
    order, base = np.empty(pack.n_tokens, np.int64), 0
    for (is_branch, _, _), members in sorted(by_size.items()):
        tokens, real = _padded(pack, members)
        order[tokens[real]] = base + np.flatnonzero(real)
        base += tokens.size
        if not is_branch:
            places.update({index: len(places) + number for number, index in enumerate(members)})
            tables.append(SpanTable(tokens, real, None, None, None))
            continue
        trunks = [_parent(pack, index) for index in members]
        trunk_tokens, trunk_real = _padded(pack, trunks)
        longest = tokens.shape[1]
        own = np.broadcast_to(np.tri(longest, dtype=np.bool_), (len(members), longest, longest))
        behind = np.broadcast_to(trunk_real[:, None], (len(members), longest, trunk_tokens.shape[1]))
        parents = np.array([places[trunk] for trunk in trunks])
        tables.append(SpanTable(tokens, real, parents, trunk_tokens, np.concatenate((behind, own), axis=2)))
    return tuple(tables), order


def _parent(pack: Pack, index: int) -> int:
    parent = pack.spans[index].parent
    assert parent is not None, index
    return parent


def _padded(pack: Pack, members: Sequence[int]) -> tuple[IntTable, BoolTable]:
    starts = np.array([pack.spans[index].start for index in members])[:, None]
    lengths = np.array([pack.spans[index].length for index in members])[:, None]
    steps = np.arange(lengths.max())
    return starts + np.minimum(steps, lengths - 1), steps < lengths


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSpans:
    """`SpanTable` on a device."""

    tokens: Tensor
    real: Tensor
    parents: Tensor | None
    trunk_tokens: Tensor | None
    seen: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSight:
    """`Sight` on a device."""

    own_start: Tensor
    trunk_start: Tensor
    trunk_stop: Tensor
    counts: Tensor
    blocks: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTables:
    """`PackTables` on a device."""

    ids: Tensor
    positions: Tensor
    look_back: Tensor
    slots: Tensor
    spans: tuple[DeviceSpans, ...]
    order: Tensor
    sight: DeviceSight | None


def moved(table: NDArray[Any], device: torch.device) -> Tensor:
    """`table` as a tensor on `device`. A card does not wait for the copy."""
    host = torch.from_numpy(table)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


def on_device(tables: PackTables, device: torch.device) -> DeviceTables:
    """`tables` as tensors on `device`."""

    def maybe(table: IntTable | BoolTable | None) -> Tensor | None:
        return None if table is None else moved(table, device)

    spans = tuple(
        DeviceSpans(
            moved(span.tokens, device),
            moved(span.real, device),
            maybe(span.parents),
            maybe(span.trunk_tokens),
            maybe(span.seen),
        )
        for span in tables.spans
    )
    own = tables.sight
    sight = None
    if own is not None:
        each = (own.own_start, own.trunk_start, own.trunk_stop, own.counts, own.blocks)
        sight = DeviceSight(*(moved(table, device) for table in each))
    return DeviceTables(
        ids=moved(tables.ids, device),
        positions=moved(tables.positions, device),
        look_back=moved(tables.look_back, device),
        slots=moved(tables.slots, device),
        spans=spans,
        order=moved(tables.order, device),
        sight=sight,
    )
