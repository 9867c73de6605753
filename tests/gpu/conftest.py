"""What every test on a card needs. Refuses to choose tests. Trap: TF32 hides a fault behind a wide tolerance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def full_float32() -> Iterator[None]:
    """No TF32 in torch's own products."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)
