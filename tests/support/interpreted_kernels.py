"""The kernels of packs against their plain forms, by Triton's interpreter on a processor.

`tests/unit/ops/test_pack_kernels.py` runs this file in a process of its own, where TRITON_INTERPRET is set before
Triton is imported. Refuses to judge speed and what a compiler makes of the kernels. Trap: the interpreter cuts off
where it makes bfloat16 of float32, multiplies matrices of bfloat16 as if they were integers, and loses the carry where
it rounds to e4m3. So bfloat16 is held to a few units here, float16 shows where numbers are rounded, most codes must be
right, and the rest of it is tested on a card alone (`tests/gpu/test_pack_kernels_cuda.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from packed_rows import load_known
from static_packs import TAPS, decoded, delta_by_spans, static_tables, ulps
from torch import Tensor
from tree_packs import CPU, normal, pack_of, tree_for

from decider.backbone.load import backbone_of
from decider.backbone.spec import DeltaSpec
from decider.ops import delta_kernels, launches
from decider.ops.fused_ops import fused_ops
from decider.ops.norms import Norm
from decider.ops.pack_ops import Gates, as_heads, opened, plain_ops
from decider.ops.rotary import Rotation
from decider.ops.rows import VALUES, Form, Rows
from decider.ops.tree import tree_of
from decider.ops.unit_norm import unit_vectors

assert os.environ.get("TRITON_INTERPRET") == "1", "run tests/unit/ops/test_pack_kernels.py"

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Units of the last place: float32 sums in another order, float16 is rounded at the same places, bfloat16 is cut off.
ALLOWED = {torch.float32: 40.0, torch.float16: 1.01, torch.bfloat16: 8.0}
CODES = Form(values=False, codes=True)
BOTH = Form(values=True, codes=True)
N = 37
FUSED, PLAIN = fused_ops(), plain_ops()
TREES = (
    ([(70, (3, 40, 66)), (5, ()), (2, (1, 1)), (1, (2,))], 256),
    ([(130, ()), (20, ()), (3, ()), (64, ())], 217),
    ([(1, ())], 64),
)
SMALL = ([(9, (3, 5)), (2, (1, 1)), (1, (2,))], 28), ([(17, ())], 19)
Tree = tuple[list[tuple[int, tuple[int, ...]]], int]
"""Trunks with their branches, and with how much padding."""


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with torch.inference_mode():
        yield


def _flat(shape: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(shape[0]) if isinstance(shape[0], tuple) else shape


def near(found: Tensor, wanted: Tensor) -> None:
    assert ulps(found, wanted) <= ALLOWED[wanted.dtype]


def nearly_all_codes(found: Rows, wanted: Rows) -> None:
    assert found.codes is not None
    assert wanted.codes is not None
    assert torch.allclose(found.codes[1], wanted.codes[1], rtol=2**-4)
    exact = decoded(wanted)
    right = (decoded(found) - exact).abs() <= exact.abs() / 7 + exact.abs().amax(1, keepdim=True) / 2**14
    assert float(right.float().mean()) > 0.9


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("features", [96, 1024])
@pytest.mark.parametrize("adds", [False, True])
def test_residual_and_norm(dtype: torch.dtype, offset: float, features: int, adds: bool) -> None:
    x, more = normal(1, N, features).to(dtype), normal(2, N, features + 3).to(dtype)[:, :features]
    norm = Norm(normal(3, features).to(dtype), 1e-6, offset)
    before = x.clone()
    (total, found), (sums, wanted) = (ops.add_norm(x, more if adds else None, norm, BOTH) for ops in (FUSED, PLAIN))
    assert torch.equal(x, before)
    near(total, sums)
    near(found.whole, wanted.whole)
    nearly_all_codes(found, wanted)
    assert FUSED.add_norm(x, None, norm, VALUES)[1].codes is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(6, 32, 32), (3, 64, 16), (10, 24, 24)])
@pytest.mark.parametrize("norms", [None, 0.0, 1.0])
def test_head_norm_and_rotary(dtype: torch.dtype, sizes: tuple[int, int, int], norms: float | None) -> None:
    heads, dim, turned = sizes
    angles = normal(1, N, turned // 2).repeat(1, 2)
    rotation = Rotation(angles.cos().to(dtype), angles.sin().to(dtype))
    merged = normal(2, N, heads * dim + 20).to(dtype)
    norm = None if norms is None else Norm(normal(3, heads, dim).to(dtype), 1e-6, norms)
    found, wanted = (ops.norm_and_turn(merged, norm, rotation, heads, dim) for ops in (FUSED, PLAIN))
    # Of two products, each cut off: a difference of either is large beside a small sum.
    assert ulps(found, wanted) <= {torch.float32: 40.0, torch.float16: 3.0, torch.bfloat16: 64.0}[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inner", [48, 700])
def test_the_gate_of_an_mlp(dtype: torch.dtype, inner: int) -> None:
    merged = normal(1, N, 2 * inner).mul(4).to(dtype)
    near(FUSED.swiglu(merged, VALUES).whole, PLAIN.swiglu(merged, VALUES).whole)
    nearly_all_codes(FUSED.swiglu(merged, CODES), PLAIN.swiglu(merged, CODES))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gated_norm(dtype: torch.dtype) -> None:
    x, gate = normal(1, N, 3, 24).to(dtype), as_heads(normal(2, N, 100).to(dtype)[:, 10:82], 24)
    norm = Norm(normal(3, 24).to(dtype), 1e-6, 0.0)
    near(FUSED.gated_norm(x, gate, norm, VALUES).whole, PLAIN.gated_norm(x, gate, norm, VALUES).whole)
    nearly_all_codes(FUSED.gated_norm(x, gate, norm, CODES), PLAIN.gated_norm(x, gate, norm, CODES))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tree", SMALL)
def test_the_convolution(dtype: torch.dtype, tree: Tree) -> None:
    given, n_tokens = tree
    pack, spec = pack_of(given), DeltaSpec(2, 3, 16, 24, TAPS)
    x = normal(1, n_tokens, spec.channels + 8).to(dtype)[:, : spec.channels]
    weight = normal(2, spec.channels, TAPS).to(dtype)
    found = FUSED.convolved(x, weight, spec, static_tables(pack, n_tokens, CPU))
    q, k, v = PLAIN.convolved(x[: pack.n_tokens], weight, spec, tree_of(pack, CPU, TAPS))
    for ours, wanted in zip(found, (unit_vectors(q), unit_vectors(k), v), strict=True):
        assert ours.is_contiguous()
        assert bool(ours.isfinite().all())
        # A sum that is rounded the other way is one unit before silu and the length.
        assert ulps(ours[: pack.n_tokens], wanted) <= 3 * ALLOWED[dtype]


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        ((4, 2, 64), torch.float32),
        ((2, 1, 128), torch.float16),
        ((3, 3, 24), torch.float32),
        ((1, 1, 256), torch.float32),
        ((2, 2, 16), torch.float16),
    ],
)
@pytest.mark.parametrize("tree", TREES)
def test_attention(dtype: torch.dtype, sizes: tuple[int, int, int], tree: Tree) -> None:
    given, n_tokens = tree
    heads, kv_heads, dim = sizes
    pack = pack_of(given)
    n = pack.n_tokens
    turned = normal(1, n_tokens, heads + kv_heads, dim).to(dtype)
    q, k = turned.split_with_sizes((heads, kv_heads), dim=1)
    rest = normal(2, n_tokens, (kv_heads + heads) * dim + 8).to(dtype)
    v, gate = as_heads(rest[:, : kv_heads * dim], dim), rest[:, kv_heads * dim : -8]
    tables, plain = static_tables(pack, n_tokens, CPU), tree_of(pack, CPU, TAPS)
    for opening in (None, gate):
        found = FUSED.attention(q, k, v, opening, tables, dim**-0.5)
        assert bool(found.isfinite().all())
        wanted = PLAIN.attention(q[:n], k[:n], v[:n], None if opening is None else opening[:n], plain, dim**-0.5)
        assert ulps(found[:n], wanted) <= {torch.float32: 256.0, torch.float16: 12.0}[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("given", [[(70, (3, 66)), (5, ()), (2, (1, 1))], [(60, ()), (20, ()), (70, ()), (1, ())]])
@pytest.mark.parametrize("small_tokens", [1024, 0])
def test_the_delta_rule(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, given: list[tuple[int, tuple[int, ...]]], small_tokens: int
) -> None:
    """With fewer programs than sequences, so that each takes several, on memory that holds NaN where nothing wrote; all
    sequences by one launch, and those of up to 20 tokens by another."""
    monkeypatch.setattr(delta_kernels, "SEQUENCES", 2)
    monkeypatch.setattr(delta_kernels, "LONG_SEQUENCES", 1)
    monkeypatch.setattr(launches, "DELTA_SMALL_TOKENS", small_tokens)
    monkeypatch.setattr(launches, "DELTA_SHORT_TOKENS", 20)
    monkeypatch.setattr(launches, "DELTA_SHORT_TRUNK_TOKENS", 20)
    monkeypatch.setattr(torch, "empty", lambda *shape, **kind: torch.full(_flat(shape), torch.nan, **kind))
    n_tokens = 160
    tables = static_tables(pack_of(given), n_tokens, CPU)
    q, k = (unit_vectors(normal(seed, n_tokens, 1, 24)).to(dtype) for seed in (1, 2))
    v, logits = normal(3, n_tokens, 2, 40).to(dtype), normal(4, n_tokens, 9).mul(4).to(dtype)
    gates = Gates(logits[:, 1:3], logits[:, 5:7], -normal(5, 2).exp().mul(0.2).float(), normal(6, 2).to(dtype))
    found = FUSED.delta_rule(q, k, v, gates, tables)
    log_decay, rate = opened(gates)
    exact = delta_by_spans(q.double(), k.double(), v.double(), log_decay.double(), rate.double(), tables)
    assert bool(found.isfinite().all())
    assert float((found - exact).abs().max() / exact.abs().max()) < {torch.float32: 3e-6, torch.float16: 3e-3}[dtype]


@pytest.mark.parametrize("name", ["llama", "qwen3_5"])
def test_a_decoder_by_kernels_is_the_plain_one(name: str) -> None:
    backbone = backbone_of(load_known(name, "float32"))
    given, n_tokens = SMALL[0]
    pack = pack_of(given)
    taps = backbone.spec.taps
    ids = torch.randint(backbone.spec.vocab, (n_tokens,), generator=torch.Generator().manual_seed(0))
    wanted = backbone.hidden_at_slots(ids[: pack.n_tokens], tree_for(given, taps=taps))
    kernels = replace(backbone, ops=FUSED)
    found = kernels.hidden_at_slots(ids, static_tables(pack, n_tokens, CPU, taps))
    assert bool(found.isfinite().all())
    assert float((found[: len(wanted)] - wanted).abs().max() / wanted.abs().max()) < 2e-5
