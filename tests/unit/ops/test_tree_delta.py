"""The gated delta rule over packs against each row on its own, token by token.

Refuses speed. Trap: with gates near the middle a wrong start is forgotten after a few tokens; so the gates run from
forgetting nothing to forgetting everything, and every token is compared.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from tree_packs import Shape, full_rows, normal, pack_of, permuted, shapes, tree_for

from decider.ops.tree_delta import tree_delta_rule

KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM = 2, 4, 6, 5
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def inputs(given_: list[Shape], padding: int = 0, seed: int = 0, keep: float = 0.1) -> Inputs:
    n = sum(trunk + sum(branches) for trunk, branches in given_) + padding
    beta = normal(seed + 4, n, VALUE_HEADS).mul(2).sigmoid()
    beta[::7] = 1
    return (
        normal(seed, n, KEY_HEADS, KEY_DIM),
        normal(seed + 1, n, KEY_HEADS, KEY_DIM),
        normal(seed + 2, n, VALUE_HEADS, VALUE_DIM),
        -normal(seed + 3, n, VALUE_HEADS).exp() * keep,
        beta,
    )


def by_definition(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """One row: S ← exp(g) S; S ← S + β k (v − Sᵀk)ᵀ; o = Sᵀq / √d, one token and head after the other, in float64."""
    query, key, value, decay, beta = (each.double() for each in (query, key, value, decay, beta))
    out = torch.zeros_like(value)
    for head in range(VALUE_HEADS):
        state = value.new_zeros(KEY_DIM, VALUE_DIM)
        for token in range(len(value)):
            q, k = (each[token, head // (VALUE_HEADS // KEY_HEADS)] for each in (query, key))
            q, k = (each / (each @ each + 1e-6).sqrt() for each in (q, k))
            state = state * decay[token, head].exp()
            state = state + beta[token, head] * torch.outer(k, value[token, head] - state.T @ k)
            out[token, head] = state.T @ q / KEY_DIM**0.5
    return out


@settings(max_examples=25, deadline=None)
@given(shapes(), st.integers(0, 5), st.sampled_from([1e-6, 0.1, 30.0]))
def test_a_tree_is_its_rows(given_: list[Shape], padding: int, keep: float) -> None:
    tensors = inputs(given_, padding, keep=keep)
    before = [each.clone() for each in tensors]
    found = tree_delta_rule(*tensors, tree_for(given_, padding))
    assert found.shape == tensors[2].shape
    assert all(torch.equal(old, new) for old, new in zip(before, tensors, strict=True))
    for row, n_trunk in full_rows(pack_of(given_, padding)):
        wanted = by_definition(*(each[row] for each in tensors))
        assert float((found[row[n_trunk:]] - wanted[n_trunk:]).abs().max()) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_other_dtypes_are_within_their_rounding(dtype: torch.dtype) -> None:
    """Arithmetic is float32; unit vectors are too, so of a half input only the output is rounded again."""
    given_: list[Shape] = [(70, (5, 40)), (3, (9, 1)), (20, ())]
    q, k, v, decay, beta = inputs(given_)
    q, k, v = (each.to(dtype) for each in (q, k, v))
    decay, beta = decay.float(), beta.float()
    found = tree_delta_rule(q, k, v, decay, beta, tree_for(given_))
    assert found.dtype == dtype
    for row, n_trunk in full_rows(pack_of(given_)):
        wanted = by_definition(*(each[row] for each in (q, k, v, decay, beta)))[n_trunk:]
        bound = wanted.abs() * torch.finfo(dtype).eps / 2 + 2e-5
        assert bool(((found[row[n_trunk:]].double() - wanted).abs() <= bound).all())


@settings(max_examples=15, deadline=None)
@given(shapes(40), st.randoms(use_true_random=False), st.integers(0, 3))
def test_neighbours_and_branches_in_another_order_change_rounding_alone(
    given_: list[Shape], random: object, turn: int
) -> None:
    """Nor is a state written to that another branch goes on from. Not bits: the order decides a batch's products."""
    order = [*range(len(given_))]
    random.shuffle(order)  # type: ignore[attr-defined]
    other, places = permuted(given_, order, turn)
    tensors = inputs(given_)
    found = tree_delta_rule(*tensors, tree_for(given_))
    q, k, v, decay, beta = (each[places] for each in tensors)
    moved = tree_delta_rule(q, k, v, decay, beta, tree_for(other))
    assert float((moved - found[places]).abs().max()) < 1e-13


def test_a_stranger_cannot_be_seen() -> None:
    """Not even as NaN, and not by padding to a batch either."""
    given_: list[Shape] = [(20, (3, 2)), (17, ()), (1, (4,))]
    tensors, tree = inputs(given_, 2), tree_for(given_, 2)
    before = tree_delta_rule(*tensors, tree)
    for row, n_trunk in full_rows(pack_of(given_, 2)):
        others = [token for token in range(len(before)) if token not in row]
        q, k, v, decay, beta = (each.clone().index_fill_(0, torch.tensor(others), torch.nan) for each in tensors)
        after = tree_delta_rule(q, k, v, decay, beta, tree)
        assert float((before[row[n_trunk:]] - after[row[n_trunk:]]).abs().max()) < 1e-14
