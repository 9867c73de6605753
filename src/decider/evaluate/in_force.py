"""Which calibration makes probabilities of logits, applied and in words.

It refuses to fit one. Trap: a file's items may ask for layouts of both orders, and decisions do not say which was
theirs; all of them then get the temperatures of state first, which is said.
"""

from __future__ import annotations

from dataclasses import dataclass

from decider.calibrate.apply import served_distributions
from decider.decisions import Decisions, Float64Array, distributions
from decider.evaluate.facts import RunFacts
from decider.questions.request import LAYOUT_NAMES
from decider.tokens.calibration import Calibration, PlattMap, Temperatures
from decider.tokens.layout import Layout


@dataclass(frozen=True, slots=True)
class InForce:
    """Distributions, and what they were made with."""

    probabilities: Float64Array
    """[N, W], 0 beyond a decision's options."""
    said: str
    """The calibration in a few words."""
    warnings: tuple[str, ...]


def in_force(
    decisions: Decisions, facts: RunFacts, calibration: Calibration | None, temperature: float | None
) -> InForce:
    """What answers would be: by `temperature` alone where it is given, else by `calibration`, else by the logits."""
    if temperature is not None:
        return InForce(distributions(decisions, temperature), f"temperature {temperature:g} for all, as given", ())
    if calibration is None:
        return InForce(distributions(decisions, 1.0), "none, as the logits are", ())
    known = facts.layout in LAYOUT_NAMES
    schema_first = known and Layout.parse(facts.layout).schema_first
    warnings: tuple[str, ...] = ()
    if not known and _by_order(calibration.temperatures):
        warnings = (f"the layout is {facts.layout}; every decision has the temperature of state first",)
    probabilities = served_distributions(decisions, calibration, schema_first=schema_first)
    return InForce(probabilities, described(calibration, facts.dtype, schema_first=schema_first), warnings)


def described(calibration: Calibration, dtype: str, *, schema_first: bool) -> str:
    """The temperatures and the map of P(yes) that answers in `dtype` have."""
    given = calibration.temperatures
    by_type = dict(given.by_type)
    strange = dict(given.unfamiliar_by_type)
    plain = f"{given.plain:.4g}"
    if schema_first:
        own = given.schema_first_by_type
        strange = {kind: t for kind, t in strange.items() if given.schema_first is None and kind not in own}
        by_type = (by_type if given.schema_first is None else {}) | dict(given.schema_first_by_type)
        plain = plain if given.schema_first is None else f"{given.schema_first:.4g}"
    elif given.by_options is not None:
        fit = given.by_options
        plain = f"{fit.a:.4g} {'−' if fit.b < 0 else '+'} {abs(fit.b):.4g} · ln(options), {fit.minimum:g} at least"
        by_type = {}
    types = ", ".join(
        f"{kind} {value:.4g}" + (f" to {strange[kind]:.4g} in unfamiliar words" if kind in strange else "")
        for kind, value in by_type.items()
    )
    said = f"temperature {f'{types}, others {plain}' if types and len(by_type) < 3 else types or plain}"
    if calibration.noul_map is not None:
        said += f"; P(yes) by {'Platt' if isinstance(calibration.noul_map, PlattMap) else 'isotonic'} map"
    return f"{said}; for {dtype}"


def _by_order(temperatures: Temperatures) -> bool:
    """Whether schema first has other temperatures than state first."""
    return (
        temperatures.schema_first is not None
        or bool(temperatures.schema_first_by_type)
        or temperatures.by_options is not None
    )
