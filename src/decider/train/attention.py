"""Attention over a pack, with gradients: causal in each span, and a branch also sees its whole trunk.

It refuses to know layers and rotary angles. It is plain torch, for any device; `compiled.by_blocks` takes its place on
a card. Trap: keys are padded with a span's last token. Roots need no mask for that, as no real token sees what lies
behind it; a branch's trunk lies before it, and its padding must be hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from decider.train.tables import DeviceTables


def attend(query: Tensor, key: Tensor, value: Tensor, tables: DeviceTables, scale: float) -> Tensor:
    """query [N, heads, d], key and value [N, kv_heads, d] → [N, heads, d].

    Each key head serves as many query heads in a row. Like spans are one call of torch's attention.
    """
    shared = query.shape[1] // key.shape[1]
    outputs = []
    for spans in tables.spans:
        if spans.trunk_tokens is None:
            keys, mask = spans.tokens, None
        else:
            assert spans.seen is not None
            keys, mask = torch.cat((spans.trunk_tokens, spans.tokens), dim=1), spans.seen[:, None]
        # [spans, heads, tokens, d]
        q = gathered(query, spans.tokens).transpose(1, 2)
        k, v = (gathered(each, keys).transpose(1, 2).repeat_interleave(shared, dim=1) for each in (key, value))
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale)
        outputs.append(seen.transpose(1, 2).flatten(0, 1))
    return torch.cat(outputs).index_select(0, tables.order)


def gathered(x: Tensor, tokens: Tensor) -> Tensor:
    """x [N, …], tokens [spans, longest] → [spans, longest, …].

    Not by `x[tokens]`, whose gradient sorts all indices on a card.
    """
    return x.index_select(0, tokens.flatten()).view(*tokens.shape, *x.shape[1:])
