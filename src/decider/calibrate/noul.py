"""Maps of P(yes) for Noul: Platt's, a line through the log-odds, and isotonic regression; and whether one is worth it.

It refuses to know how the log-odds got their temperature. Trap: isotonic regression gives 0 to a block of nos and 1 to
one of yeses, and one exception later costs an infinite NLL; such a block counts two more answers, one of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from decider.calibrate.newton import minimise
from decider.calibrate.scoring import Estimate, choose, estimate
from decider.decisions import BoolArray, Float64Array, IntArray
from decider.errors import MissingDependencyError
from decider.selective import noul_mapped
from decider.tokens.calibration import IsotonicMap, PlattMap

if TYPE_CHECKING:
    from sklearn.isotonic import IsotonicRegression

LEAST, MOST = np.array([0.05, -20.0]), np.array([20.0, 20.0])
"""Bounds of a Platt map's a and b. Without them yeses and nos that a threshold parts would have an infinite a."""
MOST_POINTS = 100
"""Of an isotonic map; of more, so many are kept, evenly by rank."""
LEAST_NOULS, LEAST_OF_ANSWER = 200, 20
"""Nouls in all, and of the rarer answer, for a map to be tried."""


@dataclass(frozen=True, slots=True)
class MapForm:
    """One way to map P(yes) after its temperature."""

    name: str
    """`none`, `platt` or `isotonic`."""
    noul_map: PlattMap | IsotonicMap | None
    """Fitted on all Nouls."""
    nll: Estimate
    """Held out, in nats."""
    gain: Estimate
    """What it takes off the held-out NLL of the temperature alone."""


@dataclass(frozen=True, slots=True)
class MapChoice:
    """The maps that were compared, `none` first, and the one that is taken."""

    forms: tuple[MapForm, ...]
    winner: MapForm
    best: MapForm
    """The one of the least held-out NLL."""


def compare_maps(
    parts: Sequence[Float64Array], whole: Float64Array, yes: BoolArray, fold: IntArray, items: IntArray
) -> MapChoice:
    """Fit both maps on `whole`, and compare them over folds with the temperature alone.

    `whole` [n] are the Nouls' log-odds of yes at the temperatures taken, `parts` the same at the temperatures fitted
    without each fold; `yes` [n], `fold` [n] and `items` [n] belong to them. `scoring.choose` picks, and a map must
    also beat the temperature alone by more than one standard error. Raises MissingDependencyError without scikit-learn.
    """
    nll = {name: np.zeros(len(yes)) for name in ("none", "platt", "isotonic")}
    for held, log_odds in enumerate(parts):
        fitted, out = fold != held, fold == held
        if not out.any() or not fitted.any():
            # Every Noul in one fold: without any to fit on, a map is none.
            for values in nll.values():
                values[out] = platt_nll(log_odds[out], yes[out])
            continue
        platt = fit_platt(log_odds[fitted], yes[fitted])
        isotonic = fit_isotonic(_sigmoid(log_odds[fitted]), yes[fitted])
        nll["none"][out] = platt_nll(log_odds[out], yes[out])
        nll["platt"][out] = platt_nll(platt.a * log_odds[out] + platt.b, yes[out])
        nll["isotonic"][out] = isotonic_nll(_sigmoid(log_odds[out]), yes[out], isotonic)
    maps = {"none": None, "platt": fit_platt(whole, yes), "isotonic": fit_isotonic(_sigmoid(whole), yes)}
    forms = tuple(
        MapForm(name, maps[name], estimate(values, items), estimate(nll["none"] - values, items))
        for name, values in nll.items()
    )
    # An isotonic map has as many numbers as it has blocks; here it only counts that they are more than two.
    choice = choose(list(nll.values()), (0, 2, 3), items)
    winner = forms[choice.index]
    if winner.gain.value <= winner.gain.error:
        winner = forms[0]
    return MapChoice(forms, winner, forms[choice.best])


def fit_platt(log_odds: Float64Array, yes: BoolArray) -> PlattMap:
    """The line a · x + b through `log_odds` [n] whose σ has the least mean NLL of `yes` [n]; a and b within bounds.

    Unpenalised logistic regression on one feature (Platt, 1999).
    """
    assert len(yes)
    design = np.stack([log_odds, np.ones(len(yes))])

    def evaluate(x: Float64Array) -> tuple[float, Float64Array, Float64Array]:
        line = x @ design
        p = _sigmoid(line)
        hessian = (design * (p * (1 - p))) @ design.T
        return float(platt_nll(line, yes).mean()), design @ (p - yes) / len(yes), hessian / len(yes)

    a, b = minimise(evaluate, np.array([1.0, 0.0]), LEAST, MOST)
    return PlattMap(float(a), float(b))


def platt_nll(log_odds: Float64Array, yes: BoolArray) -> Float64Array:
    """[n]: the NLL of `yes` where yes has `log_odds`."""
    return np.asarray(np.logaddexp(0.0, np.where(yes, -log_odds, log_odds)))


def fit_isotonic(p_yes: Float64Array, yes: BoolArray) -> IsotonicMap:
    """Isotonic regression of `yes` [n] on `p_yes` [n] (Zadrozny & Elkan, 2002), never 0 or 1.

    A block of m nos at the lower end has 1 / (m + 2), one of m yeses at the upper end (m + 1) / (m + 2) (Laplace),
    unless that would pass its neighbour. Raises MissingDependencyError without scikit-learn.
    """
    assert len(yes)
    regression = isotonic_regression().fit(p_yes, yes.astype(np.float64))
    x = np.asarray(regression.X_thresholds_, dtype=np.float64)
    y = np.asarray(regression.y_thresholds_, dtype=np.float64)
    values = np.asarray(regression.predict(p_yes))
    nos, yeses = int((values <= 0).sum()), int((values >= 1).sum())
    between = y[(y > 0) & (y < 1)]
    least, most = 1 / (nos + 2), (yeses + 1) / (yeses + 2)
    y = np.select(
        [y <= 0, y >= 1], [min(least, between.min(initial=least)), max(most, between.max(initial=most))], default=y
    )
    if len(x) > MOST_POINTS:
        kept = np.linspace(0, len(x) - 1, MOST_POINTS).round().astype(np.int64)
        x, y = x[kept], y[kept]
    return IsotonicMap(tuple(x.tolist()), tuple(y.tolist()))


def isotonic_regression() -> IsotonicRegression:
    """One that is not fitted yet. Raises MissingDependencyError without scikit-learn."""
    try:
        from sklearn.isotonic import IsotonicRegression
    except ImportError as error:
        raise MissingDependencyError(
            "scikit-learn is missing, which fits isotonic maps; from a checkout: pip install '.[eval]'"
        ) from error
    return IsotonicRegression()


def isotonic_nll(p_yes: Float64Array, yes: BoolArray, isotonic: IsotonicMap) -> Float64Array:
    """[n]: the NLL of `yes` where P(yes) is `p_yes` under `isotonic`."""
    mapped = noul_mapped(p_yes, isotonic)
    return np.asarray(-np.log(np.where(yes, mapped, 1 - mapped)))


def _sigmoid(log_odds: Float64Array) -> Float64Array:
    return np.asarray(np.exp(-np.logaddexp(0.0, -log_odds)))
