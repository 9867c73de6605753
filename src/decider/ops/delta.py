"""The gated delta rule in chunks, in plain torch, with the triangular inverse of each chunk by block recursion.

It refuses to know devices: index tensors are made where the inputs are, and nothing is read back. Trap: in float32 the
decay between two tokens must not be the difference of two running sums, as it is elsewhere: after a step that forgets
much, the sums are large and what the small steps add to them is rounded off (errors of 1e-5 to 5e-4 for 1e-7).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from decider.errors import EngineError
from decider.ops.delta_rule import DELTA_RULE
from decider.ops.rebind import rebind, users
from decider.ops.unit_norm import unit_vectors

# What layers hand down to everything below them and the rule has no use for.
_IRRELEVANT = frozenset(
    {
        "position_ids",
        "use_cache",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "num_items_in_batch",
    }
)


def chunk_gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    chunk_size: int = 64,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Called as transformers and flash-linear-attention call their function of this name.

    `query`, `key` [batch, tokens, key heads, key dim]; `value` [batch, tokens, value heads, value dim], each key head
    serving as many value heads in a row; `g` (log of the decay, at most 0) and `beta` [batch, tokens, value heads];
    `initial_state` [batch, value heads, key dim, value dim]; `chunk_size` a power of two. Gives the output, shaped as
    `value` in the dtype of `query`, and the final state, or None unless asked for. Raises EngineError for any other
    argument that could change the result, as `cu_seqlens` would.

    Arithmetic and final state are float32, for half inputs too, because states add up over the whole row; float64 for
    float64 inputs.

    The rule (Yang, Kautz, Hatamizadeh 2024, "Gated Delta Networks", section 3.1), with q scaled by 1/√(key dim):

        S ← exp(g) S;   S ← S + β k (v − Sᵀk)ᵀ;   o = Sᵀq

    In a chunk (section 3.3, the WY form), with G the running sum of g and D[i, j] = exp(G[i] − G[j]) for i ≥ j:

        T = (I + tril(diag(β) K Kᵀ ∘ D, −1))⁻¹
        N = T diag(β) V − T diag(β exp G) K S
        O = diag(exp G) Q S + tril(Q Kᵀ ∘ D) N
        S ← exp(G[last]) S + (diag(exp(G[last] − G)) K)ᵀ N
    """
    refused = sorted(name for name, given in others.items() if given is not None and name not in _IRRELEVANT)
    if refused:
        raise EngineError(
            f"the gated delta rule by block inverse cannot take {refused[0]!r:.60}; call the model without"
        )
    assert chunk_size & (chunk_size - 1) == 0, chunk_size
    batch, tokens, key_heads, key_dim = key.shape
    value_heads, value_dim = value.shape[2:]
    dtype = torch.float64 if query.dtype is torch.float64 else torch.float32
    # A short row needs no chunk longer than itself.
    size = next(size for size in (1, 2, 4, 8, 16, 32, chunk_size) if size >= min(tokens, chunk_size))

    def chunked(given: Tensor) -> Tensor:
        """[batch, tokens, heads, …] → [batch, key heads, its value heads or 1, chunks, size, …]."""
        # A padded token has β = 0 and g = 0: it writes nothing and lets nothing decay.
        padded = functional.pad(given.to(dtype), (0, 0) * (given.dim() - 2) + (0, -tokens % size))
        shape = (batch, key_heads, -1, padded.shape[1] // size, size, *given.shape[3:])
        return padded.transpose(1, 2).reshape(shape).contiguous()

    q, k, v = chunked(query), chunked(key), chunked(value)
    log_decay, rate = chunked(g), chunked(beta)
    if use_qk_l2norm_in_kernel:
        q, k = unit_vectors(q), unit_vectors(k)
    q = q * key_dim**-0.5

    # Each sum over its own steps: a difference of two running sums loses small steps that follow a large one.
    decay = log_decay.unsqueeze(-1).expand(*log_decay.shape, size).tril(-1).cumsum(-2).exp().tril()
    from_start = log_decay.cumsum(-1).exp()
    inverse = unit_lower_inverse(rate.unsqueeze(-1) * (k @ k.mT) * decay)
    new = (inverse * rate.unsqueeze(-2)) @ v
    read = (inverse * (rate * from_start).unsqueeze(-2)) @ k
    within = (q @ k.mT) * decay
    q = q * from_start.unsqueeze(-1)
    k = k * decay[..., -1, :].unsqueeze(-1)

    shape = (batch, key_heads, value_heads // key_heads, key_dim, value_dim)
    state = q.new_zeros(shape) if initial_state is None else initial_state.to(dtype).reshape(shape)
    outputs = []
    for chunk in range(new.shape[3]):
        corrected = new[:, :, :, chunk] - read[:, :, :, chunk] @ state
        outputs.append(q[:, :, :, chunk] @ state + within[:, :, :, chunk] @ corrected)
        state = state * from_start[:, :, :, chunk, -1, None, None] + k[:, :, :, chunk].mT @ corrected
    output = torch.cat(outputs, dim=3).flatten(1, 2)[:, :, :tokens].transpose(1, 2)
    return output.to(query.dtype).contiguous(), state.flatten(1, 2) if output_final_state else None


def unit_lower_inverse(system: Tensor) -> Tensor:
    """Inverse of I + the strictly lower triangle of `system` [..., n, n], n a power of two; the rest is never read.

    By blocks from 1 × 1 to n × n, all of one size at once, log2(n) steps:
    [[A, 0], [C, B]]⁻¹ = [[A⁻¹, 0], [−B⁻¹ C A⁻¹, B⁻¹]].
    """
    if system.requires_grad and torch.is_grad_enabled():
        # What is written in place below has no gradient of its own.
        inverse: Tensor = _Inverse.apply(system)  # type: ignore[no-untyped-call]
        return inverse
    return _blockwise_inverse(system)


class _Inverse(torch.autograd.Function):
    """dX = −Xᵀ dY Xᵀ for Y = X⁻¹, of which the strictly lower triangle reaches `system`."""

    @staticmethod
    def forward(ctx: Any, system: Tensor) -> Tensor:
        inverse = _blockwise_inverse(system)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        inverse: Tensor = ctx.saved_tensors[0]
        return -(inverse.mT @ gradient @ inverse.mT).tril(-1)


def _blockwise_inverse(system: Tensor) -> Tensor:
    n = system.shape[-1]
    inverse = torch.eye(n, dtype=system.dtype, device=system.device).expand(system.shape).contiguous()
    size = 1
    while size < n:
        below, done = _diagonal_blocks(system, 2 * size)[..., size:, :size], _diagonal_blocks(inverse, 2 * size)
        left, right = done[..., :size, :size], done[..., size:, size:]
        done[..., size:, :size] = -(right @ below @ left)
        size *= 2
    return inverse


def _diagonal_blocks(matrix: Tensor, size: int) -> Tensor:
    """[..., n, n] → [..., n / size, size, size], a view."""
    per_side = matrix.shape[-1] // size
    blocks = matrix.view(*matrix.shape[:-2], per_side, size, per_side, size)
    return blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)


def use_block_inverse(module: nn.Module) -> int:
    """Let every layer under `module` that calls the gated delta rule call `chunk_gated_delta_rule` of this file.

    Gives the number of layers: 0 for a model without such. `module` is changed for good, so hand in a twin that belongs
    to one engine. A single token behind a cache stays with transformers' recurrent rule, which inverts nothing.
    """
    found = users(module, DELTA_RULE)
    rebind(found, DELTA_RULE, lambda _: chunk_gated_delta_rule)
    return len(found)
