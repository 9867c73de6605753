"""Forward and backward of a pack as one CUDA graph: a step launches one graph a pack, not some thousand kernels.

It refuses to know optimisers and files. What is captured is `gradients.pack_loss` on packs of one size. Trap: a graph
reads and writes fixed addresses. Tables are copied to where it reads, trained tensors are changed in place alone, and
gradients are added up where the optimiser looks for them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decider.train.augment import TWIN_OPTIONS
from decider.train.feed import StepBatch, Targets
from decider.train.gradients import PlainGradients, loss_of
from decider.train.loss import LossSpec
from decider.train.model import Model
from decider.train.sight import BLOCK
from decider.train.tables import DeviceSight, DeviceTables, PackTables, moved

WARM_UPS = 3
"""Before a capture: compiling, and what libraries allocate at their first calls."""


class GraphedGradients:
    """See `gradients.Gradients`; a pack of another size, or of more slots, goes the plain way.

    The graph is captured at the first pack that it can take, of `n_tokens` tokens and at most `n_slots` slots.
    """

    def __init__(self, model: Model, loss: LossSpec, *, n_tokens: int, n_slots: int) -> None:
        self._model, self._loss = model, loss
        self._plain = PlainGradients(model, loss)
        self._trained = list(model.trainee.trained.values())
        self._static = _Static(model.device, n_tokens, n_slots)
        self._sums = [torch.zeros_like(tensor) for tensor in self._trained]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._value = torch.zeros((), device=model.device)

    def of(self, batch: StepBatch) -> Tensor:
        """See `Gradients`."""
        torch._foreach_zero_(self._sums)
        for tensor, own in zip(self._trained, self._sums, strict=True):
            tensor.grad = own
        total = torch.zeros((), device=self._model.device)
        for tables, targets in batch.packs:
            total += self._add(tables, targets, batch.weight)
        return total

    def _add(self, tables: PackTables, targets: Targets, weight: float) -> Tensor:
        if not self._static.takes(tables):
            return self._plain.add(tables, targets, weight)
        self._static.fill(tables, targets, weight)
        if self._graph is None:
            self._graph = self._captured()
        self._graph.replay()
        return self._value.clone()

    def _captured(self) -> torch.cuda.CUDAGraph:
        """The graph, at whose capture nothing is computed; what the warm-ups added is taken back."""
        before = [own.clone() for own in self._sums]
        own_stream = torch.cuda.current_stream(self._model.device)
        stream: torch.cuda.Stream = torch.cuda.Stream(self._model.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(own_stream)
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self._run()
        own_stream.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run()
        torch._foreach_copy_(self._sums, before)
        return graph

    def _run(self) -> None:
        static = self._static
        logits = self._model.logits(self._model.trainee.weights(), static.tables)
        loss = loss_of(logits, static.n_options, static.right, static.weight, static.twin, static.order, self._loss)
        found = list(torch.autograd.grad(loss, self._trained))
        torch._foreach_add_(self._sums, found)
        self._value.copy_(loss.detach())


class _Static:
    """Where the graph reads a pack."""

    def __init__(self, device: torch.device, n_tokens: int, n_slots: int) -> None:
        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        n_blocks = n_tokens // BLOCK
        shapes = (n_tokens,), (n_tokens,), (n_tokens,), (n_blocks,), (n_blocks, n_blocks)
        self.sight = DeviceSight(*(zeros(*shape, dtype=torch.int32) for shape in shapes))
        self.tables = DeviceTables(
            ids=zeros(n_tokens, dtype=torch.int64),
            positions=zeros(n_tokens, dtype=torch.int64),
            look_back=zeros(n_tokens, 0, dtype=torch.int64),
            slots=zeros(n_slots, dtype=torch.int64),
            spans=(),
            order=zeros(0, dtype=torch.int64),
            sight=self.sight,
        )
        self.n_options = zeros(n_slots, dtype=torch.int64)
        self.right = zeros(n_slots, dtype=torch.int64)
        self.weight = zeros(n_slots, dtype=torch.float32)
        self.twin = zeros(n_slots, dtype=torch.int64)
        self.order = zeros(n_slots, TWIN_OPTIONS, dtype=torch.int64)

    def takes(self, tables: PackTables) -> bool:
        """Whether the graph can run a pack."""
        fits = tables.n_tokens == len(self.tables.ids) and len(tables.slots) <= len(self.tables.slots)
        return fits and tables.sight is not None

    def fill(self, tables: PackTables, targets: Targets, weight: float) -> None:
        """Copy a pack to where the graph reads. Slots behind its own have no weight."""
        own, more = tables.sight, len(self.tables.slots) - len(tables.slots)
        assert own is not None
        for there, here in (
            (self.tables.ids, tables.ids),
            (self.tables.positions, tables.positions),
            (self.tables.slots, np.pad(tables.slots, (0, more))),
            (self.sight.own_start, own.own_start),
            (self.sight.trunk_start, own.trunk_start),
            (self.sight.trunk_stop, own.trunk_stop),
            (self.sight.counts, own.counts),
            (self.sight.blocks, own.blocks),
            (self.n_options, np.pad(targets.n_options, (0, more), constant_values=1)),
            (self.right, np.pad(targets.right, (0, more))),
            (self.weight, np.pad(targets.weight / np.float32(weight), (0, more))),
            (self.twin, np.pad(targets.twin, (0, more))),
            (self.order, np.pad(targets.order, ((0, more), (0, 0)))),
        ):
            there.copy_(moved(here, there.device))
