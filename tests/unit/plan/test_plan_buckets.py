"""The grid's arithmetic: shapes, buckets, bounds, refusals. Trap: one token over a bucket must land in the next one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.errors import ConfigError
from decider.plan.buckets import Grid

GRID = Grid()


def test_the_default_grid_has_89_shapes() -> None:
    shapes = GRID.graph_shapes()
    assert len(shapes) == len(set(shapes)) == 89
    assert set(shapes) == {(b, t) for b in GRID.batches for t in GRID.lengths if b == 1 or b * t <= 32768}


def test_shapes_are_captured_largest_first() -> None:
    shapes = GRID.graph_shapes()
    sizes = [batch * length for batch, length in shapes]
    assert sizes == sorted(sizes, reverse=True)
    assert shapes[:6] == ((4, 8192), (8, 4096), (16, 2048), (32, 1024), (4, 6144), (8, 3072))
    assert shapes[-3:] == ((1, 128), (2, 64), (1, 64))


def test_a_single_row_is_captured_at_a_length_above_the_token_budget() -> None:
    grid = Grid(lengths=(8, 16, 64), batches=(1, 2, 4), token_budget=32)
    assert grid.graph_shapes() == ((1, 64), (2, 16), (4, 8), (1, 16), (2, 8), (1, 8))
    assert grid.max_rows(64) == 1


@pytest.mark.parametrize(
    ("length", "batches"), [(64, (1, 2, 4, 8, 16, 32)), (1280, (1, 2, 4, 8, 16)), (8192, (1, 2, 4))]
)
def test_batches_at_a_length(length: int, batches: tuple[int, ...]) -> None:
    assert GRID.batches_at(length) == batches
    assert GRID.max_rows(length) == batches[-1]


@pytest.mark.parametrize(
    ("n_tokens", "bucket", "padded"),
    [
        (1, 64, 64),
        (64, 64, 64),
        (65, 128, 128),
        (1281, 1536, 1536),
        (8192, 8192, 8192),
        (8193, None, 9216),
        (9216, None, 9216),
        (9217, None, 10240),
        (100_000, None, 100_352),
    ],
)
def test_buckets_and_padding(n_tokens: int, bucket: int | None, padded: int) -> None:
    assert GRID.t_bucket(n_tokens) == bucket
    assert GRID.pad_len(n_tokens) == padded


@pytest.mark.parametrize(("padded", "rows"), [(9216, 3), (16384, 2), (17408, 1), (32768, 1), (100_352, 1)])
def test_long_rows_share_a_forward_within_the_token_budget(padded: int, rows: int) -> None:
    assert GRID.max_rows(padded) == rows


@given(n_tokens=st.integers(1, 60_000))
def test_padding_holds_the_row_and_is_a_fixed_point(n_tokens: int) -> None:
    padded = GRID.pad_len(n_tokens)
    assert padded >= n_tokens
    assert GRID.pad_len(padded) == padded
    assert GRID.t_bucket(n_tokens) in (None, padded)
    shorter = [length for length in GRID.lengths if length < padded]
    assert n_tokens > (shorter[-1] if shorter else 0)


LONG_LADDER = tuple(range(100, 200))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"lengths": ()}, r"^lengths is \(\); it must be a tuple of one or more whole numbers, each at least 1$"),
        ({"lengths": [64, 128]}, r"^lengths is \[64, 128\]; it must be a tuple"),
        ({"lengths": (0, 64)}, r"^lengths is \(0, 64\); .* at least 1$"),
        ({"lengths": (64, -128)}, r"^lengths is \(64, -128\); .* at least 1$"),
        ({"lengths": (64, 128.0)}, r"^lengths is \(64, 128\.0\); .* whole numbers"),
        ({"lengths": (True, 64)}, r"^lengths is \(True, 64\); .* whole numbers"),
        (
            {"lengths": (64, 64)},
            r"^lengths is \(64, 64\), where 64 follows 64; it must rise strictly, without doubles$",
        ),
        ({"lengths": (64, 256, 128)}, r"^lengths is \(64, 256, 128\), where 128 follows 256; it must rise"),
        ({"lengths": (*LONG_LADDER, 1)}, r"^lengths is \(100, 101, [^.]{1,60}…, where 1 follows 199; it must rise"),
        ({"batches": ()}, r"^batches is \(\); it must be a tuple of one"),
        ({"batches": (1, 4, 2)}, r"^batches is \(1, 4, 2\), where 2 follows 4; it must rise"),
        ({"batches": (2, 4)}, r"^batches is \(2, 4\); it must start at 1, so that a single row has a shape$"),
        ({"token_budget": 0}, r"^token_budget is 0; it must be a whole number of tokens, at least 1$"),
        ({"token_budget": 3.5}, r"^token_budget is 3\.5; "),
        ({"token_budget": True}, r"^token_budget is True; "),
        ({"long_multiple": -1}, r"^long_multiple is -1; it must be a whole number of tokens, at least 1$"),
    ],
)
def test_a_bad_grid_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Grid(**arguments)


def test_a_grid_is_a_value() -> None:
    assert Grid() == GRID
    assert hash(Grid()) == hash(GRID)
    assert Grid(token_budget=1) != GRID
