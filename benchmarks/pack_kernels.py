"""How long each kernel of a pack takes on a card, beside its least time and the matrix products of the same layer.

Run `python benchmarks/pack_kernels.py [--tokens 256 2176 8192] [--configurations]` on a machine with a CUDA card that
does nothing else. It refuses to judge answers. Sizes are those of one layer of Qwen3-1.7B (16 heads of 128 over 8,
2,048 wide, 6,144 inside) and of one with the gated delta rule of Qwen3.5-2B (16 heads of 128, 6,144 channels, 4 taps).
Trap: inputs of a small pack stay in the card's cache, here as in a forward, so its share of the memory's bandwidth can
be above 1.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from decider.backbone.spec import DeltaSpec
from decider.ops import attention_kernel, convolution_kernel, delta_kernels, head_kernels, norm_kernels
from decider.ops.fp8 import Fp8Product, quantise_rows
from decider.ops.fused_ops import fused_ops
from decider.ops.launches import ANY_TOKENS, DELTA_SCAN, Launch, Scan
from decider.ops.norms import Norm
from decider.ops.pack_ops import Gates, as_heads, opened
from decider.ops.rotary import Rotation
from decider.ops.rows import VALUES, Form
from decider.plan.fill import fill
from decider.plan.pack import Group, make_pack
from decider.plan.tables import PackShape, StaticTables, block_ints, capacity_of, tables_over
from decider.tokens.rows import Row

DEVICE, DTYPE = torch.device("cuda:0"), torch.bfloat16
HIDDEN, INNER, HEADS, KV_HEADS, DIM = 2048, 6144, 16, 8, 128
DELTA = DeltaSpec(16, 16, 128, 128, 4)
CODES = Form(values=False, codes=True)
Work = Callable[[], object]
REPEATS = 20


def milliseconds(work: Work) -> float:
    """Of one call, the least of five: a graph of twenty, so that the host is not what is timed."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            work()
    times = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / REPEATS)
    return min(times)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE).to(DTYPE)


def tables_of(n: int, trunks: Sequence[int], branch: int = 0, n_branches: int = 0) -> StaticTables[Tensor]:
    """A pack of `n` tokens: trunks of these lengths, and branches of the first one."""
    rows = [Row((1,) * trunk, (trunk - 1,), (2,), 0) for trunk in trunks[bool(n_branches) :]]
    groups = [Group((index,), 0) for index in range(len(rows))]
    if n_branches:
        groups.insert(0, Group(tuple(range(len(rows), len(rows) + n_branches)), trunks[0]))
        n_row = trunks[0] + branch
        rows += [Row((1,) * n_row, (n_row - 1,), (2,), trunks[0]) for _ in range(n_branches)]
    pack = make_pack(rows, groups, n_tokens=None)
    capacity = capacity_of(PackShape(n, n_branches > 0))
    block = np.zeros(block_ints(capacity, DELTA.taps), np.int32)
    fill(tables_over(block, capacity, DELTA.taps), pack)
    return tables_over(torch.from_numpy(block).to(DEVICE), capacity, DELTA.taps)


