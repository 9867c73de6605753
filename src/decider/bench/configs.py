"""The numbers of published shapes, under the names that transformers' configurations give them.

It refuses to import transformers: a process that only passes the numbers on starts at once. Trap: whatever is not named
here is its class's default, so a shape is the same in two processes only where their transformers are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from decider.bench.names import SHAPES, TINY


@dataclass(frozen=True, slots=True)
class ShapeConfig:
    """A text model's configuration, before it is made."""

    config_class: str
    """A class of transformers."""
    numbers: Mapping[str, int | bool]
    """What it is called with."""


def _config(config_class: str, **numbers: int | bool) -> ShapeConfig:
    return ShapeConfig(config_class, MappingProxyType(numbers))


_QWEN3_5_2B = _config(
    "Qwen3_5TextConfig",
    vocab_size=248320, hidden_size=2048, intermediate_size=6144, num_hidden_layers=24, num_attention_heads=8,
    num_key_value_heads=2, head_dim=256, linear_num_key_heads=16, linear_num_value_heads=16,
    tie_word_embeddings=True, max_position_embeddings=32768,
)  # fmt: skip
_QWEN3_1_7B = _config(
    "Qwen3Config",
    vocab_size=151936, hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16,
    num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, max_position_embeddings=40960,
)  # fmt: skip
_TINY = _config(
    "Qwen3Config",
    vocab_size=2048, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, max_position_embeddings=32768,
)  # fmt: skip

CONFIGS: Mapping[str, ShapeConfig] = MappingProxyType(
    dict(zip((*SHAPES, TINY), (_QWEN3_5_2B, _QWEN3_1_7B, _TINY), strict=True))
)
"""Of each of `SHAPES`, and of `TINY`."""
LABEL_IDS = tuple(range(1000, 1255))
"""Token ids that stand for the 255 labels."""
