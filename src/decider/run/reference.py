"""The reference executor: one full row after the other through the Hugging Face model, eager, no padding, no cache.

It is the oracle of every faster executor, so it refuses to know buckets, batches, caches and graphs. Trap: do not make
it fast. What it shares with an engine under test, it cannot judge.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from decider.model.head import LabelHead, last_hidden
from decider.model.load import LoadedModel
from decider.run.executor import Logits
from decider.run.forward import on_device
from decider.run.stats import ReferenceReport
from decider.tokens.rows import Row


class ReferenceExecutor:
    """Satisfies `Executor` for any causal language model that `load_module` can load."""

    def __init__(self, loaded: LoadedModel, head: LabelHead) -> None:
        self._loaded = loaded
        self.head = head

    @torch.inference_mode()
    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        """See `Executor`. Each row is a forward of its own: [1, len(row.ids)] tokens in, [slots, labels] logits out."""
        with on_device(torch.device(self._loaded.device)):
            return [self._one(row) for row in rows]

    def _one(self, row: Row) -> Logits:
        input_ids = torch.tensor([row.ids], device=self._loaded.device)
        hidden = last_hidden(self._loaded.module, input_ids)
        slots = torch.tensor(row.slots, device=self._loaded.device)
        logits: Logits = self.head(hidden[0, slots]).cpu().numpy()
        return logits

    def describe(self) -> ReferenceReport:
        """What runs, where, and in which precision."""
        return ReferenceReport(self._loaded.device, self._loaded.dtype)

    def close(self) -> None:
        """Does nothing: the reference holds nothing of its own."""
