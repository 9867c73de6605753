"""Prices of shapes. Trap: a measured price wins even where the formula would be lower."""

from __future__ import annotations

import math
from typing import Any

import pytest

from decider.errors import ConfigError
from decider.plan.cost import CostModel


def test_a_price_is_launch_and_padded_tokens() -> None:
    assert CostModel(launch_ms=4.0, token_ms=0.25).price(batch=2, length=8) == 8.0


def test_a_measured_shape_costs_what_was_measured() -> None:
    cost = CostModel(4.0, 0.25, {(2, 8): 9.5})
    assert cost.price(2, 8) == 9.5
    assert cost.price(8, 2) == 8.0
    assert cost.price(1, 8) == 6.0


def test_measured_prices_are_a_copy_that_cannot_be_changed() -> None:
    measured = {(2, 8): 9.5}
    cost = CostModel(4.0, 0.25, measured)
    measured[2, 8] = 1.0
    assert cost.price(2, 8) == 9.5
    with pytest.raises(TypeError):
        cost.measured[2, 8] = 1.0  # type: ignore[index]


@pytest.mark.parametrize("wrong", [0, -1.0, math.nan, math.inf, True, "4", None])
def test_a_price_that_is_no_time_is_refused(wrong: Any) -> None:
    remedy = "must be a finite number of milliseconds above 0, so measure again"
    with pytest.raises(ConfigError, match=f"^launch_ms is {wrong!r}; it {remedy}$"):
        CostModel(wrong, 0.25)
    with pytest.raises(ConfigError, match=f"^token_ms is {wrong!r}; it {remedy}$"):
        CostModel(4.0, wrong)
    with pytest.raises(
        ConfigError, match=rf"^the measured replay of \(batch, length\) \(2, 8\) is {wrong!r}; it {remedy}$"
    ):
        CostModel(4.0, 0.25, {(1, 8): 1.0, (2, 8): wrong})
