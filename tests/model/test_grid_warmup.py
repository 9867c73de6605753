"""Warm-up and seal: what is captured, in which order, what is refused, and what is checked before the seal.

Refuses real devices; memory and time are told. Trap: a fake that ignores its statics would pass any check of outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_graphs import FakeCapturer, FakeGraph, load_tiny, random_row

from decider.errors import ConfigError, DeviceError, EngineError
from decider.model.head import LabelHead
from decider.model.load import LoadedModel
from decider.plan.buckets import Grid
from decider.run import graphs, measure
from decider.run.forward import Forward
from decider.run.graphs import Graph, Statics
from decider.run.grid import GridExecutor
from decider.run.stats import GridStats
from decider.run.warmup import FP8_TOLERANCE, GRAPH_BYTES, GRAPH_TOLERANCE, Difference, check_memory, slot_difference

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]
Model = tuple[LoadedModel, LabelHead]

GRID = Grid(lengths=(8, 16, 32), batches=(1, 2, 4), token_budget=64)
SHAPES = [(2, 32), (4, 16), (1, 32), (2, 16), (4, 8), (1, 16), (2, 8), (1, 8)]


@pytest.fixture(scope="module")
def model(tiny_folder: TinyFolder) -> Model:
    return load_tiny(tiny_folder("llama"), positions=100)


def executor(model: Model, capturer: FakeCapturer, say: Callable[[str], None] = lambda _: None) -> GridExecutor:
    return GridExecutor(*model, GRID, capturer, say)


def test_the_whole_grid_is_captured_largest_first(model: Model) -> None:
    said: list[str] = []
    capturer = FakeCapturer()
    grid = executor(model, capturer, said.append)
    grid.warmup()
    assert capturer.shapes == SHAPES
    assert list(grid.describe().graphs) == SHAPES
    assert grid.stats == GridStats(captures=8)
    assert said[0].startswith("timed eager forwards (")
    assert said[1].startswith("captured 1/8 graphs, ")
    assert any(line.startswith("captured 8/8 graphs, ") for line in said)
    assert said[-2].startswith("checked 8 graphs against eager forwards (")
    assert said[-1].startswith("timed shared prefixes (")


def test_lengths_beyond_the_positions_are_not_captured(tiny_folder: TinyFolder) -> None:
    capturer = FakeCapturer()
    grid = GridExecutor(*load_tiny(tiny_folder("llama"), positions=20), GRID, capturer, lambda _: None)
    grid.warmup()
    assert capturer.shapes == [shape for shape in SHAPES if shape[1] <= 20]
    with pytest.raises(ConfigError, match=r"1 × 32.* is not on the grid"):
        grid.warmup([(1, 32)])


def test_a_model_shorter_than_the_ladder_has_one_length(tiny_folder: TinyFolder) -> None:
    capturer = FakeCapturer()
    grid = GridExecutor(*load_tiny(tiny_folder("llama"), positions=5), GRID, capturer, lambda _: None)
    grid.warmup()
    assert capturer.shapes == [(4, 5), (2, 5), (1, 5)]


def test_a_sealed_engine_never_captures(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "LEAST_SLOTS", 8)
    capturer = FakeCapturer()
    grid = executor(model, capturer)
    grid.warmup([(1, 16)])
    grid.seal()
    grid.seal()
    capturer.closed = True
    for lengths in ([3], [16], [17], [33], [100], [5] * 9, [3, 20, 50, 8, 8, 8]):
        assert len(grid.label_logits([random_row(n, seed=n) for n in lengths])) == len(lengths)
    assert len(grid.label_logits([random_row(16, slots=12)])) == 1
    assert grid.stats.captures == 1
    with pytest.raises(EngineError, match="sealed"):
        grid.warmup()


def test_unknown_shapes_run_eagerly_and_are_counted(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    # A graph is cheaper than any eager forward, so that timing noise makes no plan.
    def milliseconds(_: torch.device, work: Callable[[], object]) -> float:
        work()
        return 0.5 if isinstance(getattr(work, "__self__", None), FakeGraph) else 1.0

    monkeypatch.setattr(measure, "milliseconds", milliseconds)
    grid = executor(model, FakeCapturer())
    grid.warmup([(1, 8)])
    grid.seal()
    grid.label_logits([random_row(30)])
    assert grid.stats == GridStats(1, 1, 0, 1, 1, 0, 30, 30)
    grid.label_logits([random_row(8)])
    assert grid.stats == GridStats(1, 2, 1, 1, 1, 0, 38, 38)


def test_without_warm_up_everything_is_eager(model: Model) -> None:
    grid = executor(model, FakeCapturer())
    grid.label_logits([random_row(8)])
    assert (grid.stats.eager_forwards, grid.stats.captures) == (1, 0)
    assert grid.describe().launch_ms is None
    assert str(grid.describe()).startswith("grid: no graphs, eager, open, float32 on cpu; attention sdpa, ")


def test_measured_replays_make_the_plans(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    # 1 × 8 alone is cheap: four rows of 8 then run one by one, though a graph of four rows exists.
    times: dict[tuple[int, ...], float] = {shape: 1.0 if shape == (1, 8) else 100.0 for shape in SHAPES}
    told: list[Callable[[], object]] = []

    def milliseconds(_: torch.device, work: Callable[[], object], *, repeats: int = 3) -> float:
        work()
        told.append(work)
        graph = getattr(work, "__self__", None)
        return times[tuple(graph.statics.ids.shape)] if isinstance(graph, FakeGraph) else float(repeats)

    monkeypatch.setattr(measure, "milliseconds", milliseconds)
    grid = executor(model, FakeCapturer())
    grid.warmup()
    assert len(told) == len(SHAPES) + 2
    grid.label_logits([random_row(8, seed=seed) for seed in range(4)])
    assert grid.stats.replays == 4


def test_too_little_memory_names_the_buckets_to_drop() -> None:
    shapes = Grid(lengths=(64, 128), batches=(1, 2, 4)).graph_shapes()
    device = torch.device("cuda:3")
    enough = len(shapes) * GRAPH_BYTES + 2 * 512 * 1000
    check_memory(shapes, bytes_per_token=1000, free=enough, device=device)
    with pytest.raises(DeviceError, match=r"cuda:3 .*drop the buckets \(rows × tokens\) 4 × 128, all .* 511 padded"):
        check_memory(shapes, bytes_per_token=1000, free=enough - 1, device=device)
    with pytest.raises(DeviceError, match=r"4 × 128, 2 × 128, 4 × 64, all .* 255 padded"):
        check_memory(shapes, bytes_per_token=1000, free=enough - 2 * 257 * 1000, device=device)
    with pytest.raises(DeviceError, match=r"1 × 128, .*, all those above 0 padded"):
        check_memory(shapes, bytes_per_token=1000, free=0, device=device)


def test_memory_is_checked_before_the_first_capture(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def peak_bytes(_: torch.device, work: Callable[[], object]) -> int:
        work()
        return 32 * 1000

    monkeypatch.setattr(measure, "free_bytes", lambda _: 8 * GRAPH_BYTES + 2 * 32 * 1000)
    monkeypatch.setattr(measure, "peak_bytes", peak_bytes)
    capturer = FakeCapturer()
    grid = executor(model, capturer)
    with pytest.raises(DeviceError, match=r"drop the buckets .* 2 × 32, 4 × 16, all those above 32 padded"):
        grid.warmup()
    assert capturer.shapes == []
    grid.warmup([shape for shape in SHAPES if shape[0] * shape[1] <= 32])
    assert len(capturer.shapes) == 6


@dataclass(frozen=True, slots=True)
class Broken:
    """A graph with one fault."""

    statics: Statics
    forward: Forward
    fault: str
    kept: tuple[torch.Tensor, torch.Tensor]
    """What was in the buffers at capture."""

    def replay(self) -> None:
        ids, slots = self.statics.ids, self.statics.slots
        if self.fault == "baked in":
            ids, slots = self.kept
        if self.fault == "stale ids":
            ids = torch.zeros_like(ids)
        if self.fault == "stale slots":
            slots = torch.zeros_like(slots)
        self.statics.logits.copy_(self.forward(ids, slots))
        if self.fault == "last slot":
            self.statics.logits[-1, ::2] += 0.5
        if self.fault == "slightly off":
            self.statics.logits.mul_(1.005)
        if self.fault == "nan":
            self.statics.logits[-1, -1] = torch.nan


@dataclass(slots=True)
class BreakingCapturer(FakeCapturer):
    """Breaks the graph of 2 × 16."""

    fault: str = ""

    def capture(self, forward: Forward, statics: Statics) -> Graph:
        # Not zero-argument super(), which dataclasses with slots break.
        sound = FakeCapturer.capture(self, forward, statics)
        if statics.ids.shape != (2, 16):
            return sound
        if self.fault == "memory":
            raise torch.OutOfMemoryError("no room\nmore text")
        if self.fault == "sync":
            raise RuntimeError("operation not permitted when stream is capturing\nmore text")
        return Broken(statics, forward, self.fault, (statics.ids.clone(), statics.slots.clone()))


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("stale ids", EngineError, "the graph of the bucket of 2 × 16 .*differs from its eager forward"),
        ("baked in", EngineError, "the graph of the bucket of 2 × 16 .*differs from its eager forward"),
        ("slightly off", EngineError, "2 × 16 .*differs from its eager forward by 0.005"),
        ("stale slots", EngineError, "the graph of the bucket of 2 × 16 .*differs from its eager forward"),
        ("last slot", EngineError, "the graph of the bucket of 2 × 16 .*differs from its eager forward"),
        ("nan", EngineError, "2 × 16 .*not finite on random rows"),
        ("memory", DeviceError, "cpu ran out of memory at the bucket of 2 × 16 .*, graph 4 of 8"),
        ("sync", EngineError, "2 × 16 .*cannot be captured: operation not permitted when stream is capturing; "),
    ],
)
def test_a_broken_graph_is_found_before_the_seal(
    model: Model, fault: str, error: type[Exception], message: str
) -> None:
    grid = executor(model, BreakingCapturer(fault=fault))
    with pytest.raises(error, match=message) as caught:
        grid.warmup()
    assert "\n" not in str(caught.value)
    # None of the graphs is used afterwards, nor of an earlier warm-up.
    assert grid.describe().graphs == ()
    [logits] = grid.label_logits([random_row(16)])
    assert np.isfinite(logits).all()
    assert grid.stats.replays == 0


def test_how_far_a_slot_is_off() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(64, 255, generator=generator) + 10
    assert slot_difference(logits, logits) == Difference(0, 0)
    # What all labels share moves no probability.
    assert slot_difference(logits + 3, logits).worst == pytest.approx(0, abs=1e-6)
    wrong = logits.clone()
    wrong[7] = logits[8]
    # One slot of 64: what is wrong there is an eighth of it over all.
    misread = slot_difference(wrong, logits)
    assert misread.worst == pytest.approx(2**0.5, rel=0.1)
    assert misread.typical == pytest.approx(misread.worst / 8)
    assert not any(misread.is_within(allowed) for allowed in (*GRAPH_TOLERANCE.values(), FP8_TOLERANCE))
    everywhere = slot_difference(logits * 1.01, logits)
    assert everywhere.typical == pytest.approx(0.01, rel=0.01)
    assert everywhere.worst == pytest.approx(0.01, rel=0.2)


def test_what_a_graph_may_be_off() -> None:
    """A few slots far off are the noise of a precision; all of them as far are not."""
    allowed = Difference(0.1, 0.5)
    assert Difference(0.1, 0.5).is_within(allowed)
    assert not Difference(0.11, 0.2).is_within(allowed)
    assert not Difference(0.05, 0.51).is_within(allowed)
    assert not Difference(math.nan, 0.0).is_within(allowed)
    assert not Difference(0.0, math.nan).is_within(allowed)
    assert str(Difference(0.051, 0.5)) == "0.051 of a slot's logits, and 0.5 at the worst"


def test_weights_that_give_no_numbers_are_found(model: Model) -> None:
    loaded, head = model
    broken = LabelHead(head.weight * torch.inf, None, 1.0, None)
    with pytest.raises(EngineError, match=r"2 × 32 .*not finite .*torch.float32"):
        GridExecutor(loaded, broken, GRID, FakeCapturer(), lambda _: None).warmup()


def test_without_a_capturer_warm_up_measures_prices_only(model: Model) -> None:
    grid = GridExecutor(*model, GRID, None, lambda _: None)
    grid.warmup()
    grid.seal()
    assert grid.describe().graphs == ()
    assert grid.describe().token_ms is not None
    assert grid.stats == GridStats()
