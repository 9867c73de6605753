"""`decider.verify` on real CUDA graphs of tiny models: sound engines pass in bfloat16, and a broken replay is found.

Refuses to judge speed. Trap: the oracle runs in the process of the engine; were its flags not restored, the engine's
next forward would be another one. And a checkpoint whose logits are so large that rounding turns answers round is no
test: of the tiny hybrid's own, bfloat16 moves a probability by 0.02 in the median of rows, and by 0.58 in one of 300.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from fake_graphs import LABEL_IDS, VOCAB, load_tiny
from safetensors.torch import load_file, save_file
from tiny_models import link_checkpoint

from decider.model.source import ModelFolder
from decider.ops.delta_rule import use_torch_rule
from decider.plan.buckets import Grid
from decider.run.executor import Logits
from decider.run.graphs import CudaCapturer
from decider.run.grid import GridExecutor
from decider.tokens.rows import Row
from decider.verify.cases import Ground, make_cases
from decider.verify.compare import Judge, Verdict, tolerance_for
from decider.verify.oracle import most_tokens, open_eager
from decider.verify.pace import Pace, Point
from decider.verify.run import run_checks

pytestmark = pytest.mark.gpu

TinyFolder = Callable[[str], Path]
GRID = Grid(lengths=(16, 48, 64, 96), batches=(1, 2, 4), token_budget=256, long_multiple=32)


WEIGHTS = "model.safetensors"


def quieter(folder: Path, target: Path) -> Path:
    """The checkpoint in `folder` with its matrices divided by 4, as a folder `target`."""
    link_checkpoint(folder, target, without=WEIGHTS)
    weights = load_file(folder / WEIGHTS)
    less = {name: each / 4 if each.dim() >= 2 else each for name, each in weights.items()}
    save_file(less, target / WEIGHTS, metadata={"format": "pt"})
    return target


def verdicts_of(folder: Path) -> tuple[GridExecutor, tuple[Verdict, ...]]:
    loaded, head = load_tiny(folder, "bfloat16", device="cuda:0", positions=200)
    grid = GridExecutor(loaded, head, GRID, CudaCapturer(torch.device("cuda:0")), lambda _: None)
    grid.warmup()
    grid.seal()
    source = ModelFolder(folder, "tiny", "a test")
    oracle = open_eager(source, LABEL_IDS, device="cuda:0", dtype="float32")
    yardstick = open_eager(source, LABEL_IDS, device="cuda:0", dtype="bfloat16")
    for each in (oracle, yardstick):
        # Kernels of the delta rule would multiply the oracle's float32 in TF32, and be tuned for each type anew.
        use_torch_rule(each.loaded.module)
    ground = Ground(VOCAB, len(LABEL_IDS), 200, GRID.lengths, GRID.long_multiple, most_tokens(oracle))
    assert ground.most_tokens == 200
    judge = Judge(oracle, tolerance_for("bfloat16", fp8=False), yardstick)
    cases = make_cases(ground, Pace((Point(64, 0.0, 0.0),)), 60.0)
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    verdicts = run_checks(grid, judge, cases, say=lambda _: None, show=lambda _: None)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
    return grid, verdicts


@pytest.mark.parametrize("family", ["llama", "qwen3_5", "gemma3"])
def test_a_sealed_engine_passes(tiny_folder: TinyFolder, tmp_path: Path, family: str) -> None:
    grid, verdicts = verdicts_of(quieter(tiny_folder(family), tmp_path / "quieter"))
    assert [verdict.faults for verdict in verdicts] == [()] * 7
    assert grid.stats.captures == len(GRID.graph_shapes())
    assert grid.stats.replays > 30
    assert grid.stats.unbucketed_rows > 8
    assert grid.stats.shared_calls > 40


def test_swapped_neighbours_are_found(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = GridExecutor.label_logits

    def swapped(self: GridExecutor, rows: Sequence[Row]) -> list[Logits]:
        return sound(self, rows) if len(rows) == 1 else sound(self, [*rows[:-1], rows[0]])

    monkeypatch.setattr(GridExecutor, "label_logits", swapped)
    _, verdicts = verdicts_of(tiny_folder("llama"))
    assert {"rows", "bucket edges"} <= {verdict.name for verdict in verdicts if not verdict.passed}
