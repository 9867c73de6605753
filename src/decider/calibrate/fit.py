"""Labelled decisions to temperatures and a map of P(yes): every form fitted, compared held out, one taken.

It refuses to know files, and thresholds, which need decisions that nothing was fitted on. Trap: forms are compared by
folds of items, but what is handed out is fitted on all decisions that are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from decider.calibrate.forms import LEAST_OF_TYPE, FittedForm, Fitting, fitting
from decider.calibrate.likelihood import LARGEST_GAP, Reading, right
from decider.calibrate.noul import LEAST_NOULS, LEAST_OF_ANSWER, MapChoice, compare_maps
from decider.calibrate.scoring import Choice, Estimate, choose, ece, estimate, item_codes
from decider.calibrate.temperatures import BOUNDS, Fitted
from decider.decisions import KINDS, NOUL, BoolArray, Decisions, Float64Array, IntArray
from decider.tokens.calibration import IsotonicMap, PlattMap, Temperatures

FEW_DECISIONS = 200
"""Fewer than these are warned of."""
NAMES = {
    "uncalibrated": "T = 1",
    "present": "as in the file",
    "scalar": "one temperature",
    "by_type": "by type",
    "by_options": "by option count",
}
"""What people call the forms."""


@dataclass(frozen=True, slots=True)
class Form:
    """One way to set temperatures."""

    name: str
    """A key of `NAMES`."""
    fitted: FittedForm
    """On all decisions."""
    nll: Estimate
    """Held out, in nats."""
    ece: Estimate
    """Held out: of the likeliest option, in 15 bins of equal width."""
    excess: Estimate
    """Its held-out NLL over the least of all forms, with the error of the paired difference."""
    gain: Estimate
    """What it takes off the NLL of T = 1, likewise."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What was compared, what was taken and why."""

    n: int
    n_items: int
    folds: int
    """0 where nothing could be held out, and so nothing was fitted."""
    forms: tuple[Form, ...]
    winner: Form
    reason: str
    maps: MapChoice | None
    """None where no map was tried."""
    map_reason: str
    temperatures: Temperatures
    """The winner's; for layouts of the other order what was there before."""
    noul_map: PlattMap | IsotonicMap | None
    warnings: tuple[str, ...]


def fit(decisions: Decisions, present: Temperatures, *, schema_first: bool, folds: int = 5, seed: int = 0) -> Fit:
    """Fit every form on `decisions`, compare them over `folds` folds of items, take one; then the same for Noul maps.

    `present` are the temperatures that answers have now; `schema_first` says of which layouts the decisions are. Of all
    forms within one standard error of the best, the one of the fewest fitted numbers is taken (`scoring.choose`).
    Decisions whose right option has probability 0 at every temperature are left out, with a warning. Raises
    MissingDependencyError without scikit-learn.
    """
    assert folds >= 2, folds
    possible = _possible(decisions)
    warnings = []
    if not possible.all():
        warnings.append(
            f"{np.count_nonzero(~possible):,} decisions are left out: their right option has probability 0 at every "
            "temperature"
        )
        decisions = decisions.take(possible)
    items = item_codes(decisions)
    n_items = int(items.max(initial=-1)) + 1
    used = min(folds, n_items) if n_items > 1 else 0
    data = fitting(decisions, _folds(items, n_items, max(used, 1), seed), schema_first=schema_first)
    whole = _fixed(data, present) | (data.fit() if used else {})
    parts = [_fixed(data, present) | data.fit_without(held, whole) for held in range(used)]
    forms, choice = _compare(data, whole, parts, right(decisions), items)
    winner = forms[choice.index if used else len(forms) - 1]
    maps, map_reason = _maps(decisions, data, winner.name, whole, parts, items)
    warnings += _warnings(data, whole, winner, n_items, used, folds)
    return Fit(
        n=len(decisions),
        n_items=n_items,
        folds=used,
        forms=forms,
        winner=winner,
        reason=_reason(forms, choice) if used else "there is one item alone, so nothing can be held out",
        maps=maps,
        map_reason=map_reason,
        temperatures=_merged(present, winner.fitted.temperatures, schema_first=schema_first),
        noul_map=None if maps is None else maps.winner.noul_map,
        warnings=tuple(warnings),
    )


def _possible(decisions: Decisions) -> BoolArray:
    """[N]: whether the right option can have any probability."""
    gold = np.take_along_axis(decisions.logits, decisions.gold[:, None], axis=1)[:, 0]
    return ~np.isneginf(gold)


def _folds(items: IntArray, n_items: int, folds: int, seed: int) -> IntArray:
    """[N]: which fold each decision is held out with; folds differ by one item at most."""
    fold_of = np.empty(n_items, dtype=np.int64)
    fold_of[np.random.default_rng(seed).permutation(n_items)] = np.arange(n_items) % folds
    return fold_of[items]


def _fixed(data: Fitting, present: Temperatures) -> dict[str, FittedForm]:
    """The forms that nothing is fitted for; the present one where it is another than T = 1."""
    one = {"uncalibrated": FittedForm(data.fixed(1.0), {})}
    return one | ({} if (data.at(present) == 1).all() else {"present": FittedForm(present, {})})


