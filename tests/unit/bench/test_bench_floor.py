"""The floor against pairs counted one by one, and figures worked out by hand.

Refuses to time anything. Trap: a window of w tokens counts the token itself, so a window of 1 sees one pair a token.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.bench.cases import Case, same
from decider.bench.floor import Attention, ModelWork, floor, visible_pairs


def counted(case: Case, window: int | None) -> int:
    """Every token of the state and of each question, and every token it sees."""
    pairs = 0
    spans = [range(case.state_tokens), *(range(case.state_tokens, case.state_tokens + n) for n in case.lengths)]
    for span in spans:
        for token in span:
            pairs += sum(1 for seen in range(token + 1) if window is None or token - seen < window)
    return pairs


@given(
    st.integers(0, 40),
    st.lists(st.integers(1, 30), min_size=1, max_size=4).map(tuple),
    st.none() | st.integers(1, 80),
)
def test_pairs_are_those_counted_one_by_one(state: int, lengths: tuple[int, ...], window: int | None) -> None:
    case = Case(state, lengths)
    assert visible_pairs(case, window) == counted(case, window)


def test_pairs_by_hand() -> None:
    assert visible_pairs(same(0, 1, 4), None) == 1 + 2 + 3 + 4
    assert visible_pairs(same(0, 1, 4), 2) == 1 + 2 + 2 + 2
    assert visible_pairs(same(0, 3, 4), None) == 3 * 10
    # The state once, then each question sees it and itself: 6, and twice 4 + 5.
    assert visible_pairs(same(3, 2, 2), None) == 6 + 2 * 9
    assert visible_pairs(same(3, 2, 2), 1) == 7


def test_the_floor_by_hand() -> None:
    work = ModelWork(1_000_000, (Attention(8, 64, None), Attention(4, 32, 2)))
    least = floor(work, same(3, 2, 2), tflops=0.5)
    # 7 tokens: 2 · 10⁶ · 7 operations at 5 · 10⁸ a millisecond.
    assert least.parameters_ms == pytest.approx(0.028)
    # 24 pairs of 2,048 operations, and (5 + 2 · 4) = 13 of 512.
    assert least.attention_ms == pytest.approx((24 * 2048 + 13 * 512) / 5e8)
    assert least.total_ms == pytest.approx(0.028 + (24 * 2048 + 13 * 512) / 5e8)


def test_a_state_is_counted_once() -> None:
    work = ModelWork(1_000_000, ())
    assert floor(work, same(100, 5, 10), 1.0).parameters_ms == floor(work, same(0, 1, 150), 1.0).parameters_ms
    assert floor(work, same(100, 5, 10), 1.0).attention_ms == 0


def test_unknown_attention_leaves_the_floor_open() -> None:
    least = floor(ModelWork(1_000_000, None), same(0, 1, 10), 1.0)
    assert least.parameters_ms is not None
    assert least.parameters_ms > 0
    assert least.attention_ms is None
    assert least.total_ms is None
