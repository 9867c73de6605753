"""The forms a temperature may take, all fitted on the same decisions, whole or without one fold.

It refuses to know which form is better. Trap: what a form is made of (the types that have a temperature of their own)
is settled on all decisions; if folds settled it, each would compare other forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from decider.calibrate.apply import option_counts, temperatures_at
from decider.calibrate.likelihood import Likelihood, likelihood
from decider.calibrate.temperatures import Fitted, FittedLine, FittedPair, fit_line, fit_pair, fit_scalar
from decider.decisions import KINDS, Decisions, Float64Array, IntArray
from decider.tokens.calibration import Temperatures

LEAST_OF_TYPE = 100
"""Decisions of a type for a temperature of its own; of few options, and of many, for a line between them; of a type's
familiar questions, and of its others, for one each."""
FAMILIAR = 0.5
"""From what familiarity on a question counts as a familiar one there."""


@dataclass(frozen=True, slots=True)
class FittedForm:
    """One form, and the fits it is made of, by what they are for: "all", a type, or "options"."""

    temperatures: Temperatures
    parts: Mapping[str, Fitted | FittedLine | FittedPair]

    @property
    def sound(self) -> bool:
        """Whether it may be taken: nothing of it ended on the lower bound, where data settle no temperature."""
        return all(part.bound != "lower" for part in self.parts.values())

    def temperature(self, what: str) -> float:
        """The one that was fitted for "all", or for a type."""
        part = self.parts[what]
        assert isinstance(part, Fitted), part
        return part.temperature

    @property
    def parameters(self) -> int:
        """How many numbers were fitted."""
        return sum(1 if isinstance(part, Fitted) else 2 for part in self.parts.values())


@dataclass(frozen=True, slots=True)
class Fitting:
    """N decisions, ready to be fitted again and again; columns are [N]."""

    likelihood: Likelihood
    kind: IntArray
    counts: IntArray
    """As `option_counts`."""
    fold: IntArray
    own_types: tuple[int, ...]
    """Types with a temperature of their own in the form by type; without any there is no such form."""
    spreads: bool
    """Whether few options and many are both common enough to tell a line."""
    familiarity: Float64Array | None
    """None where it is not known."""
    pairs: tuple[int, ...]
    """Types of which familiar questions and others are both common enough; without any there is no form by it."""
    schema_first: bool
    """Of which layouts the decisions are, and so which temperatures are fitted."""

    def at(self, temperatures: Temperatures) -> Float64Array:
        """[N]: the temperature of each decision."""
        return temperatures_at(temperatures, self.kind, self.counts, self.familiarity, schema_first=self.schema_first)

    def fit(self) -> dict[str, FittedForm]:
        """On all: `scalar`; `by_type` where types differ; if states come first, `by_options` where counts spread, and
        `by_familiarity` where familiarity does.
        """
        return self._fit(np.arange(len(self.kind)), {})

    def fit_without(self, held: int, whole: Mapping[str, FittedForm]) -> dict[str, FittedForm]:
        """The same on the decisions of all folds but one, which is near what was fitted on all."""
        return self._fit(np.flatnonzero(self.fold != held), whole)

    def _fit(self, rows: IntArray, near: Mapping[str, FittedForm]) -> dict[str, FittedForm]:
        data = self.likelihood.take(rows)
        scalar = fit_scalar(data, near["scalar"].temperature("all") if near else None)
        forms = {"scalar": FittedForm(self._given(scalar.temperature, {}), {"all": scalar})}
        if self.own_types:
            forms["by_type"] = self._by_type(data, self.kind[rows], scalar, near.get("by_type"))
        if not self.schema_first and self.spreads:
            forms["by_options"] = self._by_options(data, self.counts[rows], scalar, near.get("by_options"))
        if not self.schema_first and self.pairs and self.familiarity is not None:
            single = forms.get("by_type", forms["scalar"])
            forms["by_familiarity"] = self._by_familiarity(
                data, self.kind[rows], self.familiarity[rows], single, near.get("by_familiarity")
            )
        return forms

    def _by_type(self, data: Likelihood, kind: IntArray, scalar: Fitted, near: FittedForm | None) -> FittedForm:
        own = {}
        codes = [code for code in self.own_types if near is None or KINDS[code] in near.parts]
        for code in codes:
            rows = np.flatnonzero(kind == code)
            # All of a type may lie in the one fold that is held out.
            if len(rows):
                fitted = fit_scalar(data.take(rows), None if near is None else near.temperature(KINDS[code]))
                # Of a type whose answers are all right nothing is known but that; it keeps the temperature of all.
                if near is not None or fitted.bound != "lower":
                    own[KINDS[code]] = fitted
        temperatures = {name: fitted.temperature for name, fitted in own.items()}
        rest = {} if {KINDS[code] for code in np.unique(self.kind)} <= own.keys() else {"all": scalar}
        return FittedForm(self._given(scalar.temperature, temperatures), {**own, **rest})

    def _by_options(self, data: Likelihood, counts: IntArray, scalar: Fitted, near: FittedForm | None) -> FittedForm:
        least, most = int(counts.min()), int(counts.max())
        if least == most:
            # The other counts lie in the one fold that is held out.
            return FittedForm(Temperatures(scalar.temperature), {"all": scalar})
        before = None if near is None else near.temperatures.by_options
        ends = (scalar.temperature, scalar.temperature) if before is None else (before.at(least), before.at(most))
        fitted = fit_line(data, counts, ends)
        return FittedForm(Temperatures(scalar.temperature, by_options=fitted.line), {"options": fitted})

    def _by_familiarity(
        self,
        data: Likelihood,
        kind: IntArray,
        familiarity: Float64Array,
        single: FittedForm,
        near: FittedForm | None,
    ) -> FittedForm:
        """`single`, of one temperature a type, with two for each of `pairs`."""
        plain = single.temperatures.plain
        parts: dict[str, Fitted | FittedLine | FittedPair] = dict(single.parts)
        familiar, unfamiliar = dict(single.temperatures.by_type), {}
        for code in self.pairs:
            name, rows = KINDS[code], np.flatnonzero(kind == code)
            before = None if near is None else near.parts[name]
            start = (before.familiar, before.unfamiliar) if isinstance(before, FittedPair) else (plain, plain)
            # All of a type may lie in the one fold that is held out.
            if len(rows):
                pair = fit_pair(data.take(rows), familiarity[rows], start)
                parts[name], familiar[name], unfamiliar[name] = pair, pair.familiar, pair.unfamiliar
        given = replace(self._given(plain, familiar), unfamiliar_by_type=MappingProxyType(unfamiliar))
        if {KINDS[code] for code in np.unique(self.kind)} <= familiar.keys():
            parts.pop("all", None)
        return FittedForm(given, parts)

    def fixed(self, temperature: float) -> Temperatures:
        """`temperature` for every decision."""
        return self._given(temperature, {})

    def _given(self, temperature: float, by_type: Mapping[str, float]) -> Temperatures:
        frozen = MappingProxyType(dict(by_type))
        if self.schema_first:
            return Temperatures(schema_first=temperature, schema_first_by_type=frozen)
        return Temperatures(temperature, frozen)


def fitting(decisions: Decisions, fold: IntArray, *, schema_first: bool) -> Fitting:
    """`decisions` in the `fold` [N] each is held out with, counted from 0."""
    sizes = np.bincount(decisions.kind, minlength=len(KINDS))
    several = np.count_nonzero(sizes) > 1
    counts = option_counts(decisions.n_options, decisions.isolated)
    logs = np.log(counts)
    few = np.count_nonzero(logs < (logs.min() + logs.max()) / 2)
    return Fitting(
        likelihood=likelihood(decisions),
        kind=decisions.kind,
        counts=counts,
        fold=fold,
        own_types=tuple(np.flatnonzero(sizes >= LEAST_OF_TYPE).tolist()) if several else (),
        spreads=bool(min(few, len(logs) - few) >= LEAST_OF_TYPE),
        familiarity=decisions.familiarity,
        pairs=_pairs(decisions),
        schema_first=schema_first,
    )


def _pairs(decisions: Decisions) -> tuple[int, ...]:
    if decisions.familiarity is None:
        return ()
    familiar = decisions.familiarity >= FAMILIAR
    sides = (np.bincount(decisions.kind[side], minlength=len(KINDS)) for side in (familiar, ~familiar))
    return tuple(np.flatnonzero(np.minimum(*sides) >= LEAST_OF_TYPE).tolist())
