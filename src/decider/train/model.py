"""What computes label logits in training: weights, shape, labels, and the layers that run.

It refuses to know losses. Trap: the frequencies of the rotary angles lie on the device from the start, because nothing
may be copied to it while a graph is captured.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from decider.backbone.spec import DecoderSpec
from decider.train.forward import LayersOf, Weights, label_logits, rotary_frequencies
from decider.train.tables import DeviceTables, PackTables, on_device
from decider.train.weights import Trainee


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A model that is trained."""

    trainee: Trainee
    spec: DecoderSpec
    label_ids: Tensor
    """[labels] on the device."""
    layers: LayersOf | None = None
    """Of the compiled forward; None for the plain one."""
    frequencies: Tensor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "frequencies", rotary_frequencies(self.spec, self.device))

    @property
    def device(self) -> torch.device:
        """Of every tensor."""
        return self.label_ids.device

    def logits(self, weights: Weights, tables: PackTables | DeviceTables) -> Tensor:
        """[slots, labels] with gradients, where `weights` have them."""
        there = on_device(tables, self.device) if isinstance(tables, PackTables) else tables
        return label_logits(weights, self.spec, there, self.label_ids, self.layers, self.frequencies)
