"""SDPA under the pinned policy against an explicit softmax, with the shapes an engine has: whole rows and suffixes.

Refuses to load models. Trap: with flat scores a wrong mask moves a mean of hundreds of values by less than bfloat16 can
show; queries are scaled up, so that single keys decide. Behind the last key lie large values that nobody may read.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from decider.ops.attention import attention_policy

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda:0")
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
# Absolute, on outputs of up to some 4: weights and output rounded to bfloat16; scores of up to 20 in float32.
TOLERANCE = {"bfloat16": 0.04, "float32": 2e-4}
HEADS = 8
# (prefix, suffix): edges of tiles of 32, 64 and 128; many with 32 n + 1 keys.
SPLITS = (
    *((1, 1), (1, 2), (2, 31), (5, 3), (29, 3), (30, 3), (31, 2), (32, 1), (31, 33), (32, 33), (33, 31)),
    *((62, 3), (63, 2), (64, 64), (65, 64), (100, 29), (127, 2), (127, 130), (128, 1), (200, 57), (255, 2), (256, 257)),
    *((300, 40), (300, 213), (511, 2), (640, 129), (1000, 25), (1000, 40)),
)
SQUARES = (1, 2, 31, 33, 64, 65, 127, 129, 200, 257, 513)


def make(queries: int, keys: int, head_dim: int, dtype: str, key_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of two rows: [2, heads, tokens, head size]."""
    random = torch.Generator(DEVICE).manual_seed(keys * 1000 + queries)

    def normal(heads: int, tokens: int) -> Tensor:
        return torch.randn(2, heads, tokens, head_dim, generator=random, device=DEVICE).to(DTYPES[dtype])

    def cut(tensor: Tensor) -> Tensor:
        tensor[:, :, keys:] = 1000
        return tensor[:, :, :keys]

    return 3 * normal(HEADS, queries), cut(normal(key_heads, keys + 64)), cut(normal(key_heads, keys + 64))


def bottom_right(queries: int, keys: int) -> Tensor:
    """bool [1, 1, queries, keys]: the last query sees every key."""
    visible = torch.ones(queries, keys, dtype=torch.bool, device=DEVICE).tril(keys - queries)
    return visible.view(1, 1, queries, keys)


