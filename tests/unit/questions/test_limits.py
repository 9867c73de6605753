"""Limits are positive integers. Trap: True is an integer to Python."""

from __future__ import annotations

import pytest

from decider.errors import ConfigError
from decider.questions.limits import Limits


def test_defaults() -> None:
    limits = Limits()
    assert (limits.max_body_bytes, limits.max_state_bytes, limits.max_question_bytes) == (2**23, 2**21, 2**20)
    assert (limits.max_questions, limits.max_depth) == (4096, 64)
    assert (limits.max_options, limits.min_levels, limits.max_levels) == (255, 2, 10)


@pytest.mark.parametrize(
    "name", ["max_body_bytes", "max_state_bytes", "max_question_bytes", "max_questions", "max_depth"]
)
@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None])
def test_a_limit_is_a_positive_integer(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} is .*positive integer"):
        Limits(**{name: value})  # type: ignore[arg-type]


def test_depth_stays_clear_of_the_interpreters_stack() -> None:
    with pytest.raises(ConfigError, match="max_depth is 65; it must be at most 64"):
        Limits(max_depth=65)
