"""What was fitted on labelled data for one dtype: temperatures, a map of P(yes), thresholds; and its JSON, both ways.

It refuses to know how any of it is fitted or applied. Trap: a file's arrays are checked against each other here, since
a threshold paired with the wrong error rate would break its guarantee and raise nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

from decider.questions.jsontext import JsonValue
from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.request import LAYOUT_NAMES
from decider.settings import MOST_PERMUTATIONS
from decider.tokens.table import Table

_KINDS = ("choice", "noul", "score")
DTYPE_KEYS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
"""What `x_calibration` calls torch's precisions."""
DTYPES = (*DTYPE_KEYS.values(), "fp8")
"""Every precision that answers come about in."""
TEMPERATURE_KEYS = (
    "temperature",
    "temperature_by_type",
    "temperature_unfamiliar_by_type",
    "temperature_by_options",
    "temperature_schema_first",
    "temperature_schema_first_by_type",
)
CALIBRATION_KEYS = (*TEMPERATURE_KEYS, "noul_platt", "noul_isotonic", "selective")
"""Every key of one dtype's entry in `x_calibration`."""
_THRESHOLD_KEYS = ("n", "error_rates", "set_thresholds", "accept", "by_class")


@dataclass(frozen=True, slots=True)
class OptionTemperature:
    """T(n) = max(minimum, a + b · ln(max(n, 2))) for a question with n options."""

    a: float
    b: float
    minimum: float = 0.05

    def at(self, n_options: int) -> float:
        """The temperature of a question with `n_options` options; above 0."""
        return max(self.minimum, self.a + self.b * math.log(max(n_options, 2)))


