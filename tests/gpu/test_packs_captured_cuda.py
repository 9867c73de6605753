"""Captured packs with real CUDA graphs and the fused kernels, on tiny models of every native family.

Refuses to judge speed. Trap: a graph that reads what its capture left behind is right for the pack of its capture, so
other packs, fuller and emptier ones, run between those that are compared.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_graphs import load_tiny, random_row
from fake_pack_graphs import falling_times, rows_of
from prefix_rows import make_rows

from decider.errors import EngineError
from decider.model.head import LabelHead
from decider.model.load import LoadedModel
from decider.model.twin import twin
from decider.ops import fp8
from decider.ops.delta_rule import use_torch_rule
from decider.plan.packs import card_limits
from decider.plan.tables import PackShape, capacity_of
from decider.run import measure, pack_fp8
from decider.run.executor import Logits
from decider.run.graphs import CudaCapturer, Graph
from decider.run.packed import PackedExecutor, packed_executor
from decider.run.reference import ReferenceExecutor
from decider.tokens.rows import Row

pytestmark = pytest.mark.gpu

TinyFolder = Callable[[str], Path]
Engines = Callable[[str, str], tuple[PackedExecutor, ReferenceExecutor]]

DEVICE = torch.device("cuda:0")
LADDER = (64, 192, 640)
SHAPES = tuple(PackShape(n, tree) for n in reversed(LADDER) for tree in (True, False))
FAMILIES = ("llama", "llama_tied", "qwen3", "qwen3_5")
# Kernels in float32 take the compiler seconds each.
ENGINES = [*((family, "bfloat16") for family in FAMILIES), ("llama", "float32"), ("qwen3_5", "float32")]
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.25}
# The kernels take a decay for the difference of two running sums, which rounds more than either step.
HYBRID_TOLERANCE = {"float32": 5e-4, "bfloat16": 0.25}
MIXED = [
    *make_rows(40, (3, 9, 1, 70), seed=1),
    random_row(9, slots=3),
    random_row(140, slots=2),
    *make_rows(2, (1, 1), seed=2),
    random_row(1),
]


def furthest(ours: list[Logits], theirs: list[Logits]) -> float:
    assert [one.shape for one in ours] == [one.shape for one in theirs]
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))


def reference_of(loaded: LoadedModel, head: LabelHead) -> ReferenceExecutor:
    """The oracle, its delta rule in torch: kernels multiply float32 in TF32, and are tuned for a minute."""
    own = twin(loaded)
    use_torch_rule(own.module)
    return ReferenceExecutor(own, head)


def allowed(family: str, dtype: str) -> float:
    return (HYBRID_TOLERANCE if family == "qwen3_5" else TOLERANCE)[dtype]


@pytest.fixture(scope="module")
def engines(tiny_folder: TinyFolder) -> Iterator[Engines]:
    """(family, dtype) → a sealed engine with every shape of the ladder, and the oracle; made once."""
    made: dict[tuple[str, str], tuple[PackedExecutor, ReferenceExecutor]] = {}

    def get(family: str, dtype: str) -> tuple[PackedExecutor, ReferenceExecutor]:
        if (family, dtype) not in made:
            loaded, head = load_tiny(tiny_folder(family), dtype, device="cuda:0", quieter=4.0)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(measure, "milliseconds", falling_times())
                packed = packed_executor(loaded, head, card_limits(LADDER))
            made[family, dtype] = packed, reference_of(loaded, head)
        return made[family, dtype]

    yield get
    for packed, _ in made.values():
        packed.close()


@pytest.mark.parametrize(("family", "dtype"), ENGINES)
def test_captured_answers(engines: Engines, family: str, dtype: str) -> None:
    packed, reference = engines(family, dtype)
    assert packed.describe().graphs == SHAPES
    assert packed.describe().sealed
    before = packed.stats
    ours = packed.label_logits(MIXED)
    counted = packed.stats - before
    assert counted.replays == counted.forwards == 1
    assert counted.shared_calls == 2
    assert all(np.isfinite(one).all() and one.dtype == np.float32 for one in ours)
    assert furthest(ours, reference.label_logits(MIXED)) <= allowed(family, dtype)


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
@pytest.mark.parametrize("size", LADDER)
def test_every_edge_of_every_shape(engines: Engines, family: str, size: int) -> None:
    """The longest row, rows that fill a shape, as many as there may be, a long trunk and many branches."""
    packed, reference = engines(family, "float32")
    below = {64: 1, 192: 64, 640: 192}[size]
    for n_tokens in (below + 1, size - 1, size):
        for n_rows, shared in ((1, 0), (2, 0), (32, 0), (2, n_tokens - 2), (31, 1), (31, 3), (31, 100)):
            family_capacity = capacity_of(PackShape(size, shared > 0))
            n_rows = min(n_rows, family_capacity.n_sequences - (shared > 0), n_tokens - shared)
            if n_rows < 1 or (shared and n_rows < 2):
                continue
            rows = rows_of(n_tokens, n_rows, shared=shared, seed=n_rows)
            before = packed.stats
            ours = packed.label_logits(rows)
            counted = packed.stats - before
            assert (counted.replays, counted.eager_forwards, counted.padded_tokens) == (1, 0, size)
            assert furthest(ours, reference.label_logits(rows)) <= allowed(family, "float32"), (
                n_tokens,
                n_rows,
                shared,
            )
    graphs = packed._graphs
    assert graphs is not None
    for tree in (False, True):
        # Behind the slots of a pack too: padding is a sequence like others.
        assert graphs.captured[PackShape(size, tree)].statics.logits.isfinite().all()


@pytest.mark.parametrize(("family", "dtype"), ENGINES)
def test_a_then_b_then_a_gives_the_same_bits(engines: Engines, family: str, dtype: str) -> None:
    packed, _ = engines(family, dtype)
    once = packed.label_logits(MIXED)
    kept = [one.copy() for one in once]
    others: list[list[Row]] = [
        [random_row(n, slots=2, seed=n) for n in (600, 640, 30, 5)],
        [*make_rows(3, (200, 1), seed=4), *make_rows(90, (4, 5, 6), seed=5)],
        rows_of(192, 12, seed=6),
        [random_row(700)],
    ]
    for other in others:
        between = packed.label_logits(other)
        again = packed.label_logits(MIXED)
        for one, copy, later in zip(once, kept, again, strict=True):
            assert np.array_equal(one, copy)
            assert np.array_equal(one, later)
        assert furthest(packed.label_logits(other), between) == 0


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_nothing_is_captured_or_compiled_after_the_seal(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    packed, reference = engines(family, "float32")

    def refuse(*_: object, **__: object) -> Graph:
        raise AssertionError("captured after the seal")

    monkeypatch.setattr(CudaCapturer, "record", refuse)
    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", refuse)
    triton = importlib.import_module("triton")
    met: list[str] = []
    monkeypatch.setattr(
        triton.knobs.runtime, "jit_post_compile_hook", lambda **given: met.append(str(given.get("repr")))
    )
    for rows in (MIXED, [random_row(n, seed=n) for n in (1, 63, 65, 191, 640)], make_rows(77, (1, 2, 3), seed=7)):
        assert furthest(packed.label_logits(rows), reference.label_logits(rows)) <= allowed(family, "float32")
    with pytest.raises(EngineError, match="sealed"):
        packed.warmup(lambda _: None)
    assert met == []
    before = packed.stats
    # Above the ladder; more slots than a pack has.
    for rows in ([random_row(641)], [random_row(150, slots=81)]):
        assert furthest(packed.label_logits(rows), reference.label_logits(rows)) <= allowed(family, "float32")
    counted = packed.stats - before
    assert (counted.replays, counted.eager_forwards, counted.unbucketed_rows) == (0, 2, 2)
    assert packed.stats.captures == len(SHAPES)


# torch says once that the mode is a prototype.
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_waits_for_events_alone_and_allocates_nothing(engines: Engines, family: str) -> None:
    packed, _ = engines(family, "bfloat16")
    rows = [*MIXED, *(random_row(n, seed=n) for n in (600, 500, 30, 620))]
    wanted = packed.label_logits(rows)
    before, allocated = packed.stats, torch.cuda.memory_stats(DEVICE)["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        again = packed.label_logits(rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert furthest(again, wanted) == 0
    assert (packed.stats - before).replays >= 3
    assert (packed.stats - before).eager_forwards == 0
    assert torch.cuda.memory_stats(DEVICE)["allocation.all.allocated"] == allocated


def test_threads_on_streams_of_their_own_get_their_own_answers(engines: Engines) -> None:
    packed, _ = engines("qwen3_5", "bfloat16")
    asked = [[random_row(n, seed=thread) for n in (600, 40, 620, 500)] for thread in range(4)]
    wanted = [packed.label_logits(rows) for rows in asked]
    shifts: list[float] = []

    def ask(thread: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream(DEVICE)):  # type: ignore[no-untyped-call]
            shifts.extend(furthest(packed.label_logits(asked[thread]), wanted[thread]) for _ in range(30))

    threads = [threading.Thread(target=ask, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shifts) == 120
    assert max(shifts) == 0


def test_two_engines_coexist(engines: Engines, tiny_folder: TinyFolder) -> None:
    packed, _ = engines("qwen3_5", "bfloat16")
    before = packed.label_logits(MIXED)
    loaded, head = load_tiny(tiny_folder("qwen3"), "bfloat16", device="cuda:0", quieter=4.0)
    other = packed_executor(loaded, head, card_limits((64, 192)))
    theirs = other.label_logits(MIXED[:4])
    assert furthest(packed.label_logits(MIXED), before) == 0
    assert furthest(other.label_logits(MIXED[:4]), theirs) == 0
    other.close()
    assert furthest(packed.label_logits(MIXED), before) == 0
    with pytest.raises(EngineError, match="closed"):
        other.label_logits(MIXED)


def test_the_host_is_free_while_packs_run(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three packs, the second is queued before the first is waited for."""
    packed, _ = engines("llama", "bfloat16")
    steps: list[str] = []
    replay, synchronize = torch.cuda.CUDAGraph.replay, torch.cuda.Event.synchronize

    def replaying(graph: torch.cuda.CUDAGraph) -> None:
        steps.append("replay")
        replay(graph)

    def waiting(event: torch.cuda.Event) -> None:
        steps.append("wait")
        synchronize(event)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", replaying)
    monkeypatch.setattr(torch.cuda.Event, "synchronize", waiting)
    packed.label_logits([random_row(n, seed=n) for n in (600, 610, 620)])
    # A lane is waited for when it is read, and again when it is given back.
    assert [step for step, _ in groupby(steps)] == ["replay", "wait", "replay", "wait"]
    assert steps[:2] == ["replay", "replay"]


