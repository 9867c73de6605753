"""Labelled decisions to `Selective`: thresholds for prediction sets and for abstaining, type by type.

It refuses to know how temperatures were fitted. It asks for decisions that had no part in it: probabilities that were
fitted to the very answers they are judged by look surer than those of a question to come.

Trap: several questions about one item go wrong together, so n of them are not n draws. One decision an item and type is
kept, chosen by chance, and the promise is about one such question of a new item.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from decider.calibrate.abstention import accept_thresholds
from decider.calibrate.conformal import (
    class_thresholds,
    fewest_decisions,
    least_error_rate,
    nonconformity,
    rank,
    set_thresholds,
)
from decider.decisions import CHOICE, KINDS, SCORE, Decisions, Float64Array, IntArray, item_codes
from decider.tokens.calibration import Selective, Thresholds

ERROR_RATES = (
    0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5,
)  # fmt: skip
"""What thresholds are stored for; an answer uses the largest that is not above the rate it is asked for."""


def selective_of(
    decisions: Decisions,
    probabilities: Float64Array,
    *,
    layout: str,
    permutations: int,
    class_conditional: bool = False,
    risk_confidence: float = 0.9,
    error_rates: Sequence[float] = ERROR_RATES,
    seed: int = 0,
) -> Selective:
    """Thresholds for each type of question that `decisions` holds, at each of `error_rates` (ascending, in (0, 1)).

    `probabilities` [N, W] are those that the decisions are served with, 0 beyond their options; neither temperatures
    nor maps may have been fitted on these decisions. `layout` and `permutations` say how they were read.
    `class_conditional` adds thresholds by the name of the right option (a level's index, `no`, `yes`), and these win.
    `risk_confidence` is the 1 − δ of `accept`. Questions with one option are left out: their answers are certain. There
    are none for Scores where some were judged level by level and others were not: an answer is of one of the two forms.
    """
    assert probabilities.shape == decisions.logits.shape, probabilities.shape
    assert np.isfinite(probabilities).all()
    assert 0 < risk_confidence < 1, risk_confidence
    assert all(a < b for a, b in pairwise((0, *error_rates, 1))), error_rates
    by_kind = {}
    for kind, kind_name in enumerate(KINDS):
        rows = one_per_item(decisions, kind, seed)
        if not len(rows) or _mixed(decisions, kind):
            continue
        own, gold = probabilities[rows], decisions.gold[rows]
        scores = nonconformity(own, gold, as_range=kind == SCORE)
        by_class = {}
        if class_conditional:
            alone = nonconformity(own, gold, as_range=False)
            by_class = class_thresholds(alone, _classes(decisions, rows, kind), error_rates)
        by_kind[kind_name] = Thresholds(
            n=len(rows),
            error_rates=tuple(error_rates),
            set_thresholds=set_thresholds(scores, error_rates),
            accept=accept_thresholds(
                own.max(axis=1), own.argmax(axis=1) != gold, error_rates, confidence=risk_confidence, seed=seed
            ),
            by_class=MappingProxyType(by_class),
            isolated=bool(decisions.isolated[rows[0]]),
        )
    return Selective(layout, permutations, risk_confidence, MappingProxyType(by_kind))


def one_per_item(decisions: Decisions, kind: int, seed: int) -> IntArray:
    """Ascending rows of one decision an item among those of `kind` with two options or more, chosen by `seed`."""
    rows = np.random.default_rng(seed).permutation(_candidates(decisions, kind))
    items = item_codes(decisions.key)[rows]
    return np.sort(rows[np.unique(items, return_index=True)[1]])


def selective_warnings(selective: Selective, decisions: Decisions) -> tuple[str, ...]:
    """A sentence for each thing that the decisions `selective` was made from were too few for."""
    warnings = []
    for kind, kind_name in enumerate(KINDS):
        found = selective.by_kind.get(kind_name)
        if found is None:
            if _mixed(decisions, kind):
                warnings.append(
                    f"{kind_name}: no thresholds, since some have their levels judged one by one (isolated) and others "
                    "do not, and a threshold is of one form; label scores of one form"
                )
            continue
        given = len(_candidates(decisions, kind))
        if given > found.n:
            warnings.append(
                f"{kind_name}: {found.n:,} of {given:,} decisions count for error rates, since questions about one "
                "item are no independent draws; label more items"
            )
        smallest = found.error_rates[0]
        if rank(found.n, smallest) > found.n:
            warnings.append(
                f"{kind_name}: sets leave out nothing below an error rate of {least_error_rate(found.n):.2g} with "
                f"{found.n:,} decisions; label at least {fewest_decisions(smallest):,} for {smallest:g}"
            )
        held = [rate for rate, least in zip(found.error_rates, found.accept, strict=True) if least is not None]
        if not held:
            warnings.append(f"{kind_name}: answers are always abstained from, as no threshold holds an error rate")
        elif held[0] > smallest:
            warnings.append(
                f"{kind_name}: answers are always abstained from below an error rate of {held[0]:g}, as no threshold "
                "holds one; label more, or accept more errors"
            )
        few = [n for n, _ in found.by_class.values() if rank(n, smallest) > n]
        if few:
            warnings.append(
                f"{kind_name}: {len(few):,} of {len(found.by_class):,} options that were right were so fewer than "
                f"{fewest_decisions(smallest):,} times (the rarest {min(few):,}); such an option is in every set below "
                f"an error rate of 1/(times + 1), {least_error_rate(min(few)):.2g} for the rarest"
            )
    return tuple(warnings)


def _mixed(decisions: Decisions, kind: int) -> bool:
    """Whether those of `kind` are of both forms of a Score."""
    return len(np.unique(decisions.isolated[_candidates(decisions, kind)])) > 1


def _candidates(decisions: Decisions, kind: int) -> IntArray:
    return np.flatnonzero((decisions.kind == kind) & (decisions.n_options > 1))


def _classes(decisions: Decisions, rows: IntArray, kind: int) -> list[str]:
    """The right options' names, as `decider.selective.class_names` has them."""
    if kind == CHOICE:
        return [decisions.option_lists[decisions.option_list[row]][decisions.gold[row]] for row in rows]
    return [str(level) if kind == SCORE else ("no", "yes")[level] for level in decisions.gold[rows]]
