"""The cases are those that were promised, and their rows are what they say.

Refuses to run a model. Trap: figures of two runs are comparable only if their rows are the same.
"""

from __future__ import annotations

import pytest

from decider.bench.cases import CARD_CASES, SMALL_CASES, Case, mixed_lengths, rows_of, same


def test_the_cases_of_a_model() -> None:
    assert [str(case) for case in SMALL_CASES] == ["0 + 1 × 200", "300 + 1 × 40", "300 + 5 × 40", "1000 + 3 × 40"]


def test_the_cases_of_a_card() -> None:
    names = [str(case) for case in CARD_CASES]
    plain = ["1 × 64", "1 × 256", "1 × 1024", "8 × 256", "32 × 256", "16 × 512", "32 × 1024", "1 × 8192", "256 × mixed"]
    states = ["300 + 5 × 40", "1500 + 16 × 40", "1500 + 32 × 60", "6000 + 16 × 40"]
    assert names == [f"0 + {name}" for name in plain] + states


def test_the_mixed_lengths_never_change() -> None:
    lengths = mixed_lengths()
    assert (len(lengths), sum(lengths), min(lengths), max(lengths)) == (256, 66_684, 40, 1453)
    assert Case(0, lengths).question_tokens is None


@pytest.mark.parametrize("case", [same(0, 1, 200), same(300, 5, 40), same(7, 64, 1), Case(0, mixed_lengths())], ids=str)
def test_rows_are_what_the_case_says(case: Case) -> None:
    rows = rows_of(case, 1024)
    assert [len(row.ids) - case.state_tokens for row in rows] == list(case.lengths)
    assert all(row.slots == (len(row.ids) - 1,) and row.prefix_tokens == case.state_tokens for row in rows)
    assert all(0 <= token < 1024 for row in rows for token in row.ids)
    assert len({row.ids for row in rows}) == len(rows)
    assert max(len(row.ids) for row in rows) == case.longest
    assert rows == rows_of(case, 1024)


def test_questions_share_the_state_and_nothing_more() -> None:
    rows = rows_of(same(300, 5, 40), 1024)
    assert len({row.ids[:300] for row in rows}) == 1
    assert len({row.ids[300] for row in rows}) == 5
