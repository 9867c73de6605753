"""Captured packs with a fake capturer: the graph of a shape answers as the eager forward, whatever is in the pack.

Refuses to know kernels: off CUDA a graph rebuilds its tree from the static tables. Trap: a lane and a block hold the
pack before; packs of other shapes run between those that are compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from captured_packs import LADDER_HERE, TOLERANCE, Model, captured, counted, eager, quiet
from fake_graphs import largest_shift, load_tiny, random_row
from fake_pack_graphs import FakeWorkCapturer, FakeWorkGraph, falling_times, rows_of
from prefix_rows import make_rows

from decider.backbone.decoder import Backbone
from decider.backbone.load import backbone_of
from decider.errors import EngineError
from decider.model.head import LabelHead
from decider.plan.packs import LADDER, PackLimits, card_limits, plan_packs
from decider.plan.tables import PackShape, capacity_of
from decider.run import measure
from decider.run.executor import Logits
from decider.run.pack_statics import Lane
from decider.run.pack_warmup import N_LANES
from decider.run.packed import PackedExecutor

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]

FAMILIES = ("llama", "qwen3", "qwen3_5")


@pytest.fixture(scope="module")
def models(tiny_folder: TinyFolder) -> dict[str, Model]:
    made = {}
    for family in FAMILIES:
        loaded, head = load_tiny(tiny_folder(family), quieter=4.0)
        made[family] = (backbone_of(loaded), head)
    return made


@pytest.fixture(autouse=True)
def told_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "milliseconds", falling_times())


@pytest.fixture(scope="module")
def sealed(models: dict[str, Model]) -> dict[str, PackedExecutor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "milliseconds", falling_times())
        return {family: captured(model) for family, model in models.items()}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", LADDER_HERE)
def test_every_edge_of_every_shape(
    models: dict[str, Model], sealed: dict[str, PackedExecutor], family: str, size: int
) -> None:
    below = {32: 1, 64: 32, 160: 64}[size]
    for n_tokens in (below + 1, size - 1, size):
        # The longest row there may be; rows that fill the shape; a trunk with branches, one and many.
        most = min(16, n_tokens // 2)
        for rows in (
            rows_of(n_tokens, 1),
            rows_of(n_tokens, most, seed=1),
            *([rows_of(n_tokens, 2, shared=n_tokens - 2, seed=2)] if n_tokens > 2 else []),
            *([rows_of(n_tokens, most, shared=1, seed=3)] if most > 2 else []),
        ):
            ours, stats = counted(sealed[family], rows)
            assert largest_shift(ours, eager(models[family]).label_logits(rows)) <= TOLERANCE
            assert (stats.replays, stats.forwards, stats.eager_forwards) == (1, 1, 0)
            assert (stats.real_tokens, stats.padded_tokens) == (n_tokens, size)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("is_tree", [False, True])
@pytest.mark.parametrize("size", LADDER_HERE)
def test_as_many_sequences_as_a_shape_holds(
    models: dict[str, Model], sealed: dict[str, PackedExecutor], family: str, size: int, is_tree: bool
) -> None:
    capacity = capacity_of(PackShape(size, is_tree))
    # A trunk with branches is a sequence of its own.
    rows = rows_of(size, min(capacity.n_sequences - 1, size - 2), shared=int(is_tree), seed=4)
    ours, stats = counted(sealed[family], rows)
    assert largest_shift(ours, eager(models[family]).label_logits(rows)) <= TOLERANCE
    assert (stats.replays, stats.eager_forwards, stats.padded_tokens) == (1, 0, size)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_then_b_then_a_gives_the_same_bits(sealed: dict[str, PackedExecutor], family: str) -> None:
    executor = sealed[family]
    first = [*make_rows(20, (3, 9, 1), seed=1), random_row(7, slots=3)]
    for other in (
        [*make_rows(2, (12, 1), seed=2), *make_rows(9, (4, 5), seed=3)],
        [random_row(n, seed=n) for n in (5, 17, 20)],
        [random_row(n, seed=n) for n in (150, 160, 31, 40, 90)],
        rows_of(64, 30, seed=5),
    ):
        once = executor.label_logits(first)
        kept = [one.copy() for one in once]
        between = executor.label_logits(other)
        again = executor.label_logits(first)
        for one, copy, later in zip(once, kept, again, strict=True):
            assert np.array_equal(one, copy)
            assert np.array_equal(one, later)
        assert all(map(np.array_equal, executor.label_logits(other), between))


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_and_the_shape_change_no_answer(models: dict[str, Model], family: str) -> None:
    rows = [*make_rows(9, (3, 9, 1), seed=1), random_row(5, slots=2)]
    narrow, wide = (captured(models[family], ladder=(size,)) for size in (32, 160))
    ours, stats = counted(narrow, rows)
    assert stats.padded_tokens == 32
    theirs, stats = counted(wide, rows)
    assert stats.padded_tokens == 160
    assert largest_shift(ours, theirs) <= 1e-6


def test_what_no_shape_holds_runs_eagerly_and_is_counted(
    models: dict[str, Model], sealed: dict[str, PackedExecutor]
) -> None:
    executor, want = sealed["llama"], eager(models["llama"])
    # Above the ladder; and more slots than any pack has.
    for rows in ([random_row(161)], make_rows(150, (5, 30), seed=1), [random_row(100, slots=65)]):
        ours, stats = counted(executor, rows)
        assert largest_shift(ours, want.label_logits(rows)) <= TOLERANCE
        assert (stats.replays, stats.eager_forwards, stats.eager_rows) == (0, 1, len(rows))
        assert stats.unbucketed_rows == len(rows)
        assert stats.real_tokens == stats.padded_tokens
    # One that its own size has no room for goes into a larger one.
    rows = [random_row(1, seed=seed) for seed in range(31)]
    rows[0] = random_row(2, slots=2)
    assert counted(executor, rows)[1].padded_tokens == 32
    many = [random_row(20, slots=20, seed=seed) for seed in range(3)]
    ours, stats = counted(executor, many)
    assert stats.padded_tokens == 64
    assert largest_shift(ours, want.label_logits(many)) <= TOLERANCE
    assert executor.stats.captures == 6


def test_a_pack_over_a_capacity_runs_eagerly_and_is_counted(models: dict[str, Model]) -> None:
    """Under limits that allow more than the tables: not above the ladder, and padded all the same."""
    executor = PackedExecutor(*models["llama"], PackLimits(160, 64, 256, LADDER_HERE), capturer=FakeWorkCapturer())
    executor.warmup(quiet)
    executor.seal()
    want = eager(models["llama"])
    for rows in (
        [random_row(100, slots=65)],
        [random_row(2, seed=seed) for seed in range(33)],
        [row for seed in range(11) for row in make_rows(3, (2, 2), seed=seed)],
    ):
        ours, stats = counted(executor, rows)
        assert largest_shift(ours, want.label_logits(rows)) <= TOLERANCE
        assert (stats.replays, stats.eager_forwards, stats.eager_rows) == (0, 1, len(rows))
        assert (stats.unbucketed_rows, stats.padded_tokens) == (0, 160)
        assert {shape for _, shape in executor.forwards(rows)} == {None}


def test_many_packs_of_a_call_come_back_in_order(models: dict[str, Model], sealed: dict[str, PackedExecutor]) -> None:
    rows = [random_row(n, slots=1 + n % 3, seed=n) for n in (150, 3, 160, 90, 200, 31, 5, 140, 100, 70, 33, 64)]
    rows += [*make_rows(120, (3, 9, 1), seed=1), random_row(300), *make_rows(100, (30, 9), seed=2)]
    for family in ("llama", "qwen3_5"):
        ours, stats = counted(sealed[family], rows)
        assert stats.replays >= 7
        assert stats.eager_forwards == 2
        assert largest_shift(ours, eager(models[family]).label_logits(rows)) <= TOLERANCE
        assert all(one.base is None for one in ours)
    assert sealed["llama"].label_logits([]) == []


def test_the_next_pack_is_written_while_one_is_under_way(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = captured(models["llama"])
    steps: list[str] = []
    for name in ("write", "upload", "download", "read"):
        monkeypatch.setattr(Lane, name, _telling(name, getattr(Lane, name), steps))
    executor.label_logits([random_row(n, seed=n) for n in (150, 151, 152)])
    queued = ["write", "upload", "download"]
    assert steps == [*queued, *queued, "read", *queued, "read", "read"]


def _telling(name: str, original: Callable[..., object], steps: list[str]) -> Callable[..., object]:
    def step(lane: Lane, *args: object) -> object:
        steps.append(name)
        return original(lane, *args)

    return step


def test_threads_get_their_own_answers(sealed: dict[str, PackedExecutor]) -> None:
    executor = sealed["llama"]
    asked = [[random_row(n, seed=thread) for n in (150, 40, 155, 120)] for thread in range(4)]
    wanted = [executor.label_logits(rows) for rows in asked]

    def ask(thread: int) -> bool:
        return all(all(map(np.array_equal, executor.label_logits(asked[thread]), wanted[thread])) for _ in range(5))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4), timeout=60)) == [True] * 4


def test_two_executors_coexist(models: dict[str, Model], sealed: dict[str, PackedExecutor]) -> None:
    rows = [*make_rows(20, (3, 9, 1), seed=1), random_row(7, slots=3)]
    before = sealed["llama"].label_logits(rows)
    other = captured(models["qwen3"], ladder=(32, 64))
    theirs = other.label_logits(rows)
    assert all(map(np.array_equal, sealed["llama"].label_logits(rows), before))
    other.close()
    with pytest.raises(EngineError, match="closed"):
        other.label_logits(rows)
    assert other.describe().graphs == ()
    assert other.stats.replays == 1
    assert largest_shift(theirs, eager(models["qwen3"]).label_logits(rows)) <= TOLERANCE
    assert all(map(np.array_equal, sealed["llama"].label_logits(rows), before))


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_a_row_that_is_not_finite_is_run_again_without_the_others(models: dict[str, Model], family: str) -> None:
    backbone, head = models[family]
    embedding = backbone.embedding.clone()
    embedding[1000] = torch.nan
    rows = [replace(row, ids=tuple(token % 1000 for token in row.ids)) for row in make_rows(40, (3, 9, 5), seed=1)]
    want = eager((backbone, head)).label_logits(rows)
    executor = _with_backbone(replace(backbone, embedding=embedding), head)
    rows[1] = replace(rows[1], ids=(*rows[1].ids[:-1], 1000))
    ours = executor.label_logits(rows)
    assert np.isnan(ours[1][-1]).all()
    assert largest_shift([ours[0], ours[2]], [want[0], want[2]]) <= TOLERANCE
    # The pack, then each of its rows that was spoilt.
    assert 2 <= executor.stats.replays <= 4
    assert executor.stats.eager_forwards == 0


def _with_backbone(backbone: Backbone, head: LabelHead) -> PackedExecutor:
    """Its random rows at warm-up must not meet the broken token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "milliseconds", falling_times())
        executor = PackedExecutor(backbone, head, card_limits(LADDER_HERE), capturer=FakeWorkCapturer())
        small = replace(backbone, spec=replace(backbone.spec, vocab=1000))
        executor._backbone = small
        executor.warmup(quiet)
    return executor


