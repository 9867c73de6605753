"""Which of the given temperatures an answer gets.

It refuses to know explicit overrides: a caller who gives a temperature does not ask here. Trap: schema-first
layouts inherit the temperatures by type, but never those by options.
"""

from __future__ import annotations

from typing import Literal

from decider.tokens.calibration import Temperatures


def temperature_for(
    given: Temperatures,
    *,
    kind: Literal["choice", "noul", "score"],
    n_options: int,
    familiarity: float,
    schema_first: bool,
) -> float:
    """The temperature (above 0) for one answer slot; `familiarity` in [0, 1] is that of its question.

    State first: by options, else by type, else `temperature`. Schema first: its own map by type, else
    `temperature_schema_first`, else the state-first value of the type. A raw checkpoint answers at 1.0.
    """
    by_type = given.by_type.get(kind, given.plain)
    if kind in given.unfamiliar_by_type:
        by_type = familiarity * by_type + (1 - familiarity) * given.unfamiliar_by_type[kind]
    if schema_first:
        fallback = by_type if given.schema_first is None else given.schema_first
        return given.schema_first_by_type.get(kind, fallback)
    return by_type if given.by_options is None else given.by_options.at(n_options)
