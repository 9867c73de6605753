"""A calibration over many decisions at once: the temperatures and distributions that `Decider.ask` answers with.

It refuses to know fits and files. Trap: levels that were judged one by one are yes/no questions, so by options they
have the temperature of two options, however many levels there are.
"""

from __future__ import annotations

from typing import Literal, cast

import numpy as np

from decider.decisions import KINDS, NOUL, BoolArray, Decisions, Float64Array, IntArray, distributions
from decider.selective import noul_mapped
from decider.tokens.calibration import Calibration, Temperatures
from decider.tokens.temperature import temperature_for

Kind = Literal["choice", "noul", "score"]


def option_counts(n_options: IntArray, isolated: BoolArray) -> IntArray:
    """[N]: the n of T(n)."""
    return np.where(isolated, 2, n_options)


def temperatures_at(
    temperatures: Temperatures, kind: IntArray, counts: IntArray, *, schema_first: bool
) -> Float64Array:
    """[N]: the temperature of each decision by its `kind` and `option_counts`, as `temperature_for` has it."""
    base = int(counts.max(initial=0)) + 1
    codes, places = np.unique(kind * base + counts, return_inverse=True)
    each = [divmod(code, base) for code in codes.tolist()]
    table = [
        temperature_for(temperatures, kind=cast("Kind", KINDS[own]), n_options=n, schema_first=schema_first)
        for own, n in each
    ]
    return np.asarray(table, dtype=np.float64)[places]


def served_temperatures(
    decisions: Decisions, calibration: Calibration | Temperatures, *, schema_first: bool
) -> Float64Array:
    """[N]: the temperature that each of `decisions` is answered at, if its request overrides none."""
    temperatures = calibration.temperatures if isinstance(calibration, Calibration) else calibration
    counts = option_counts(decisions.n_options, decisions.isolated)
    return temperatures_at(temperatures, decisions.kind, counts, schema_first=schema_first)


def served_distributions(decisions: Decisions, calibration: Calibration, *, schema_first: bool) -> Float64Array:
    """[N, W]: the distributions that `decisions` are answered by, 0 beyond their options; a Noul map comes last."""
    served = distributions(decisions, served_temperatures(decisions, calibration, schema_first=schema_first))
    nouls = decisions.kind == NOUL
    if calibration.noul_map is not None and nouls.any():
        yes = noul_mapped(served[nouls, 1], calibration.noul_map)
        served[nouls, 0], served[nouls, 1] = 1 - yes, yes
    return served
