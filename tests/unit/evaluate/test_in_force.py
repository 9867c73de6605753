"""The calibration in force, in words.

Refuses what it makes of logits, which `calibrate/test_apply.py` compares with answers. Trap: a temperature that is said
and not used reads like one that is.
"""

from __future__ import annotations

from types import MappingProxyType

import pytest

from decider.evaluate.in_force import described
from decider.tokens.calibration import Calibration, Temperatures

BY_TYPE = MappingProxyType({"choice": 1.5, "noul": 2.0, "score": 3.0})
UNFAMILIAR = MappingProxyType({"noul": 4.0})
PAIR = "temperature choice 1.5, noul 2 to 4 in unfamiliar words, score 3; for fp32"


@pytest.mark.parametrize(
    ("given", "schema_first", "said"),
    [
        (Temperatures(by_type=BY_TYPE, unfamiliar_by_type=UNFAMILIAR), False, PAIR),
        # Without temperatures of its own the other order has these.
        (Temperatures(by_type=BY_TYPE, unfamiliar_by_type=UNFAMILIAR), True, PAIR),
        (
            Temperatures(1.0, BY_TYPE, None, 5.0, unfamiliar_by_type=UNFAMILIAR),
            True,
            "temperature 5; for fp32",
        ),
        (
            Temperatures(1.0, BY_TYPE, None, 5.0, MappingProxyType({"noul": 6.0}), UNFAMILIAR),
            True,
            "temperature noul 6, others 5; for fp32",
        ),
        (
            Temperatures(1.0, BY_TYPE, None, None, MappingProxyType({"noul": 6.0}), UNFAMILIAR),
            True,
            "temperature choice 1.5, noul 6, score 3; for fp32",
        ),
    ],
)
def test_the_words_name_the_temperatures_that_are_used(given: Temperatures, said: str, *, schema_first: bool) -> None:
    assert described(Calibration(given), "fp32", schema_first=schema_first) == said