def trees(n: int) -> dict[str, StaticTables[Tensor]]:
    """Rows of 256; a trunk of 70 % with sixteen branches; one sequence."""
    return {
        "rows of 256": tables_of(n, [min(256, n)] * max(1, n // 256)),
        "trunk and 16 branches": tables_of(n, [7 * n // 10], max(1, 3 * n // 160), 16),
        "one sequence": tables_of(n, [n]),
    }


def visible(tables: StaticTables[Tensor]) -> int:
    """Pairs of a query and a key that it sees."""
    at = torch.arange(tables.n_tokens, device=DEVICE)
    own = (at - tables.own_start + 1).sum()
    return int(own + ((tables.trunk_stop - tables.trunk_start).sum() if tables.is_tree else 0))


def pointwise(n: int) -> Iterator[tuple[str, Work, int]]:
    """Name, work, bytes that it has to read and write."""
    ops = fused_ops()
    x, more, merged = draw(n, HIDDEN), draw(n, HIDDEN), draw(n, 2 * INNER)
    norm, small = Norm(draw(HIDDEN), 1e-6, 0.0), Norm(draw(DIM), 1e-6, 0.0)
    heads = Norm(draw(HEADS + KV_HEADS, DIM), 1e-6, 0.0)
    projected, rotation = draw(n, (HEADS + 2 * KV_HEADS) * DIM), Rotation(draw(n, DIM), draw(n, DIM))
    delta, weight = draw(n, DELTA.channels + DELTA.width + 32), draw(DELTA.channels, DELTA.taps)
    qkv, gate, _ = delta.tensor_split((DELTA.channels, DELTA.channels + DELTA.width), dim=-1)
    mixed, opening = draw(n, 16, 128), as_heads(gate, 128)
    tables, coarse = trees(n)["rows of 256"], Fp8Product.of(draw(HIDDEN, HIDDEN), None)
    yield "sum and norm", lambda: ops.add_norm(x, more, norm, VALUES), n * HIDDEN * 8
    yield "sum and norm, quantised", lambda: ops.add_norm(x, more, norm, CODES), n * HIDDEN * 7
    turned = (HEADS + KV_HEADS) * DIM
    yield "head norm and rotary", lambda: ops.norm_and_turn(projected, heads, rotation, 24, DIM), n * (turned * 4 + 512)
    yield "gate · silu", lambda: ops.swiglu(merged, VALUES), n * INNER * 6
    yield "gate · silu, quantised", lambda: ops.swiglu(merged, CODES), n * INNER * 5
    yield "gated norm", lambda: ops.gated_norm(mixed, opening, small, VALUES), n * 2048 * 6
    yield "gated norm, quantised", lambda: ops.gated_norm(mixed, opening, small, CODES), n * 2048 * 5
    yield "convolution", lambda: ops.convolved(qkv, weight, DELTA, tables), n * DELTA.channels * 4
    yield "quantise rows of 2,048", lambda: coarse.quantise(x), n * HIDDEN * 3


def products(n: int) -> Iterator[tuple[str, Work, Work, int]]:
    """Name, in bfloat16, in FP8, how many multiplications and additions."""
    for name, n_in, n_out in (
        ("q k v", HIDDEN, (HEADS + 2 * KV_HEADS) * DIM),
        ("q k v z b a", HIDDEN, DELTA.channels + DELTA.width + 32),
        ("output", HIDDEN, HIDDEN),
        ("gate up", HIDDEN, 2 * INNER),
        ("down", INNER, HIDDEN),
    ):
        x, weight = draw(n, n_in), draw(n_out, n_in)
        coarse, rows = Fp8Product.of(weight, None), quantise_rows(x)
        yield (
            name,
            lambda x=x, weight=weight: functional.linear(x, weight),
            lambda coarse=coarse, rows=rows: coarse(rows),
            2 * n * n_in * n_out,
        )


def attention(n: int, dim: int, heads: int, kv_heads: int) -> Iterator[tuple[str, Work, int]]:
    qk, rest = draw(n, heads + kv_heads, dim), draw(n, kv_heads, dim)
    q, k = qk.split_with_sizes((heads, kv_heads), dim=1)
    ops = fused_ops()
    for name, tables in trees(n).items():
        yield (
            f"attention {heads}/{kv_heads} × {dim}, {name}",
            lambda tables=tables: ops.attention(q, k, rest, None, tables, dim**-0.5),
            4 * visible(tables) * heads * dim,
        )


def delta_rules(n: int) -> Iterator[tuple[str, Work]]:
    rule = fused_ops().delta_rule
    q, k, v = (draw(n, 16, 128) / 11 for _ in range(3))
    logits = draw(n, 32)
    gates = Gates(logits[:, :16], logits[:, 16:], -torch.rand(16, device=DEVICE), draw(16))
    for name, tables in trees(n).items():
        yield f"delta rule, {name}", lambda tables=tables: rule(q, k, v, gates, tables)
    if importlib.util.find_spec("fla") is not None:
        theirs: Any = importlib.import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
        one = [each[None] for each in (q, k, v, *opened(gates))]
        yield "delta rule, flash-linear-attention, one sequence", lambda: theirs(*one)


@contextmanager
def launched(module: Any, name: str, value: object) -> Iterator[None]:
    """Within it, the kernels of `module` are launched by another configuration."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def configurations(n: int) -> None:
    """Other launches than the tables name; what wins here belongs in `ops/launches.py`."""
    found = {name: work for name, work, _ in pointwise(n)}
    too_large: Any = importlib.import_module("triton.runtime.errors").OutOfResources
    for name, module, table in (
        ("sum and norm", norm_kernels, "NORM"),
        ("head norm and rotary", head_kernels, "HEADS"),
        ("gated norm", norm_kernels, "HEADS"),
    ):
        for warps in (1, 2, 4, 8):
            with launched(module, table, (Launch("", None, warps=warps, block=1),)):
                print(f"    {name:24} {warps} warps {milliseconds(found[name]):9.4f} ms")
    for name, module, table, blocks in (
        ("gate · silu", head_kernels, "SWIGLU", (256, 512, 1024, 2048, 4096)),
        ("convolution", convolution_kernel, "CONVOLUTION", (2, 4, 8, 16, 32)),
    ):
        for block in blocks:
            for warps in (2, 4, 8):
                with launched(module, table, (Launch("", None, warps=warps, block=block),)):
                    print(f"    {name:24} {warps} warps, block {block} {milliseconds(found[name]):9.4f} ms")
    for name, work in delta_rules(n):
        if "flash" not in name:
            for warps in (4, 8):
                with launched(delta_kernels, "DELTA_CHUNK", (Launch("", None, warps=warps, block=1),)):
                    print(f"    {name:40} chunks by {warps} warps {milliseconds(work):9.4f} ms")
            for block, warps, stages in product((16, 32, 64), (4, 8), (1, 2, 3)):
                if stages == 1 and block < DELTA_SCAN.block:
                    # Compiled wrongly, it would end this process.
                    continue
                scans = (Scan(Launch("", None, warps=warps, block=block, stages=stages), 0, ANY_TOKENS),)
                with launched(delta_kernels, "delta_scans", lambda *_, scans=scans, **__: scans):
                    print(
                        f"    {name:40} {block} features, {warps} warps, {stages} stages {milliseconds(work):9.4f} ms"
                    )
    for dim, heads, kv_heads in ((128, 16, 8), (256, 8, 2), (64, 9, 3)):
        for name, work, _ in attention(n, dim, heads, kv_heads):
            for block, warps, stages in product((32, 64, 128), (4, 8), (1, 2, 3)):
                launch = Launch("", None, warps=warps, block=block, stages=stages)
                with launched(attention_kernel, "attention_launch", lambda *_, launch=launch: launch):
                    try:
                        took = f"{milliseconds(work):9.4f} ms"
                    except too_large:
                        took = "too large for a block's shared memory"
                print(f"    {name:52} {block} keys, {warps} warps, {stages} stages {took}")


def report(n: int, bandwidth: float) -> None:
    """`bandwidth` in bytes a millisecond, measured by a copy."""
    print(f"\n{n:,} tokens")
    for name, work, n_bytes in pointwise(n):
        took = milliseconds(work)
        print(f"  {name:52} {took:9.4f} ms  {n_bytes / bandwidth / took:7.1%} of the copy's bandwidth")
    for dim, heads, kv_heads in ((128, 16, 8), (256, 8, 2), (64, 9, 3)):
        for name, work, n_operations in attention(n, dim, heads, kv_heads):
            took = milliseconds(work)
            print(f"  {name:52} {took:9.4f} ms  {n_operations / took / 1e9:7.1f} TFLOP/s of visible pairs")
    for name, work in delta_rules(n):
        print(f"  {name:52} {milliseconds(work):9.4f} ms")
    total = coarse_total = 0.0
    for name, work, coarse, n_operations in products(n):
        took, coarsely = milliseconds(work), milliseconds(coarse)
        total, coarse_total = total + took, coarse_total + coarsely
        print(
            f"  {name:52} {took:9.4f} ms  {n_operations / took / 1e9:7.1f} TFLOP/s   FP8 {coarsely:9.4f} ms "
            f"{n_operations / coarsely / 1e9:7.1f}"
        )
    print(f"  {'these products together':52} {total:9.4f} ms{'':19} FP8 {coarse_total:9.4f} ms")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 256, 2176, 8192])
    parser.add_argument("--configurations", action="store_true", help="time other launches too")
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("no CUDA card here")
    large = torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE)
    other = torch.empty_like(large)
    bandwidth = 2 * large.numel() / milliseconds(lambda: other.copy_(large))
    print(f"{torch.cuda.get_device_name(DEVICE)}, torch {torch.__version__}, copy {bandwidth / 1e9:.2f} TB/s")
    with torch.inference_mode():
        for n in given.tokens:
            report(n, bandwidth)
            if given.configurations:
                configurations(n)


if __name__ == "__main__":
    main()
