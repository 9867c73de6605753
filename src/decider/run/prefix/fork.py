"""A cache of one sequence to a cache of n equal ones, in storage of its own; and the bytes a cache holds.

It refuses to know layer classes: it walks the attributes of the cache and of its layers, so layers that a model defines
for itself are forked too. What it cannot read it refuses, as a tensor that stays behind would be wrong in silence.

Trap: linear layers update their states in place. A fork that shares one tensor with its source, or holds an expanded
one whose rows share storage, leaks one row's state into the next.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from decider.errors import EngineError

BATCH_DIMS = {
    # Attention, full and sliding: [batch, heads, tokens, head].
    "keys": 0,
    "values": 0,
    # Linear attention: [batch, channels, kernel] and [batch, heads, key, value], in dicts by the number of the state.
    "conv_states": 0,
    "recurrent_states": 0,
    # Sparse attention: [batch, tokens, index head], [position dimensions, batch, tokens], [batch, heads, tokens, head].
    "indexer_keys": 0,
    "indexer_position_ids": 1,
    "idx_keys": 0,
}
"""Attribute → dimension of the batch, for the names that transformers gives to tensors of a cache."""

_SHAREABLE = (bool, int, float, str, torch.dtype, torch.device, type, enum.Enum, PreTrainedConfig)

Visit = Callable[[str, Tensor], Tensor]
"""(attribute, tensor) → the tensor that replaces it in the copy."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A cache of n rows that shares no tensor with the one it was made from."""

    cache: Any
    """Of the class of its source, as the model's forward takes it."""
    unknown: tuple[str, ...]
    """Attributes, one an occurrence, that were forked only because they hold a batch of 1 on dimension 0."""


def fork_cache(cache: object, n_rows: int) -> Fork:
    """Repeat a cache of batch 1 for `n_rows` rows. Raises EngineError for what it cannot fork.

    Scalars and empty tensors are copied as they are. `cache` is left as it was.
    """
    assert n_rows >= 1, n_rows
    unknown: list[str] = []

    def repeat(name: str, tensor: Tensor) -> Tensor:
        dim = BATCH_DIMS.get(name, 0)
        if tensor.dim() > dim and tensor.shape[dim] == 1:
            if name not in BATCH_DIMS:
                unknown.append(name)
            # Not `expand`: every row gets memory of its own.
            return tensor.repeat(*(n_rows if index == dim else 1 for index in range(tensor.dim())))
        if tensor.dim() == 0 or tensor.numel() == 0:
            return tensor.clone()
        raise EngineError(
            f"the cache holds {name!r:.60} of shape {tuple(tensor.shape)}, which is no batch of 1 and cannot be "
            "forked; run full rows"
        )

    return Fork(_copy_cache(cache, repeat), tuple(unknown))


def cache_bytes(cache: object) -> int:
    """Bytes of all tensors in `cache`, each once. Raises EngineError for what cannot be read."""
    sizes: list[int] = []

    def count(name: str, tensor: Tensor) -> Tensor:  # noqa: ARG001 - the name is part of `Visit`
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    _copy_cache(cache, count)
    return sum(sizes)


def _copy_cache(cache: object, visit: Visit) -> Any:
    layers = getattr(cache, "layers", None)
    if not isinstance(layers, list):
        raise EngineError(f"a cache of type {type(cache).__name__!r:.60} has no list of layers to fork; run full rows")
    return _Copier(visit, frozenset(map(id, (cache, *layers)))).copy("cache", cache)


class _Copier:
    """Copies a cache, its layers and all containers in them; each tensor and layer once, however often it is met."""

    def __init__(self, visit: Visit, parts: frozenset[int]) -> None:
        self._visit = visit
        self._parts = parts
        self._done: dict[int, Any] = {}

    def copy(self, name: str, value: Any) -> Any:
        """`name` is the attribute that holds `value`, however deep in containers."""
        if value is None or isinstance(value, _SHAREABLE):
            return value
        if id(value) not in self._done:
            self._done[id(value)] = self._fresh(name, value)
        return self._done[id(value)]

    def _fresh(self, name: str, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._visit(name, value)
        if id(value) in self._parts:
            twin = copy.copy(value)
            vars(twin).update({attribute: self.copy(attribute, held) for attribute, held in vars(value).items()})
            return twin
        if type(value) is dict:
            return {key: self.copy(name, held) for key, held in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self.copy(name, held) for held in value)
        raise EngineError(
            f"the cache holds {name!r:.60} of type {type(value).__name__!r:.60}, which cannot be forked; run full rows"
        )
