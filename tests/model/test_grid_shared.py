"""The grid executor and common prefixes: when it shares, what others in the call get, and what a closed one says.

Refuses to time anything; prices are told. Trap: an executor that never shares passes every comparison of answers, so
each test also counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from fake_graphs import FakeCapturer, largest_shift, load_tiny
from prefix_rows import make_rows
from tiny_models import FAMILIES

from decider.errors import EngineError
from decider.plan.batches import Batch
from decider.plan.buckets import Grid
from decider.plan.cost import CostModel
from decider.plan.sharing import PrefixCost, fork_widths, suffix_shape
from decider.run import variant, warmup
from decider.run.grid import UNMEASURED, GridExecutor
from decider.run.prefix import shared as shared_module
from decider.run.prefix.shared import PrefixLimits, SharedPrefix
from decider.run.reference import ReferenceExecutor
from decider.tokens.rows import Row

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]

GRID = Grid(lengths=(8, 16, 32, 64), batches=(1, 2, 4), token_budget=256)
LIMITS = PrefixLimits(min_prefix_tokens=8)
FREE = CostModel(1e-6, 1e-6)


@pytest.fixture
def sharing_costs(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Tell the price of a suffix forward; a full row costs what its graph of one row and 1 ms a token says."""

    def tell(suffix_ms: float) -> None:
        cost = PrefixCost(full=FREE, prefix=FREE, suffix=CostModel(suffix_ms, 1e-6), fork=FREE)
        monkeypatch.setattr(shared_module, "measure_prices", lambda *_: cost)
        monkeypatch.setattr(warmup, "time_eager", lambda *_: CostModel(1.0, 1.0))
        monkeypatch.setattr(warmup, "verify", lambda captured, *_, **__: {(b, n): 1.0 + n for b, n in captured})

    return tell


def warm(folder: Path, dtype: str = "float64", *, quieter: float = 1.0) -> tuple[GridExecutor, ReferenceExecutor]:
    loaded, head = load_tiny(folder, dtype, quieter=quieter)
    grid = GridExecutor(loaded, head, GRID, FakeCapturer(), lambda _: None, limits=LIMITS)
    grid.warmup()
    grid.seal()
    return grid, ReferenceExecutor(loaded, head)


def strangers(n_rows: int, n_tokens: int = 20) -> list[Row]:
    return [make_rows(n_tokens - 3, (3,), seed=100 + seed)[0] for seed in range(n_rows)]


@pytest.mark.parametrize("family", FAMILIES)
def test_shared_rows_answer_as_full_rows_and_order_is_kept(
    tiny_folder: TinyFolder, sharing_costs: Callable[[float], None], family: str
) -> None:
    sharing_costs(1.0)
    grid, reference = warm(tiny_folder(family), "float32", quieter=4.0)
    one, other = make_rows(40, (3, 9, 1), seed=1), make_rows(33, (5, 6), seed=2)
    rows = [*strangers(1), *one, *strangers(2), *other]
    together = grid.label_logits(rows)
    assert largest_shift(together, reference.label_logits(rows)) <= 1e-5
    assert (grid.stats.shared_calls, grid.stats.shared_rows, grid.stats.declined_calls) == (2, 5, 0)
    assert grid.stats.shared_forwards == 2 + 2
    assert grid.stats.forwards == grid.stats.replays + grid.stats.shared_forwards
    assert grid.stats.captures == len(GRID.graph_shapes())


def test_it_declines_where_full_rows_are_faster(
    tiny_folder: TinyFolder, sharing_costs: Callable[[float], None]
) -> None:
    # Three full rows of 64 run in one graph of four rows, 65 ms.
    sharing_costs(66.0)
    grid, reference = warm(tiny_folder("llama"))
    rows = make_rows(40, (3, 9, 1))
    assert largest_shift(grid.label_logits(rows), reference.label_logits(rows)) <= 1e-12
    assert (grid.stats.shared_calls, grid.stats.declined_calls) == (0, 1)
    assert grid.why_not_shared(rows) == "full rows are faster"
    assert grid.score_shared(rows) is None
    forced = grid.score_shared(rows, gate=False)
    assert forced is not None
    assert largest_shift(forced, reference.label_logits(rows)) <= 1e-6


