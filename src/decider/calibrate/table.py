"""A calibration as text for people and as JSON for programs: forms side by side, what was taken, and why.

It refuses to fit. Trap: the errors here are over items, and those of a difference are paired; they are no difference of
the errors beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from decider.calibrate.fit import NAMES, Form, pm
from decider.calibrate.forms import FittedForm
from decider.calibrate.noul import MapForm
from decider.calibrate.run import Calibrated
from decider.calibrate.scoring import Estimate
from decider.calibrate.temperatures import Fitted, FittedPair
from decider.questions.jsontext import JsonValue
from decider.tokens.calibration import IsotonicMap, PlattMap, Thresholds, temperatures_json, to_json

SHOWN_RATES = (0.01, 0.05, 0.1, 0.2)


def as_text(calibrated: Calibrated) -> str:
    """The forms, a line each, the winner marked; then the maps, the thresholds and the warnings."""
    fit = calibrated.fit
    lines = [f"temperatures: {fit.n:,} decisions of {fit.n_items:,} items, {_folds(fit.folds)}"]
    header = ["", "form", "fitted", "held-out NLL", "held-out ECE", "NLL over the best"]
    lines += _aligned([header, *(_form(form, taken=form is fit.winner) for form in fit.forms)])
    lines += [f"taken: {NAMES[fit.winner.name]}: {fit.reason}", f"  {_temperatures(fit.winner.fitted)}"]
    lines.append(f"map of P(yes): {fit.map_reason}")
    if fit.maps is not None:
        header = ["", "map", "held-out NLL", "gain"]
        lines += _aligned([header, *(_map(form, taken=form is fit.maps.winner) for form in fit.maps.forms)])
    if isinstance(fit.noul_map, PlattMap):
        lines.append(f"  P(yes) = σ({fit.noul_map.a:.4g} · logit(p) {fit.noul_map.b:+.4g})")
    elif isinstance(fit.noul_map, IsotonicMap):
        lines.append(f"  {len(fit.noul_map.x)} points")
    selective = calibrated.calibration.selective
    if selective is not None:
        n, items = calibrated.n_thresholds, calibrated.n_threshold_items
        lines.append(f"thresholds: {n:,} other decisions of {items:,} items; answers abstain so that errors keep below")
        lines[-1] += f" the rate with confidence {selective.risk_confidence:g}"
        header = ["", "type", "decisions", "error rate", "in the set from p =", "answered from p ="]
        rows = [row for kind, thresholds in selective.by_kind.items() for row in _thresholds(kind, thresholds)]
        lines += _aligned([header, *rows])
    return "\n".join(lines + [f"warning: {warning}" for warning in calibrated.warnings])


def as_json(calibrated: Calibrated, facts: Mapping[str, JsonValue], dtype: str) -> dict[str, object]:
    """One object: what produced the decisions, the comparison, and the entry of `dtype` as it was written."""
    fit = calibrated.fit
    return {
        "facts": dict(facts),
        "dtype": dtype,
        "fit": {
            "n": fit.n,
            "items": fit.n_items,
            "folds": fit.folds,
            "forms": [_form_json(form) for form in fit.forms],
            "winner": fit.winner.name,
            "reason": fit.reason,
            "maps": [] if fit.maps is None else [_map_json(form) for form in fit.maps.forms],
            "map_winner": None if fit.maps is None else fit.maps.winner.name,
            "map_reason": fit.map_reason,
        },
        "thresholds": {"n": calibrated.n_thresholds, "items": calibrated.n_threshold_items},
        "calibration": to_json(calibrated.calibration),
        "warnings": list(calibrated.warnings),
    }


def _form(form: Form, *, taken: bool) -> list[str]:
    excess = "-" if form.excess == Estimate(0.0, 0.0) else pm(form.excess)
    figures = [f"{form.fitted.parameters}", _pm(form.nll), _pm(form.ece), excess]
    return [" *" if taken else "", NAMES[form.name], *figures]


def _map(form: MapForm, *, taken: bool) -> list[str]:
    return [" *" if taken else "", form.name, _pm(form.nll), "-" if form.noul_map is None else pm(form.gain)]


def _thresholds(kind: str, thresholds: Thresholds) -> list[list[str]]:
    rows = []
    for rate, limit, least in zip(thresholds.error_rates, thresholds.set_thresholds, thresholds.accept, strict=True):
        if rate in SHOWN_RATES:
            answered = "never" if least is None else f"{least:.4f}"
            of_class = "by class" if thresholds.by_class else f"{max(0.0, 1 - limit):.4f}"
            rows.append(["", kind, f"{thresholds.n:,}", f"{rate:g}", of_class, answered])
    return rows


def _temperatures(form: FittedForm) -> str:
    given = form.temperatures
    if given.by_options is not None:
        fit = given.by_options
        return f"T(n) = max({fit.minimum:.4g}, {fit.a:.4g} {fit.b:+.4g} · ln n)"
    fitted = [f"T({what}) = {_part(part)}" for what, part in form.parts.items() if isinstance(part, Fitted)]
    fitted += [
        f"T({what}) = {part.familiar:.4g} in familiar words to {part.unfamiliar:.4g} in others"
        for what, part in form.parts.items()
        if isinstance(part, FittedPair)
    ]
    return ", ".join(fitted) if fitted else "nothing is fitted"


def _part(part: Fitted) -> str:
    # The error of ln T is the relative one of T.
    error = "unknown" if not math.isfinite(part.error) else f"{part.temperature * part.error:.2g}"
    return f"{part.temperature:.4g} ± {error}"


def _folds(folds: int) -> str:
    return f"compared over {folds} folds of items" if folds else "not compared"


def _form_json(form: Form) -> dict[str, object]:
    return {
        "name": form.name,
        "parameters": form.fitted.parameters,
        **_figures(nll=form.nll, ece=form.ece, excess=form.excess, gain=form.gain),
        "temperatures": temperatures_json(form.fitted.temperatures),
        "relative_errors": {
            what: part.error if math.isfinite(part.error) else None
            for what, part in form.fitted.parts.items()
            if isinstance(part, Fitted)
        },
        "on_a_bound": {what: part.bound for what, part in form.fitted.parts.items() if part.bound is not None},
    }


def _map_json(form: MapForm) -> dict[str, object]:
    own = None if form.noul_map is None else asdict(form.noul_map)
    return {"name": form.name, **_figures(nll=form.nll, gain=form.gain), "map": own}


def _figures(**estimates: Estimate) -> dict[str, float | None]:
    """Each mean, and its error under `…_error`; null where that is infinite."""
    figures: dict[str, float | None] = {}
    for name, figure in estimates.items():
        figures[name] = figure.value
        figures[f"{name}_error"] = figure.error if math.isfinite(figure.error) else None
    return figures


def _pm(figure: Estimate) -> str:
    return f"{figure.value:.4f} ± {figure.error:.4f}"


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
