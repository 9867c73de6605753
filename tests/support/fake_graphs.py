"""A capture back end without a device, and tiny models with random rows for it.

Refuses to be fast: a fake graph runs the forward again at each replay. Trap: like a real one it writes into its static
buffer, so a caller that returns a view of it is found out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from decider.model.head import LabelHead, label_head
from decider.model.load import LoadedModel, load_module
from decider.model.source import ModelFolder
from decider.read import probabilities
from decider.run.executor import Logits
from decider.run.forward import Forward
from decider.run.graphs import Graph, Statics
from decider.tokens.rows import Row

LABEL_IDS = tuple(range(40, 295))
VOCAB = 1024


@dataclass(frozen=True, slots=True)
class FakeGraph:
    """Runs the captured function at each replay."""

    forward: Forward
    statics: Statics

    def replay(self) -> None:
        """Overwrite the static output."""
        self.statics.logits.copy_(self.forward(self.statics.ids, self.statics.slots))


@dataclass(slots=True)
class FakeCapturer:
    """Counts captures by shape, in order; refuses them once `closed`."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)
    closed: bool = False

    def run(self, forward: Forward, statics: Statics) -> None:
        """Overwrite the static output."""
        statics.logits.copy_(forward(statics.ids, statics.slots))

    def capture(self, forward: Forward, statics: Statics) -> Graph:
        """A fake graph, or AssertionError."""
        assert not self.closed, "captured after the seal"
        self.shapes.append(tuple(statics.ids.shape))
        return FakeGraph(forward, statics)


def load_tiny(
    folder: Path,
    dtype: str = "float32",
    *,
    device: str = "cpu",
    attention: str = "sdpa",
    positions: int | None = None,
    quieter: float = 1.0,
) -> tuple[LoadedModel, LabelHead]:
    """The model in `folder` with its label head. `positions` lowers what it says it has.

    `quieter` divides its matrices. The checkpoints' own are so large that in float32 the order of sums alone moves
    probabilities by some 1e-6.
    """
    loaded = load_module(ModelFolder(folder, "tiny", "a test"), device=device, dtype=dtype, attention=attention)
    for parameter in loaded.module.parameters():
        if parameter.dim() >= 2:
            parameter.div_(quieter)
    head = label_head(loaded, LABEL_IDS)
    return (loaded if positions is None else replace(loaded, max_positions=positions)), head


def random_row(n_tokens: int, *, slots: int = 1, seed: int = 0) -> Row:
    """A row of random ids, read at its last token and at `slots` − 1 places before it."""
    source = random.Random(f"{n_tokens} {slots} {seed}")
    places = sorted({n_tokens - 1, *source.sample(range(n_tokens - 1), slots - 1)})
    ids = tuple(source.randrange(VOCAB) for _ in range(n_tokens))
    return Row(ids, tuple(places), (5,) * slots, prefix_tokens=0)


def largest_shift(ours: list[Logits], theirs: list[Logits]) -> float:
    """Largest |Δp| over all rows, slots and labels, with all labels in play."""
    assert [one.shape for one in ours] == [one.shape for one in theirs]
    return max(
        float(np.abs(probabilities(a, len(a), 1.0) - probabilities(b, len(b), 1.0)).max())
        for one, other in zip(ours, theirs, strict=True)
        for a, b in zip(one, other, strict=True)
    )
