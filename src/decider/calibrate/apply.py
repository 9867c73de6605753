"""A calibration over many decisions at once: the temperatures and distributions that `Decider.ask` answers with.

It refuses to know fits and files. Trap: levels that were judged one by one are yes/no questions, so by options they
have the temperature of two options, however many levels there are.
"""

from __future__ import annotations

from typing import Literal, cast

import numpy as np

from decider.decisions import KINDS, NOUL, BoolArray, Decisions, Float64Array, IntArray, distributions
from decider.errors import ConfigError
from decider.selective import noul_mapped
from decider.tokens.calibration import Calibration, Temperatures
from decider.tokens.config import WORDINGS_NAME
from decider.tokens.temperature import temperature_for

Kind = Literal["choice", "noul", "score"]


def option_counts(n_options: IntArray, isolated: BoolArray) -> IntArray:
    """[N]: the n of T(n)."""
    return np.where(isolated, 2, n_options)


def temperatures_at(
    temperatures: Temperatures,
    kind: IntArray,
    counts: IntArray,
    familiarity: Float64Array | None,
    *,
    schema_first: bool,
) -> Float64Array:
    """[N]: the temperature of each decision by its `kind`, `option_counts` and familiarity, as by `temperature_for`.

    Raises ConfigError where they differ by familiarity, which the decisions do not say.
    """
    base = int(counts.max(initial=0)) + 1
    codes, places = np.unique(kind * base + counts, return_inverse=True)
    each = [divmod(code, base) for code in codes.tolist()]
    strange, known = (
        np.array(
            [
                temperature_for(
                    temperatures,
                    kind=cast("Kind", KINDS[own]),
                    n_options=n,
                    familiarity=end,
                    schema_first=schema_first,
                )
                for own, n in each
            ],
            dtype=np.float64,
        )[places]
        for end in (0.0, 1.0)
    )
    if familiarity is not None:
        return familiarity * known + (1 - familiarity) * strange
    # All that is not by familiarity is the same at both ends.
    if (known != strange).any():
        raise ConfigError(
            "temperature_unfamiliar_by_type is given, and the decisions do not say how familiar their wordings are; "
            f"ask again with the model that has {WORDINGS_NAME}, or calibrate into a new file"
        )
    return known


def served_temperatures(
    decisions: Decisions, calibration: Calibration | Temperatures, *, schema_first: bool
) -> Float64Array:
    """[N]: the temperature that each of `decisions` is answered at, if its request overrides none."""
    temperatures = calibration.temperatures if isinstance(calibration, Calibration) else calibration
    counts = option_counts(decisions.n_options, decisions.isolated)
    return temperatures_at(temperatures, decisions.kind, counts, decisions.familiarity, schema_first=schema_first)


def served_distributions(decisions: Decisions, calibration: Calibration, *, schema_first: bool) -> Float64Array:
    """[N, W]: the distributions that `decisions` are answered by, 0 beyond their options; a Noul map comes last."""
    served = distributions(decisions, served_temperatures(decisions, calibration, schema_first=schema_first))
    nouls = decisions.kind == NOUL
    if calibration.noul_map is not None and nouls.any():
        yes = noul_mapped(served[nouls, 1], calibration.noul_map)
        served[nouls, 0], served[nouls, 1] = 1 - yes, yes
    return served
