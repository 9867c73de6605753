"""The gated delta rule over static tables as two Triton kernels: all chunks by themselves, then sequence by sequence.

It refuses to be imported without Triton, and to make tables. Trap: the triangular inverse is a product of numbers that
partly cancel, so it stays float32 until it is done; in bfloat16 its last rows would be noise.

The rule and its chunked form are those of `ops/delta.py`, with T, w = T diag(β exp G) K and u = T diag(β) V of each
chunk from the first kernel; the second carries the state S through a sequence:

    N = u − w S;   O = diag(exp G) Q S + tril(Q Kᵀ ∘ D) N;   S ← exp(G[last]) S + Kᵀ diag(exp(G[last] − G)) N

What of it needs no state, tril(Q Kᵀ ∘ D) too, is of the first kernel. So the second, in which chunks wait for each
other, reads nothing but operands of its products, and the decay of N is rounded with N, not once more with K.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from decider.ops.launches import DELTA_CHUNK, LONG_SEQUENCES, SEQUENCES, delta_scans, launch_for
from decider.ops.pack_ops import Gates
from decider.plan.tables import CHUNK_TOKENS, StaticTables

# Triton comes with torch for CUDA alone, and the type checker must do without it.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


# What softplus of a larger number is, in torch and here: the number itself.
LINEAR_FROM = 20.0


# Triton evaluates annotations as it does its own code, and knows no `Any`.
@triton.jit
def _softplus(x, linear_from):  # type: ignore[no-untyped-def]
    """log(1 + eˣ) by its larger part; what of eˣ is rounded off beside 1 comes back by Kahan's quotient."""
    small = tl.exp(-tl.abs(x))
    beside = 1.0 + small
    lost = beside == 1.0
    found = tl.where(lost, small, tl.log(beside) * (small / tl.where(lost, 1.0, beside - 1.0)))
    return tl.where(x > linear_from, x, found + tl.maximum(x, 0.0))


