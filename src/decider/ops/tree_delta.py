"""The gated delta rule over a pack: roots from an empty state, then branches from where their trunks ended.

It refuses to know gates and projections. Trap: spans are padded on the right to a batch, and a padded token must have
β = 0 and a decay of 1, or a branch goes on from another state than that of its trunk's last token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from decider.ops.delta import chunk_gated_delta_rule
from decider.ops.tree import Tree


def tree_delta_rule(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, tree: Tree) -> Tensor:
    """[N, value_heads, dv] in the dtype of `query`; query and key become unit vectors first.

    query, key [N, key_heads, dk]; value [N, value_heads, dv]; decay (its logarithm, at most 0) and beta
    [N, value_heads]. The rule and its arithmetic are those of `chunk_gated_delta_rule`.
    """
    outputs: list[Tensor] = []
    trunk_states: list[Tensor] = []
    for batch in tree.batches:
        # Gathered into a new tensor: no branch can write into the state of its trunk or its neighbours.
        start = None if batch.parents is None else torch.cat(trunk_states).index_select(0, batch.parents)
        real = batch.real[..., None]
        output, state = chunk_gated_delta_rule(
            query[batch.rows],
            key[batch.rows],
            value[batch.rows],
            g=decay[batch.rows].masked_fill(~real, 0),
            beta=beta[batch.rows].masked_fill(~real, 0),
            initial_state=start,
            output_final_state=batch.parents is None,
            use_qk_l2norm_in_kernel=True,
        )
        outputs.append(output.flatten(0, 1))
        if state is not None:
            trunk_states.append(state)
    return torch.cat(outputs).index_select(0, tree.order)
