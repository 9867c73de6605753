"""Our decoders against transformers' models on the same weights, full rows as trunks of their own.

Refuses to use our forward as its own judge. Trap: in bfloat16 two right forwards differ as much as bfloat16 differs
from the truth, so there the bound is measured, not written down.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from packed_rows import KNOWN, LABEL_IDS, Family, load_known, own_logits, rows_of, single_logits
from prefix_rows import one_thread, true_float64
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from decider.backbone.families import read_spec
from decider.backbone.load import backbone_head, backbone_of
from decider.model.head import label_head
from decider.ops import pack_ops
from decider.ops.tree import Tree

# Of the largest logit. Measured are at most 2e-6, for the hybrid 1.2e-5, most of it transformers' own rounding in the
# delta rule; in float64 at most 2e-14.
FLOAT32_BOUND = 5e-5
FLOAT64_BOUND = 1e-12
ROWS, _ = rows_of([Family(length) for length in (1, 2, 5, 64, 65, 200)])


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with one_thread(), torch.inference_mode():
        yield


def both(name: str, dtype: str) -> tuple[Tensor, Tensor]:
    """Label logits of our decoder and of transformers' model."""
    loaded = load_known(name, dtype)
    head = label_head(loaded, LABEL_IDS)
    ours = single_logits(backbone_of(loaded), head, ROWS)
    with true_float64():
        theirs = own_logits(loaded, head, ROWS)
    assert ours.shape == theirs.shape
    assert theirs.abs().max() > 2
    return ours, theirs


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("name", KNOWN)
def test_float32_logits_are_transformers(name: str) -> None:
    assert relative(*both(name, "float32")) <= FLOAT32_BOUND


@pytest.mark.parametrize("name", KNOWN)
def test_float64_logits_are_transformers(name: str) -> None:
    assert relative(*both(name, "float64")) <= FLOAT64_BOUND


def deviation(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).square().mean().sqrt())


@pytest.mark.parametrize("name", KNOWN)
def test_bfloat16_loses_no_more_than_transformers(name: str) -> None:
    ours, theirs = both(name, "bfloat16")
    _, truth = both(name, "float64")
    lost = deviation(theirs, truth)
    assert deviation(ours, truth) <= 1.15 * lost
    assert deviation(ours, theirs) <= lost


@pytest.mark.parametrize("name", KNOWN)
def test_bfloat16_is_rounded_where_transformers_rounds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same kernel for attention, the rest is the same operations on the same numbers."""

    def kernel(query: Tensor, key: Tensor, value: Tensor, tree: Tree, *, scale: float) -> Tensor:
        assert len(tree.spans) == 1
        q, k, v = (each.transpose(0, 1)[None] for each in (query, key, value))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
        return seen[0].transpose(0, 1)

    monkeypatch.setattr(pack_ops, "tree_attention", kernel)
    ours, theirs = both(name, "bfloat16")
    _, truth = both(name, "float64")
    # Another place of rounding costs a third and more. The delta rule alone has other sums than transformers'.
    assert deviation(ours, theirs) <= 0.1 * deviation(theirs, truth)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_the_label_head_is_the_models(name: str, dtype: str) -> None:
    loaded = load_known(name, dtype)
    ours, theirs = backbone_head(backbone_of(loaded), LABEL_IDS), label_head(loaded, LABEL_IDS)
    assert torch.equal(ours.weight, theirs.weight)
    assert ours.weight.dtype == theirs.weight.dtype
    assert (ours.bias, ours.scale, ours.soft_cap) == (theirs.bias, theirs.scale, theirs.soft_cap)


@pytest.mark.parametrize("kind", ["linear", "llama3"])
def test_scaled_frequencies_are_transformers_to_the_bit(kind: str) -> None:
    rope = {"rope_type": kind, "rope_theta": 500000.0, "factor": 8.0}
    if kind == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    config = LlamaConfig(
        hidden_size=256, num_attention_heads=2, head_dim=128, max_position_embeddings=131072, rope_parameters=rope
    )
    theirs, scale = ROPE_INIT_FUNCTIONS[kind](config)
    assert scale == 1.0
    assert torch.equal(torch.tensor(read_spec(config, "tiny").rotary.frequencies), theirs)
    plain = read_spec(LlamaConfig(hidden_size=256, num_attention_heads=2, head_dim=128), "tiny").rotary
    assert plain.dim == 128
    assert not torch.equal(torch.tensor(plain.frequencies), theirs)
