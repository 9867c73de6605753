"""What one forward costs, in milliseconds: the measured replay of its shape, else launch overhead + padded tokens.

It refuses to know ladders and rows, and measures nothing itself. Trap: a price belongs to a *shape*. A forward of 17
rows in a batch of 32 costs what 32 rows cost; pricing its rows makes the waste invisible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from decider.errors import ConfigError
from decider.plan.buckets import Shape


@dataclass(frozen=True, slots=True)
class CostModel:
    """Prices of (batch, length) shapes. Raises ConfigError for a price that is not a finite number above 0.

    `launch_ms` is the fixed part of a forward, `token_ms` the part of each padded token. `measured` holds the
    milliseconds of shapes that were timed, and wins over both; it is copied, so a later change of the caller's
    mapping has no effect.
    """

    launch_ms: float
    token_ms: float
    measured: Mapping[Shape, float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        _check_price("launch_ms", self.launch_ms)
        _check_price("token_ms", self.token_ms)
        for shape, price in self.measured.items():
            _check_price(f"the measured replay of (batch, length) {shape!r:.60}", price)
        object.__setattr__(self, "measured", MappingProxyType(dict(self.measured)))

    def price(self, batch: int, length: int) -> float:
        """Milliseconds of one forward of `batch` rows padded to `length` tokens each."""
        measured = self.measured.get((batch, length))
        return self.launch_ms + batch * length * self.token_ms if measured is None else measured


def _check_price(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise ConfigError(
            f"{name} is {value!r:.60}; it must be a finite number of milliseconds above 0, so measure again"
        )