def test_rows_that_ride_in_free_places_are_not_shared(
    tiny_folder: TinyFolder, sharing_costs: Callable[[float], None]
) -> None:
    # Alone the pair costs 65 ms as full rows and 40 shared. Beside a stranger of 60 tokens its places are free.
    sharing_costs(40.0)
    grid, _ = warm(tiny_folder("llama"))
    pair = make_rows(40, (3, 9))
    grid.label_logits(pair)
    assert grid.stats.shared_calls == 1
    grid.label_logits([*strangers(1, 60), *pair])
    assert grid.stats.shared_calls == 1
    assert grid.stats.declined_calls == 1


def test_groups_that_fill_one_graph_together_are_not_shared(
    tiny_folder: TinyFolder, sharing_costs: Callable[[float], None]
) -> None:
    # Each pair alone costs 65 ms as full rows and 40 shared; both in one graph of four rows 65, and shared 80.
    sharing_costs(40.0)
    grid, _ = warm(tiny_folder("llama"))
    grid.label_logits([*make_rows(40, (3, 9), seed=1), *make_rows(40, (3, 9), seed=2)])
    assert (grid.stats.shared_calls, grid.stats.declined_calls, grid.stats.replays) == (0, 2, 1)


def test_without_warm_up_nothing_is_shared(tiny_folder: TinyFolder) -> None:
    loaded, head = load_tiny(tiny_folder("llama"))
    grid = GridExecutor(loaded, head, GRID, None, lambda _: None, limits=LIMITS)
    rows = make_rows(40, (3, 9))
    assert grid.score_shared(rows, gate=False) is None
    assert grid.why_not_shared(rows) == "the engine was not warmed up"
    assert len(grid.label_logits(rows)) == 2
    assert grid.stats.shared_calls == 0