def test_an_engine_in_fp8(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each product is measured in both precisions; then the two larger sizes are told to gain."""
    monkeypatch.setattr(fp8, "LEAST_FEATURES", 16)
    measured: list[float] = []
    both_ms = pack_fp8._both_ms

    def told(products: Sequence[Any], n_rows: int, *others: Any, **named: Any) -> tuple[float, float]:
        measured.extend(both_ms(products, n_rows, *others, **named))
        return 1.0, 0.5 if n_rows >= 192 else 2.0

    loaded, head = load_tiny(tiny_folder("qwen3_5"), "bfloat16", device="cuda:0", quieter=4.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pack_fp8, "_both_ms", told)
        patch.setattr(measure, "milliseconds", falling_times())
        packed = packed_executor(loaded, head, card_limits(LADDER), fp8=True)
    assert packed.describe().graphs == SHAPES
    [pick] = [pick for pick in packed.describe().picks if pick.name == "fp8"]
    assert pick.value.count("from 192 tokens") == 6
    assert len(measured) == 2 * 6 * 2
    assert min(measured) > 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "milliseconds", falling_times())
        plain = packed_executor(loaded, head, card_limits(LADDER))
    small, large = [random_row(60)], [random_row(n, seed=n) for n in (600, 30)]
    # Slots of a small shape, 64 of them, are few rows too.
    first = packed.label_logits(large)
    off = furthest(first, plain.label_logits(large))
    assert 0 < off <= max(float(np.abs(one).max()) for one in first)
    assert furthest(packed.label_logits(small), plain.label_logits(small)) <= off / 10
    assert packed.stats.eager_forwards == 0
    packed.label_logits(small)
    assert furthest(packed.label_logits(large), first) == 0
    packed.close()
    plain.close()