def test_an_error_in_a_call_leaves_the_lanes_free(models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    executor = captured(models["llama"])
    rows = [random_row(n, seed=n) for n in (150, 151, 152, 153)]
    want = executor.label_logits(rows)
    replay, turns = FakeWorkGraph.replay, iter(range(100))

    def fail(graph: FakeWorkGraph) -> None:
        if next(turns) in (1, 3):
            raise RuntimeError("broken for once")
        replay(graph)

    monkeypatch.setattr(FakeWorkGraph, "replay", fail)
    # As often as there are lanes.
    for _ in range(N_LANES):
        with pytest.raises(RuntimeError, match="for once"):
            executor.label_logits(rows)
    graphs = executor._graphs
    assert graphs is not None
    assert graphs._free.qsize() == N_LANES
    found: list[list[Logits]] = []
    thread = threading.Thread(target=lambda: found.append(executor.label_logits(rows)), daemon=True)
    thread.start()
    thread.join(20)
    assert found, "no lane is free"
    assert all(map(np.array_equal, found[0], want))


def test_whatever_is_planned_for_a_card_has_a_shape() -> None:
    """Full ladder: ticks of questions of 20 tokens and more, about states of 40 and more."""
    limits = card_limits()
    assert limits.ladder == LADDER
    draw = np.random.default_rng(0)
    for _ in range(30):
        rows = []
        for number in range(int(draw.integers(1, 60))):
            lengths = draw.integers(20, 60, size=int(draw.integers(1, 9))).tolist()
            rows += [
                replace(row, ids=tuple(number * 10000 + token for token in row.ids))
                for row in make_rows(int(draw.integers(40, 2000)), lengths, seed=number)
            ]
        for pack in plan_packs(rows, limits):
            shapes = [capacity_of(PackShape(n, pack.n_branches > 0)) for n in LADDER]
            assert any(shape.holds(pack) for shape in shapes)
