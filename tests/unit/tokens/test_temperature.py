"""Which temperature an answer gets."""

from __future__ import annotations

import math
from typing import Literal

import pytest

from decider.tokens.calibration import OptionTemperature, Temperatures
from decider.tokens.temperature import temperature_for

Kind = Literal["choice", "noul", "score"]


def of(
    temperatures: Temperatures,
    kind: Kind,
    n_options: int = 3,
    *,
    familiarity: float = 0.5,
    schema_first: bool = False,
) -> float:
    return temperature_for(
        temperatures, kind=kind, n_options=n_options, familiarity=familiarity, schema_first=schema_first
    )


def test_between_familiar_and_unfamiliar_words() -> None:
    temperatures = Temperatures(9.0, {"choice": 1.5, "noul": 2.0}, unfamiliar_by_type={"choice": 3.5})
    assert [of(temperatures, "choice", familiarity=share) for share in (0.0, 0.25, 1.0)] == [3.5, 3.0, 1.5]
    assert of(temperatures, "noul", familiarity=0.0) == 2.0
    assert of(temperatures, "score", familiarity=0.0) == 9.0
    # As those by type, they hold for the other order where that has none of its own.
    assert of(temperatures, "choice", familiarity=0.0, schema_first=True) == 3.5


@pytest.mark.parametrize("schema_first", [False, True])
def test_a_raw_checkpoint_answers_at_one(schema_first: bool) -> None:
    assert of(Temperatures(), "noul", schema_first=schema_first) == 1.0


@pytest.mark.parametrize("schema_first", [False, True])
def test_by_type_before_the_plain_one(schema_first: bool) -> None:
    temperatures = Temperatures(2.0, {"choice": 3.0})
    assert of(temperatures, "choice", schema_first=schema_first) == 3.0
    assert of(temperatures, "score", schema_first=schema_first) == 2.0


def test_by_options_before_the_plain_one() -> None:
    temperatures = Temperatures(9.0, by_options=OptionTemperature(0.5, 0.25))
    assert of(temperatures, "choice", 12) == 0.5 + 0.25 * math.log(12)
    assert of(temperatures, "choice", 1) == of(temperatures, "noul", 2) == 0.5 + 0.25 * math.log(2)


def test_by_options_has_a_floor() -> None:
    assert of(Temperatures(by_options=OptionTemperature(1.0, -1.0)), "choice", 255) == 0.05
    assert of(Temperatures(by_options=OptionTemperature(1.0, -1.0, 0.75)), "choice", 255) == 0.75


def test_by_options_is_not_inherited_by_schema_first() -> None:
    temperatures = Temperatures(2.0, by_options=OptionTemperature(0.5, 0.25))
    assert of(temperatures, "choice", schema_first=True) == 2.0


def test_schema_first_precedence() -> None:
    temperatures = Temperatures(2.0, {"choice": 3.0}, None, 4.0, {"noul": 5.0})
    assert of(temperatures, "noul", schema_first=True) == 5.0
    assert of(temperatures, "choice", schema_first=True) == 4.0
    assert of(temperatures, "noul") == 2.0
