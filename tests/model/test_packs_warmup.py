"""Warm-up of captured packs with a fake capturer: what is captured, kept, priced, and found broken before the seal.

Refuses to compare answers at length. Trap: prices are told in the order of capture, the largest size first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from captured_packs import LADDER_HERE, SHAPES, TOLERANCE, Model, captured, counted, eager, quiet, told
from fake_graphs import largest_shift, load_tiny, random_row
from fake_pack_graphs import FakeWorkCapturer, falling_times

from decider.backbone.load import backbone_of
from decider.errors import DeviceError, EngineError
from decider.plan.packs import card_limits
from decider.plan.tables import PackShape
from decider.run import measure
from decider.run.graphs import Work
from decider.run.packed import PackedExecutor
from decider.run.stats import GridStats

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]

FAMILIES = ("llama", "qwen3_5")


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


def test_both_families_of_every_size_are_captured_largest_first(models: dict[str, Model]) -> None:
    said: list[str] = []
    capturer = FakeWorkCapturer()
    executor = PackedExecutor(*models["qwen3_5"], card_limits(LADDER_HERE), capturer=capturer)
    assert executor.describe().graphs == ()
    assert str(executor.describe()).startswith("packed: qwen3_5_text backbone, packs of 160 tokens, float32 on cpu")
    executor.warmup(said.append)
    assert executor.describe().graphs == SHAPES
    assert (capturer.recorded, capturer.warmed) == (6, 12)
    assert executor.stats == GridStats(captures=6)
    assert said[0].startswith("captured 1/6 graphs, ")
    assert said[1].startswith("captured 6/6 graphs, ")
    assert said[2].startswith("captured 6 graphs of packs (")
    assert said[3].startswith("checked 6 graphs against eager forwards (")
    assert executor.describe().warmup_s is not None
    executor.seal()
    executor.seal()
    assert ", 6 graphs, sealed, " in str(executor.describe())
    with pytest.raises(EngineError, match="sealed"):
        executor.warmup(quiet)
    assert executor.describe().picks[-1].value == "6 of 6"


def test_the_memory_of_graphs_is_what_a_warm_up_adds(models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was in the cache before, which a warm-up gives back."""
    held = {"cache": 700, "rest": 1000}
    monkeypatch.setattr(measure, "reserved_bytes", lambda _: sum(held.values()))
    monkeypatch.setattr(measure, "release_cache", lambda _: held.update(cache=0))

    def recorded(_: int, __: Work) -> None:
        held["rest"] += 5
        held["cache"] += 50

    executor = PackedExecutor(*models["llama"], card_limits(LADDER_HERE), capturer=FakeWorkCapturer(spoil=recorded))
    executor.warmup(quiet)
    assert executor.describe().pool_bytes == 6 * 5


def test_sizes_that_are_no_faster_than_the_next_are_dropped(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "milliseconds", told(lambda n_tokens: max(64.0, n_tokens)))
    executor = captured(models["llama"])
    assert executor.describe().graphs == tuple(shape for shape in SHAPES if shape.n_tokens > 32)
    pick = executor.describe().picks[-1]
    assert pick.value == "4 of 6"
    assert "dropped: flat of 32 tokens, tree of 32 tokens" in pick.reason
    rows = [random_row(9)]
    assert executor.forwards(rows) == [(64, PackShape(64, is_tree=False))]
    ours, stats = counted(executor, rows)
    assert (stats.replays, stats.padded_tokens, stats.captures) == (1, 64, 0)
    assert executor.stats.captures == 6
    assert largest_shift(ours, eager(models["llama"]).label_logits(rows)) <= TOLERANCE


def test_a_second_warm_up_starts_again(models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    executor = PackedExecutor(*models["llama"], card_limits(LADDER_HERE), capturer=FakeWorkCapturer())
    monkeypatch.setattr(measure, "milliseconds", told(lambda n_tokens: max(64.0, n_tokens)))
    executor.warmup(quiet)
    monkeypatch.setattr(measure, "milliseconds", falling_times())
    executor.warmup(quiet)
    assert executor.describe().graphs == SHAPES
    assert [pick.value for pick in executor.describe().picks] == ["6 of 6"]
    assert executor.stats == GridStats(captures=12)
    assert counted(executor, [random_row(9)])[1].padded_tokens == 32


def test_measured_prices_cut_packs(models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "milliseconds", told(lambda n_tokens: 100.0 if n_tokens == 160 else 1.0 + n_tokens))
    executor = captured(models["llama"])
    rows = [random_row(60, seed=1), random_row(30, seed=2)]
    assert [n_tokens for n_tokens, _ in executor.forwards(rows)] == [64, 32]
    _, stats = counted(executor, rows)
    assert (stats.replays, stats.padded_tokens) == (2, 96)
    assert executor.replay_ms(PackShape(64, is_tree=False)) is not None
    assert executor.replay_ms(PackShape(96, is_tree=False)) is None


def spoilt(fault: str) -> Callable[[int, Work], Work | None]:
    """A fault in the graph that is captured third: the tree of 64 tokens."""

    def spoil(count: int, work: Work) -> Work | None:
        if count != 3:
            return None
        if fault == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory")
        if fault == "sync":
            raise RuntimeError("operation not permitted when stream is capturing\nand more")

        at_capture = work()
        assert isinstance(at_capture, torch.Tensor)
        kept = at_capture.clone()

        def broken() -> object:
            out = work()
            assert isinstance(out, torch.Tensor)
            if fault == "nan":
                out[-1] = torch.nan
            elif fault == "slightly off":
                out[1, ::2] += 0.01 * out.abs().max()
            elif fault == "baked":
                out.copy_(kept)
            elif fault == "idle":
                out.zero_()
            return out

        return broken

    return spoil


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("slightly off", EngineError, "tree of 64 tokens.*differs from its eager forward by 0.0"),
        ("baked", EngineError, "tree of 64 tokens.*differs from its eager forward"),
        ("idle", EngineError, "tree of 64 tokens.*differs from its eager forward"),
        ("nan", EngineError, "tree of 64 tokens.*not finite on random rows"),
        ("memory", DeviceError, "cpu ran out of memory at tree of 64 tokens, graph 3 of 6"),
        ("sync", EngineError, "tree of 64 tokens.*cannot be captured: operation not permitted when stream is captur"),
    ],
)
def test_a_broken_graph_is_found_before_the_seal(
    models: dict[str, Model], fault: str, error: type[Exception], message: str
) -> None:
    executor = PackedExecutor(
        *models["llama"], card_limits(LADDER_HERE), capturer=FakeWorkCapturer(spoil=spoilt(fault))
    )
    with pytest.raises(error, match=message) as caught:
        executor.warmup(quiet)
    assert "\n" not in str(caught.value)
    assert executor.describe().graphs == ()
    _, stats = counted(executor, [random_row(16)])
    assert (stats.replays, stats.eager_forwards) == (0, 1)


def test_without_a_capturer_nothing_is_padded(models: dict[str, Model]) -> None:
    executor = PackedExecutor(*models["llama"], card_limits(LADDER_HERE))
    executor.warmup(quiet)
    executor.seal()
    _, stats = counted(executor, [random_row(9)])
    assert (stats.eager_forwards, stats.padded_tokens) == (1, 9)
    assert executor.forwards([random_row(9)]) == [(9, None)]
