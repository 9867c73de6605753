"""How the kernels of a pack are launched: named configurations by the number of tokens; none is tuned at run time.

It refuses to know kernels and to measure. Trap: a tuner meets a new size after the seal and times itself in the middle
of a request; and what it picks depends on what else runs then, so two starts of one engine give different bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


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
"""The most programs of the scan along the sequences of a pack, each of which takes one after the other. Tables have
room for hundreds that there mostly are not, and few programs run at once, as each asks for much shared memory: those
without a sequence would stand in a queue."""
LONG_SEQUENCES = 2
"""The same of the scan of long ones: with Qwen3.5's heads about twice the programs that a Hopper card runs at once."""
DELTA_SCAN = Launch("delta, sequences", None, warps=4, block=64)
"""Value features a program, which goes through a sequence. Wide programs load each key less often, and narrow ones have
less to do a chunk. With one stage Triton 3.6 compiles 16 and 32 features wrongly: they read memory of others."""
DELTA_SCAN_LONG = Launch("delta, long sequences", None, warps=4, block=16, stages=3)
"""Where chunks wait for each other and little else runs."""
DELTA_LONG_SHARED_BYTES = 183_000
"""What that one takes as compiled for Hopper, rounded up; an A100 has less, and one launch for all."""
DELTA_SCAN_WIDE = Launch("delta, sequences of float32", None, warps=8, block=32)
"""Two loads in flight of numbers so wide take more shared memory than an A100 has."""
DELTA_SMALL_TOKENS = 1024
"""Up to how many tokens one launch serves a pack's sequences of all lengths: a second would cost more than it gains."""
DELTA_SHORT_TOKENS, DELTA_SHORT_TRUNK_TOKENS = 1024, 256
"""Up to how many tokens a sequence is a short one. There are few trunks, and branches wait for them."""
ANY_TOKENS = 2**31 - 1


class Scan(NamedTuple):
    """A launch for the sequences of more than `above_tokens` and up to `most_tokens` tokens."""

    launch: Launch
    above_tokens: int
    most_tokens: int


def delta_scans(n_tokens: int, *, is_trunks: bool, is_wide: bool, most_shared_bytes: int) -> tuple[Scan, ...]:
    """The scans that take the trunks or the other sequences of a pack of `n_tokens`, each sequence by one of them.

    `most_shared_bytes`: what a block of the card may have.
    """
    if is_wide or n_tokens <= DELTA_SMALL_TOKENS or most_shared_bytes < DELTA_LONG_SHARED_BYTES:
        return (Scan(DELTA_SCAN_WIDE if is_wide else DELTA_SCAN, 0, ANY_TOKENS),)
    short = DELTA_SHORT_TRUNK_TOKENS if is_trunks else DELTA_SHORT_TOKENS
    return Scan(DELTA_SCAN, 0, short), Scan(DELTA_SCAN_LONG, short, ANY_TOKENS)


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
    return max(60_000 if head_dim <= 64 else 120_000, 82_000 if has_delta else 0)
