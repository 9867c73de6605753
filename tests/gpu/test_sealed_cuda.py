"""A sealed engine on a card: shared prefixes are right, and no request tunes or compiles a kernel.

Refuses to judge speed. Trap: Triton tunes a kernel for each new value of its keys, one of which is the number of rows;
so requests of odd sizes are asked on purpose.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_graphs import load_tiny, random_row
from prefix_rows import make_rows
from tiny_models import FAMILIES

from decider.plan.buckets import Grid
from decider.run.executor import Logits
from decider.run.graphs import CudaCapturer
from decider.run.grid import GridExecutor
from decider.run.prefix.shared import PrefixLimits
from decider.run.reference import ReferenceExecutor

pytestmark = pytest.mark.gpu

TinyFolder = Callable[[str], Path]

DEVICE = torch.device("cuda:0")
GRID = Grid(lengths=(64, 128, 256), batches=(1, 2, 4), token_budget=1024, long_multiple=256)
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}
HYBRID_TOLERANCE = {"float32": 5e-3, "bfloat16": 0.1}


def sealed(folder: Path, dtype: str) -> tuple[GridExecutor, ReferenceExecutor]:
    loaded, head = load_tiny(folder, dtype, device="cuda:0", positions=1500, quieter=4.0)
    limits = PrefixLimits(min_prefix_tokens=1)
    grid = GridExecutor(loaded, head, GRID, CudaCapturer(DEVICE), lambda _: None, limits=limits)
    grid.warmup()
    grid.seal()
    return grid, ReferenceExecutor(loaded, head)


def furthest(ours: list[Logits] | None, theirs: list[Logits]) -> float:
    assert ours is not None
    assert [one.shape for one in ours] == [one.shape for one in theirs]
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_shared_prefixes(tiny_folder: TinyFolder, family: str, dtype: str) -> None:
    grid, reference = sealed(tiny_folder(family), dtype)
    tolerance = (HYBRID_TOLERANCE if family == "qwen3_5" else TOLERANCE)[dtype]
    for n_prefix, suffixes in ((1, (3, 5)), (2, (1, 1)), (3, (40, 2, 9)), (63, (64, 1, 7, 30)), (300, (65,) * 5)):
        rows = make_rows(n_prefix, suffixes)
        assert furthest(grid.score_shared(rows, gate=False), reference.label_logits(rows)) <= tolerance, n_prefix
    assert grid.stats.shared_calls == 5
    assert grid.stats.unknown_tensors == 0


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_no_request_tunes_or_compiles_a_kernel(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    triton = importlib.import_module("triton")
    grid, _ = sealed(tiny_folder(family), "bfloat16")
    met: list[str] = []
    monkeypatch.setattr(
        triton.knobs.runtime, "jit_post_compile_hook", lambda **given: met.append(str(given.get("repr")))
    )
    tuner = triton.runtime.autotuner.Autotuner
    original = tuner._bench

    def bench(self: object, *args: object, **kwargs: object) -> object:
        met.append(f"tuned {self!r}")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(tuner, "_bench", bench)
    for rows in (
        [random_row(n, seed=n) for n in (5, 64, 65, 200, 256, 31, 90)],
        [random_row(n, seed=n) for n in (257, 300, 511, 900, 1400)],
        [random_row(270, seed=seed) for seed in range(3)],
        [random_row(200, slots=70)],
    ):
        grid.label_logits(rows)
    for n_prefix, suffixes in ((1, (3, 5)), (77, (1, 2, 3)), (300, (65,) * 5), (513, (7,) * 17)):
        assert grid.score_shared(make_rows(n_prefix, suffixes), gate=False) is not None
    assert met == []
    assert grid.stats.captures == len(GRID.graph_shapes())
