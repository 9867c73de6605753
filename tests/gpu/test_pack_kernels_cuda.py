"""The kernels of packs on a card against their plain forms and float64, at real widths, and captured.

Refuses to judge speed (`benchmarks/pack_kernels.py` prints it), and to compile every combination: each takes half a
second, and attention or the delta rule in float32 several. Trap: two compilations of one kernel, with and without
codes, add a row up in other orders, so their last bits differ; only what one launch writes can be held to be the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fake_graphs import load_tiny
from static_packs import TAPS, delta_by_spans, static_tables
from torch import Tensor
from tree_packs import Shape, pack_of

from decider.backbone.decoder import fp8_linear
from decider.backbone.load import backbone_of
from decider.backbone.spec import DeltaSpec
from decider.ops import fp8
from decider.ops.fp8 import Quantised, quantise_rows
from decider.ops.fused_ops import fused_ops, why_not_fused
from decider.ops.norms import Norm
from decider.ops.pack_ops import Gates, PackOps, as_heads, opened, plain_ops
from decider.ops.rotary import Rotation
from decider.ops.rows import VALUES, Form
from decider.ops.tree import tree_of
from decider.ops.unit_norm import unit_vectors

pytestmark = pytest.mark.gpu

TinyFolder = Callable[[str], Path]

DEVICE = torch.device("cuda:0")
SIZES = (1, 333, 2176)
"""One row, and a size on each side of what `ops/launches.py` tells apart."""
CASES = [(torch.float32, 333), *((torch.bfloat16, n) for n in SIZES)]
CODES, BOTH = Form(values=False, codes=True), Form(values=True, codes=True)
HIDDEN, INNER = 2048, 6144
DELTA = DeltaSpec(16, 16, 128, 128, TAPS)
PLAIN = plain_ops()


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def fused() -> PackOps:
    assert why_not_fused(DEVICE, torch.bfloat16, head_dim=128, has_delta=True) is None
    return fused_ops()


def draw(*shape: int, dtype: torch.dtype, size: float = 1.0) -> Tensor:
    return (torch.randn(*shape, device=DEVICE) * size).to(dtype)


def error(found: Tensor, exact: Tensor) -> float:
    """Root mean square, relative."""
    return float((found.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt())


def furthest(found: Tensor, exact: Tensor) -> float:
    """The largest error, relative to the number, or to 1/64 of the largest one."""
    size = exact.abs().clamp_min(float(exact.abs().max()) / 64)
    return float(((found.double() - exact).abs() / size).max())


def as_good(found: Tensor, plain: Tensor, exact: Tensor, *, share: float = 0.98) -> None:
    """About as near to float64 as the plain form is; in bfloat16 with `share` of its bits, so rounded where it rounds.

    A card's own square roots and powers are off by a few units of float32 where torch's are off by one.
    """
    assert (found.dtype, found.shape) == (plain.dtype, plain.shape)
    assert bool(found.isfinite().all())
    wide = found.dtype is torch.float32
    unit = torch.finfo(torch.float32).eps
    assert error(found, exact) <= (3 if wide else 1.1) * error(plain, exact) + unit
    assert furthest(found, exact) <= (3 if wide else 1.5) * furthest(plain, exact) + 8 * unit
    if not wide:
        assert float((found == plain).float().mean()) >= share


def same_codes(found: Quantised | None, wanted: Quantised) -> None:
    assert found is not None
    assert torch.equal(found[0].view(torch.uint8), wanted[0].view(torch.uint8))
    assert torch.equal(found[1], wanted[1])


def nearly_same_codes(found: Quantised | None, wanted: Quantised, dtype: torch.dtype) -> None:
    """Of rows that another compilation made: the largest of a row may be other, and the codes of the row with it.

    In bfloat16 by a unit. In float32 by half of what two orders of a sum of 128 squares differ, of 7 roundings each,
    and by the roundings behind the root.
    """
    assert found is not None
    units = 16 if dtype is torch.float32 else 2
    assert torch.allclose(found[1], wanted[1], rtol=units * torch.finfo(dtype).eps, atol=0)
    same = found[0].view(torch.uint8) == wanted[0].view(torch.uint8)
    assert float(same.float().mean()) >= 0.98


def wide(norm: Norm) -> Norm:
    return replace(norm, weight=norm.weight.double())


def trees(n_tokens: int) -> tuple[list[Shape], ...]:
    """Packs that fit: one sequence; many short ones; trunks with branches."""
    n_branches = max(1, n_tokens // 160)
    trunk = max(1, n_tokens // 2)
    branch = max(1, (n_tokens - trunk) // (2 * n_branches))
    many: list[Shape] = [(min(37, n_tokens), ())] * max(1, n_tokens // 40)
    if n_tokens < 8:
        return ([(n_tokens, ())],)
    return [(n_tokens - 3, ())], many, [(trunk, (branch,) * n_branches), (2, (1, 1))]


@pytest.mark.parametrize(("dtype", "offset"), [(torch.float32, 1.0), (torch.bfloat16, 0.0)])
def test_residual_and_norm(fused: PackOps, dtype: torch.dtype, offset: float) -> None:
    norm = Norm(draw(HIDDEN, dtype=dtype), 1e-6, offset)
    for n in SIZES:
        x, more = draw(n, HIDDEN, dtype=dtype), draw(n, HIDDEN, dtype=dtype)
        (total, found), (sums, plain) = (ops.add_norm(x, more, norm, BOTH) for ops in (fused, PLAIN))
        # One sum of two numbers, rounded once.
        assert torch.equal(total, sums)
        exact = wide(norm)(sums.double())
        as_good(found.whole, plain.whole, exact)
        # Written by one launch, and a product and a cast behind it.
        same_codes(found.codes, quantise_rows(found.whole))
    kept, alone = fused.add_norm(sums[:333], None, norm, VALUES)
    assert kept.data_ptr() == sums.data_ptr()
    as_good(alone.whole, plain.whole[:333], exact[:333])
    assert alone.codes is None


@pytest.mark.parametrize(
    ("dtype", "n", "sizes", "offset"),
    [
        (torch.bfloat16, 333, (24, 128, 128), 0.0),
        (torch.bfloat16, 333, (12, 64, 64), None),
        (torch.bfloat16, 2176, (10, 256, 64), 1.0),
        (torch.float32, 1, (10, 256, 64), 1.0),
    ],
)
def test_head_norm_and_rotary(
    fused: PackOps, dtype: torch.dtype, n: int, sizes: tuple[int, int, int], offset: float | None
) -> None:
    heads, dim, turned = sizes
    angles = (torch.rand(n, turned // 2, device=DEVICE) * 6).repeat(1, 2)
    rotation = Rotation(angles.cos().to(dtype), angles.sin().to(dtype))
    merged = draw(n, heads * dim + 1024, dtype=dtype)
    norm = None if offset is None else Norm(draw(heads, dim, dtype=dtype), 1e-6, offset)
    found, plain = (ops.norm_and_turn(merged, norm, rotation, heads, dim) for ops in (fused, PLAIN))
    exactly = Rotation(*(each.double() for each in rotation))
    as_good(
        found, plain, PLAIN.norm_and_turn(merged.double(), None if norm is None else wide(norm), exactly, heads, dim)
    )


@pytest.mark.parametrize(("dtype", "n"), CASES)
def test_the_gate_of_an_mlp(fused: PackOps, dtype: torch.dtype, n: int) -> None:
    merged = draw(n, 2 * INNER, dtype=dtype, size=4.0)
    found, plain, exact = (
        ops.swiglu(given, VALUES).whole for ops, given in ((fused, merged), (PLAIN, merged), (PLAIN, merged.double()))
    )
    as_good(found, plain, exact)
    nearly_same_codes(fused.swiglu(merged, CODES).codes, quantise_rows(found), dtype)


@pytest.mark.parametrize(("dtype", "n"), CASES)
def test_the_gated_norm(fused: PackOps, dtype: torch.dtype, n: int) -> None:
    x, gate = draw(n, 16, 128, dtype=dtype), as_heads(draw(n, 8224, dtype=dtype)[:, 6144:8192], 128)
    norm = Norm(draw(128, dtype=dtype), 1e-6, 0.0)
    found, plain = (ops.gated_norm(x, gate, norm, VALUES).whole for ops in (fused, PLAIN))
    as_good(found, plain, PLAIN.gated_norm(x.double(), gate.double(), wide(norm), VALUES).whole)
    nearly_same_codes(fused.gated_norm(x, gate, norm, CODES).codes, quantise_rows(found), dtype)


@pytest.mark.parametrize(("dtype", "n"), CASES)
def test_the_convolution(fused: PackOps, dtype: torch.dtype, n: int) -> None:
    x = draw(n, 8224, dtype=dtype)[:, : DELTA.channels]
    weight = draw(DELTA.channels, TAPS, dtype=dtype)
    for given in trees(n):
        pack = pack_of(given)
        real, tree = pack.n_tokens, tree_of(pack, DEVICE, TAPS)
        found = fused.convolved(x, weight, DELTA, static_tables(pack, n, DEVICE))
        plain, exact = (
            (unit_vectors(q), unit_vectors(k), v)
            for q, k, v in (
                PLAIN.convolved(x[:real], weight, DELTA, tree),
                PLAIN.convolved(x[:real].double(), weight.double(), DELTA, tree),
            )
        )
        for ours, theirs, exactly in zip(found, plain, exact, strict=True):
            assert bool(ours.isfinite().all())
            as_good(ours[:real], theirs, exactly, share=0.97)


@pytest.mark.parametrize(
    ("dtype", "sizes", "gated"),
    [
        (torch.bfloat16, (16, 8, 128), False),
        (torch.bfloat16, (8, 2, 256), True),
        (torch.bfloat16, (9, 3, 64), False),
        (torch.float32, (8, 2, 256), True),
    ],
)
def test_attention(fused: PackOps, dtype: torch.dtype, sizes: tuple[int, int, int], gated: bool) -> None:
    heads, kv_heads, dim = sizes
    for n in SIZES[:2] if dtype is torch.float32 else SIZES:
        merged = draw(n, (2 * heads + 2 * kv_heads) * dim, dtype=dtype)
        turned, v, gate = merged.tensor_split(((heads + kv_heads) * dim, (heads + 2 * kv_heads) * dim), dim=1)
        q, k = as_heads(turned, dim).contiguous().split_with_sizes((heads, kv_heads), dim=1)
        values, opening = as_heads(v, dim), gate if gated else None
        for shape in trees(n)[-1:] if dtype is torch.float32 else trees(n):
            pack = pack_of(shape)
            real, tables, tree = pack.n_tokens, static_tables(pack, n, DEVICE), tree_of(pack, DEVICE, TAPS)
            found = fused.attention(q, k, values, opening, tables, dim**-0.5)
            assert bool(found.isfinite().all())
            plain, exact = (
                PLAIN.attention(
                    q[:real].to(precision),
                    k[:real].to(precision),
                    values[:real].to(precision),
                    None if opening is None else opening[:real].to(precision),
                    tree,
                    dim**-0.5,
                )
                for precision in (dtype, torch.float64)
            )
            allowed = 2e-6 if dtype is torch.float32 else 1.3 * error(plain, exact) + 1e-6
            assert error(found[:real], exact) <= allowed


@pytest.mark.parametrize(("dtype", "dim", "allowed"), [(torch.float32, 32, 1e-5), (torch.bfloat16, 128, 6e-3)])
def test_the_delta_rule(fused: PackOps, dtype: torch.dtype, dim: int, allowed: float) -> None:
    for n in SIZES:
        q, k, v = (draw(n, 16, dim, dtype=dtype) for _ in range(3))
        q, k = unit_vectors(q), unit_vectors(k)
        # As a merged projection has them: in the middle of longer rows.
        logits, bias = draw(n, 40, dtype=dtype, size=3.0), draw(16, dtype=dtype)
        gates = Gates(logits[:, :16], logits[:, 16:32], -0.3 * torch.rand(16, device=DEVICE), bias)
        log_decay, rate = opened(gates._replace(decay=gates.decay.double(), rate=gates.rate.double()))
        for shape in trees(n):
            pack = pack_of(shape)
            tables = static_tables(pack, n, DEVICE)
            found = fused.delta_rule(q, k, v, gates, tables)
            exact = delta_by_spans(q.double(), k.double(), v.double(), log_decay, rate.double(), tables)
            assert bool(found.isfinite().all())
            assert error(found, exact) < allowed


# torch says once that the mode is a prototype.
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_captured_decoder_in_fp8_is_the_plain_one(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole engines are captured by `test_packs_captured_cuda.py`."""
    # Tiny layers are large here.
    monkeypatch.setattr(fp8, "LEAST_FEATURES", 16)
    loaded, _ = load_tiny(tiny_folder("qwen3_5"), "bfloat16", device="cuda:0", quieter=4.0)
    plain = backbone_of(loaded, linear=fp8_linear)
    kernels, taps, n = replace(plain, ops=fused_ops()), plain.spec.taps, 512
    packs = [pack_of(given) for given in ([(200, (40, 3, 66)), (2, (1, 1))], [(9, (70,) * 3), (130, (1,))])]
    draws = random.Random(0)
    filled = []
    for pack in packs:
        tables = static_tables(pack, n, DEVICE, taps)
        tables.ids[: pack.n_tokens] = torch.tensor([draws.randrange(1024) for _ in range(pack.n_tokens)], device=DEVICE)
        filled.append(tables)
    static = static_tables(packs[0], n, DEVICE, taps)
    views = [name for name in static.__dataclass_fields__ if name != "capacity"]

    def put(index: int) -> None:
        for name in views:
            getattr(static, name).copy_(getattr(filled[index], name))

    eager = []
    for index, pack in enumerate(packs):
        put(index)
        eager.append(kernels.hidden_at_slots(static.ids, static).clone())
        tree = tree_of(pack, DEVICE, taps)
        wanted = plain.hidden_at_slots(filled[index].ids[: pack.n_tokens].long(), tree)
        assert error(eager[-1][: len(wanted)], wanted.double()) <= 0.3
        assert bool(eager[-1].isfinite().all())
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.graph(graph):
            out = kernels.hidden_at_slots(static.ids, static)
        for index in (0, 1, 0):
            put(index)
            graph.replay()
            # Asked for on the card, and read when nothing may wait any longer.
            eager[index] = torch.where(out == eager[index], eager[index], torch.nan)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for each in eager:
        assert bool(each.isfinite().all())
