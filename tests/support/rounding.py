"""Whether one way of computing in 16 bits is as near to float32 as another.

Refuses to know what differs between the two. Trap: how far two of them lie apart says little; a model that is sensitive
to rounding moves either of them far, and a fixed bound on the difference then fails by the weights' luck.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from torch import Tensor

from decider.model.head import label_head
from decider.model.load import LoadedModel
from decider.run.forward import make_forward

ALLOWED = 1.5
"""How many times the plain forward's error another one may have: the order of roundings is chance."""


def in_float32(loaded: LoadedModel, label_ids: tuple[int, ...], ids: Tensor, slots: Tensor) -> Tensor:
    """Label logits [slots, labels] of the same weights, multiplied and added up in float32."""
    exact = replace(loaded, module=copy.deepcopy(loaded.module).float(), dtype="float32")
    return make_forward(exact, label_head(exact, label_ids))(ids, slots)


def error(logits: Tensor, exact: Tensor) -> float:
    """Root mean square of the difference."""
    return float((logits.double() - exact.double()).square().mean().sqrt())
