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
from decider.calibrate.scoring import Choice, Estimate, choose, ece, estimate
from decider.calibrate.temperatures import BOUNDS, Fitted
from decider.decisions import KINDS, NOUL, BoolArray, Decisions, Float64Array, IntArray, item_codes
from decider.errors import ConfigError
from decider.tokens.calibration import IsotonicMap, PlattMap, Temperatures

LEAST_DECISIONS = 30
"""With fewer no temperature is fitted: its error would be about as large as what it has to correct."""
FEW_DECISIONS = 200
"""Fewer than these are warned of."""
NAMES = {
    "uncalibrated": "T = 1",
    "present": "as in the file",
    "scalar": "one temperature",
    "by_type": "by type",
    "by_options": "by option count",
    "by_familiarity": "by type and familiarity",
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
    """0 where nothing was fitted: nothing could be held out, or decisions were too few."""
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


def fit(
    decisions: Decisions,
    present: Temperatures,
    *,
    schema_first: bool,
    noul_map: bool = True,
    folds: int = 5,
    seed: int = 0,
) -> Fit:
    """Fit every form on `decisions`, compare them over `folds` folds of items, take one; then the same for Noul maps.

    Without `noul_map`, no map is tried: it learns how often each kind of question is right, and is worse than none
    where other kinds are asked.

    `present` are the temperatures that answers have now; `schema_first` says of which layouts the decisions are. Of all
    forms within one standard error of the best, the one of the fewest fitted numbers is taken (`scoring.choose`). A
    form with a temperature on the lower bound is not; with less than `LEAST_DECISIONS` nothing is fitted. Decisions
    whose right option has probability 0 at every temperature are left out, with a warning. Raises ConfigError where
    that leaves none, and MissingDependencyError without scikit-learn.
    """
    assert folds >= 2, folds
    possible = _possible(decisions)
    warnings = []
    if not possible.all():
        warnings.append(
            f"{np.count_nonzero(~possible):,} decisions are left out: their right option has probability 0 at every "
            "temperature"
        )
        if not possible.any():
            raise ConfigError(
                f"there is nothing to fit: the right option has probability 0 in each of the {len(decisions):,} "
                "decisions that are for temperatures; check that gold counts options from 0, and the logits"
            )
        decisions = decisions.take(possible)
    items = item_codes(decisions.key)
    n_items = int(items.max(initial=-1)) + 1
    used = min(folds, n_items) if n_items > 1 and len(decisions) >= LEAST_DECISIONS else 0
    data = fitting(decisions, _folds(items, n_items, max(used, 1), seed), schema_first=schema_first)
    whole = _fixed(data, present) | (data.fit() if used else {})
    parts = [_fixed(data, present) | data.fit_without(held, whole) for held in range(used)]
    forms, choice = _compare(data, whole, parts, right(decisions), items)
    # What is there already stays where nothing says that another is better.
    winner = forms[choice.index if used else len(forms) - 1]
    maps, map_reason = None, "not tried, as said"
    if noul_map:
        maps, map_reason = _maps(decisions, data, winner.name, whole, parts, items)
    warnings += _warnings(data, whole, winner, n_items, used, folds)
    return Fit(
        n=len(decisions),
        n_items=n_items,
        folds=used,
        forms=forms,
        winner=winner,
        reason=_reason(forms, choice) if used else _why_none(n_items),
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
    choice = choose(
        [reading.nll for reading in readings],
        [form.parameters for form in whole.values()],
        items,
        [form.sound for form in whole.values()],
    )
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
    why = "the least NLL" if all(form.fitted.sound for form in forms) else "the least NLL of what the data settle"
    if winner is not best:
        why = f"{NAMES[best.name]} is best, by {pm(winner.excess)} nats: within one standard error, and this is simpler"
    return why if winner.name == "uncalibrated" else f"{why}; {pm(winner.gain)} nats better than T = 1"


def _why_none(n_items: int) -> str:
    """Why nothing was fitted."""
    if n_items == 1:
        return "there is one item alone, so nothing can be held out"
    return f"with fewer than {LEAST_DECISIONS} decisions no temperature is fitted"


def _merged(present: Temperatures, fitted: Temperatures, *, schema_first: bool) -> Temperatures:
    if schema_first:
        return replace(present, schema_first=fitted.schema_first, schema_first_by_type=fitted.schema_first_by_type)
    return replace(
        present,
        plain=fitted.plain,
        by_type=fitted.by_type,
        unfamiliar_by_type=fitted.unfamiliar_by_type,
        by_options=fitted.by_options,
    )


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
    if data.familiarity is not None and not data.pairs and not data.schema_first:
        warnings.append(
            f"no temperatures by familiarity: of no type are {LEAST_OF_TYPE} decisions asked in familiar words and "
            f"{LEAST_OF_TYPE} in others"
        )
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
    by_type = whole.get("by_type")
    own = () if by_type is None else [KINDS[code] for code in data.own_types if KINDS[code] not in by_type.parts]
    warnings += [
        f"{NAMES['by_type']}: the answers of type {kind} are nearly all right, which settles no temperature of their "
        "own; they keep that of all"
        for kind in own
    ]
    for name, form in whole.items():
        for what, part in form.parts.items():
            if form is not scalar and what == "all":
                continue
            if part.bound == "lower":
                warnings.append(
                    f"{NAMES[name]}: a temperature ({what}) fell to the lowest allowed, {BOUNDS[0]}; the answers are "
                    "nearly all right, which settles none, so this form is not taken"
                )
            elif part.bound == "upper":
                warnings.append(
                    f"{NAMES[name]}: a temperature ({what}) rose to the highest allowed, {BOUNDS[1]:g}; these answers "
                    "are hardly better than chance, and their probabilities are flattened"
                )
            elif isinstance(part, Fitted) and np.isinf(part.error):
                warnings.append(f"{NAMES[name]}: the data say nothing of a temperature ({what}); it is 1")
    return warnings


def pm(figure: Estimate) -> str:
    """A difference of NLLs and its error; small ones decide."""
    return f"{figure.value:.5f} ± {figure.error:.5f}"