@dataclass(frozen=True, slots=True)
class Temperatures:
    """Softmax temperatures as a file states them; `temperature_for` says which one an answer gets."""

    plain: float = 1.0
    by_type: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    by_options: OptionTemperature | None = None
    """Not together with `by_type` and `unfamiliar_by_type`."""
    schema_first: float | None = None
    schema_first_by_type: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    unfamiliar_by_type: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Of types that have two temperatures: that of a question whose wording training did not have. `by_type` is then
    of those it had, and between them the temperature goes linearly with `wordings.Wordings.familiarity`."""


@dataclass(frozen=True, slots=True)
class PlattMap:
    """P(yes) = p becomes σ(a · logit(p) + b), with a > 0 (Platt, 1999, on the log-odds)."""

    a: float
    b: float


@dataclass(frozen=True, slots=True)
class IsotonicMap:
    """P(yes) is interpolated linearly between the points (x, y), and held beyond the first and the last."""

    x: tuple[float, ...]
    """Strictly ascending in [0, 1]; at least one."""
    y: tuple[float, ...]
    """As many, never descending, in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What one type of question is answered by at each calibrated error rate. The tuples are of one length."""

    n: int
    """Decisions it was calibrated on."""
    error_rates: tuple[float, ...]
    """Strictly ascending, in (0, 1); at least one."""
    set_thresholds: tuple[float, ...]
    """Option i is in the set where 1 − pᵢ ≤ it; 1 or more takes in every option. Never ascending."""
    accept: tuple[float | None, ...]
    """Answered where the largest probability is ≥ it, in [0, 1]; None abstains always. Never ascending, None first."""
    by_class: Mapping[str, tuple[int, tuple[float, ...]]] = field(default_factory=lambda: MappingProxyType({}))
    """Option name (a level's index, `no` or `yes`) → decisions of that class and its own `set_thresholds`, which are
    used instead. Empty where calibration was not class-conditional."""
    isolated: bool = False
    """Whether these are of Scores whose levels are judged one by one; other types have no such form."""


@dataclass(frozen=True, slots=True)
class Selective:
    """Thresholds, and what they were calibrated in: they say nothing about answers that come about in another way."""

    layout: str
    permutations: int
    risk_confidence: float
    """1 − δ in (0, 1): how often over calibration sets `accept` holds its error rate."""
    by_kind: Mapping[str, Thresholds]
    """`choice`, `score`, `noul`; a type may be missing."""
    isolated_levels: bool = field(default=False, compare=False)
    """What the file says of Scores that do not say it: whether their levels are judged one by one. It is of the file as
    it is now and no part of what was calibrated, so it is neither compared nor written."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that was fitted for one dtype."""

    temperatures: Temperatures = field(default_factory=Temperatures)
    noul_map: PlattMap | IsotonicMap | None = None
    """Applied to P(yes) after its temperature."""
    selective: Selective | None = None


def parse_temperatures(table: Table) -> Temperatures:
    """The temperature keys of `table`; other keys are left alone. Raises ConfigError."""
    by_type = _by_type(table, "temperature_by_type")
    unfamiliar = _by_type(table, "temperature_unfamiliar_by_type")
    by_options = _by_options(table, "temperature_by_options")
    if by_type and by_options is not None:
        raise table.fault("temperature_by_options", "absent where temperature_by_type is given")
    if lacking := sorted(unfamiliar.keys() - by_type.keys()):
        allowed = f"of types that temperature_by_type has, too, which {lacking[0]} is not"
        raise table.fault("temperature_unfamiliar_by_type", allowed)
    schema_first = "temperature_schema_first"
    return Temperatures(
        plain=table.positive("temperature", default=1.0),
        by_type=by_type,
        unfamiliar_by_type=unfamiliar,
        by_options=by_options,
        schema_first=None if table.entries.get(schema_first) is None else table.positive(schema_first),
        schema_first_by_type=_by_type(table, "temperature_schema_first_by_type"),
    )


def parse_calibration(table: Table, *, isolated_levels: bool) -> Calibration:
    """One dtype's entry of `x_calibration`; keys that are not among `CALIBRATION_KEYS` are left alone.

    `isolated_levels` is that of the file. Raises ConfigError, naming file, key, value and what is allowed.
    """
    platt, isotonic = _platt(table), _isotonic(table)
    if platt is not None and isotonic is not None:
        raise table.fault("noul_isotonic", "absent where noul_platt is given")
    return Calibration(
        parse_temperatures(table), isotonic if platt is None else platt, _selective(table, isolated_levels)
    )


def to_json(calibration: Calibration) -> dict[str, JsonValue]:
    """The JSON object that `parse_calibration` reads back as an equal `Calibration`."""
    entry = temperatures_json(calibration.temperatures)
    if isinstance(calibration.noul_map, PlattMap):
        entry["noul_platt"] = {"a": calibration.noul_map.a, "b": calibration.noul_map.b}
    elif isinstance(calibration.noul_map, IsotonicMap):
        entry["noul_isotonic"] = {"x": [*calibration.noul_map.x], "y": [*calibration.noul_map.y]}
    if calibration.selective is not None:
        selective = calibration.selective
        entry["selective"] = {
            "layout": selective.layout,
            "permutations": selective.permutations,
            "risk_confidence": selective.risk_confidence,
            **{kind: _thresholds_json(kind, thresholds) for kind, thresholds in selective.by_kind.items()},
        }
    return entry


def temperatures_json(temperatures: Temperatures) -> dict[str, JsonValue]:
    """The JSON object that `parse_temperatures` reads back as equal `Temperatures`."""
    entry: dict[str, JsonValue] = {"temperature": temperatures.plain}
    if temperatures.by_type:
        entry["temperature_by_type"] = {**temperatures.by_type}
    if temperatures.unfamiliar_by_type:
        entry["temperature_unfamiliar_by_type"] = {**temperatures.unfamiliar_by_type}
    if temperatures.by_options is not None:
        fit = temperatures.by_options
        entry["temperature_by_options"] = {"a": fit.a, "b": fit.b, "min": fit.minimum}
    if temperatures.schema_first is not None:
        entry["temperature_schema_first"] = temperatures.schema_first
    if temperatures.schema_first_by_type:
        entry["temperature_schema_first_by_type"] = {**temperatures.schema_first_by_type}
    return entry


def _thresholds_json(kind: str, thresholds: Thresholds) -> dict[str, JsonValue]:
    entry: dict[str, JsonValue] = {
        **({"isolated": thresholds.isolated} if kind == "score" else {}),
        "n": thresholds.n,
        "error_rates": [*thresholds.error_rates],
        "set_thresholds": [*thresholds.set_thresholds],
        "accept": [*thresholds.accept],
    }
    if thresholds.by_class:
        entry["by_class"] = {name: {"n": n, "set_thresholds": [*own]} for name, (n, own) in thresholds.by_class.items()}
    return entry


def _by_type(table: Table, key: str) -> Mapping[str, float]:
    kinds = table.object(key, allowed=_KINDS)
    return MappingProxyType({kind: kinds.positive(kind) for kind in kinds.entries} if kinds else {})


def _by_options(table: Table, key: str) -> OptionTemperature | None:
    fit = table.object(key, allowed=("a", "b", "min"))
    if fit is None:
        return None
    by_options = OptionTemperature(fit.number("a"), fit.number("b"), fit.positive("min", default=0.05))
    if not math.isfinite(by_options.at(DEFAULT_LIMITS.max_options)):
        raise table.fault(key, f"so that a + b · ln(n) is finite up to {DEFAULT_LIMITS.max_options} options")
    return by_options


def _platt(table: Table) -> PlattMap | None:
    fit = table.object("noul_platt", allowed=("a", "b"))
    return None if fit is None else PlattMap(fit.positive("a"), fit.number("b"))


def _isotonic(table: Table) -> IsotonicMap | None:
    points = table.object("noul_isotonic", allowed=("x", "y"))
    if points is None:
        return None
    x, y = points.numbers("x"), points.numbers("y")
    allowed = "a number in [0, 1] and above the one before it"
    _check_each(points, "x", x, lambda before, own: 0 <= own <= 1 and before < own, allowed)
    if len(y) != len(x):
        raise points.fault("y", f"a list of as many as x has ({len(x)})")
    allowed = "a number in [0, 1] and not below the one before it"
    _check_each(points, "y", y, lambda before, own: 0 <= own <= 1 and before <= own, allowed)
    return IsotonicMap(x, y)


def _selective(table: Table, isolated_levels: bool) -> Selective | None:
    entry = table.object("selective", allowed=("layout", "permutations", "risk_confidence", *_KINDS))
    if entry is None:
        return None
    layout = entry.text("layout")
    if layout not in LAYOUT_NAMES:
        raise entry.fault("layout", f"one of {', '.join(LAYOUT_NAMES)}")
    confidence = entry.number("risk_confidence")
    if not 0 < confidence < 1:
        raise entry.fault("risk_confidence", "a number above 0 and below 1")
    by_kind = {}
    for kind in _KINDS:
        own = entry.object(kind, allowed=(*_THRESHOLD_KEYS, *(("isolated",) if kind == "score" else ())))
        if own is not None:
            by_kind[kind] = _thresholds(own, isolated=kind == "score" and _isolated(own))
    permutations = entry.whole("permutations", most=MOST_PERMUTATIONS)
    return Selective(layout, permutations, confidence, MappingProxyType(by_kind), isolated_levels)


def _isolated(score: Table) -> bool:
    # Without a default: thresholds of the other form would be used, and break their promise.
    if "isolated" not in score.entries:
        raise score.fault(
            "isolated", "true or false (levels judged one by one); if in doubt, calibrate into a new file"
        )
    return score.flag("isolated", default=False)


def _thresholds(table: Table, *, isolated: bool) -> Thresholds:
    rates = table.numbers("error_rates")
    allowed = "a number above 0, below 1 and above the one before it"
    _check_each(table, "error_rates", rates, lambda before, own: max(0, before) < own < 1, allowed)
    by_class = {}
    names = table.object("by_class") or Table(table.where, {})
    for name in names.entries:
        own = names.object(name, allowed=("n", "set_thresholds"))
        if own is None:
            raise names.fault(name, "an object")
        by_class[name] = (own.whole("n"), _set_thresholds(own, len(rates)))
    return Thresholds(
        n=table.whole("n"),
        error_rates=rates,
        set_thresholds=_set_thresholds(table, len(rates)),
        accept=_accept(table, len(rates)),
        by_class=MappingProxyType(by_class),
        isolated=isolated,
    )


def _set_thresholds(table: Table, n_rates: int) -> tuple[float, ...]:
    values = table.numbers("set_thresholds")
    if len(values) != n_rates:
        raise table.fault("set_thresholds", f"a list of numbers, one an error rate ({n_rates})")
    # Falling numbers are rising ones turned over.
    turned, allowed = [-value for value in values], "a number from 0 on and not above the one before it"
    _check_each(table, "set_thresholds", turned, lambda before, own: before <= own <= 0, allowed)
    return values


def _accept(table: Table, n_rates: int) -> tuple[float | None, ...]:
    values = table.numbers_or_nulls("accept")
    if len(values) != n_rates:
        raise table.fault("accept", f"a list of numbers or nulls, one an error rate ({n_rates})")
    turned = [-math.inf if value is None else -value for value in values]
    allowed = "null where no number is before it, or a number in [0, 1] and not above the one before it"
    _check_each(table, "accept", turned, lambda before, own: before <= own <= 0 and not 1 < -own < math.inf, allowed)
    return values


def _check_each(
    table: Table, key: str, values: Sequence[float], holds: Callable[[float, float], bool], allowed: str
) -> None:
    """Raises ConfigError for the first of `values`, those at `key`, for which `holds(the one before, it)` is false.

    Before the first stands −∞.
    """
    for index, (before, own) in enumerate(pairwise((-math.inf, *values))):
        if not holds(before, own):
            raise table.element_fault(key, index, allowed)
