"""The options of one grid executor: what is captured, what runs eagerly, and that nothing of it is left anywhere.

Refuses devices; compilation runs through a back end that compiles nothing, so that it can be counted in milliseconds.
Trap: a fake graph runs its forward at each replay, so a captured compiled forward is also run after the seal.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_graphs import FakeCapturer, largest_shift, load_tiny, random_row

from decider.errors import ConfigError, DeviceError, EngineError
from decider.plan.buckets import Grid
from decider.run import variant
from decider.run.compiled import CompiledForward, compile_forward
from decider.run.forward import no_packed_sequences
from decider.run.grid import GridExecutor
from decider.run.options import GridOptions
from decider.run.reference import ReferenceExecutor

TinyFolder = Callable[[str], Path]

GRID = Grid(lengths=(8, 16, 32), batches=(1, 2, 4), token_budget=64)
ROWS = [random_row(n, seed=n) for n in (3, 8, 16, 17, 30, 5, 5)]


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CompiledForward]]:
    """The compiled forwards of a test, in the order they were made; nothing is generated for them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    seen: list[CompiledForward] = []

    @functools.wraps(compile_forward)
    def compile_eagerly(*args: object) -> CompiledForward:
        seen.append(compile_forward(*args, backend="eager"))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(variant, "compile_forward", compile_eagerly)
    yield seen
    torch.set_num_threads(before)


def executor(folder: Path, options: GridOptions, capturer: FakeCapturer | None = None) -> GridExecutor:
    loaded, head = load_tiny(folder, quieter=4.0)
    return GridExecutor(loaded, head, GRID, capturer or FakeCapturer(), lambda _: None, options=options)


@pytest.mark.parametrize("family", ["llama", "qwen3_5", "gemma3"])
def test_a_sealed_engine_never_compiles(tiny_folder: TinyFolder, made: list[CompiledForward], family: str) -> None:
    loaded, head = load_tiny(tiny_folder(family), quieter=4.0, positions=200)
    capturer = FakeCapturer()
    options = GridOptions(compile=True)
    grid = GridExecutor(loaded, head, GRID, capturer, lambda _: None, options=options)
    grid.warmup([shape for shape in GRID.graph_shapes() if shape != (1, 8)])
    grid.seal()
    [compiled] = made
    compiled_at_warmup = compiled.compilations
    assert compiled_at_warmup >= 1
    capturer.closed = True
    rows = [*ROWS, *(random_row(n, seed=n) for n in (33, 100, 150, 2))]
    want = ReferenceExecutor(loaded, head).label_logits(rows)
    assert largest_shift(grid.label_logits(rows), want) <= 1e-4
    # A shape that was not captured runs too, with what is not compiled.
    assert largest_shift(grid.label_logits(rows[:1]), want[:1]) <= 1e-4
    assert grid.stats.replays > 0
    assert grid.stats.eager_forwards > 0
    assert compiled.compilations == compiled_at_warmup


def test_the_seal_reaches_what_is_compiled(tiny_folder: TinyFolder, made: list[CompiledForward]) -> None:
    grid = executor(tiny_folder("llama"), GridOptions(compile=True))
    grid.warmup([(2, 8)])
    grid.seal()
    one_row = torch.zeros(1, 8, dtype=torch.int64)
    # A single row is compiled for by itself, and none was met.
    with no_packed_sequences(), pytest.raises(EngineError, match="after the seal"):
        made[0](one_row, torch.zeros(1, dtype=torch.int64))


def test_two_engines_with_other_options_share_one_model(tiny_folder: TinyFolder, made: list[CompiledForward]) -> None:
    loaded, head = load_tiny(tiny_folder("qwen3_5"), quieter=4.0)
    forwards = [type(module).forward for module in loaded.module.modules()]
    attributes = [sorted(vars(module)) for module in loaded.module.modules()]
    plain, compiled = (
        GridExecutor(loaded, head, GRID, FakeCapturer(), lambda _: None, options=options)
        for options in (GridOptions(), GridOptions(compile=True))
    )
    plain.warmup()
    compiled.warmup()
    assert len(made) == 1
    want = plain.label_logits(ROWS)
    assert largest_shift(compiled.label_logits(ROWS), want) <= 1e-4
    compiled.close()
    assert [type(module).forward for module in loaded.module.modules()] == forwards
    assert [sorted(vars(module)) for module in loaded.module.modules()] == attributes
    assert all(np.array_equal(one, other) for one, other in zip(plain.label_logits(ROWS), want, strict=True))


def test_choices_are_told_with_their_reasons(tiny_folder: TinyFolder) -> None:
    grid = executor(tiny_folder("qwen3_5"), GridOptions(compile=True))
    grid.warmup([(1, 8)])
    picks = {pick.name: pick for pick in grid.describe().picks}
    assert list(picks) == ["attention", "compile", "delta rule", "attention back ends", "shared prefix"]
    assert picks["compile"].value == "layers, 3 convolutions unrolled"
    assert all(pick.reason for pick in picks.values())


def test_options_without_their_device_are_refused(tiny_folder: TinyFolder) -> None:
    loaded, head = load_tiny(tiny_folder("llama"))
    with pytest.raises(ConfigError, match="compile is for captured graphs, which cpu has none of"):
        GridExecutor(loaded, head, GRID, None, lambda _: None, options=GridOptions(compile=True))
    with pytest.raises(DeviceError, match="fp8 needs a CUDA card of the Hopper generation or later, not cpu"):
        executor(tiny_folder("llama"), GridOptions(fp8=True))
