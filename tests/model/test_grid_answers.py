"""The grid executor's answers against the reference executor's, on tiny models of every family.

Refuses to judge speed. Trap: HF's eager attention takes its softmax in float32 even in a float64 model, so the proof in
float64 runs on SDPA, for both executors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_graphs import FakeCapturer, FakeGraph, largest_shift, load_tiny, random_row
from prefix_rows import true_float64
from tiny_models import FAMILIES

from decider.plan.buckets import Grid
from decider.run import graphs
from decider.run.grid import GridExecutor
from decider.run.reference import ReferenceExecutor
from decider.run.stats import GridStats

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]

PRECISIONS = (("float64", 1.0, 1e-12), ("float32", 2.0, 1e-6))
# Two buckets 510 tokens apart. Lengths around 64 are where chunks of linear attention begin, above 16 windows slide.
PADDED = Grid(lengths=(580,), batches=(1, 2))
SMALL = Grid(lengths=(8, 16, 32), batches=(1, 2, 4), token_budget=64)
MIXED = [random_row(n, slots=s, seed=1) for n, s in ((3, 1), (70, 2), (64, 1), (65, 3), (1, 1), (17, 4))]


def quiet(_: str) -> None:
    """Progress nobody reads."""


def sealed(executor: GridExecutor) -> GridExecutor:
    executor.warmup()
    executor.seal()
    return executor


Pair = tuple[GridExecutor, ReferenceExecutor]


@pytest.fixture(scope="module")
def small(tiny_folder: TinyFolder) -> Callable[[], Pair]:
    """A sealed float64 Llama on the small grid, new each time, and its reference."""
    loaded, head = load_tiny(tiny_folder("llama"), "float64")

    def make() -> Pair:
        return sealed(GridExecutor(loaded, head, SMALL, FakeCapturer(), quiet)), ReferenceExecutor(loaded, head)

    return make


@pytest.mark.parametrize(("dtype", "quieter", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_padding_by_500_tokens_and_neighbours_move_nothing(
    tiny_folder: TinyFolder, family: str, dtype: str, quieter: float, tolerance: float
) -> None:
    loaded, head = load_tiny(tiny_folder(family), dtype, quieter=quieter)
    with true_float64():
        alone = ReferenceExecutor(loaded, head).label_logits(MIXED)
        grid = sealed(GridExecutor(loaded, head, PADDED, FakeCapturer(), quiet))
        together = grid.label_logits(MIXED)
    assert grid.stats.replays == grid.stats.forwards >= 3
    assert grid.stats.padded_tokens == 6 * 580
    assert {one.dtype for one in together} == {np.dtype(dtype)}
    assert largest_shift(together, alone) <= tolerance


@pytest.mark.parametrize(("dtype", "quieter", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_without_graphs_the_answers_are_the_same(
    tiny_folder: TinyFolder, family: str, dtype: str, quieter: float, tolerance: float
) -> None:
    loaded, head = load_tiny(tiny_folder(family), dtype, quieter=quieter)
    with true_float64():
        alone = ReferenceExecutor(loaded, head).label_logits(MIXED)
        grid = GridExecutor(loaded, head, Grid(lengths=(128,)), None, quiet)
        together = grid.label_logits(MIXED)
    assert grid.stats == GridStats(
        forwards=1, eager_forwards=1, eager_rows=6, real_tokens=sum(len(row.ids) for row in MIXED), padded_tokens=6 * 70
    )
    assert largest_shift(together, alone) <= tolerance


@pytest.mark.embedded
def test_padding_and_neighbours_on_the_embedded_model(embedded_folder: Path) -> None:
    loaded, head = load_tiny(embedded_folder)
    rows = [random_row(30), random_row(530, slots=2)]
    grid = GridExecutor(loaded, head, Grid(lengths=(640,)), None, quiet)
    together = grid.label_logits(rows)
    assert (grid.stats.forwards, grid.stats.padded_tokens) == (1, 2 * 530)
    assert largest_shift(together, ReferenceExecutor(loaded, head).label_logits(rows)) <= 1e-5


def test_empty_input_gives_empty_output(small: Callable[[], Pair]) -> None:
    grid, _ = small()
    before = grid.stats
    assert grid.label_logits([]) == []
    assert grid.stats == before


def test_order_is_kept(small: Callable[[], Pair]) -> None:
    grid, reference = small()
    lengths = [1 + (7 * place) % 32 for place in range(40)]
    rows = [random_row(n, slots=1 + n % 2, seed=place) for place, n in enumerate(lengths, start=1) if n > 1]
    assert largest_shift(grid.label_logits(rows), reference.label_logits(rows)) <= 1e-12
    assert grid.stats.eager_forwards == 0
    assert grid.stats.replays > len(rows) / 4
    assert grid.stats.real_tokens == sum(len(row.ids) for row in rows) < grid.stats.padded_tokens


def test_rows_above_the_ladder_run_eagerly_in_bounded_chunks(tiny_folder: TinyFolder) -> None:
    loaded, head = load_tiny(tiny_folder("llama"), "float64", positions=100)
    grid = sealed(GridExecutor(loaded, head, Grid((8, 16, 32), (1, 2, 4), 120, 40), FakeCapturer(), quiet))
    rows = [random_row(n, seed=n) for n in (97, 5, 33, 100, 40, 32)]
    together = grid.label_logits(rows)
    assert largest_shift(together, ReferenceExecutor(loaded, head).label_logits(rows)) <= 1e-12
    assert grid.stats.unbucketed_rows == grid.stats.eager_rows == 4
    # A chunk holds three padded rows of 40 tokens, or one of 97 or 100.
    assert 3 <= grid.stats.eager_forwards <= 4


def test_more_slots_than_the_graph_reads_run_eagerly(
    small: Callable[[], Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "LEAST_SLOTS", 8)
    grid, reference = small()
    fits, wide = random_row(20, slots=8), random_row(20, slots=9)
    assert largest_shift(grid.label_logits([fits]), reference.label_logits([fits])) <= 1e-12
    assert (grid.stats.replays, grid.stats.eager_rows) == (1, 0)
    assert largest_shift(grid.label_logits([wide]), reference.label_logits([wide])) <= 1e-12
    assert (grid.stats.replays, grid.stats.eager_forwards, grid.stats.eager_rows) == (1, 1, 1)
    assert grid.stats.unbucketed_rows == 0


def test_results_are_no_views_of_the_static_output(small: Callable[[], Pair]) -> None:
    grid, _ = small()
    [first] = grid.label_logits([random_row(10, seed=1)])
    kept = first.copy()
    [second] = grid.label_logits([random_row(10, seed=2)])
    assert np.array_equal(first, kept)
    assert not np.array_equal(first, second)
    [again] = grid.label_logits([random_row(10, seed=1)])
    assert np.array_equal(first, again)
    assert first.flags.owndata


def test_two_batches_of_one_shape_in_one_call(small: Callable[[], Pair]) -> None:
    grid, reference = small()
    rows = [random_row(32, slots=2, seed=seed) for seed in range(5)]
    assert largest_shift(grid.label_logits(rows), reference.label_logits(rows)) <= 1e-12
    assert grid.stats.replays >= 3


def test_threads_get_their_own_answers(small: Callable[[], Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    grid, reference = small()
    replay = FakeGraph.replay

    def slowly(graph: FakeGraph) -> None:
        # Between the fill of the static input and the forward, where another thread would fill it anew.
        time.sleep(0.002)
        replay(graph)

    monkeypatch.setattr(FakeGraph, "replay", slowly)
    asked = [[random_row(n, seed=thread) for n in (5, 9, 12)] for thread in range(4)]
    wanted = [reference.label_logits(rows) for rows in asked]
    shifts: list[float] = []

    def ask(thread: int) -> None:
        shifts.extend(largest_shift(grid.label_logits(asked[thread]), wanted[thread]) for _ in range(5))

    threads = [threading.Thread(target=ask, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shifts) == 20
    assert max(shifts) <= 1e-12


def test_it_says_what_it_is(small: Callable[[], Pair]) -> None:
    grid, _ = small()
    assert grid.describe().graphs == SMALL.graph_shapes()
    assert {pick.name: pick.value for pick in grid.describe().picks} == {
        "attention": "sdpa",
        "attention back ends": "torch's own choice",
        "shared prefix": "by cost",
    }
    assert grid.describe().launch_ms is not None
    assert grid.describe().token_ms is not None
    assert str(grid.describe()).startswith("grid: 8 graphs, sealed, float64 on cpu; attention sdpa, ")
