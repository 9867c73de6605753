"""Timing on a tiny model with fake graphs: what is counted, summed and compared, not how long it takes.

Refuses to need a card. Trap: a fake graph is no faster than eager, so times say nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from fake_graphs import FakeCapturer
from fake_pack_graphs import FakeWorkCapturer, falling_times

from decider.backbone.load import backbone_of
from decider.bench.cases import Case, rows_of, same
from decider.bench.configs import LABEL_IDS
from decider.bench.floor import floor
from decider.bench.machine import CPU_SIDE, matmul_rate
from decider.bench.products import Products, product_shapes
from decider.bench.run import LEAST_RUNS, MOST_RUNS, Subject, bench, measure_case, median_ms, told
from decider.bench.shapes import random_model
from decider.bench.work import model_work
from decider.errors import ConfigError, EngineError
from decider.model.head import label_head
from decider.plan.buckets import Grid
from decider.plan.cost import CostModel
from decider.plan.packs import card_limits
from decider.plan.sharing import PrefixCost
from decider.plan.tables import PackShape
from decider.run import measure
from decider.run.executor import Executor, Logits
from decider.run.grid import GridExecutor
from decider.run.packed import PackedExecutor
from decider.run.prefix import shared as shared_module
from decider.run.reference import ReferenceExecutor
from decider.run.stats import ReferenceReport
from decider.settings import Settings
from decider.tokens.rows import Row

LOADED = random_model("tiny", device="cpu", dtype="float32", attention="sdpa")
HEAD = label_head(LOADED, LABEL_IDS)


def subject(executor: Executor, name: str = "grid") -> Subject:
    products = Products(product_shapes(LOADED.module) or (), "cpu", "float32")
    return Subject(name, executor, "tiny", "cpu", "float32", 512, 2048, model_work(LOADED.module), products)


@pytest.fixture(scope="module")
def grid() -> GridExecutor:
    """Buckets of 1 and 2 rows at 64 and 128 tokens."""
    executor = GridExecutor(LOADED, HEAD, Grid((64, 128), (1, 2)), FakeCapturer(), lambda _: None)
    executor.warmup()
    executor.seal()
    return executor


class Broken:
    """Gives NaN for every row, and counts how often it is closed."""

    n_closed = 0

    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        return [np.full((1, 255), np.nan, dtype=np.float32) for _ in rows]

    def describe(self) -> ReferenceReport:
        return ReferenceReport("cpu", "float32")

    def close(self) -> None:
        self.n_closed += 1


def test_replays_are_summed_over_the_plan(grid: GridExecutor) -> None:
    case = Case(0, (100, 40, 90, 50, 128))
    found = measure_case(case, subject(grid), None, tflops=0.01, repeats=2)
    plan = grid.plan(rows_of(case, 2048))
    times = [grid.replay_ms((batch.width, batch.length)) for batch in plan]
    assert all(time is not None and time > 0 for time in times)
    assert found.replay_ms is not None
    assert found.replay_ms > 0
    assert found.bucket is not None
    assert sum(int(part.split(" of ")[0]) if " of " in part else 1 for part in found.bucket.split(" + ")) == len(plan)
    padded = sum(batch.width * batch.length for batch in plan)
    assert found.padded_share == pytest.approx(1 - case.tokens / padded)
    assert (found.ratio, found.shared, found.full_rows_ms, found.shared_ms) == (None, False, None, None)
    assert (found.questions, found.question_tokens, found.tokens, found.runs) == (5, None, 408, 2)


def test_a_plan_without_all_its_graphs_has_no_replay_time(grid: GridExecutor) -> None:
    found = measure_case(same(0, 1, 200), subject(grid), None, tflops=0.01, repeats=1)
    assert (found.bucket, found.replay_ms) == ("1 × 1024", None)


def test_packs_are_named_by_their_shapes_and_measured_beside_their_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "milliseconds", falling_times())
    limits = card_limits((64, 256))
    packed = PackedExecutor(backbone_of(LOADED), HEAD, limits, capturer=FakeWorkCapturer())
    packed.warmup(lambda _: None)
    rows = {
        "256 tree": same(90, 3, 20),
        "2 of 256 flat + 64 flat": Case(0, (200, 220, 60)),
        "300 eager": same(0, 1, 300),
    }
    for bucket, case in rows.items():
        found = measure_case(case, subject(packed, "packed"), None, tflops=0.01, repeats=1)
        assert found.bucket == bucket
        assert (found.replay_ms is None) == ("eager" in bucket)
        assert found.products_ms is not None
        assert found.products_share == found.products_ms / found.ms
        assert (found.full_rows_ms, found.shared) == (None, case.state_tokens > 0)


def test_a_shape_that_runs_twice_is_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "milliseconds", falling_times())
    packed = PackedExecutor(backbone_of(LOADED), HEAD, card_limits((64, 256)), capturer=FakeWorkCapturer())
    packed.warmup(lambda _: None)
    asked: list[PackShape] = []

    def replay_ms(_: PackedExecutor, shape: PackShape) -> float:
        asked.append(shape)
        return float(shape.n_tokens)

    monkeypatch.setattr(PackedExecutor, "replay_ms", replay_ms)
    found = measure_case(Case(0, (200, 220, 60)), subject(packed, "packed"), None, tflops=0.01, repeats=1)
    assert found.replay_ms == 256 + 256 + 64
    assert sorted(shape.n_tokens for shape in asked) == [64, 256]


def test_products_are_timed_once_for_each_number_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    def milliseconds(_: torch.device, work: Callable[[], object], **__: object) -> float:
        work()
        told.append(1)
        return 3.0

    monkeypatch.setattr(measure, "milliseconds", milliseconds)
    shapes = product_shapes(LOADED.module)
    # Of each of two layers: q, k and v; the output; gate and up; down.
    assert shapes == ((128, 64), (64, 64), (256, 64), (64, 128)) * 2
    products = Products(shapes, "cpu", "float32")
    assert [products.ms(n) for n in (10, 20, 10)] == [3.0] * 3
    assert len(told) == 2


@pytest.mark.parametrize("n_rows", [2, 30])
def test_both_ways_of_a_state_are_timed(grid: GridExecutor, n_rows: int) -> None:
    found = measure_case(same(90, n_rows, 20), subject(grid), None, tflops=0.01, repeats=1)
    assert found.full_rows_ms is not None
    assert found.shared_ms is not None
    assert found.ms == (found.shared_ms if found.shared else found.full_rows_ms)
    assert (found.bucket is None) == found.shared


def test_the_way_beside_sharing_is_full_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    free = CostModel(1e-6, 1e-6)
    monkeypatch.setattr(shared_module, "measure_prices", lambda *_: PrefixCost(free, free, free, free))
    executor = GridExecutor(LOADED, HEAD, Grid((64, 128), (1, 2)), None, lambda _: None)
    executor.warmup()
    assert measure_case(same(90, 3, 20), subject(executor), None, tflops=0.01, repeats=1).shared
    # One call to count, one to time; and both again as full rows.
    assert (executor.stats.shared_calls, executor.stats.eager_rows) == (2, 2 * 3)


def test_the_ratio_is_the_compared_executors_time_over_ours(grid: GridExecutor) -> None:
    reference = subject(ReferenceExecutor(LOADED, HEAD), "reference")
    case = same(0, 2, 30)
    found = measure_case(case, subject(grid), reference, tflops=0.01, repeats=1)
    assert found.compared_ms is not None
    assert found.ratio == found.compared_ms / found.ms
    least = floor(model_work(LOADED.module), case, 0.01)
    assert found.share == pytest.approx(((least.parameters_ms or 0) + (least.attention_ms or 0)) / found.ms)


def test_broken_answers_are_not_timed(grid: GridExecutor) -> None:
    with pytest.raises(EngineError, match="not finite"):
        measure_case(same(0, 1, 10), subject(Broken(), "reference"), None, tflops=1.0, repeats=1)
    with pytest.raises(EngineError, match="not finite"):
        measure_case(same(0, 1, 10), subject(grid), subject(Broken(), "reference"), tflops=1.0, repeats=1)


def test_executors_are_closed_when_a_case_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Broken] = []

    def make(*_: object, **__: object) -> Broken:
        made.append(Broken())
        return made[-1]

    monkeypatch.setattr("decider.bench.run.executor_for", make)
    settings = Settings(device="cpu", executor="reference")
    with pytest.raises(EngineError, match="not finite"):
        bench(settings, [same(0, 1, 10)], shape="tiny", compare="reference", repeats=1, say=lambda _: None)
    assert [each.n_closed for each in made] == [1, 1]


@pytest.mark.parametrize(("shape", "positions"), [("tiny", "32,768"), (None, "2,048")])
def test_a_model_too_short_for_every_case_is_refused_before_it_is_warmed_up(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, shape: str | None, positions: str
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("an executor was made")

    monkeypatch.setattr("decider.bench.run.executor_for", refuse)
    monkeypatch.setattr("decider.bench.run.make_executor", refuse)
    settings = Settings(str(tiny_folder("llama")), device="cpu", executor="reference")
    with pytest.raises(ConfigError, match=rf"{positions} positions.*40,010 tokens"):
        bench(settings, [same(40_000, 1, 10), same(50_000, 1, 10)], shape=shape, say=lambda _: None)


def test_a_shape_is_measured_and_what_does_not_fit_is_left_out() -> None:
    said: list[str] = []
    settings = Settings(device="cpu", executor="reference")
    cases = [same(0, 1, 10), same(40_000, 1, 10)]
    report = bench(settings, cases, shape="tiny", compare="reference", repeats=1, say=said.append)
    assert [row.questions for row in report.rows] == [1]
    assert report.rows[0].ratio is not None
    assert report.left_out == ("40000 + 1 × 10",)
    assert any("32,768 positions" in line for line in said)
    [row] = report.rows
    assert said[-1] == f"0 + 1 × 10: {row.ms:.2f} ms, {row.ratio:.2f} × as fast as reference"
    told_all = told(replace(row, replay_ms=3.2, products_ms=1.41, ratio=None), None)
    assert told_all == f"{row.ms:.2f} ms, replays 3.20, products 1.41"
    assert (report.warmup_s, report.pool_bytes, report.compare) == (None, None, "reference")


def test_medians_of_the_wanted_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 1.0, 3.0, 3.0, 10.0])
    monkeypatch.setattr("decider.bench.run.time.perf_counter", lambda: next(clock))
    assert median_ms(lambda: None, 3) == (2000.0, 3)


def test_slow_calls_are_repeated_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 100.0
        return now

    calls: list[int] = []
    assert median_ms(lambda: calls.append(0), None)[1] == MOST_RUNS
    assert len(calls) == MOST_RUNS
    monkeypatch.setattr("decider.bench.run.time.perf_counter", clock)
    assert median_ms(lambda: None, None) == (100_000.0, LEAST_RUNS)
    assert median_ms(lambda: None, None, least=1) == (100_000.0, 1)
    assert median_ms(lambda: None, 5) == (100_000.0, 5)


def test_a_product_of_squares_is_two_operations_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(_: torch.device, work: Callable[[], torch.Tensor], *, repeats: int) -> float:
        assert work().shape == (CPU_SIDE, CPU_SIDE)
        assert repeats > 1
        return 2.0

    monkeypatch.setattr("decider.bench.machine.milliseconds", told)
    # 2 · 1024³ operations in 2 ms.
    assert matmul_rate("cpu", "float32").tflops == pytest.approx(1.073741824)
