"""The gated delta rule over static tables by flash-linear-attention's kernels: first the trunks, then all the rest.

It refuses to be imported without flash-linear-attention. It stands beside `ops/delta_kernels.py`, which decoders use,
to be measured and tested against. Trap: its function for whole rows makes the table of chunks
itself and remembers it by the tensor it was made from; a table changed in place would be met by the numbers of the pack
before. So its parts are called here, each with the tables of `StaticTables`.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import torch
from torch import Tensor

from decider.plan.tables import CHUNK_TOKENS, StaticTables

_chunk: Any = importlib.import_module("fla.ops.gated_delta_rule.chunk_fwd")
_state: Any = importlib.import_module("fla.ops.common.chunk_delta_h")
_output: Any = importlib.import_module("fla.ops.common.chunk_o")
_utils: Any = importlib.import_module("fla.ops.utils")
_constant: Any = importlib.import_module("fla.ops.utils.constant")


def static_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, rate: Tensor, tables: StaticTables[Tensor]
) -> Tensor:
    """[N, value_heads, dv] in the dtype of `value`.

    query and key [N, key_heads, dk], unit vectors; value [N, value_heads, dv]; log_decay float32 and rate
    [N, value_heads]; all contiguous.
    """
    given = _Given(*(each[None] for each in (query, key, value, log_decay, rate)))
    rest = _Pass(tables.rest_offsets, tables.rest_chunks, tables.rest_chunk_offsets)
    if not tables.is_tree:
        return _one_pass(given, rest, None)[0][0]
    first = _Pass(tables.first_offsets, tables.first_chunks, tables.first_chunk_offsets)
    of_trunks, states = _one_pass(given, first, None, keeps_states=True)
    assert states is not None
    # A new tensor: no branch writes into the state of its trunk or its neighbours.
    of_rest, _ = _one_pass(given, rest, states.index_select(0, tables.rest_parents))
    is_first = torch.arange(tables.n_tokens, device=value.device) < tables.first_offsets[-1]
    return torch.where(is_first[:, None, None], of_trunks[0], of_rest[0])


class _Given(NamedTuple):
    """As `static_delta_rule`, with a batch of one before."""

    query: Tensor
    key: Tensor
    value: Tensor
    log_decay: Tensor
    rate: Tensor


class _Pass(NamedTuple):
    """Sequences as the kernels take them; see `StaticTables`."""

    offsets: Tensor
    chunks: Tensor
    chunk_offsets: Tensor


def _one_pass(
    given: _Given, over: _Pass, states: Tensor | None, *, keeps_states: bool = False
) -> tuple[Tensor, Tensor | None]:
    """The output at the tokens of these sequences, others as memory was; and the final states, where they are kept."""
    query, key, value, log_decay, rate = given
    common = {"cu_seqlens": over.offsets, "chunk_indices": over.chunks, "chunk_size": CHUNK_TOKENS}
    # As the kernels behind it take decays, powers of two.
    decay = _utils.chunk_local_cumsum(log_decay, scale=_constant.RCP_LN2, **common)
    read, new, _ = _chunk.chunk_gated_delta_rule_fwd_intra(k=key, v=value, g=decay, beta=rate, **common)
    within, corrected, final = _state.chunk_gated_delta_rule_fwd_h(
        k=key,
        w=read,
        u=new,
        g=decay,
        initial_state=states,
        output_final_state=keeps_states,
        chunk_offsets=over.chunk_offsets,
        **common,
    )
    output: Tensor = _output.chunk_fwd_o(
        q=query, k=key, v=corrected, h=within, g=decay, scale=query.shape[-1] ** -0.5, **common
    )
    return output, final
