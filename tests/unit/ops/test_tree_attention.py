"""Attention over packs against each row on its own, by the definition.

Refuses speed. Trap: a mask that hides too little still gives finite, plausible numbers; so every token of every row is
compared, in trees whose neighbours are strangers.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from tree_packs import Shape, full_rows, normal, pack_of, permuted, shapes, tree_for

from decider.ops.tree import RUN_ROWS
from decider.ops.tree_attention import tree_attention

DIM = 8
FLOAT32 = 2.0**-24
"""Unit of rounding; 2⁻⁹ in bfloat16."""


def by_definition(query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
    """One row of [tokens, heads, d]: one token after the other, in float64."""
    shared = query.shape[1] // key.shape[1]
    query = query.double()
    key, value = (each.double().repeat_interleave(shared, dim=1) for each in (key, value))
    out = torch.zeros_like(query)
    for token in range(len(query)):
        seen = slice(0 if window is None else max(0, token + 1 - window), token + 1)
        scores = (key[seen] * query[token]).sum(-1) * scale
        weights = (scores - scores.amax(0)).exp()
        out[token] = (weights[..., None] * value[seen]).sum(0) / weights.sum(0)[:, None]
    return out


def tokens_of(given_: list[Shape], padding: int = 0) -> int:
    return sum(trunk + sum(branches) for trunk, branches in given_) + padding


def inputs(n: int, heads: int, kv_heads: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    return normal(seed, n, heads, DIM), normal(seed + 1, n, kv_heads, DIM), normal(seed + 2, n, kv_heads, DIM)


@settings(max_examples=40, deadline=None)
@given(shapes(), st.integers(0, 5), st.sampled_from([(4, 4), (6, 2), (3, 1)]), st.sampled_from([None, 1, 3, 40, 500]))
def test_a_tree_is_its_rows(given_: list[Shape], padding: int, heads: tuple[int, int], window: int | None) -> None:
    q, k, v = inputs(tokens_of(given_, padding), *heads)
    found = tree_attention(q, k, v, tree_for(given_, padding), scale=0.7, window=window)
    assert found.shape == q.shape
    assert found.dtype == torch.float64
    for row, n_trunk in full_rows(pack_of(given_, padding)):
        wanted = by_definition(q[row], k[row], v[row], 0.7, window)
        assert float((found[row[n_trunk:]] - wanted[n_trunk:]).abs().max()) < 1e-12


@pytest.mark.parametrize("tokens", [RUN_ROWS - 1, RUN_ROWS, RUN_ROWS + 1, 2 * RUN_ROWS, 2 * RUN_ROWS + 1])
def test_runs_end_anywhere(tokens: int) -> None:
    cases: list[list[Shape]] = [[(tokens, ())], [(2, (tokens, 1, tokens))], [(tokens, (1, 2))]]
    for given_ in cases:
        q, k, v = inputs(tokens_of(given_), 2, 1)
        found = tree_attention(q, k, v, tree_for(given_), scale=0.3)
        for row, n_trunk in full_rows(pack_of(given_)):
            wanted = by_definition(q[row], k[row], v[row], 0.3, None)
            assert float((found[row[n_trunk:]] - wanted[n_trunk:]).abs().max()) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_other_dtypes_are_within_their_rounding(dtype: torch.dtype) -> None:
    """Outputs are means of values, so an error of a weight is multiplied with the largest value at most.

    Scores up to s are taken in float32: d roundings each, so a weight is off by some 2 · d · s · 2⁻²⁴ of itself.
    Weights and outputs are rounded to the dtype once, which is 2 · unit of the largest value.
    """
    given_: list[Shape] = [(70, (5, 40, 1)), (3, (9,)), (20, ())]
    q, k, v = (each.to(dtype) for each in inputs(tokens_of(given_), 6, 2))
    found = tree_attention(q, k, v, tree_for(given_), scale=1.0)
    assert found.dtype == dtype
    unit = torch.finfo(dtype).eps / 2
    largest = float(v.abs().max())
    s = float(q.double().norm(dim=-1).max() * k.double().norm(dim=-1).max())
    bound = largest * (2 * unit + 4 * DIM * s * FLOAT32)
    for row, n_trunk in full_rows(pack_of(given_)):
        wanted = by_definition(q[row], k[row], v[row], 1.0, None)
        assert float((found[row[n_trunk:]].double() - wanted[n_trunk:]).abs().max()) < bound


def test_scores_of_half_inputs_are_not_rounded_to_half() -> None:
    """Two scores of 256 and 257 are one number in bfloat16; their weights are 0.27 and 0.73."""
    q = torch.tensor([[[1.0, 1.0]], [[1.0, 1.0]]], dtype=torch.bfloat16)
    k = torch.tensor([[[256.0, 0.0]], [[256.0, 1.0]]], dtype=torch.bfloat16)
    v = torch.tensor([[[0.0, 0.0]], [[1.0, 1.0]]], dtype=torch.bfloat16)
    found = tree_attention(q, k, v, tree_for([(2, ())]), scale=1.0)
    assert found[1, 0].tolist() == pytest.approx([0.731] * 2, abs=2**-8)


@settings(max_examples=20, deadline=None)
@given(shapes(40), st.randoms(use_true_random=False), st.integers(0, 3))
def test_neighbours_and_branches_in_another_order_change_rounding_alone(
    given_: list[Shape], random: object, turn: int
) -> None:
    """Not bits: which spans share a run depends on their order, and sums over hidden keys are grouped by run."""
    order = [*range(len(given_))]
    random.shuffle(order)  # type: ignore[attr-defined]
    other, places = permuted(given_, order, turn)
    q, k, v = inputs(tokens_of(given_), 4, 2)
    found = tree_attention(q, k, v, tree_for(given_), scale=0.5)
    moved = tree_attention(q[places], k[places], v[places], tree_for(other), scale=0.5)
    assert float((moved - found[places]).abs().max()) < 1e-14


def test_the_same_pack_has_the_same_bits() -> None:
    given_: list[Shape] = [(100, (40, 40)), (5, ())]
    q, k, v = (each.float() for each in inputs(tokens_of(given_), 4, 2))
    tree = tree_for(given_)
    assert torch.equal(tree_attention(q, k, v, tree, scale=0.5), tree_attention(q, k, v, tree, scale=0.5))


def test_inputs_may_be_parts_of_one_product_and_stay_as_they_are() -> None:
    given_: list[Shape] = [(9, (4, 2))]
    merged = normal(3, tokens_of(given_), 8, DIM)
    before = merged.clone()
    q, k, v = merged[:, :4], merged[:, 4:6], merged[:, 6:]
    found = tree_attention(q, k, v, tree_for(given_), scale=0.5)
    wanted = tree_attention(q.clone(), k.clone(), v.clone(), tree_for(given_), scale=0.5)
    assert float((found - wanted).abs().max()) < 1e-14
    assert torch.equal(merged, before)


def test_a_stranger_cannot_be_seen() -> None:
    """Whatever neighbours hold, NaN in rows of another trunk, a row's outputs are the same bits."""
    given_: list[Shape] = [(70, (30, 30)), (5, (20,)), (6, ())]
    merged = normal(0, tokens_of(given_, 4), 8, DIM)
    tree, pack = tree_for(given_, 4), pack_of(given_, 4)

    def attended(tensor: Tensor) -> Tensor:
        return tree_attention(tensor[:, :4], tensor[:, 4:6], tensor[:, 6:], tree, scale=0.5)

    before, rows = attended(merged), full_rows(pack)
    for row, n_trunk in rows:
        noisy = merged * 7 + 1
        for other, _ in rows:
            if row[0] != other[0]:
                noisy[other] = torch.nan
        noisy[row] = merged[row]
        assert torch.equal(before[row[n_trunk:]], attended(noisy)[row[n_trunk:]])
