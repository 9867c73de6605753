"""A pack as integer tables of fixed sizes, all in one block, the contents of which change from pack to pack.

It refuses to know kernels and devices: a block is an array of NumPy or a tensor, and the same views are laid over
either. `plan/fill.py` writes them. Trap: the surplus of a table is not nothing. It is work on tokens that exist or on a
span that is empty, so that no kernel reads a number which means nothing; and padding is spans like others.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import accumulate
from math import prod
from typing import Any, Generic, NamedTuple, TypeVar

from decider.plan.pack import Pack

Array = TypeVar("Array")

CHUNK_TOKENS = 64
"""Tokens of a span that the gated delta rule takes at a time."""
TILE_TOKENS = 64
"""Queries of a tile of attention."""
PADDING_TOKENS = 256
"""Padding is cut into spans of so many tokens. As one span it would be the longest of many a pack."""
ALIGNED_INTS = 32
"""Every table starts at a multiple of 128 bytes."""


class PackShape(NamedTuple):
    """What a graph is keyed on, and nothing else."""

    n_tokens: int
    """With padding."""
    is_tree: bool
    """Whether there are branches."""

    def __str__(self) -> str:
        """As messages name it."""
        return f"{'tree' if self.is_tree else 'flat'} of {self.n_tokens:,} tokens"


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most that a pack of one shape may hold. One with more runs in a larger shape, or eagerly."""

    shape: PackShape
    n_sequences: int
    """Trunks and branches; padding not counted."""
    n_states: int
    """Trunks up to the last that has branches; 0 where there are none."""
    n_slots: int

    @property
    def n_spans(self) -> int:
        """Spans of the tables: sequences, padding, and at least one that is always empty, behind them."""
        return self.n_sequences + -(-self.shape.n_tokens // PADDING_TOKENS) + 1

    def holds(self, pack: Pack) -> bool:
        """Whether `pack`, its own padding left out, fits."""
        return (
            pack.n_real_tokens <= self.shape.n_tokens
            and pack.n_real_spans <= self.n_sequences
            and n_states(pack) <= self.n_states
            and len(pack.slots) <= self.n_slots
        )


def capacity_of(shape: PackShape) -> Capacity:
    """Of a sequence for every 16 tokens, in a tree for every 32; a slot for every 8.

    Rows of real questions have more tokens. In a tree a linear attention has room for a state of a megabyte a layer for
    each sequence that there may be. A trunk is planned for two branches at least.
    """
    n_slots = max(64, shape.n_tokens // 8)
    n_sequences = max(32, shape.n_tokens // (32 if shape.is_tree else 16))
    return Capacity(shape, n_sequences, n_sequences // 3 if shape.is_tree else 0, n_slots)


def n_states(pack: Pack) -> int:
    """Trunks up to the last that has branches: those whose final states are kept."""
    # Branches lie in the order of their trunks.
    last = pack.spans[pack.n_real_spans - 1].parent
    return 0 if last is None else last + 1


@dataclass(frozen=True, slots=True, eq=False)
class StaticTables(Generic[Array]):
    """The tables of one shape: views of one block of int32, on the host or on a device. N tokens, S spans.

    A token sees its own span up to itself, and a branch's token also the whole trunk. Spans lie without gaps: trunks
    (those with branches first, where a plan made the pack), branches in the order of their trunks, padding in spans of
    its own, then empty ones at token N. A graph reads the contents, so nothing here may be read back by the host.

    For the gated delta rule spans are two passes, each a table of sequences for kernels of variable lengths: *first*,
    the trunks up to the last one with branches, whose final states are kept (not in a flat shape, where it has no
    sequence), then the *rest*. Without linear attention (`n_taps` = 1) these tables have no elements.
    """

    capacity: Capacity
    ids: Array
    """[N] token ids; `PADDING_ID` in the padding."""
    positions: Array
    """[N] each token's place in its own row."""
    look_back: Array
    """[N, taps − 1] the tokens before each one in its own row, the nearest first; −1 before the start."""
    slots: Array
    """[slots] tokens whose logits are read; surplus ones are token 0."""
    own_start: Array
    """[N] the first token of each token's own span."""
    trunk_start: Array
    """[N] the first token of each token's trunk; 0 without. Tree only, else [0]."""
    trunk_stop: Array
    """[N] behind the last token of each token's trunk; 0 without. Tree only, else [0]."""
    tiles: Array
    """[tiles, 5] of queries: (first, behind the last, first key, first and behind the last token of the trunk).

    At most `TILE_TOKENS` neighbours that see the same trunk, or none (0, 0); each sees no other keys than those from
    the first key up to itself and the trunk's, and of the former only those from its `own_start` on. Together all
    tokens; tiles of most keys first; surplus ones have no queries and no keys (all 0)."""
    offsets: Array
    """[S + 1] where each span starts, then N; surplus spans are empty."""
    parents: Array
    """[S] the trunk of each branch, as an index of the spans; −1 for others. Tree only, else [0]."""
    first_offsets: Array
    """[states + 2] where each sequence of the first pass starts; the last sequence, and surplus ones, are empty."""
    first_chunks: Array
    """[chunks, 2] (sequence, chunk of it) in the order of the sequences; surplus is chunk 0 of the last, empty one."""
    rest_offsets: Array
    """[S + 1] as `first_offsets`, of the rest: it starts where the first pass ends, and its last sequence is empty."""
    rest_chunks: Array
    """[chunks, 2]"""
    rest_parents: Array
    """[S] the sequence of the first pass whose final state each begins with; its last one, the state of which is
    empty, for those that begin with nothing. Tree only, else [0]."""

    @property
    def n_tokens(self) -> int:
        """N, with padding."""
        return self.capacity.shape.n_tokens

    @property
    def is_tree(self) -> bool:
        """Whether there may be branches."""
        return self.capacity.shape.is_tree


def table_shapes(capacity: Capacity, n_taps: int) -> dict[str, tuple[int, ...]]:
    """The shape of each table of `StaticTables`, in the order they lie in the block.

    `n_taps`: of the convolution before linear attention, the current token's among them; 1 for a model without.
    """
    tokens, spans, states = capacity.shape.n_tokens, capacity.n_spans, capacity.n_states
    tree, linear = int(capacity.shape.is_tree), int(n_taps > 1)
    both = tree * linear
    blocks = -(-tokens // TILE_TOKENS)
    return {
        "ids": (tokens,),
        "positions": (tokens,),
        "look_back": (tokens, n_taps - 1),
        "slots": (capacity.n_slots,),
        "own_start": (tokens,),
        "trunk_start": (tree * tokens,),
        "trunk_stop": (tree * tokens,),
        # All trunks, the branches of each of them, and the padding may each end in a tile that is not full.
        "tiles": (blocks + states + 2, 5),
        "offsets": (spans + 1,),
        "parents": (tree * spans,),
        "first_offsets": (both * (states + 2),),
        "first_chunks": (both * chunk_capacity(tokens, states), 2),
        "rest_offsets": (linear * (spans + 1),),
        "rest_chunks": (linear * (capacity.n_sequences + -(-tokens // CHUNK_TOKENS) + 1), 2),
        "rest_parents": (both * spans,),
    }


def block_ints(capacity: Capacity, n_taps: int) -> int:
    """How many int32 the block of all tables has."""
    return sum(_taken(shape) for shape in table_shapes(capacity, n_taps).values())


def tables_over(block: Array, capacity: Capacity, n_taps: int) -> StaticTables[Array]:
    """The tables as views of `block`, int32 [at least `block_ints`], which is an array or a contiguous tensor."""
    shapes = table_shapes(capacity, n_taps)
    assert [field.name for field in fields(StaticTables)] == ["capacity", *shapes]
    starts = accumulate(map(_taken, shapes.values()), initial=0)
    whole: Any = block
    views = {
        name: whole[start : start + prod(shape)].reshape(shape)
        for (name, shape), start in zip(shapes.items(), starts, strict=False)
    }
    return StaticTables(capacity, **views)


def chunk_capacity(n_tokens: int, n_spans: int) -> int:
    """The most chunks that at most `n_spans` spans of together `n_tokens` tokens can have."""
    n_spans = min(n_spans, n_tokens)
    return n_spans + (n_tokens - n_spans) // CHUNK_TOKENS


def _taken(shape: tuple[int, ...]) -> int:
    return -(-prod(shape) // ALIGNED_INTS) * ALIGNED_INTS
