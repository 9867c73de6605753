"""The kernels of packs on a card against their plain forms, at real widths, and captured.

Refuses to judge speed (`benchmarks/pack_kernels.py` prints it). Trap: a kernel that rounds where its plain form does
has nearly all of its bits; a bound on the largest difference alone would let another order of rounding through.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fake_graphs import load_tiny
from static_packs import TAPS, delta_by_spans, static_tables, ulps
from torch import Tensor
from tree_packs import Shape, pack_of

from decider.backbone.decoder import Dense, fp8_linear
from decider.backbone.load import backbone_of
from decider.backbone.spec import DeltaSpec
from decider.ops import fp8
from decider.ops.fp8 import Quantised, quantise_rows
from decider.ops.fused_ops import fused_ops, why_not_fused
from decider.ops.norms import Norm
from decider.ops.pack_ops import PackOps, as_heads, plain_ops
from decider.ops.pinned_delta import has_kernels
from decider.ops.rotary import Rotation
from decider.ops.rows import VALUES, Form
from decider.ops.tree import tree_of
from decider.ops.unit_norm import unit_vectors

pytestmark = pytest.mark.gpu

TinyFolder = Callable[[str], Path]

DEVICE = torch.device("cuda:0")
DTYPES = (torch.float32, torch.bfloat16)
SIZES = (1, 64, 256, 333, 2176, 8192)
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


def nearly_equal(found: Tensor, wanted: Tensor, *, units: float = 2.0, share: float = 0.99) -> None:
    """float32 up to the order of sums; bfloat16 with `share` of its bits and within `units` of the last place."""
    if wanted.dtype is torch.float32:
        assert ulps(found, wanted) <= 200
        return
    assert float((found == wanted).float().mean()) >= share
    assert ulps(found, wanted) <= units


def same_codes(found: Quantised | None, wanted: Quantised) -> None:
    assert found is not None
    assert torch.equal(found[0].view(torch.uint8), wanted[0].view(torch.uint8))
    assert torch.equal(found[1], wanted[1])


def trees(n_tokens: int) -> tuple[list[Shape], ...]:
    """Packs that fit: one sequence; many short ones; trunks with branches."""
    n_branches = max(1, n_tokens // 160)
    trunk = max(1, n_tokens // 2)
    branch = max(1, (n_tokens - trunk) // (2 * n_branches))
    many: list[Shape] = [(min(37, n_tokens), ())] * max(1, n_tokens // 40)
    if n_tokens < 8:
        return ([(n_tokens, ())],)
    return [(n_tokens - 3, ())], many, [(trunk, (branch,) * n_branches), (2, (1, 1))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_residual_and_norm(fused: PackOps, dtype: torch.dtype, n: int, offset: float) -> None:
    x, more = draw(n, HIDDEN, dtype=dtype), draw(n, HIDDEN, dtype=dtype)
    norm = Norm(draw(HIDDEN, dtype=dtype), 1e-6, offset)
    for added in (None, more):
        (total, found), (sums, wanted) = (ops.add_norm(x, added, norm, BOTH) for ops in (fused, PLAIN))
        assert torch.equal(total, sums)
        nearly_equal(found.whole, wanted.whole)
        same_codes(found.codes, quantise_rows(found.whole))
        assert torch.equal(fused.add_norm(x, added, norm, VALUES)[1].whole, found.whole)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("sizes", [(24, 128, 128), (10, 256, 64), (12, 64, 64)])
def test_head_norm_and_rotary(fused: PackOps, dtype: torch.dtype, n: int, sizes: tuple[int, int, int]) -> None:
    heads, dim, turned = sizes
    angles = (torch.rand(n, turned // 2, device=DEVICE) * 6).repeat(1, 2)
    rotation = Rotation(angles.cos().to(dtype), angles.sin().to(dtype))
    merged = draw(n, heads * dim + 1024, dtype=dtype)
    for norm in (None, *(Norm(draw(heads, dim, dtype=dtype), 1e-6, offset) for offset in (0.0, 1.0))):
        found, wanted = (ops.norm_and_turn(merged, norm, rotation, heads, dim) for ops in (fused, PLAIN))
        # Where two products nearly cancel, one unit of either is many of their sum.
        nearly_equal(found, wanted, units=64.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_the_gates(fused: PackOps, dtype: torch.dtype, n: int) -> None:
    merged = draw(n, 2 * INNER, dtype=dtype, size=4.0)
    found = fused.swiglu(merged, VALUES).whole
    nearly_equal(found, PLAIN.swiglu(merged, VALUES).whole)
    same_codes(fused.swiglu(merged, CODES).codes, quantise_rows(found))
    x, gate = draw(n, 16, 128, dtype=dtype), as_heads(draw(n, 8224, dtype=dtype)[:, 6144:8192], 128)
    norm = Norm(draw(128, dtype=dtype), 1e-6, 0.0)
    found = fused.gated_norm(x, gate, norm, VALUES).whole
    nearly_equal(found, PLAIN.gated_norm(x, gate, norm, VALUES).whole)
    same_codes(fused.gated_norm(x, gate, norm, CODES).codes, quantise_rows(found))
    logits, bias = draw(n, 32, dtype=dtype, size=6.0), draw(16, dtype=dtype)
    rate = -draw(16, dtype=torch.float32).exp()
    ours, theirs = (ops.gates(logits[:, :16], logits[:, 16:], rate, bias) for ops in (fused, PLAIN))
    assert torch.allclose(ours[0], theirs[0], rtol=3e-6, atol=0)
    nearly_equal(ours[1], theirs[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_the_convolution(fused: PackOps, dtype: torch.dtype, n: int) -> None:
    x = draw(n, 8224, dtype=dtype)[:, : DELTA.channels]
    weight = draw(DELTA.channels, TAPS, dtype=dtype)
    for given in trees(n):
        pack = pack_of(given)
        found = fused.convolved(x, weight, DELTA, static_tables(pack, n, DEVICE))
        q, k, v = PLAIN.convolved(x[: pack.n_tokens], weight, DELTA, tree_of(pack, DEVICE, TAPS))
        for ours, wanted in zip(found, (unit_vectors(q), unit_vectors(k), v), strict=True):
            assert bool(ours.isfinite().all())
            nearly_equal(ours[: pack.n_tokens], wanted, units=4.0, share=0.98)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("sizes", [(16, 8, 128), (8, 2, 256), (9, 3, 64)])
def test_attention(fused: PackOps, dtype: torch.dtype, n: int, sizes: tuple[int, int, int]) -> None:
    heads, kv_heads, dim = sizes
    merged = draw(n, (2 * heads + 2 * kv_heads) * dim, dtype=dtype)
    q, k = as_heads(merged[:, : (heads + kv_heads) * dim], dim).contiguous().split_with_sizes((heads, kv_heads), dim=1)
    v = as_heads(merged[:, (heads + kv_heads) * dim : (heads + 2 * kv_heads) * dim], dim)
    for given in trees(n):
        pack = pack_of(given)
        real, tables, tree = pack.n_tokens, static_tables(pack, n, DEVICE), tree_of(pack, DEVICE, TAPS)
        for gate in (None, merged[:, (heads + 2 * kv_heads) * dim :]):
            opening = None if gate is None else gate[:real]
            found = fused.attention(q, k, v, gate, tables, dim**-0.5)
            assert bool(found.isfinite().all())
            wanted = PLAIN.attention(q[:real], k[:real], v[:real], opening, tree, dim**-0.5)
            wide = None if opening is None else opening.float()
            exact = PLAIN.attention(q[:real].float(), k[:real].float(), v[:real].float(), wide, tree, dim**-0.5)
            allowed = 2e-6 if dtype is torch.float32 else 1.3 * error(wanted, exact) + 1e-6
            assert error(found[:real], exact) <= allowed


def error(found: Tensor, exact: Tensor) -> float:
    """Root mean square, relative."""
    return float((found.float() - exact).square().mean().sqrt() / exact.square().mean().sqrt())


@pytest.mark.parametrize("n", [64, 256, 2176])
def test_the_delta_rule(fused: PackOps, n: int) -> None:
    """Ours, and flash-linear-attention's over the same tables."""
    assert has_kernels()
    from decider.ops.static_delta import static_delta_rule

    q, k, v = (draw(n, 16, 128, dtype=torch.bfloat16) for _ in range(3))
    q, k = unit_vectors(q), unit_vectors(k)
    log_decay, rate = -torch.rand(n, 16, device=DEVICE) * 0.3, torch.rand(n, 16, device=DEVICE).bfloat16()
    for given in trees(n):
        tables = static_tables(pack_of(given), n, DEVICE)
        exact = delta_by_spans(q.float(), k.float(), v.float(), log_decay, rate.float(), tables)
        for rule in (fused.delta_rule, static_delta_rule):
            found = rule(q, k, v, log_decay, rate, tables)
            assert bool(found.isfinite().all())
            assert error(found, exact) < 1e-2
        wide = fused.delta_rule(q.float(), k.float(), v.float(), log_decay, rate.float(), tables)
        assert error(wide, exact) < 1e-5


@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_5"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "fp8"])
def test_a_captured_decoder_is_the_plain_one(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch, family: str, dtype: str
) -> None:
    # Tiny layers are large here.
    monkeypatch.setattr(fp8, "LEAST_FEATURES", 16)
    coarse = dtype == "fp8"
    loaded, _ = load_tiny(tiny_folder(family), "bfloat16" if coarse else dtype, device="cuda:0", quieter=4.0)
    plain = backbone_of(loaded, linear=fp8_linear if coarse else Dense)
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
        allowed = {"float32": 1e-4 if family == "qwen3_5" else 1e-5, "bfloat16": 0.05, "fp8": 0.3}[dtype]
        assert error(eager[-1][: len(wanted)].float(), wanted.float()) <= allowed
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
