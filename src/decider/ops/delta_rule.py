"""The gated delta rule as one opaque operation, so that the layer round it compiles as a whole.

It refuses to know how the rule is computed: it calls what transformers calls, flash-linear-attention where that is
installed. Trap: those kernels are closed to the compiler, and transformers' own loop over chunks would be compiled anew
for each number of chunks; traced into, either breaks the promise of one compilation for all lengths.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from decider.ops.rebind import Function, rebind, users
from decider.ops.unit_norm import unit_vectors

# transformers ≥ 5.17: the name under which a gated delta layer calls the rule over whole rows.
DELTA_RULE = "torch_chunk_gated_delta_rule"


@torch.library.custom_op("decider::gated_delta_rule", mutates_args=())
def gated_delta_rule(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, home: str) -> Tensor:
    """[batch, tokens, value heads, value size], contiguous, from an empty state, by the function of the module `home`.

    query and key [batch, tokens, key heads, key size], value as the result, decay (log space) and beta
    [batch, tokens, value heads].
    """
    function = getattr(importlib.import_module(home), DELTA_RULE)
    out: Tensor = function(query, key, value, g=decay, beta=beta, use_qk_l2norm_in_kernel=False)[0]
    return out.contiguous()


@gated_delta_rule.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, home: str) -> Tensor:  # noqa: ARG001
    return torch.empty_like(value, dtype=query.dtype, memory_format=torch.contiguous_format)


def close_delta_rules(module: nn.Module) -> int:
    """In a twin, let every gated delta layer call `gated_delta_rule`. Returns how many there are."""
    found = users(module, DELTA_RULE)
    rebind(found, DELTA_RULE, _closed)
    return len(found)


def _closed(home: str) -> Function:
    def rule(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        g: Tensor,
        beta: Tensor,
        *,
        initial_state: Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        cu_seqlens: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        assert initial_state is None, "no cache in a compiled forward"
        assert not output_final_state
        assert cu_seqlens is None
        # Normalised and copied out here, both are part of what the compiler fuses; the kernels want them contiguous.
        if use_qk_l2norm_in_kernel:
            query, key = unit_vectors(query), unit_vectors(key)
        query, key, value = (each.contiguous() for each in (query, key, value))
        return torch.ops.decider.gated_delta_rule(query, key, value, g, beta, home), None

    return rule
