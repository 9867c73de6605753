"""What a decoder is: its sizes and its kinds of layers, as frozen values.

It refuses to know where they come from. Trap: heads · head_dim need not be the hidden size, and of a head only the
first `Rotary.dim` are turned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LayerKind = Literal["attention", "delta"]


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Softmax attention; each key and value head serves heads / kv_heads query heads in a row."""

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool
    output_bias: bool
    qk_norm: bool
    """Queries and keys are normed head by head before they are turned."""
    output_gate: bool
    """What is attended to is multiplied by the sigmoid of a projection of its own."""

    @property
    def width(self) -> int:
        """What all heads give together, before the output projection."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True)
class DeltaSpec:
    """The gated delta rule; each key head serves value_heads / key_heads value heads in a row."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int
    """Width of the convolution before it, the current token included."""

    @property
    def width(self) -> int:
        """What all heads give together, before the output projection."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Query, key and value together, which are convolved."""
        return 2 * self.key_heads * self.key_dim + self.width


@dataclass(frozen=True, slots=True)
class Rotary:
    """Position p turns pair i of a head's first `dim` by p · frequencies[i]."""

    frequencies: tuple[float, ...]
    """Radians a position, one a pair; exactly float32 numbers."""

    @property
    def dim(self) -> int:
        return 2 * len(self.frequencies)


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A decoder with pre-norms and a silu-gated MLP: embed → (mix, MLP) a layer → norm."""

    family: str
    """The model type of its configuration."""
    vocab: int
    hidden: int
    intermediate: int
    layers: tuple[LayerKind, ...]
    attention: AttentionSpec
    delta: DeltaSpec | None
    """None unless a layer is of that kind."""
    rotary: Rotary
    norm_eps: float
    norm_offset: float
    """Norms of hidden states, queries and keys scale by this plus their weight."""
    tied: bool
    """The output embedding is the input embedding."""
    max_positions: int

    @property
    def taps(self) -> int:
        """Width of the convolution, for the look-back table of a pack; 1 where nothing is convolved."""
        return 1 if self.delta is None else self.delta.taps
