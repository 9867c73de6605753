"""flash-linear-attention's gated delta rule without the one kernel of it that is tuned for every size.

It refuses to know how the rule is computed. Trap: for use in a copy of a model's modules; `rebind` says how the name is
replaced there and nowhere else.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from torch import Tensor, nn

from decider.ops.delta_rule import DELTA_RULE
from decider.ops.rebind import Function, rebind, users


def has_kernels() -> bool:
    """Whether flash-linear-attention is installed; transformers then takes the rule from it."""
    return importlib.util.find_spec("fla") is not None


def pin_delta_rules(module: nn.Module) -> int:
    """In a twin on CUDA, let every gated delta layer normalise by `unit_vectors_in_one_pass`; how many there are."""
    found = users(module, DELTA_RULE)
    rebind(found, DELTA_RULE, _pinned)
    return len(found)


def _pinned(home: str) -> Function:
    from decider.ops.unit_norm_kernel import unit_vectors_in_one_pass

    original = getattr(importlib.import_module(home), DELTA_RULE)

    def rule(
        query: Tensor, key: Tensor, *rest: Any, use_qk_l2norm_in_kernel: bool = False, **others: Any
    ) -> tuple[Tensor, Tensor | None]:
        if use_qk_l2norm_in_kernel:
            query, key = unit_vectors_in_one_pass(query), unit_vectors_in_one_pass(key)
        out, state = original(query, key, *rest, use_qk_l2norm_in_kernel=False, **others)
        return out, state

    return rule