def test_a_model_that_cannot_share_runs_full_rows_and_says_why(
    tiny_folder: TinyFolder, sharing_costs: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise EngineError("its cache is strange; run full rows")

    sharing_costs(1e-6)
    monkeypatch.setattr(shared_module, "probe", refuse)
    grid, reference = warm(tiny_folder("llama"))
    rows = make_rows(40, (3, 9))
    assert largest_shift(grid.label_logits(rows), reference.label_logits(rows)) <= 1e-12
    assert grid.stats.shared_calls == 0
    pick = next(pick for pick in grid.describe().picks if pick.name == "shared prefix")
    assert (pick.value, pick.reason) == ("off", "its cache is strange; run full rows")


def test_suffixes_on_a_ladder_meet_few_shapes() -> None:
    assert fork_widths(GRID) == (1, 2, 4, 8, 16, 32, 64)
    assert suffix_shape(5, 9, grid=GRID, room=1000) == (8, 16)
    assert suffix_shape(3, 65, grid=GRID, room=2000) == (4, 1024)
    assert suffix_shape(50, 9, grid=GRID, room=12) == (64, 12)
    assert suffix_shape(5, 9, grid=None, room=9) == (5, 9)


@pytest.mark.parametrize("family", ["qwen3_5", "gemma3"])
def test_padded_suffixes_answer_as_exact_ones(tiny_folder: TinyFolder, family: str) -> None:
    loaded, head = load_tiny(tiny_folder(family), "float32", quieter=4.0)
    rows = make_rows(40, (3, 9, 1, 1, 30))
    exact = SharedPrefix(loaded, head, LIMITS).label_logits(rows, gate=False)
    padded = SharedPrefix(loaded, head, LIMITS, GRID)
    padded.measure(FREE)
    on_ladder = padded.label_logits(rows, gate=False)
    assert exact is not None
    assert on_ladder is not None
    assert padded.stats.padded_tokens == 40 + 8 * 32
    assert largest_shift(on_ladder, exact) <= 1e-6


def test_a_fork_is_padded_within_its_budget(tiny_folder: TinyFolder) -> None:
    loaded, head = load_tiny(tiny_folder("llama"))
    # Two layers of keys and values, 2 heads of 16, float32; suffixes are padded to 8.
    row_bytes = (20 + 8) * 2 * 2 * 2 * 16 * 4
    shared = SharedPrefix(loaded, head, PrefixLimits(8, fork_bytes=3 * row_bytes), GRID)
    assert shared.label_logits(make_rows(20, (5, 5, 5)), gate=False) is not None
    # Three rows would be padded to four, which do not fit: two, and one.
    assert shared.stats.padded_tokens == 20 + 2 * 8 + 1 * 8


def test_the_policy_is_pinned_round_every_eager_forward(
    tiny_folder: TinyFolder, sharing_costs: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Told:
        value = "told"
        reason = "a test"

        @contextmanager
        def pinned(self) -> Iterator[None]:
            depth.append(len(depth))
            yield
            depth.pop()

    depth: list[int] = []
    seen: list[bool] = []
    monkeypatch.setattr(variant, "attention_policy", lambda *_, **__: Told())
    sharing_costs(1.0)
    loaded, head = load_tiny(tiny_folder("llama"))

    def note(*_: object) -> None:
        seen.append(bool(depth))

    hook = loaded.module.get_decoder().register_forward_pre_hook(note)
    grid = GridExecutor(loaded, head, GRID, FakeCapturer(), lambda _: None, limits=LIMITS)
    grid.warmup([(1, 8)])
    # Eager, for it has no graph; and behind a prefix.
    rows = make_rows(40, (3, 9, 1))
    grid.label_logits([*strangers(1, 60), *rows])
    assert grid.stats.eager_forwards == grid.stats.shared_calls == 1
    assert grid.score_shared(rows, gate=False) is not None
    hook.remove()
    assert len(seen) > 4
    assert all(seen)
    assert depth == []


def test_a_group_that_is_the_whole_call_is_priced_once(
    tiny_folder: TinyFolder, sharing_costs: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sharing_costs(1.0)
    grid, _ = warm(tiny_folder("llama"), "float32")
    planned: list[int] = []
    plan = grid.plan

    def count(rows: Sequence[Row]) -> tuple[Batch, ...]:
        planned.append(len(rows))
        return plan(rows)

    monkeypatch.setattr(grid, "plan", count)
    grid.label_logits(make_rows(20, (3, 4)))
    assert grid.stats.shared_calls == 1
    assert planned == [2]


def test_pricing_many_groups_stays_linear(
    tiny_folder: TinyFolder, sharing_costs: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sharing_costs(1.0)
    grid, _ = warm(tiny_folder("llama"), "float32")
    planned: list[int] = []
    plan = grid.plan

    def count(rows: Sequence[Row]) -> tuple[Batch, ...]:
        planned.append(len(rows))
        return plan(rows)

    monkeypatch.setattr(grid, "plan", count)
    rows = [row for seed in range(12) for row in make_rows(20, (3, 4), seed=seed)]
    grid.label_logits([*strangers(1), *rows])
    assert grid.stats.shared_calls == 12
    # Each group alone, all rows with and without them, and what is left.
    assert sum(planned) == len(rows) + (len(rows) + 1) + 1 + 1


def test_too_few_positions_are_a_reason_not_to_share(tiny_folder: TinyFolder) -> None:
    loaded, head = load_tiny(tiny_folder("llama"), positions=63)
    assert "63 positions" in str(SharedPrefix(loaded, head, LIMITS).refusal)
    grid = GridExecutor(loaded, head, GRID, None, lambda _: None)
    grid.warmup()
    assert len(grid.label_logits(strangers(2))) == 2


def test_prices_are_those_of_the_shapes_that_run(tiny_folder: TinyFolder) -> None:
    loaded, head = load_tiny(tiny_folder("llama"))
    grid = GridExecutor(loaded, head, Grid((64, 128)), None, lambda _: None)
    rows = strangers(2, 65)
    grid.label_logits(rows)
    # On a CPU 65 tokens run as 65, in whichever bucket they are planned.
    assert grid.stats.padded_tokens == 2 * 65
    assert grid._price(rows) == pytest.approx(UNMEASURED.price(2, 65))


def test_a_closed_engine_says_so_and_leaves_the_model_alone(tiny_folder: TinyFolder) -> None:
    loaded, head = load_tiny(tiny_folder("llama"))
    classes = [type(module) for module in loaded.module.modules()]
    first, second = (GridExecutor(loaded, head, GRID, FakeCapturer(), lambda _: None) for _ in range(2))
    first.warmup()
    second.warmup()
    rows = strangers(3)
    want = second.label_logits(rows)
    first.label_logits(rows)
    counted = first.stats
    first.close()
    first.close()
    assert first.stats == counted
    assert first.describe().graphs == ()
    calls: tuple[Callable[[], object], ...] = (
        lambda: first.label_logits(rows),
        lambda: first.score_shared(rows),
        lambda: first.why_not_shared(rows),
        lambda: first.warmup(),
        first.seal,
    )
    for call in calls:
        with pytest.raises(EngineError, match="closed; make a new one"):
            call()
    assert [type(module) for module in loaded.module.modules()] == classes
    assert all(np.array_equal(one, other) for one, other in zip(second.label_logits(rows), want, strict=True))
