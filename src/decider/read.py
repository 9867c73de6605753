"""Label logits to probabilities: the last of the engine's three verbs, plan → run → read.

Everything here is float64 NumPy on the host. It refuses to know where logits come from: no model, no tokens, no device.

Trap: a slot's logits span the whole label table. Columns beyond the slot's own options belong to other questions and
are masked *before* the softmax; leaving them in would move every probability a little and raise nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decider.errors import ConfigError
from decider.settings import check_temperature

Temperature = float | Sequence[float | Sequence[float]]

Float64Array = NDArray[np.float64]


def spread_temperature(temperature: Temperature, slots_per_row: Sequence[int]) -> tuple[tuple[float, ...], ...]:
    """Give each slot of each row its own temperature.

    `temperature` is one number for all, or one entry a row, where an entry is a number for the row's slots or one
    number a slot. Raises ConfigError on any length that does not fit, so that a mismatch is found before a forward is
    paid for.
    """
    if not isinstance(temperature, Sequence):
        every = check_temperature(temperature)
        return tuple((every,) * n_slots for n_slots in slots_per_row)
    if len(temperature) != len(slots_per_row):
        raise ConfigError(
            f"{len(temperature)} temperatures for {len(slots_per_row)} rows; give one number, or one entry a row"
        )
    spread = []
    for row, (entry, n_slots) in enumerate(zip(temperature, slots_per_row, strict=True)):
        if not isinstance(entry, Sequence):
            spread.append((check_temperature(entry, what=f"temperature of row {row}"),) * n_slots)
            continue
        if len(entry) != n_slots:
            raise ConfigError(
                f"{len(entry)} temperatures for the {n_slots} slots of row {row}; give one number a row, or one a slot"
            )
        spread.append(tuple(check_temperature(value, what=f"temperature of row {row}") for value in entry))
    return tuple(spread)


def log_probabilities(logits: NDArray[np.floating], n_options: int, temperature: float) -> Float64Array:
    """Log-softmax over the first `n_options` of `logits` [labels] at `temperature`; returns float64 [n_options].

    Raises FloatingPointError if an own option's logit is not finite: a wrong probability must never leave the engine.
    """
    assert 1 <= n_options <= logits.shape[-1], (n_options, logits.shape)
    own = logits[:n_options].astype(np.float64)
    if not np.isfinite(own).all():
        raise FloatingPointError(f"the model returned a non-finite logit among {n_options} options")
    # At a tiny temperature the losers' logits overflow to −inf, which is their limit.
    with np.errstate(over="ignore"):
        scaled = (own - own.max()) / temperature
    return np.asarray(scaled - np.log(np.exp(scaled).sum()))


def probabilities(logits: NDArray[np.floating], n_options: int, temperature: float) -> Float64Array:
    """Softmax over the first `n_options` of `logits` [labels]; foreign labels count as −inf. float64 [n_options]."""
    return np.exp(log_probabilities(logits, n_options, temperature))


def normalise_levels(log_p_yes: Sequence[float]) -> Float64Array:
    """P(level i) = P(yes)_i / Σ P(yes) of isolated levels, in log space so that tiny values do not vanish.

    Uniform where every P(yes) is 0.
    """
    logs = np.asarray(log_p_yes, dtype=np.float64)
    if np.isneginf(logs).all():
        return np.full(len(logs), 1 / len(logs))
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())
