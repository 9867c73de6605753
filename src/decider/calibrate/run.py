"""A calibration, whole: temperatures and map from one half of the items, thresholds from the other.

It refuses to know files and models. Trap: what error rates promise holds only if nothing they judge by was fitted on
the decisions they are counted on. So the halves are of items, never of decisions, and both are named by the seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decider.calibrate.apply import served_distributions
from decider.calibrate.fit import Fit, fit
from decider.calibrate.selective_fit import selective_of, selective_warnings
from decider.decisions import BoolArray, Decisions, item_codes
from decider.tokens.calibration import Calibration

FIT_SHARE = 0.5
"""Of the items, for temperatures and the map; the others are for thresholds."""
LEAST_ITEMS = 40
"""Fewer are not parted; half of them could promise no error rate below 5 %."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A calibration and how it came about."""

    calibration: Calibration
    fit: Fit
    n_thresholds: int
    """Decisions kept for thresholds; 0 where there are none."""
    n_threshold_items: int
    warnings: tuple[str, ...]


def calibrate(
    decisions: Decisions,
    present: Calibration,
    *,
    layout: str,
    schema_first: bool,
    permutations: int = 1,
    joint_items: int = 0,
    class_conditional: bool = False,
    noul_map: bool = True,
    risk_confidence: float = 0.9,
    folds: int = 5,
    seed: int = 0,
) -> Calibrated:
    """Calibrate answers as `decisions` are: read in `layout` (`schema_first` says of which order it is).

    `noul_map` is as in `fit`. With `joint_items` there are no thresholds. `present` is what answers are calibrated by
    now. Raises MissingDependencyError without scikit-learn.
    """
    items = item_codes(decisions.key)
    n_items = int(items.max(initial=-1)) + 1
    fitted_on = _fitted_on(n_items, seed)[items]
    result = fit(
        decisions.take(fitted_on),
        present.temperatures,
        schema_first=schema_first,
        noul_map=noul_map,
        folds=folds,
        seed=seed,
    )
    warnings = list(result.warnings)
    calibration = Calibration(result.temperatures, result.noul_map)
    if present.noul_map is not None and result.noul_map is None:
        warnings.append("the map of P(yes) that was there is dropped, as it was fitted behind other temperatures")
    if present.selective is not None and present.selective.layout != layout:
        warnings.append(
            f"thresholds of the layout {present.selective.layout} are dropped; a file has those of one layout"
        )
    others = decisions.take(~fitted_on)
    if joint_items:
        warnings.append(
            f"no thresholds: {joint_items:,} items asked their questions in one row, and an error rate is promised for "
            "questions that are read alone; leave `independent` true"
        )
    elif len(others):
        selective = selective_of(
            others,
            served_distributions(others, calibration, schema_first=schema_first),
            layout=layout,
            permutations=permutations,
            class_conditional=class_conditional,
            risk_confidence=risk_confidence,
            seed=seed,
        )
        calibration = Calibration(result.temperatures, result.noul_map, selective)
        warnings += selective_warnings(selective, others)
    else:
        warnings.append(
            f"{n_items:,} items are too few to keep half for thresholds, which takes {LEAST_ITEMS}; answers have no "
            "error rates"
        )
    counted = 0 if calibration.selective is None else len(others)
    n_items_counted = len(np.unique(items[~fitted_on])) if counted else 0
    return Calibrated(calibration, result, counted, n_items_counted, tuple(warnings))


def _fitted_on(n_items: int, seed: int) -> BoolArray:
    """[items]: whether an item is for the fits. Folds are drawn by `seed` alone, so this is another stream."""
    if n_items < LEAST_ITEMS:
        return np.ones(n_items, dtype=np.bool_)
    return np.random.default_rng((seed, 1)).permutation(n_items) < round(n_items * FIT_SHARE)
