"""The matrix products of a model alone: what a forward would take if everything between them were free.

It refuses to know executors. Trap: one weight matrix for all layers would stay in a cache that a model's weights do not
fit in. So each product here has a matrix of its own, as in the model, but of random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from decider.bench.work import model_work
from decider.model.load import DTYPES
from decider.run import measure
from decider.run.graphs import CudaCapturer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Layers that multiply the same rows, by the ends of their names: one product each.
_MERGED = (
    ("q_proj", "k_proj", "v_proj"),
    ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"),
    ("gate_proj", "up_proj"),
)
REPEATS = 10


def product_shapes(module: PreTrainedModel) -> tuple[tuple[int, int], ...] | None:
    """(out, in) of every product of the decoder's layers, those of the same rows as one; None if others multiply too.

    The output embedding is left out: only the labels' rows of it are read.
    """
    if model_work(module).matrix_parameters is None:
        return None
    sizes: dict[str, tuple[int, int]] = {}
    for name, layer in module.get_decoder().named_modules():
        if isinstance(layer, torch.nn.Linear):
            home, _, own = name.rpartition(".")
            group = next((group[0] for group in _MERGED if own in group), own)
            key = f"{home}.{group}"
            sizes[key] = (sizes.get(key, (0, 0))[0] + layer.out_features, layer.in_features)
    return tuple(sizes.values())


class Products:
    """Products of these shapes, with random matrices that are made at the first measurement."""

    def __init__(self, shapes: Sequence[tuple[int, int]], device: str, dtype: str) -> None:
        self._shapes = tuple(shapes)
        self._device = torch.device(device)
        self._dtype = DTYPES[dtype]
        self._weights: list[Tensor] = []
        self._times: dict[int, float] = {}

    def ms(self, n_tokens: int) -> float:
        """Median milliseconds of all of them, one after the other, with `n_tokens` rows: on CUDA as one graph.

        Measured once for each number of rows.
        """
        if n_tokens not in self._times:
            self._times[n_tokens] = self._measured(n_tokens)
        return self._times[n_tokens]

    @torch.inference_mode()
    def _measured(self, n_tokens: int) -> float:
        source = torch.Generator(self._device).manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=source, device=self._device, dtype=self._dtype)

        if not self._weights:
            self._weights = [normal(*shape) for shape in self._shapes]
        rows = {n_in: normal(n_tokens, n_in) for _, n_in in self._shapes}

        def work() -> None:
            for weight in self._weights:
                functional.linear(rows[weight.shape[1]], weight)

        if self._device.type != "cuda":
            work()
            return measure.milliseconds(self._device, work, repeats=REPEATS)
        capturer = CudaCapturer(self._device)
        for _ in range(2):
            capturer.warm(work)
        graph = capturer.record(work)
        graph.replay()
        return measure.milliseconds(self._device, graph.replay, repeats=REPEATS, enough_ms=1e3)
