"""The parts under the grid executor: shapes of eager forwards, staged tensors, and the masks transformers makes.

Refuses devices. Trap: under capture transformers cannot ask whether rows are packed, and takes them for packed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_graphs import load_tiny
from transformers import masking_utils

from decider.plan.batches import Batch
from decider.run.forward import make_forward, no_packed_sequences
from decider.run.staging import Job, place, stage
from decider.tokens.rows import Row

TinyFolder = Callable[[str], Path]

ROWS = [Row((7, 8, 9), (0, 2), (2, 2), 0), Row((5,), (0,), (2,), 0), Row((1, 2), (1,), (2,), 0)]


def test_rows_are_padded_on_the_right_and_unused_slots_are_0() -> None:
    jobs = [Job((0, 2), (3, 4), 3, 5, replays=True), Job((1,), (1, 2), 1, 1, replays=False)]
    first, second = stage(jobs, ROWS, pinned=False)
    assert first.ids.tolist() == [[7, 8, 9, 0], [1, 2, 0, 0], [0, 0, 0, 0]]
    assert first.slots.tolist() == [0, 2, 5, 0, 0]
    assert second.ids.tolist() == [[5, 0]]
    assert second.slots.tolist() == [0]
    assert first.ids.dtype == first.slots.dtype == torch.int64


@pytest.mark.parametrize(("device_type", "shape"), [("cpu", (2, 3)), ("cuda", (4, 8)), ("mps", (4, 8))])
def test_eager_shapes(device_type: str, shape: tuple[int, int]) -> None:
    batch = Batch(8, 4, (0, 1), captured=True)
    job = place(batch, ROWS, captured={(2, 8)}, device_type=device_type, max_positions=100)
    assert job == Job((0, 1), shape, 3, 3, replays=False)


@pytest.mark.parametrize("device_type", ["cuda", "mps"])
def test_long_rows_are_never_padded_beyond_the_positions(device_type: str) -> None:
    batch = Batch(2048, 1, (0,), captured=False)
    assert place(batch, ROWS, captured={}, device_type=device_type, max_positions=1500).shape == (1, 1500)
    # A long chunk is eager even if its shape happens to be one of a graph.
    assert not place(batch, ROWS, captured={(1, 1500)}, device_type=device_type, max_positions=1500).replays


def test_a_graph_reads_at_most_its_slots() -> None:
    wide = [Row((1,) * 80, tuple(range(n)), (2,) * n, 0) for n in (64, 65)]
    for row, replays in ((0, True), (1, False)):
        batch = Batch(80, 1, (row,), captured=True)
        job = place(batch, wide, captured={(1, 80)}, device_type="cuda", max_positions=100)
        assert job.replays is replays
        assert job.capacity == (64 if replays else 65)


@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_5"])
@torch.inference_mode()
def test_a_captured_forward_makes_no_mask(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """As under capture, where `is_tracing` is true. Without a mask, SDPA may take its fast causal kernels."""
    loaded, head = load_tiny(tiny_folder(family))
    masks: list[torch.Tensor | None] = []
    for module in loaded.module.modules():
        if type(module).__name__.endswith("Attention"):
            module.register_forward_pre_hook(
                lambda _, __, given: masks.append(given["attention_mask"]), with_kwargs=True
            )
    forward = make_forward(loaded, head)
    ids, slots = torch.zeros(2, 9, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    eager = forward(ids, slots)
    assert masks
    assert all(mask is None for mask in masks)
    monkeypatch.setattr(masking_utils, "is_tracing", lambda *_: True)
    masks.clear()
    with no_packed_sequences():
        assert torch.equal(forward(ids, slots), eager)
    assert masks
    assert all(mask is None for mask in masks)
    masks.clear()
    forward(ids, slots)
    # transformers does not need the guard any more if this fails.
    assert all(mask is not None for mask in masks)


def test_the_guard_is_of_its_thread_and_is_undone() -> None:
    utils: Any = masking_utils
    originals = utils.find_packed_sequence_indices, utils.is_tracing
    packed = torch.tensor([[0, 1, 0, 1]])
    found: list[Any] = []

    def look() -> None:
        found.append(utils.find_packed_sequence_indices(packed))

    with no_packed_sequences():
        assert utils.find_packed_sequence_indices(packed) is None
        assert utils.is_tracing is not originals[1]
        other = threading.Thread(target=look)
        other.start()
        other.join()
    assert found[0].tolist() == [[0, 0, 1, 1]]
    assert (utils.find_packed_sequence_indices, utils.is_tracing) == originals
    with pytest.raises(RuntimeError, match="a fault"), no_packed_sequences():
        raise RuntimeError("a fault")
    assert (utils.find_packed_sequence_indices, utils.is_tracing) == originals
