"""The convolution over packs against torch's over each row on its own. Refuses speed and activations.

Trap: a fault shows only at the heads of spans, so trunks and branches shorter than the taps are among the cases.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from tree_packs import Shape, full_rows, normal, pack_of, permuted, shapes, tree_for

from decider.ops.tree_convolution import tree_convolution

CHANNELS = 5


def tokens_of(given_: list[Shape], padding: int = 0) -> int:
    return sum(trunk + sum(branches) for trunk, branches in given_) + padding


@settings(max_examples=80, deadline=None)
@given(shapes(12), st.integers(0, 5), st.integers(1, 5), st.booleans())
def test_a_tree_is_its_rows(given_: list[Shape], padding: int, taps: int, biased: bool) -> None:
    conv = nn.Conv1d(CHANNELS, CHANNELS, taps, groups=CHANNELS, padding=taps - 1, bias=biased, dtype=torch.float64)
    x = normal(taps, tokens_of(given_, padding), CHANNELS)
    before = x.clone()
    found = tree_convolution(x, conv.weight.squeeze(1), conv.bias, tree_for(given_, padding, taps)).detach()
    assert found.shape == x.shape
    assert torch.equal(x, before)
    for row, n_trunk in full_rows(pack_of(given_, padding)):
        wanted = conv(x[row].T[None])[0, :, : len(row)].T.detach()
        assert float((found[row[n_trunk:]] - wanted[n_trunk:]).abs().max()) < 1e-13


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_other_dtypes_round_once(dtype: torch.dtype) -> None:
    """Four products and their sum in float32, 8 roundings; then one to the dtype."""
    given_: list[Shape] = [(2, (1, 6)), (9, ())]
    x, weight = normal(1, tokens_of(given_), CHANNELS, dtype=dtype), normal(2, CHANNELS, 4, dtype=dtype)
    tree = tree_for(given_, taps=4)
    found = tree_convolution(x, weight, None, tree)
    assert found.dtype == dtype
    wanted = tree_convolution(x.double(), weight.double(), None, tree)
    mass = tree_convolution(x.double().abs(), weight.double().abs(), None, tree)
    bound = wanted.abs() * torch.finfo(dtype).eps / 2 + mass * 8 * 2.0**-24
    assert bool(((found.double() - wanted).abs() <= bound).all())


@settings(max_examples=20, deadline=None)
@given(shapes(12), st.randoms(use_true_random=False), st.integers(0, 3))
def test_neighbours_and_branches_in_another_order_change_no_more_than_the_last_bit(
    given_: list[Shape], random: object, turn: int
) -> None:
    """No sum changes its order; only whether a product is fused with its sum depends on where a token lies."""
    order = [*range(len(given_))]
    random.shuffle(order)  # type: ignore[attr-defined]
    other, places = permuted(given_, order, turn)
    x, weight = normal(1, tokens_of(given_), CHANNELS), normal(2, CHANNELS, 4)
    found = tree_convolution(x, weight, None, tree_for(given_, taps=4))
    moved = tree_convolution(x[places], weight, None, tree_for(other, taps=4))
    assert float((moved - found[places]).abs().max()) < 1e-14


def test_a_stranger_cannot_be_seen() -> None:
    """Not even as NaN."""
    given_: list[Shape] = [(2, (1, 2)), (3, ())]
    x, weight = normal(1, tokens_of(given_, 2), CHANNELS), normal(2, CHANNELS, 4)
    tree = tree_for(given_, 2, taps=4)
    before = tree_convolution(x, weight, None, tree)
    for row, n_trunk in full_rows(pack_of(given_, 2)):
        noisy = x.clone()
        noisy[[token for token in range(len(x)) if token not in row]] = torch.nan
        after = tree_convolution(noisy, weight, None, tree)
        assert torch.equal(before[row[n_trunk:]], after[row[n_trunk:]])
