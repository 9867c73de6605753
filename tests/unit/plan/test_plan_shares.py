"""One call cut for several engines: every row once, in order, about even, and no long start run twice."""

from __future__ import annotations

import random

import pytest
from pack_rows import row

from decider.plan.shares import LEAST_TOKENS, even_parts
from decider.tokens.rows import Row


def group(state: int, n_state: int, suffixes: list[int]) -> list[Row]:
    """Rows with a state of so many tokens in common."""
    return [row(*[state] * n_state, *[1000 + index] * n, prefix=n_state) for index, n in enumerate(suffixes)]


def tokens(rows: list[Row], part: range) -> int:
    """What a part costs: a start that a row has in common with the one before it once."""
    total, before = 0, b""
    for each in (rows[index] for index in part):
        total += len(each.ids) - (each.prefix_tokens if each.start_bytes == before else 0)
        before = each.start_bytes
    return total


def test_parts_cover_all_rows_in_order_and_are_about_even() -> None:
    rng = random.Random(3)
    for n_parts in (2, 3, 8):
        rows = [
            each
            for state in range(300)
            for each in group(state, rng.randint(10, 200), [rng.randint(5, 30) for _ in range(rng.randint(1, 6))])
        ]
        parts = even_parts(rows, n_parts)
        assert [index for part in parts for index in part] == list(range(len(rows)))
        assert len(parts) == n_parts
        costs = [tokens(rows, part) for part in parts]
        assert max(costs) - min(costs) < 1000
        # Hardly anything is run twice.
        assert sum(costs) - tokens(rows, range(len(rows))) <= n_parts * 200


def test_less_than_a_pack_a_part_is_not_cut() -> None:
    assert even_parts([], 2) == [range(0)]
    rows = [row(*[index] * 64, prefix=0) for index in range(2 * LEAST_TOKENS // 64)]
    assert len(even_parts(rows, 2)) == 2
    assert even_parts(rows[:-1], 2) == [range(len(rows) - 1)]
    assert len(even_parts(rows, 8)) == 2


@pytest.mark.parametrize("n_parts", [0, 1])
def test_one_engine_gets_all(n_parts: int) -> None:
    rows = [row(*[index] * 640, prefix=0) for index in range(20)]
    assert even_parts(rows, n_parts) == [range(20)]


def test_a_long_state_stays_together_and_a_short_schema_does_not() -> None:
    assert even_parts(group(7, 6000, [40] * 16), 2) == [range(16)]
    assert len(even_parts(group(7, 100, [900] * 16), 2)) == 2
    # A start of half of a part is long, too.
    assert even_parts(group(7, 1500, [400] * 8), 2) == [range(8)]
    # States are cut a question: a row may have less of the one that it shares with those beside it.
    cut = [row(*[7] * n, 1000 + n, prefix=n) for n in (6000, 5999) * 8]
    assert even_parts([*cut, *group(8, 6000, [1])], 2) == [range(16), range(16, 17)]
    # Two long states are cut between, not within.
    assert even_parts([*group(7, 6000, [40] * 16), *group(8, 6000, [40] * 16)], 2) == [range(16), range(16, 32)]
