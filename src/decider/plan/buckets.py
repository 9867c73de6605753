"""The (batch, length) grid: which padded shapes are captured, and where a row of n tokens lands.

It refuses to know devices, prices and what a row holds. Trap: the length ladder ends. Above it `t_bucket` is None and a
row runs eagerly; a caller that rounds such a row into the last bucket cuts it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise

from decider.errors import ConfigError

Shape = tuple[int, int]
"""(batch, length): the rows of one forward, and the padded tokens of each."""

LENGTHS = (64, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 3072, 4096, 6144, 8192)
BATCHES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Grid:
    """Two ladders and what bounds them. Raises ConfigError for a ladder that does not rise or a bound below 1.

    `lengths` are padded tokens a row, `batches` rows a forward, starting at 1. `token_budget` bounds the padded
    tokens of a forward of several rows; a single row is never refused for it. Above the ladder, rows are padded to a
    multiple of `long_multiple` tokens.
    """

    lengths: tuple[int, ...] = LENGTHS
    batches: tuple[int, ...] = BATCHES
    token_budget: int = 32768
    long_multiple: int = 1024

    def __post_init__(self) -> None:
        _check_ladder("lengths", self.lengths)
        _check_ladder("batches", self.batches)
        if self.batches[0] != 1:
            raise ConfigError(f"batches is {_cut(self.batches)}; it must start at 1, so that a single row has a shape")
        for name, value in (("token_budget", self.token_budget), ("long_multiple", self.long_multiple)):
            if not _is_positive_int(value):
                raise ConfigError(f"{name} is {_cut(value)}; it must be a whole number of tokens, at least 1")

    def graph_shapes(self) -> tuple[Shape, ...]:
        """Every shape to capture, largest first: by padded tokens, at a tie by length. No shape twice."""
        shapes = [(batch, length) for length in self.lengths for batch in self.batches_at(length)]
        return tuple(sorted(shapes, key=lambda shape: (shape[0] * shape[1], shape[1]), reverse=True))

    def batches_at(self, length: int) -> tuple[int, ...]:
        """The captured batches at one length of the ladder, rising: 1, and all within the token budget."""
        assert length in self.lengths, (length, self.lengths)
        return tuple(batch for batch in self.batches if batch == 1 or batch * length <= self.token_budget)

    def t_bucket(self, n_tokens: int) -> int | None:
        """The shortest length of the ladder that holds `n_tokens` (at least 1); None above the ladder."""
        assert n_tokens >= 1, n_tokens
        place = bisect_left(self.lengths, n_tokens)
        return self.lengths[place] if place < len(self.lengths) else None

    def pad_len(self, n_tokens: int) -> int:
        """The padded length of a row: its bucket, or above the ladder the next multiple of `long_multiple`."""
        return self.t_bucket(n_tokens) or -(-n_tokens // self.long_multiple) * self.long_multiple

    def max_rows(self, padded_len: int) -> int:
        """Most rows of one forward at a length that `pad_len` gave, at least 1.

        On the ladder the widest captured batch, above it as many rows as the token budget holds.
        """
        assert padded_len == self.pad_len(padded_len), padded_len
        if padded_len <= self.lengths[-1]:
            return self.batches_at(padded_len)[-1]
        return max(1, self.token_budget // padded_len)


def _is_positive_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check_ladder(name: str, ladder: object) -> None:
    if not isinstance(ladder, tuple) or not ladder or not all(map(_is_positive_int, ladder)):
        raise ConfigError(f"{name} is {_cut(ladder)}; it must be a tuple of one or more whole numbers, each at least 1")
    for lower, upper in pairwise(ladder):
        if upper <= lower:
            raise ConfigError(
                f"{name} is {_cut(ladder)}, where {upper} follows {lower}; it must rise strictly, without doubles"
            )


def _cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
