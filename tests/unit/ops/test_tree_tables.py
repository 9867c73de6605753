"""The tables of a pack. Refuses operations, whose own tests say what the tables are good for.

Trap: results stay right when tables waste work, so what they may waste is asserted here.
"""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_packs import Shape, full_rows, pack_of, shapes, tree_for

from decider.ops.tree import RUN_ROWS


@settings(max_examples=60, deadline=None)
@given(shapes(), st.integers(0, 5))
def test_runs_are_all_tokens_in_order_and_see_their_rows_so_far(given_: list[Shape], padding: int) -> None:
    pack, tree = pack_of(given_, padding), tree_for(given_, padding)
    rows = {row[n_trunk]: row for row, n_trunk in full_rows(pack)}
    assert tree.n_tokens == pack.n_tokens
    assert tree.longest_row == max(len(row) for row in rows.values())
    assert [token for run in tree.runs for token in range(run.start, run.stop)] == [*range(pack.n_tokens)]
    for run in tree.runs:
        assert run.stop - run.start <= RUN_ROWS
        keys = [token for start, stop in run.keys for token in range(start, stop)]
        n = run.stop - run.start
        assert keys[-n:] == [*range(run.start, run.stop)]
        for token, bias in zip(range(run.start, run.stop), run.bias.tolist(), strict=True):
            start = max(start for start in rows if start <= token)
            row = rows[start]
            seen = keys[:-n] + [key for key, added in zip(keys[-n:], bias, strict=True) if added == 0]
            assert set(bias) <= {0.0, -torch.inf}
            assert sorted(seen) == sorted(row[: row.index(token) + 1])


def test_short_branches_share_a_run_and_roots_do_not() -> None:
    tree = tree_for([(5, (10, 20, 30, 10)), (5, (1,)), (6, ())], padding=3)
    assert [(run.start, run.stop) for run in tree.runs] == [
        (0, 5),
        (5, 10),
        (10, 16),
        (16, 76),
        (76, 86),
        (86, 87),
        (87, 90),
    ]


def test_what_lies_together_is_one_range() -> None:
    """A trunk of its own and its first branches: no key is copied."""
    assert [run.keys for run in tree_for([(70, (8, 9))]).runs] == [((0, 35),), ((0, 70),), ((0, 87),)]
    assert tree_for([(3, (2,)), (4, (1,))]).runs[-1].keys == ((3, 7), (9, 10))


@settings(max_examples=60, deadline=None)
@given(shapes(), st.integers(0, 5))
def test_batches_hold_each_token_once_at_less_than_double_the_work(given_: list[Shape], padding: int) -> None:
    pack, tree = pack_of(given_, padding), tree_for(given_, padding)
    flat = torch.cat([batch.rows.flatten() for batch in tree.batches])
    real = torch.cat([batch.real.flatten() for batch in tree.batches])
    assert flat[tree.order].tolist() == [*range(pack.n_tokens)]
    assert sorted(flat[real].tolist()) == [*range(pack.n_tokens)]
    assert flat.numel() < 2 * pack.n_tokens
    members = [span for batch in tree.batches for span in batch.rows[:, 0].tolist()]
    starts = {span.start: span for span in pack.spans}
    for batch in tree.batches:
        for number, start in enumerate(batch.rows[:, 0].tolist()):
            parent = starts[start].parent
            wanted = None if parent is None else pack.spans[parent].start
            assert (None if batch.parents is None else members[int(batch.parents[number])]) == wanted


def test_no_row_of_a_batch_leaves_its_span() -> None:
    """Behind a span's end stands its own last token, so nothing of a stranger gets into its arithmetic."""
    tree = tree_for([(3, (5, 8)), (4, ())], padding=2)
    ends = {span.start: span.start + span.length for span in tree.spans}
    for batch in tree.batches:
        for row in batch.rows.tolist():
            assert row[0] <= min(row)
            assert max(row) < ends[row[0]]


def test_heads_are_the_tokens_whose_past_lies_elsewhere() -> None:
    tree = tree_for([(5, (1, 4)), (2, ())], padding=1, taps=4)
    # Trunks at 0 and 5, branches at 7 and 8, padding at 12. Token 2 looks back at 1, 0 and nothing, as if by place.
    assert tree.heads.tolist() == [0, 1, 5, 6, 7, 8, 9, 10, 12]
    assert tree.look_back[8].tolist() == [4, 3, 2]
    assert tree.look_back[9].tolist() == [8, 4, 3]
    assert tree_for([(5, (1, 4))]).heads.tolist() == []
