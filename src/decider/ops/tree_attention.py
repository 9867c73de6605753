"""Attention over a pack: causal in each span, and a branch also sees its whole trunk.

It refuses to know layers and rotary angles. Trap: scores are kept in float32 at least. As products of a bfloat16 matmul
they would be rounded to eight bits, and the outputs would be three times as far from the exact ones.

It is plain products and a softmax, run by run (`ops/tree.py`), and no fused kernel: those want one mask for everything
or a call for each branch, and differ in what `is_causal` means between unequal lengths and in what they take for
grouped heads. On a processor they are slower too, but for short rows and, in float32, long ones. Processor time in ms
on one AVX512-BF16 core, a layer of 9 heads of 64 over 3 key heads, torch 2.13 (`benchmarks/ops_cpu.py`):

| trunk + branches | bfloat16: the best of five ways by SDPA | this | float32: the best of five | this |
|---|---|---|---|---|
| 64 | 0.20 | 0.23 | 0.16 | 0.21 |
| 200 | 1.47 | 1.40 | 1.31 | 1.30 |
| 300 + 5 × 40 | 6.4 | 4.9 | 5.9 | 5.2 |
| 300 + 16 × 8 | 5.4 | 3.9 | 4.8 | 4.2 |
| 1500 + 16 × 40 | 83 | 70 | 75 | 88 |
"""

from __future__ import annotations

import torch
from torch import Tensor

from decider.ops.tree import Run, Tree


def tree_attention(
    query: Tensor, key: Tensor, value: Tensor, tree: Tree, *, scale: float, window: int | None = None
) -> Tensor:
    """[N, heads, d]: each token attends to its own row so far, which for a branch begins with its trunk.

    query [N, heads, d]; key and value [N, kv_heads, d], each of their heads serving as many query heads in a row.
    `window`: how many tokens of its row a token sees, itself included; None for all. Softmax in float32 at least, its
    weights rounded to the dtype of `value`.
    """
    tokens, heads, dim = query.shape
    kv_heads = key.shape[1]
    shared = heads // kv_heads
    precision = torch.promote_types(query.dtype, torch.float32)
    if window is not None and window >= tree.longest_row:
        window = None

    # By key head, the rows of its query heads together: a run is one product for each key head, and no key is repeated.
    q = torch.empty(kv_heads, tokens, shared, dim, dtype=precision, device=query.device)
    q.copy_(query.view(tokens, kv_heads, shared, dim).transpose(0, 1)).mul_(scale)
    q = q.view(kv_heads, tokens * shared, dim)
    k, v = key.transpose(0, 1).to(precision), value.transpose(0, 1)
    out = torch.empty(tokens, kv_heads, shared, dim, dtype=query.dtype, device=query.device)
    for run in tree.runs:
        n = run.stop - run.start
        scores = torch.bmm(q[:, run.start * shared : run.stop * shared], _seen(k, run, 1).mT)
        by_token = scores.view(kv_heads, n, shared, -1)
        by_token[..., -n:].add_(run.bias[:, None])
        if window is not None:
            distance = tree.positions[run.start : run.stop, None] - _seen(tree.positions, run, 0)
            by_token.masked_fill_((distance >= window)[:, None], -torch.inf)
        seen = torch.bmm(scores.softmax(-1).to(value.dtype), _seen(v, run, 1))
        out[run.start : run.stop] = seen.view(kv_heads, n, shared, dim).transpose(0, 1)
    return out.view(tokens, heads, dim)


def _seen(tokens: Tensor, run: Run, dim: int) -> Tensor:
    """What of `tokens` the run sees along `dim`: a view where it lies together."""
    parts = [tokens.narrow(dim, start, stop - start) for start, stop in run.keys]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)
