"""Shared prefixes against full rows of the reference executor, at every split, in each family and attention.

Refuses to judge by winners: it compares logits, in true float64 (a proof) and in float32 (what rounding leaves). Trap:
the models' initial weights are scaled up, as near-zero logits would hide a wrong mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from prefix_rows import load_tiny, make_rows, one_thread, true_float64

from decider.run.executor import Logits
from decider.run.prefix.shared import PrefixLimits, SharedPrefix
from decider.run.reference import ReferenceExecutor
from decider.tokens.rows import Row

TinyFolder = Callable[[str], Path]
FAMILIES = ("llama", "qwen3", "qwen3_5", "gemma3")
ANY_PREFIX = PrefixLimits(min_prefix_tokens=1)
PROOF = 1e-10
# Full float32 rows of the hybrid are themselves 1e-3 away from float64 at these weights: its delta rule amplifies.
ROUNDING = {"qwen3_5": 4e-3}

each_family = pytest.mark.parametrize("family", FAMILIES)
each_attention = pytest.mark.parametrize("attention", ["eager", "sdpa"])


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with one_thread():
        yield


def farthest(some: Sequence[Logits] | None, others: Sequence[Logits] | None) -> float:
    assert some is not None
    assert others is not None
    assert [one.shape for one in some] == [other.shape for other in others]
    return max(float(np.abs(one - other).max()) for one, other in zip(some, others, strict=True))


def rows_at(prefix_tokens: int) -> list[Row]:
    """Rows of unequal length; at some splits all of one token, where families take their decoding path."""
    return make_rows(prefix_tokens, (1, 1) if prefix_tokens % 4 == 0 else (1, 20, 1 + prefix_tokens % 19, 5))


@each_family
@each_attention
def test_shared_equals_full_rows_at_every_split(tiny_folder: TinyFolder, family: str, attention: str) -> None:
    loaded, head = load_tiny(tiny_folder(family), attention, "float64")
    with true_float64():
        shared, full = SharedPrefix(loaded, head, ANY_PREFIX), ReferenceExecutor(loaded, head)
        for prefix_tokens in range(1, 41):
            rows = rows_at(prefix_tokens)
            want = full.label_logits(rows)
            assert min(float(np.abs(one).max()) for one in want) > 0.1
            assert farthest(shared.label_logits(rows, gate=False), want) <= PROOF, prefix_tokens
    assert shared.stats.unknown_tensors == 0


@each_family
@each_attention
def test_float32_differs_from_full_rows_by_rounding(tiny_folder: TinyFolder, family: str, attention: str) -> None:
    loaded, head = load_tiny(tiny_folder(family), attention, "float32")
    shared, full = SharedPrefix(loaded, head, ANY_PREFIX), ReferenceExecutor(loaded, head)
    for prefix_tokens in (1, 2, 3, 4, 7, 14, 15, 16, 17, 18, 31, 32, 40):
        rows = rows_at(prefix_tokens)
        got = shared.label_logits(rows, gate=False)
        assert got is not None
        assert {one.dtype for one in got} == {np.dtype("float32")}
        assert farthest(got, full.label_logits(rows)) <= ROUNDING.get(family, 1e-4), prefix_tokens


@each_family
@each_attention
def test_long_suffixes_pass_windows_and_chunks_of_the_delta_rule(
    tiny_folder: TinyFolder, family: str, attention: str
) -> None:
    loaded, head = load_tiny(tiny_folder(family), attention, "float64")
    with true_float64():
        shared, full = SharedPrefix(loaded, head, ANY_PREFIX), ReferenceExecutor(loaded, head)
        for prefix_tokens, suffixes in ((3, (70, 2)), (15, (17, 40)), (63, (1, 66)), (130, (3, 1, 2))):
            rows = make_rows(prefix_tokens, suffixes)
            assert farthest(shared.label_logits(rows, gate=False), full.label_logits(rows)) <= PROOF, prefix_tokens


@each_family
def test_branch_order_chunks_and_neighbours_move_no_answer(tiny_folder: TinyFolder, family: str) -> None:
    loaded, head = load_tiny(tiny_folder(family), "sdpa", "float64")
    rows = make_rows(21, (6, 1, 19, 1, 2, 11))
    with true_float64():
        shared = SharedPrefix(loaded, head, ANY_PREFIX)
        want = shared.label_logits(rows, gate=False)
        assert want is not None
        for order in ((5, 4, 3, 2, 1, 0), (2, 0, 5, 1, 4, 3)):
            got = shared.label_logits([rows[index] for index in order], gate=False)
            assert farthest(got, [want[index] for index in order]) <= PROOF
        pair = shared.label_logits(rows[3:5], gate=False)
        one_each = SharedPrefix(loaded, head, PrefixLimits(min_prefix_tokens=1, suffix_tokens=1))
        alone = one_each.label_logits(rows, gate=False)
    assert farthest(pair, want[3:5]) <= PROOF
    assert farthest(alone, want) <= PROOF
    assert (shared.stats.shared_forwards, one_each.stats.shared_forwards) == (4 + 4, 1 + 6)


@each_family
def test_a_prefix_that_is_cut_short_by_one_row_answers_the_same(tiny_folder: TinyFolder, family: str) -> None:
    loaded, head = load_tiny(tiny_folder(family), "sdpa", "float64")
    rows = make_rows(30, (4, 9))
    # As of a question whose state is cut: the same start, but shorter.
    cut = Row((*rows[0].ids[:18], *rows[1].ids[30:]), tuple(slot - 12 for slot in rows[1].slots), (2,), 18)
    with true_float64():
        shared, full = SharedPrefix(loaded, head, ANY_PREFIX), ReferenceExecutor(loaded, head)
        mixed = [*rows, cut]
        assert farthest(shared.label_logits(mixed, gate=False), full.label_logits(mixed)) <= PROOF
    assert shared.stats.real_tokens == 18 + sum(len(row.ids) - 18 for row in mixed)
