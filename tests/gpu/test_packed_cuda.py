"""Packs on a card, eager: rows, branches and packs of many requests against the reference.

Refuses to judge speed. Trap: tables are made on the host and copied; an operation that reads one back waits for the
card at every layer, and gives right answers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_graphs import load_tiny, random_row
from prefix_rows import make_rows

from decider.plan.packs import PackLimits
from decider.run.packed import packed_executor
from decider.run.reference import ReferenceExecutor

pytestmark = pytest.mark.gpu

TinyFolder = Callable[[str], Path]

LIMITS = PackLimits(max_tokens=512, max_sequences=16, max_slots=64)
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.25}
# flash-linear-attention, which the reference takes, multiplies float32 in TF32.
HYBRID_TOLERANCE = {"float32": 5e-3, "bfloat16": 0.25}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_5"])
def test_packs_answer_as_the_reference(tiny_folder: TinyFolder, family: str, dtype: str) -> None:
    loaded, head = load_tiny(tiny_folder(family), dtype, device="cuda:0", quieter=4.0)
    packed = packed_executor(loaded, head, LIMITS)
    rows = [
        random_row(9, slots=3),
        *make_rows(40, (3, 9, 1, 70), seed=1),
        random_row(700),
        *make_rows(2, (1, 1), seed=2),
        *(random_row(n, seed=n) for n in (1, 2, 100, 60)),
    ]
    ours, want = packed.label_logits(rows), ReferenceExecutor(loaded, head).label_logits(rows)
    tolerance = (HYBRID_TOLERANCE if family == "qwen3_5" else TOLERANCE)[dtype]
    assert max(float(np.abs(a - b).max()) for a, b in zip(ours, want, strict=True)) <= tolerance
    assert packed.stats.shared_calls >= 2
    [pick] = packed.describe().picks
    assert pick.value == "torch's own"
