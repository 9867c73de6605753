"""One pack through a backbone, eagerly.

It refuses to plan and to know heads. Trap: whoever runs packs runs them through here, the checks at load too. A second
way to a tree would be checked by nobody.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decider.backbone.decoder import Backbone
from decider.ops.tree import tree_of
from decider.plan.pack import Pack


def states_at_slots(backbone: Backbone, pack: Pack) -> Tensor:
    """[slots of the pack, hidden] after the final norm, in the backbone's dtype and in the order of `pack.slots`."""
    tree = tree_of(pack, backbone.device, backbone.spec.taps)
    ids = torch.from_numpy(np.array(pack.ids)).to(backbone.device)
    return backbone.hidden_at_slots(ids, tree)
