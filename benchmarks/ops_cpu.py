"""How long the operations over packs take on a processor, beside other ways to compute the same.

Run `python benchmarks/ops_cpu.py` on a machine that does nothing else. It refuses to know models: sizes are those of
the embedded one (9 heads of 64 over 3 key heads, 576 wide) and, for the delta rule and the convolution, 16 heads of 128
and 6,144 channels. Trap: with another busy process on the machine, two threads wait for each other and look no faster
than one.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from decider.ops.delta import chunk_gated_delta_rule
from decider.ops.norms import rms_norm
from decider.ops.rotary import rotary
from decider.ops.tree import tree_of
from decider.ops.tree_attention import tree_attention
from decider.ops.tree_convolution import tree_convolution
from decider.ops.tree_delta import tree_delta_rule
from decider.plan.pack import Group, Pack, make_pack
from decider.tokens.rows import Row

CPU = torch.device("cpu")
HEADS, KV_HEADS, DIM, WIDTH = 9, 3, 64, 576
SCALE = DIM**-0.5
TAPS, CHANNELS, DELTA_HEADS, DELTA_DIM = 4, 6144, 16, 128
CASES = ((64, 0, 0), (200, 0, 0), (300, 5, 40), (300, 16, 8), (1500, 16, 40))
"""Tokens of the trunk, branches, tokens of each."""

Variant = tuple[str, Callable[[], Tensor]]
sdpa = functional.scaled_dot_product_attention


def pack_of(trunk: int, branches: int, tokens: int) -> Pack:
    """One trunk and its branches, or a trunk alone."""
    n_rows = max(1, branches)
    rows = [Row((1,) * (trunk + tokens), (trunk + tokens - 1,), (2,), trunk) for _ in range(n_rows)]
    return make_pack(rows, [Group(tuple(range(n_rows)), trunk if branches else 0)], n_tokens=None)


def attention(trunk: int, branches: int, tokens: int, dtype: torch.dtype) -> tuple[list[Variant], Tensor]:
    """The ways to attend, and the exact result of the branches, or of a trunk without any."""
    torch.manual_seed(0)
    tree = tree_of(pack_of(trunk, branches, tokens), CPU, 1)
    n = tree.n_tokens
    # As it leaves a merged projection, but queries and keys copied, as the rotary embedding does.
    merged = torch.randn(n, HEADS + 2 * KV_HEADS, DIM).mul(1.5).to(dtype)
    query, key = merged[:, :HEADS].contiguous(), merged[:, HEADS:-KV_HEADS].contiguous()
    value = merged[:, -KV_HEADS:]
    q, k, v = (each.transpose(0, 1)[None] for each in (query, key, value))
    numbers = torch.repeat_interleave(torch.arange(len(tree.spans)), torch.tensor([span.length for span in tree.spans]))
    visible = (tree.positions[:, None] >= tree.positions) & ((numbers == 0) | (numbers[:, None] == numbers))
    own = visible[trunk : trunk + tokens, : trunk + tokens]
    spans = [slice(trunk + tokens * number, trunk + tokens * (number + 1)) for number in range(branches)]

    def seen(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return sdpa(q, k, v, mask, is_causal=mask is None, scale=SCALE, enable_gqa=True)

    def trunks() -> Tensor:
        return seen(q[:, :, :trunk], k[:, :, :trunk], v[:, :, :trunk])

    def whole() -> Tensor:
        return seen(q, k, v, visible)

    def group() -> Tensor:
        return torch.cat((trunks(), seen(q[:, :, trunk:], k, v, visible[trunk:])), dim=2)

    def each() -> Tensor:
        parts = [trunks()]
        for span in spans:
            keys, values = (torch.cat((x[:, :, :trunk], x[:, :, span]), dim=2) for x in (k, v))
            parts.append(seen(q[:, :, span], keys, values, own))
        return torch.cat(parts, dim=2)

    def by_branch(x: Tensor) -> Tensor:
        return x[0, :, trunk:].reshape(-1, branches, tokens, DIM).transpose(0, 1)

    def batched() -> Tensor:
        keys, values = (torch.cat((x[:, :, :trunk].expand(branches, -1, -1, -1), by_branch(x)), dim=2) for x in (k, v))
        found = seen(by_branch(q), keys, values, own)
        return torch.cat((trunks(), found.transpose(0, 1).flatten(1, 2)[None]), dim=2)

    def merged_by_sum() -> Tensor:
        # The only kernel of torch for a processor that also gives the logarithm of the sum.
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        shared = HEADS // KV_HEADS
        folded = q[0, :, trunk:].reshape(1, KV_HEADS, shared * branches * tokens, DIM)
        far, far_sum = flash(folded, k[:, :, :trunk], v[:, :, :trunk], 0.0, False, scale=SCALE)
        near, near_sum = flash(
            by_branch(q), *(by_branch(x).repeat_interleave(shared, 1) for x in (k, v)), 0.0, True, scale=SCALE
        )
        near, near_sum = near.transpose(0, 1).flatten(1, 2), near_sum.transpose(0, 1).flatten(1, 2)
        far, far_sum = far.reshape(near.shape), far_sum.reshape(near_sum.shape)
        found = torch.lerp(far, near, (near_sum - far_sum).sigmoid()[..., None].to(far.dtype))
        return torch.cat((trunks(), found[None]), dim=2)

    def ours() -> Tensor:
        return tree_attention(query, key, value, tree, scale=SCALE)

    def packed(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        return lambda: run()[0].transpose(0, 1)

    variants: list[Variant] = [("SDPA, one mask", packed(whole))]
    if branches:
        variants += [
            ("SDPA, a mask for the branches", packed(group)),
            ("SDPA, branch by branch", packed(each)),
            ("SDPA, branches as a batch", packed(batched)),
            ("SDPA, two parts merged", packed(merged_by_sum)),
        ]
    else:
        variants.append(("SDPA, causal", packed(trunks)))
    exact = tree_attention(query.double(), key.double(), value.double(), tree, scale=SCALE)
    return [*variants, ("tree_attention", ours)], exact


def states(trunk: int, branches: int, tokens: int, dtype: torch.dtype) -> Iterator[tuple[str, list[Variant], Tensor]]:
    """The ways to convolve and to run the delta rule, and the exact results."""
    torch.manual_seed(0)
    tree = tree_of(pack_of(trunk, branches, tokens), CPU, TAPS)
    n = tree.n_tokens
    x, weight = torch.randn(n, CHANNELS).to(dtype), torch.randn(CHANNELS, TAPS).to(dtype)

    def gathered() -> Tensor:
        total = x.float() * weight[:, -1].float()
        for back in range(1, TAPS):
            rows = tree.look_back[:, back - 1]
            total += x[rows.clamp(min=0)] * (rows >= 0)[:, None] * weight[:, -1 - back].float()
        return total.to(dtype)

    def conv1d() -> Tensor:
        parts = []
        for span in tree.spans:
            past = tree.look_back[span.start].flip(0)
            before = x[past.clamp(min=0)] * (past >= 0)[:, None]
            row = torch.cat((before, x[span.start : span.start + span.length]))
            parts.append(functional.conv1d(row.T[None], weight[:, None], groups=CHANNELS)[0].T)
        return torch.cat(parts)

    def ours() -> Tensor:
        return tree_convolution(x, weight, None, tree)

    exact = tree_convolution(x.double(), weight.double(), None, tree)
    yield (
        "convolution",
        [("gather for each tap", gathered), ("conv1d by span", conv1d), ("tree_convolution", ours)],
        exact,
    )

    q, k, v = torch.randn(3, n, DELTA_HEADS, DELTA_DIM).to(dtype)
    decay, beta = -torch.rand(n, DELTA_HEADS), torch.rand(n, DELTA_HEADS)

    def by_span() -> Tensor:
        parts: list[Tensor] = []
        found: dict[int, Tensor | None] = {}
        for index, span in enumerate(tree.spans):
            own = slice(span.start, span.start + span.length)
            output, found[index] = chunk_gated_delta_rule(
                q[None, own],
                k[None, own],
                v[None, own],
                decay[None, own],
                beta[None, own],
                initial_state=None if span.parent is None else found[span.parent],
                output_final_state=True,
                use_qk_l2norm_in_kernel=True,
            )
            parts.append(output[0])
        return torch.cat(parts)

    def rule() -> Tensor:
        return tree_delta_rule(q, k, v, decay, beta, tree)

    exact = tree_delta_rule(q.double(), k.double(), v.double(), decay.double(), beta.double(), tree)
    yield "delta rule", [("span by span", by_span), ("tree_delta_rule", rule)], exact


def pointwise(n: int, dtype: torch.dtype) -> list[Variant]:
    """Norm and rotary embedding of n tokens."""
    x, weight = torch.randn(n, WIDTH).to(dtype), torch.randn(WIDTH).to(dtype)
    heads = torch.randn(n, HEADS + KV_HEADS, DIM).to(dtype)
    cos, sin = torch.randn(2, n, DIM).to(dtype)
    return [("rms_norm", lambda: rms_norm(x, weight, 1e-5)), ("rotary", lambda: rotary(heads, cos, sin, DIM))]


def best_ms(variants: list[Variant]) -> list[float]:
    """Milliseconds of each, the best of some rounds in turn, so that a slow while hits all of them."""
    best = [float("inf")] * len(variants)
    begin = time.perf_counter()
    for done in range(40):
        for number, (_, run) in enumerate(variants):
            start = time.perf_counter()
            run()
            best[number] = min(best[number], (time.perf_counter() - start) * 1e3)
        if done >= 4 and time.perf_counter() - begin > 2:
            break
    return best


def show(case: str, variants: list[Variant], exact: Tensor | None) -> None:
    """A line for each variant: milliseconds by threads, and its distance from the exact result."""
    columns = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        columns.append(best_ms(variants))
    for (name, run), *times in zip(variants, *columns, strict=True):
        off = "" if exact is None else f"{float((run().double() - exact).square().mean().sqrt()):>12.1e}"
        print(f"{case:38}{name:32}{times[0]:>9.3f}{times[1]:>9.3f}{off}", flush=True)


@torch.inference_mode()
def main() -> None:
    """Print the table and the machine."""
    # Once a large block has been freed, glibc no longer hands smaller ones back to the system after each operation,
    # which would cost more than the operations.
    torch.empty(31 << 20, dtype=torch.uint8)
    print(f"{'':70}{'ms, threads':^18}{'rms error':>12}\n{'':70}{1:>9}{2:>9}")
    for dtype in (torch.bfloat16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        for trunk, branches, tokens in CASES:
            size = f"{name} {trunk}" + (f" + {branches} x {tokens}" if branches else "")
            show(size, *attention(trunk, branches, tokens, dtype))
        for case, variants, exact in states(300, 5, 40, dtype):
            show(f"{name} 300 + 5 x 40 {case}", variants, exact)
        for n in (200, 500):
            show(f"{name} {n}", pointwise(n, dtype), None)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}")


if __name__ == "__main__":
    main()
