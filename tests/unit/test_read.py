"""The readout: masking, temperature and float64 softmax. Refuses models. Trap: compare with exact arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.errors import ConfigError
from decider.read import log_probabilities, normalise_levels, probabilities, spread_temperature

LOGITS = np.array([1.0, 3.0, 2.0, 50.0], dtype=np.float32)
finite = st.floats(-80, 80, width=32)


def test_softmax_sees_only_the_questions_own_options() -> None:
    own = probabilities(LOGITS, 3, 1.0)
    expected = np.exp([1.0, 3.0, 2.0]) / np.exp([1.0, 3.0, 2.0]).sum()
    assert own.dtype == np.float64
    np.testing.assert_allclose(own, expected, rtol=1e-15)


@given(st.lists(finite, min_size=2, max_size=255), st.lists(finite, max_size=20))
def test_foreign_labels_never_change_a_bit(own: list[float], foreign: list[float]) -> None:
    alone = probabilities(np.array(own, dtype=np.float32), len(own), 0.7)
    beside = probabilities(np.array(own + foreign, dtype=np.float32), len(own), 0.7)
    assert alone.tolist() == beside.tolist()
    assert math.isclose(alone.sum(), 1.0, rel_tol=1e-12)


@given(st.lists(finite, min_size=2, max_size=30), st.floats(0.05, 20))
def test_temperature_divides_logits(own: list[float], temperature: float) -> None:
    logits = np.array(own, dtype=np.float64)
    np.testing.assert_allclose(
        log_probabilities(logits, len(own), temperature),
        log_probabilities(logits / temperature, len(own), 1.0),
        atol=1e-9,
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_logit_that_is_not_finite_raises(bad: float) -> None:
    with pytest.raises(FloatingPointError, match="non-finite"):
        probabilities(np.array([0.0, bad]), 2, 1.0)
    assert probabilities(np.array([0.0, 0.0, bad]), 2, 1.0).tolist() == [0.5, 0.5]


def test_isolated_levels_survive_tiny_probabilities() -> None:
    np.testing.assert_allclose(normalise_levels([math.log(0.2), math.log(0.6)]), [0.25, 0.75])
    np.testing.assert_allclose(normalise_levels([-2000.0, -2000.0 + math.log(3)]), [0.25, 0.75])


@pytest.mark.parametrize("temperature", [5e-324, 1e-320, 1e300])
def test_extreme_temperatures_reach_their_limits_without_a_warning(temperature: float) -> None:
    ours = probabilities(np.array([1.0, 3.0, 2.0]), 3, temperature)
    expected = [0, 1, 0] if temperature < 1 else [1 / 3] * 3
    np.testing.assert_allclose(ours, expected)


def test_levels_that_all_vanish_are_uniform() -> None:
    assert normalise_levels([-math.inf, -math.inf]).tolist() == [0.5, 0.5]


def test_one_temperature_spreads_over_all_slots() -> None:
    assert spread_temperature(2, [1, 3]) == ((2.0,), (2.0, 2.0, 2.0))
    assert spread_temperature([1.0, [2.0, 3.0]], [2, 2]) == ((1.0, 1.0), (2.0, 3.0))
    assert spread_temperature(1.0, []) == ()


@pytest.mark.parametrize(
    ("temperature", "said"),
    [
        ([1.0], "1 temperatures for 2 rows"),
        ([1.0, [1.0, 2.0, 3.0]], "3 temperatures for the 2 slots of row 1"),
        ([1.0, [1.0, 0.0]], "temperature of row 1 is 0.0"),
        (-1.0, "is -1.0"),
        (math.nan, "is nan"),
        (math.inf, "is inf"),
        (True, "is True"),
        ("1", "2 rows"),
    ],
)
def test_a_temperature_that_does_not_fit_is_refused(temperature: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        spread_temperature(temperature, [1, 2])  # type: ignore[arg-type]
