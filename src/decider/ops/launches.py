"""How the kernels of a pack are launched: named configurations by the number of tokens; none is tuned at run time.

It refuses to know kernels and to measure. Trap: a tuner meets a new size after the seal and times itself in the middle
of a request; and what it picks depends on what else runs then, so two starts of one engine give different bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Launch:
    """One configuration, for packs of up to `most_tokens` tokens."""

    name: str
    most_tokens: int | None
    """None for every larger pack."""
    warps: int
    block: int
    """What one program takes at once; of what, the table says."""
    stages: int = 1
    """Loads in flight in a loop."""


NORM = (Launch("norm, few rows", 1024, warps=8, block=1), Launch("norm, many rows", None, warps=4, block=1))
"""A program is a row; more warps shorten the few that there are."""
HEADS = (Launch("heads, few rows", 1024, warps=8, block=1), Launch("heads, many rows", None, warps=4, block=1))
"""A program is a token with all of its heads."""
SWIGLU = (Launch("swiglu, few rows", 512, warps=4, block=512), Launch("swiglu, many rows", None, warps=4, block=2048))
"""Columns of one row a program; quantised, a program is a whole row."""
CONVOLUTION = (Launch("taps, few rows", 512, warps=4, block=4), Launch("taps, many rows", None, warps=4, block=16))
"""Tokens of one head a program: neighbours share most of what they load."""
DELTA_CHUNK = (Launch("delta, chunks", None, warps=4, block=1),)
"""A program is a chunk of a value head."""
SEQUENCES = 32
"""Programs of the scan along the sequences of a pack, each of which takes one after the other. Tables have room for
hundreds that there mostly are not, and few programs run at once, as each asks for much shared memory: those without a
sequence would stand in a queue."""
DELTA_SCAN = (Launch("delta, sequences", None, warps=4, block=32, stages=2),)
"""Value features a program, which goes through a sequence: the fewer, the more programs for a single sequence. With one
stage Triton 3.6 compiles this one wrongly: it reads memory that is not its own."""


DELTA_SCAN_WIDE = (Launch("delta, sequences of float32", None, warps=8, block=32),)
"""As `DELTA_SCAN`; two loads in flight of numbers so wide take more shared memory than an A100 has."""


def launch_for(table: Sequence[Launch], n_tokens: int) -> Launch:
    """The first configuration that covers packs of `n_tokens`; the last one covers every size."""
    return next(each for each in table if each.most_tokens is None or n_tokens <= each.most_tokens)


def attention_launch(head_dim: int, n_bytes: int) -> Launch:
    """For heads of `head_dim` numbers of `n_bytes` bytes; `block` is the number of keys a step.

    A card of the Hopper generation has 227 KiB of shared memory a block: queries once, keys and values once a stage.
    """
    if n_bytes > 2:
        return Launch("attention, wide numbers", None, warps=8, block=32 if head_dim <= 128 else 16, stages=1)
    if head_dim <= 128:
        return Launch("attention", None, warps=4, block=64, stages=3)
    return Launch("attention, large heads", None, warps=4, block=32, stages=2)


def shared_bytes(head_dim: int, *, has_delta: bool) -> int:
    """Shared memory that a block of the largest kernel takes, as compiled for Hopper in bfloat16, rounded up."""
    return max(60_000 if head_dim <= 64 else 120_000, 135_000 if has_delta else 0)
