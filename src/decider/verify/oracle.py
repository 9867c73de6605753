"""The oracle of a verification, and the yardstick of a coarser type: the reference executor on weights of its own.

It refuses to share a module with the engine under test. Trap: on CUDA, torch may multiply float32 in TF32, of ten bits,
and then the oracle is no better than what it judges. TF32 is off around each of the oracle's forwards, and only there;
kernels that have it of their own accord, as those of the gated delta rule do, have no part in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from decider.errors import DeviceError, first_line
from decider.model.head import label_head
from decider.model.load import LoadedModel, load_module
from decider.model.source import ModelFolder
from decider.ops.delta_rule import use_torch_rule
from decider.run.executor import Logits
from decider.run.measure import free_bytes
from decider.run.precision import full_float32
from decider.run.reference import ReferenceExecutor
from decider.run.stats import ReferenceReport
from decider.tokens.rows import Row

# Scores, their softmax, a copy of it and the mask: square matrices in float32, one a head, that eager attention holds.
_SQUARES = 4


@dataclass(frozen=True, slots=True)
class Eager:
    """The reference executor without TF32. Satisfies `Executor`."""

    reference: ReferenceExecutor
    loaded: LoadedModel

    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        """See `Executor`. Raises DeviceError where the device has no room for a row."""
        try:
            with full_float32():
                return self.reference.label_logits(rows)
        except torch.OutOfMemoryError as error:
            longest = max(len(row.ids) for row in rows)
            raise DeviceError(
                f"the oracle has no room for a row of {longest:,} tokens on {self.loaded.device}: "
                f"{first_line(error):.120}; free memory, or verify with a smaller --budget"
            ) from error

    def describe(self) -> ReferenceReport:
        """What the reference executor says."""
        return self.reference.describe()

    def close(self) -> None:
        """Does nothing, as the reference executor."""
        self.reference.close()


def open_eager(folder: ModelFolder, label_ids: Sequence[int], *, device: str, dtype: str) -> Eager:
    """Load the weights in `folder` once more, in `dtype`, with eager attention and the gated delta rule in torch.

    Raises what loading raises.
    """
    loaded = load_module(folder, device=device, dtype=dtype, attention="eager")
    use_torch_rule(loaded.module)
    return Eager(ReferenceExecutor(loaded, label_head(loaded, label_ids)), loaded)


def most_tokens(oracle: Eager) -> int | None:
    """Longest row that the free memory holds the oracle's attention matrices for; None where that is not known."""
    free = free_bytes(torch.device(oracle.loaded.device))
    if free is None:
        return None
    # A model without attention has no such matrices; one is what it is taken for.
    heads = int(getattr(oracle.loaded.module.config.get_text_config(), "num_attention_heads", None) or 1)
    return max(1, math.isqrt(free // (_SQUARES * 4 * heads)))
