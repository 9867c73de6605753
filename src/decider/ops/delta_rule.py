"""Which function a gated delta layer calls: one opaque operation that compiles, or transformers' own lines of torch.

It refuses to know how the rule is computed. Trap: transformers calls flash-linear-attention where that is installed,
whose kernels multiply float32 in TF32, of ten bits. A model in float32 is then off by 3e-3 of its largest logit after
three such layers, and is no yardstick for one that is not.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from decider.ops.rebind import Function, rebind, users
from decider.ops.unit_norm import unit_vectors

# transformers ≥ 5.17: the name under which a gated delta layer calls the rule over whole rows.
DELTA_RULE = "torch_chunk_gated_delta_rule"


@torch.library.custom_op("decider::gated_delta_rule", mutates_args=())
def gated_delta_rule(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, home: str) -> Tensor:
    """[batch, tokens, value heads, value size], contiguous, from an empty state, by what the module `home` calls.

    query and key [batch, tokens, key heads, key size], value as the result, decay (log space) and beta
    [batch, tokens, value heads].
    """
    function = getattr(importlib.import_module(home), DELTA_RULE)
    out: Tensor = function(query, key, value, g=decay, beta=beta, use_qk_l2norm_in_kernel=False)[0]
    return out.contiguous()


@gated_delta_rule.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, home: str) -> Tensor:  # noqa: ARG001
    return torch.empty_like(value, dtype=query.dtype, memory_format=torch.contiguous_format)


def use_torch_rule(module: nn.Module) -> int:
    """In a twin, let every gated delta layer call transformers' own function in torch, whatever kernels are installed.

    Returns how many there are. It is slow: a step for each token of a chunk. Nothing of it is compiled or tuned at
    first use. A single token behind a cache stays with the recurrent rule, which has no matrix products.
    """
    found = users(module, DELTA_RULE)
    rebind(found, DELTA_RULE, _in_torch)
    return len(found)


def _in_torch(home: str) -> Function:
    # What picks kernels is wrapped round it (transformers 5.17 and 5.24: `use_kernel_func_from_hub_with_fallback`).
    function: Function = inspect.unwrap(getattr(importlib.import_module(home), DELTA_RULE))
    return function


def close_delta_rules(module: nn.Module) -> int:
    """In a twin, let every gated delta layer call `gated_delta_rule`. Returns how many there are.

    Those kernels are closed to the compiler, and the loop over chunks in torch would be compiled anew for each number
    of chunks; traced into, either breaks the promise of one compilation for all lengths.
    """
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
