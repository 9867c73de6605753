"""Adapters of random numbers for any checkpoint.

Refuses to train. Trap: a part of zeros adds nothing, and a test with it passes whatever is merged.
"""

from __future__ import annotations

from pathlib import Path

import torch

from decider.model.adapter import Adapter, Pair, is_adapted, weights_sha256
from decider.model.checkpoint import read_tensors, short_names


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a model folder by their names without prefix."""
    tensors = read_tensors(folder)
    return {short: tensors[full] for full, short in short_names(tensors, folder).items()}


def made_adapter(folder: Path, base: str, *, seed: int = 0, rank: int = 3, scale: float = 0.05) -> Adapter:
    """Of the weights in `folder`, with a pair for every matrix that has one."""
    source = torch.Generator().manual_seed(seed)
    weights = {name: weight for name, weight in weights_of(folder).items() if is_adapted(name)}
    pairs = {
        name: Pair(torch.randn(rank, w.shape[1], generator=source), torch.randn(w.shape[0], rank, generator=source))
        for name, w in weights.items()
    }
    return Adapter(base, weights_sha256(weights), scale, pairs)
