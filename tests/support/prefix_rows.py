"""Rows with a common prefix, and a float64 that is float64 all the way, for the tests of shared prefixes.

Refuses to know what is tested. Trap: transformers does norms, softmax and states in float32 even in a float64 model, so
two correct forwards differ by 1e-6 and more; only `true_float64` can tell a fault from rounding.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from decider.model.head import LabelHead, label_head
from decider.model.load import LoadedModel, load_module
from decider.model.source import ModelFolder
from decider.tokens.rows import Row

LABEL_IDS = tuple(range(40, 72))


@functools.cache
def load_tiny(folder: Path, attention: str, dtype: str) -> tuple[LoadedModel, LabelHead]:
    """A tiny checkpoint and its label head; loaded once, so leave it as it is."""
    loaded = load_module(ModelFolder(folder, "tiny", "a test"), device="cpu", dtype=dtype, attention=attention)
    return loaded, label_head(loaded, LABEL_IDS)


def make_rows(prefix_tokens: int, suffix_tokens: Sequence[int], *, seed: int = 0) -> list[Row]:
    """One row a suffix, with a slot at its end and one somewhere before it (the same for a suffix of one token)."""
    rng = random.Random(f"{seed} {prefix_tokens} {suffix_tokens}")
    prefix = [rng.randrange(1024) for _ in range(prefix_tokens)]
    rows: list[Row] = []
    for n_tokens in suffix_tokens:
        # The first token tells the rows apart, so that the common prefix ends where it should.
        suffix = [len(rows), *(rng.randrange(1024) for _ in range(n_tokens - 1))]
        slots = sorted({prefix_tokens + rng.randrange(n_tokens), prefix_tokens + n_tokens - 1})
        rows.append(Row((*prefix, *suffix), tuple(slots), (2,) * len(slots), prefix_tokens))
    return rows


@contextmanager
def one_thread() -> Iterator[None]:
    """Tiny products on several threads mostly wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def true_float64() -> Iterator[None]:
    """Within it, a float64 tensor that is asked for as float32 stays float64."""
    to, to_float, softmax = torch.Tensor.to, torch.Tensor.float, torch.nn.functional.softmax

    def wide(dtype: Any) -> Any:
        return torch.float64 if dtype is torch.float32 else dtype

    def own_to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.dtype is torch.float64:
            args, kwargs = tuple(map(wide, args)), {name: wide(value) for name, value in kwargs.items()}
        return to(self, *args, **kwargs)

    def own_float(self: Tensor) -> Tensor:
        return self if self.dtype is torch.float64 else to_float(self)

    def own_softmax(given: Tensor, dim: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
        return softmax(given, dim=dim, dtype=wide(dtype) if given.dtype is torch.float64 else dtype)

    with (
        patch.object(torch.Tensor, "to", own_to),
        patch.object(torch.Tensor, "float", own_float),
        patch.object(torch.nn.functional, "softmax", own_softmax),
    ):
        yield