@triton.jit  # type: ignore[untyped-decorator]
def _ends_of(chunk, offsets, chunks, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """First token of a chunk, and where its sequence stops; the first is not before the second where there is none."""
    sequence = tl.load(chunks + 2 * chunk)
    start = tl.load(offsets + sequence) + tl.load(chunks + 2 * chunk + 1) * size
    return start, tl.load(offsets + sequence + 1)


@triton.jit(do_not_specialize=["n_tokens", "n_trunk_chunks"])  # type: ignore[untyped-decorator]
def _prepare_chunk(  # type: ignore[no-untyped-def]
    query, key, value, beta_logits, decay_logits, decay_rate, decay_bias, offsets, chunks, trunk_offsets, trunk_chunks,
    read, new, within, running, n_tokens, n_trunk_chunks, beta_stride, decay_stride, linear_from,
    key_heads: tl.constexpr, value_heads: tl.constexpr, key_dim: tl.constexpr, value_dim: tl.constexpr,
    size: tl.constexpr, levels: tl.constexpr, key_block: tl.constexpr, value_block: tl.constexpr,
    precision: tl.constexpr, is_tree: tl.constexpr,
):  # fmt: skip
    chunk, head = tl.program_id(0), tl.program_id(1)
    if is_tree:
        # A chunk of either, so that both are loaded and neither is beyond its table.
        start, stop = _ends_of(tl.maximum(chunk - n_trunk_chunks, 0), offsets, chunks, size)
        trunk_start, trunk_stop = _ends_of(tl.minimum(chunk, n_trunk_chunks - 1), trunk_offsets, trunk_chunks, size)
        start = tl.where(chunk < n_trunk_chunks, trunk_start, start)
        stop = tl.where(chunk < n_trunk_chunks, trunk_stop, stop)
    else:
        start, stop = _ends_of(chunk, offsets, chunks, size)
    if start < stop:
        place = tl.arange(0, size)
        known = start + place < stop
        rows = (start + place).to(tl.int64)
        columns, others = tl.arange(0, key_block), tl.arange(0, value_block)
        of_keys = known[:, None] & (columns < key_dim)[None, :]
        of_values = known[:, None] & (others < value_dim)[None, :]
        key_head = head // (value_heads // key_heads)
        shared = (rows[:, None] * key_heads + key_head) * key_dim + columns[None, :]
        q = tl.load(query + shared, mask=of_keys, other=0.0)
        k = tl.load(key + shared, mask=of_keys, other=0.0)
        v = tl.load(
            value + (rows[:, None] * value_heads + head) * value_dim + others[None, :], mask=of_values, other=0.0
        )
        dtype = k.dtype
        opening = tl.load(decay_logits + rows * decay_stride + head, mask=known, other=0.0).to(tl.float32)
        opening = _softplus(opening + tl.load(decay_bias + head).to(tl.float32), linear_from)
        decay = tl.cumsum(tl.where(known, tl.load(decay_rate + head) * opening, 0.0), axis=0)
        beta = tl.load(beta_logits + rows * beta_stride + head, mask=known, other=0.0).to(tl.float32)
        beta = tl.where(known, tl.sigmoid(beta).to(dtype).to(tl.float32), 0.0)
        row, column = place[:, None], place[None, :]
        between = tl.exp(tl.minimum(decay[:, None] - decay[None, :], 0.0))
        seen = tl.where(row >= column, between * tl.dot(q, tl.trans(k), input_precision="tf32x3"), 0.0)
        tl.store(within + (rows[:, None] * value_heads + head) * size + column, seen.to(dtype), mask=known[:, None])
        below = between * beta[:, None] * tl.dot(k, tl.trans(k), input_precision="tf32x3")
        below = tl.where(row > column, below, 0.0)
        # Blocks of 2 are inverted by a change of sign; then two blocks at a time become one: D − D B D.
        inverse = tl.where(row == column, 1.0, 0.0) - tl.where(row // 2 == column // 2, below, 0.0)
        # Unrolled, it takes the compiler three times as long.
        for level in range(1, levels):
            joins = (row >> (level + 1) == column >> (level + 1)) & (row >> level != column >> level)
            part = tl.dot(inverse, tl.where(joins, below, 0.0), input_precision=precision)
            inverse -= tl.dot(part, inverse, input_precision=precision)
        u = tl.dot((inverse * beta[None, :]).to(dtype), v, input_precision="tf32x3")
        w = tl.dot((inverse * (beta * tl.exp(decay))[None, :]).to(dtype), k, input_precision="tf32x3")
        places = (rows[:, None] * value_heads + head) * value_dim + others[None, :]
        tl.store(new + places, u.to(dtype), mask=of_values)
        places = (rows[:, None] * value_heads + head) * key_dim + columns[None, :]
        tl.store(read + places, w.to(dtype), mask=of_keys)
        tl.store(running + head * n_tokens + start + place, decay, mask=known)


@triton.jit
def _place_of(ours, turn, n_places):  # type: ignore[no-untyped-def]
    """Where the `turn`-th of `ours` stands, from 0; `n_places` if there are no more."""
    chosen = (ours & (tl.cumsum(ours.to(tl.int32), axis=0) == turn + 1)).to(tl.int32)
    place = tl.sum(chosen * tl.arange(0, ours.shape[0]), axis=0)
    return tl.where(tl.sum(chosen, axis=0) == 0, n_places, place)


@triton.jit(do_not_specialize=["n_tokens", "n_sequences", "n_begun", "above", "most"])  # type: ignore[untyped-decorator]
def _scan_sequence(  # type: ignore[no-untyped-def]
    query, key, read, new, within, running, offsets, parents, begun, ended, result,
    n_tokens, n_sequences, n_begun, above, most, scale,
    key_heads: tl.constexpr, value_heads: tl.constexpr, key_dim: tl.constexpr, value_dim: tl.constexpr,
    size: tl.constexpr, key_block: tl.constexpr, value_block: tl.constexpr,
    begins: tl.constexpr, keeps: tl.constexpr, stages: tl.constexpr, looks_at: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(1) // value_heads, tl.program_id(1) % value_heads
    end = tl.load(offsets + n_sequences)
    if looks_at:
        # Where few are of this launch, they are found among all at once, and not by looking at one after the other.
        every = tl.arange(0, looks_at)
        starts = tl.load(offsets + every, mask=every < n_sequences, other=0)
        lengths = tl.load(offsets + every + 1, mask=every < n_sequences, other=0) - starts
        ours = (lengths > above) & (lengths <= most)
        turn = sequence
        sequence = _place_of(ours, turn, n_sequences)
    first = tl.load(offsets + sequence)
    # Surplus sequences start at the end.
    while first < end:
        stop = tl.load(offsets + sequence + 1)
        # Another launch takes a sequence of another length; here it has no chunks, and its states are not touched.
        is_ours = (stop - first > above) & (stop - first <= most)
        first = tl.where(is_ours, first, stop)
        place, columns = tl.arange(0, size), tl.arange(0, key_block)
        others = tl.program_id(0) * value_block + tl.arange(0, value_block)
        of_state = (columns < tl.where(is_ours, key_dim, 0))[:, None] & (others < value_dim)[None, :]
        in_state = columns[:, None] * value_dim + others[None, :]
        state = tl.zeros([key_block, value_block], tl.float32)
        if begins:
            parent = tl.load(parents + sequence).to(tl.int64)
            at = (parent * value_heads + head) * (key_dim * value_dim)
            # The last one has no tokens, and nobody has written its state.
            state += tl.where(parent < n_begun - 1, tl.load(begun + at + in_state, mask=of_state, other=0.0), 0.0)
        key_head = head // (value_heads // key_heads)
        dtype = new.dtype.element_ty
        # Named here, the stages are of all loads; else only of those that go into products as they are.
        for start in tl.range(first, stop, size, num_stages=stages):
            known = start + place < stop
            rows = (start + place).to(tl.int64)
            of_keys = known[:, None] & (columns < key_dim)[None, :]
            of_values = known[:, None] & (others < value_dim)[None, :]
            shared = (rows[:, None] * key_heads + key_head) * key_dim + columns[None, :]
            heads = rows[:, None] * value_heads + head
            own = heads * value_dim + others[None, :]
            w = tl.load(read + heads * key_dim + columns[None, :], mask=of_keys, other=0.0)
            u = tl.load(new + own, mask=of_values, other=0.0)
            k = tl.load(key + shared, mask=of_keys, other=0.0)
            q = tl.load(query + shared, mask=of_keys, other=0.0)
            seen = tl.load(within + heads * size + place[None, :], mask=known[:, None], other=0.0)
            decay = tl.load(running + head * n_tokens + start + place, mask=known, other=0.0)
            whole = tl.load(running + head * n_tokens + tl.minimum(start + size, stop) - 1)
            before = state.to(dtype)
            corrected = u.to(tl.float32) - tl.dot(w, before, input_precision="tf32x3")
            left = (corrected * tl.exp(tl.minimum(whole - decay, 0.0))[:, None]).to(dtype)
            state = state * tl.exp(whole) + tl.dot(tl.trans(k), left, input_precision="tf32x3")
            found = tl.dot(q, before, input_precision="tf32x3") * tl.exp(decay)[:, None]
            found += tl.dot(seen, corrected.to(dtype), input_precision="tf32x3")
            tl.store(result + own, (found * scale).to(dtype), mask=of_values)
        if keeps:
            at = (sequence.to(tl.int64) * value_heads + head) * (key_dim * value_dim)
            tl.store(ended + at + in_state, state, mask=of_state)
        if looks_at:
            turn += tl.num_programs(1) // value_heads
            sequence = _place_of(ours, turn, n_sequences)
        else:
            sequence += tl.num_programs(1) // value_heads
        first = tl.load(offsets + tl.minimum(sequence, n_sequences))


def _shared_bytes_of(device: torch.device) -> int:
    """The most that a block may have; Triton's interpreter, on a processor, has no limit."""
    facts: Any = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    return sys.maxsize if facts is None else int(facts.shared_memory_per_block_optin)


class _Pass(NamedTuple):
    """Sequences of `StaticTables`."""

    offsets: Tensor
    parents: Tensor | None
    """With what of the other pass's states each begins; None for nothing."""
    keeps: bool
    """Whether final states are wanted."""


def delta_rule_in_two_passes(
    query: Tensor, key: Tensor, value: Tensor, gates: Gates, tables: StaticTables[Tensor]
) -> Tensor:
    """`PackOps.delta_rule` for unit vectors: [N, value_heads, dv]; float32 and halves, contiguous but for the logits.

    Products of halves have sums in float32; the state is float32, and rounded for each product with it. Products of
    float32 are three of TF32, which lose about as little, and the inverse in halves' kernels is of one.
    """
    n_tokens, value_heads, value_dim = value.shape
    key_heads, key_dim = key.shape[1:]
    read = torch.empty(n_tokens, value_heads, key_dim, dtype=value.dtype, device=value.device)
    new, result = torch.empty_like(value), torch.empty_like(value)
    within = torch.empty(n_tokens, value_heads, CHUNK_TOKENS, dtype=value.dtype, device=value.device)
    running = torch.empty(value_heads, n_tokens, dtype=torch.float32, device=value.device)
    sizes = {"key_heads": key_heads, "value_heads": value_heads, "key_dim": key_dim, "value_dim": value_dim}
    sizes |= {"size": CHUNK_TOKENS, "key_block": max(16, triton.next_power_of_2(key_dim))}
    value_block = max(16, triton.next_power_of_2(value_dim))
    is_wide = value.dtype is torch.float32
    chunk, room = launch_for(DELTA_CHUNK, n_tokens), _shared_bytes_of(value.device)
    n_trunk_chunks = tables.first_chunks.shape[0] if tables.is_tree else 0
    _prepare_chunk[(n_trunk_chunks + tables.rest_chunks.shape[0], value_heads)](
        query,
        key,
        value,
        gates.beta,
        gates.decay,
        gates.rate,
        gates.bias,
        tables.rest_offsets,
        tables.rest_chunks,
        tables.first_offsets if tables.is_tree else None,
        tables.first_chunks if tables.is_tree else None,
        read,
        new,
        within,
        running,
        n_tokens,
        n_trunk_chunks,
        gates.beta.stride(0),
        gates.decay.stride(0),
        LINEAR_FROM,
        **sizes,
        levels=CHUNK_TOKENS.bit_length() - 1,
        value_block=value_block,
        precision="tf32x3" if is_wide else "tf32",
        is_tree=tables.is_tree,
        num_warps=chunk.warps,
        num_stages=chunk.stages,
    )
    rest = _Pass(tables.rest_offsets, tables.rest_parents if tables.is_tree else None, keeps=False)
    first = _Pass(tables.first_offsets, None, keeps=True)
    states = None
    for over in (first, rest) if tables.is_tree else (rest,):
        n_sequences = over.offsets.shape[0] - 1
        ended = None
        if over.keeps:
            shape = (n_sequences, value_heads, key_dim, value_dim)
            ended = torch.empty(shape, dtype=torch.float32, device=value.device)
        for scan, above, most in delta_scans(n_tokens, is_trunks=over.keeps, is_wide=is_wide, most_shared_bytes=room):
            block = min(scan.block, value_block)
            n_programs = min(n_sequences, LONG_SEQUENCES if above else SEQUENCES, n_tokens // (above + 1))
            _scan_sequence[(triton.cdiv(value_dim, block), n_programs * value_heads)](
                query,
                key,
                read,
                new,
                within,
                running,
                over.offsets,
                over.parents,
                states,
                ended,
                result,
                n_tokens,
                n_sequences,
                0 if states is None else states.shape[0],
                above,
                most,
                key_dim**-0.5,
                **sizes,
                value_block=block,
                begins=over.parents is not None,
                keeps=over.keeps,
                stages=scan.stages,
                looks_at=triton.next_power_of_2(n_sequences) if above else 0,
                num_warps=scan.warps,
                num_stages=scan.stages,
            )
        states = ended
    return result