def explicit(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """[2, heads, queries, head size] in float64, the queries being the last ones."""
    query, key, value = query.double(), key.double(), value.double()
    groups = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    scores = query @ key.mT / query.shape[-1] ** 0.5
    scores = scores.masked_fill(~bottom_right(query.shape[2], key.shape[2]), -torch.inf)
    attended: Tensor = scores.softmax(-1) @ value
    return attended


def assert_near(ours: Tensor, theirs: Tensor, dtype: str, case: object) -> None:
    assert ours.shape == theirs.shape
    assert ours.isfinite().all(), case
    assert float((ours.double() - theirs).abs().max()) <= TOLERANCE[dtype], case


def through_transformers(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """As an attention layer calls it: a mask only for several queries behind a cache."""
    queries, keys = query.shape[2], key.shape[2]
    layer: Any = SimpleNamespace(num_key_value_groups=query.shape[1] // key.shape[1], is_causal=True)
    mask = None if queries in (1, keys) else bottom_right(queries, keys).expand(2, -1, -1, -1)
    attended: Tensor = sdpa_attention_forward(layer, query, key, value, mask, scaling=query.shape[-1] ** -0.5)[0]
    return attended.transpose(1, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_a_suffix_with_a_mask_equals_an_explicit_softmax(head_dim: int, dtype: str) -> None:
    with torch.inference_mode(), attention_policy(DEVICE, DTYPES[dtype], single_key_head=False).pinned():
        for prefix, suffix in SPLITS:
            query, key, value = make(suffix, prefix + suffix, head_dim, dtype, HEADS)
            mask = bottom_right(suffix, prefix + suffix)
            ours = scaled_dot_product_attention(query, key, value, attn_mask=mask)
            assert_near(ours, explicit(query, key, value), dtype, (prefix, suffix))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_a_whole_row_by_is_causal_equals_an_explicit_softmax(head_dim: int, dtype: str) -> None:
    with torch.inference_mode(), attention_policy(DEVICE, DTYPES[dtype], single_key_head=False).pinned():
        for tokens in SQUARES:
            query, key, value = make(tokens, tokens, head_dim, dtype, HEADS)
            ours = scaled_dot_product_attention(query, key, value, is_causal=True)
            assert_near(ours, explicit(query, key, value), dtype, tokens)


# One key head is the case of stride 0.
@pytest.mark.parametrize("key_heads", [8, 4, 2, 1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_grouped_heads_through_transformers(head_dim: int, dtype: str, key_heads: int) -> None:
    with torch.inference_mode(), attention_policy(DEVICE, DTYPES[dtype], single_key_head=key_heads == 1).pinned():
        for prefix, suffix in (*SPLITS, *((0, tokens) for tokens in SQUARES)):
            query, key, value = make(suffix, prefix + suffix, head_dim, dtype, key_heads)
            ours = through_transformers(query, key, value)
            assert_near(ours, explicit(query, key, value), dtype, (prefix, suffix))


@pytest.mark.parametrize(
    ("dtype", "masked", "grouped", "wanted"),
    [
        ("bfloat16", False, False, SDPBackend.FLASH_ATTENTION),
        ("bfloat16", False, True, SDPBackend.FLASH_ATTENTION),
        ("bfloat16", True, False, SDPBackend.EFFICIENT_ATTENTION),
        ("float32", False, False, SDPBackend.EFFICIENT_ATTENTION),
        ("float32", False, True, SDPBackend.MATH),
        ("float32", True, False, SDPBackend.EFFICIENT_ATTENTION),
    ],
)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_what_serves_which_case(head_dim: int, dtype: str, masked: bool, grouped: bool, wanted: SDPBackend) -> None:
    query, key, value = make(40, 40, head_dim, dtype, 2 if grouped else HEADS)
    mask = bottom_right(40, 40) if masked else None
    with attention_policy(DEVICE, DTYPES[dtype], single_key_head=False).pinned():
        chosen = torch._fused_sdp_choice(
            query, key, value, attn_mask=mask, dropout_p=0.0, is_causal=not masked, enable_gqa=grouped
        )
    assert SDPBackend(chosen) == wanted


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_graph_keeps_the_pinned_back_end(dtype: str) -> None:
    query, key, value = make(40, 340, 128, dtype, HEADS)
    mask = bottom_right(40, 340)
    stream: Any = torch.cuda.Stream(DEVICE)  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream(DEVICE))
    with torch.inference_mode(), torch.cuda.stream(stream):
        with attention_policy(DEVICE, DTYPES[dtype], single_key_head=False).pinned():
            pinned = scaled_dot_product_attention(query, key, value, attn_mask=mask)
            with torch.cuda.graph(graph, stream=stream):
                captured = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        captured.zero_()
        graph.replay()
    stream.synchronize()
    assert torch.equal(captured, pinned)
    assert_near(captured, explicit(query, key, value), dtype, "replayed")


def flags() -> tuple[object, ...]:
    enabled = (f"_get_{name}_sdp_enabled" for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable"))
    return (*(getattr(torch._C, name)() for name in enabled), tuple(torch._C._get_sdp_priority_order()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_flags_are_as_before_after_exit(dtype: str) -> None:
    before = flags()
    policy = attention_policy(DEVICE, DTYPES[dtype], single_key_head=False)
    with policy.pinned():
        assert flags() != before
        # No back end that is left takes keys of another size than the queries.
        query, key, value = make(4, 4, 64, dtype, HEADS)
        with pytest.raises(RuntimeError):
            scaled_dot_product_attention(query, key[..., :32], value)
    assert flags() == before