def _held_out(data: Fitting, whole: FittedForm, parts: Sequence[FittedForm]) -> Float64Array:
    """[N]: each decision's temperature as fitted without its fold."""
    temperatures = data.at(whole.temperatures)
    if whole.parts:
        for held, part in enumerate(parts):
            temperatures = np.where(data.fold == held, data.at(part.temperatures), temperatures)
    return temperatures


def _compare(
    data: Fitting,
    whole: Mapping[str, FittedForm],
    parts: Sequence[Mapping[str, FittedForm]],
    hit: BoolArray,
    items: IntArray,
) -> tuple[tuple[Form, ...], Choice]:
    readings: list[Reading] = []
    for name, form in whole.items():
        readings.append(data.likelihood.read(1 / _held_out(data, form, [part[name] for part in parts])))
    choice = choose([reading.nll for reading in readings], [form.parameters for form in whole.values()], items)
    plain = readings[list(whole).index("uncalibrated")]
    forms = tuple(
        Form(
            name=name,
            fitted=form,
            nll=estimate(reading.nll, items),
            ece=ece(reading.confidence, hit, items),
            excess=excess,
            gain=estimate(plain.nll - reading.nll, items),
        )
        for (name, form), reading, excess in zip(whole.items(), readings, choice.excess, strict=True)
    )
    return forms, choice


def _maps(
    decisions: Decisions,
    data: Fitting,
    name: str,
    whole: Mapping[str, FittedForm],
    parts: Sequence[Mapping[str, FittedForm]],
    items: IntArray,
) -> tuple[MapChoice | None, str]:
    """The maps compared at the temperatures of the form called `name`, and what came of it in words."""
    nouls = np.flatnonzero(data.kind == NOUL)
    yes = decisions.gold[nouls] == 1
    rarer = int(min(yes.sum(), (~yes).sum()))
    if not parts or len(nouls) < LEAST_NOULS or rarer < LEAST_OF_ANSWER:
        needed = f"a map of P(yes) needs {LEAST_NOULS}, {LEAST_OF_ANSWER} of the rarer answer"
        return None, f"not tried: {len(nouls):,} Nouls, {rarer:,} of the rarer answer; {needed}"
    logits = decisions.logits[nouls]
    log_odds = np.clip(logits[:, 1] - logits[:, 0], -LARGEST_GAP, LARGEST_GAP)
    choice = compare_maps(
        [log_odds / data.at(part[name].temperatures)[nouls] for part in parts],
        log_odds / data.at(whole[name].temperatures)[nouls],
        yes,
        data.fold[nouls],
        items[nouls],
    )
    if choice.winner.noul_map is None:
        best = max(choice.forms[1:], key=lambda form: form.gain.value)
        return choice, f"none: {best.name} gains {pm(best.gain)} held out, no more than one standard error"
    return choice, f"{choice.winner.name}: gains {pm(choice.winner.gain)} over the temperature alone, held out"


def _reason(forms: Sequence[Form], choice: Choice) -> str:
    """Why the winner won, and by how much."""
    winner, best = forms[choice.index], forms[choice.best]
    why = "the least NLL"
    if winner is not best:
        why = f"{NAMES[best.name]} is best, by {pm(winner.excess)} nats: within one standard error, and this is simpler"
    return why if winner.name == "uncalibrated" else f"{why}; {pm(winner.gain)} nats better than T = 1"


def _merged(present: Temperatures, fitted: Temperatures, *, schema_first: bool) -> Temperatures:
    if schema_first:
        return replace(present, schema_first=fitted.schema_first, schema_first_by_type=fitted.schema_first_by_type)
    return replace(present, plain=fitted.plain, by_type=fitted.by_type, by_options=fitted.by_options)


def _warnings(
    data: Fitting, whole: Mapping[str, FittedForm], winner: Form, n_items: int, used: int, folds: int
) -> list[str]:
    warnings = []
    n = len(data.kind)
    scalar = whole.get("scalar")
    if n < FEW_DECISIONS:
        warnings.append(f"{n:,} decisions are few for a temperature; {FEW_DECISIONS} or more settle one")
    if 0 < used < folds:
        warnings.append(f"{n_items:,} items make {used} folds, not {folds}")
    sizes = np.bincount(data.kind, minlength=len(KINDS))
    for kind, size in zip(KINDS, sizes.tolist(), strict=True):
        if 0 < size < LEAST_OF_TYPE and size < n:
            warnings.append(
                f"{size:,} decisions of type {kind} are too few for a temperature of their own, which takes "
                f"{LEAST_OF_TYPE}; they keep that of all"
            )
    unseen = [kind for kind, size in zip(KINDS, sizes.tolist(), strict=True) if not size]
    if unseen and winner.fitted.parts:
        warnings.append(f"there are no decisions of type {' or '.join(unseen)}; they get a temperature of other types")
    for name, form in whole.items():
        for what, part in form.parts.items():
            if part.bound and not (form is not scalar and what == "all"):
                warnings.append(
                    f"{NAMES[name]}: a temperature ({what}) ended on a bound, {BOUNDS[0]} or {BOUNDS[1]}; the answers "
                    "are nearly all right, all wrong, or too few, and it is no estimate"
                )
            elif isinstance(part, Fitted) and np.isinf(part.error):
                warnings.append(f"{NAMES[name]}: the data say nothing of a temperature ({what}); it is 1")
    return warnings


def pm(figure: Estimate) -> str:
    """A difference of NLLs and its error; small ones decide."""
    return f"{figure.value:.5f} ± {figure.error:.5f}"
