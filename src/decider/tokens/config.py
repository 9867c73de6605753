"""`decider_config.json`, which lies next to the weights: read strictly, every known key checked.

It refuses to know settings and requests, which may override it. Trap: a raw checkpoint without the file is fine, but a
file that is there and cannot be used is an error; a default in its place would answer in the wrong layout.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from decider.errors import ConfigError, InputError
from decider.questions.faults import show
from decider.questions.jsontext import loads
from decider.questions.limits import DEFAULT_LIMITS
from decider.tokens.table import Table

CONFIG_NAME = "decider_config.json"

_KINDS = ("choice", "noul", "score")
_TEMPERATURE_KEYS = (
    "temperature",
    "temperature_by_type",
    "temperature_by_options",
    "temperature_schema_first",
    "temperature_schema_first_by_type",
)
_KEYS = (
    "version",
    "release_date",
    "layout",
    "chat_template",
    *_TEMPERATURE_KEYS,
    "neutralize_none",
    "isolated_levels",
    "schema_first",
    "schema_first_trained",
    "images",
    "x_calibration",
)


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
    schema_first: float | None = None
    schema_first_by_type: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class DeciderConfig:
    """One `decider_config.json`; the defaults are those of a raw checkpoint that has none (`present` is False)."""

    present: bool = False
    version: str = "dev"
    release_date: str = "1970-01-01"
    chat: bool = False
    """Whether the model's own layout is a chat one: `layout` is "chat" or `chat_template` is true."""
    temperatures: Temperatures = field(default_factory=Temperatures)
    neutralize_none: bool = True
    isolated_levels: bool = False
    schema_first: bool = False
    schema_first_trained: bool = False
    images: bool = False
    x_calibration: Mapping[str, Temperatures] = field(default_factory=lambda: MappingProxyType({}))
    """Temperatures by dtype (`fp32`, `bf16`, …). An entry replaces the file's other temperatures as a whole."""
    warnings: tuple[str, ...] = ()
    """One sentence for each key of the file that is not known here."""

    def for_dtype(self, dtype: str) -> DeciderConfig:
        """This config with the temperatures of `dtype`, which stay the plain ones where the file has none for it."""
        return replace(self, temperatures=self.x_calibration.get(dtype, self.temperatures))


def load_config(folder: Path) -> DeciderConfig:
    """Read the model folder's config; the defaults if there is no such file.

    Raises ConfigError, naming file, key, value and what is allowed, if the file cannot be read or parsed or if a known
    key holds a value out of range.
    """
    path = folder / CONFIG_NAME
    # A dangling link is a file that is there and cannot be read, so `exists` would be too lenient.
    if not os.path.lexists(path):
        return DeciderConfig()
    try:
        entries = loads(path.read_bytes(), DEFAULT_LIMITS)
    except (OSError, InputError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; repair it, or remove it for the defaults") from error
    if not isinstance(entries, dict):
        raise ConfigError(f"{path} holds {show(entries)}; it must be a JSON object")
    table = Table(str(path), entries)
    return DeciderConfig(
        present=True,
        version=table.text("version", default="dev"),
        release_date=table.text("release_date", default="1970-01-01"),
        chat=_chat(table),
        temperatures=_temperatures(table),
        neutralize_none=table.flag("neutralize_none", default=True),
        isolated_levels=table.flag("isolated_levels", default=False),
        schema_first=table.flag("schema_first", default=False),
        schema_first_trained=table.flag("schema_first_trained", default=False),
        images=table.flag("images", default=False),
        x_calibration=_calibration(table),
        warnings=tuple(f"{sentence}; it has no effect" for sentence in _unknown(table)),
    )


def _chat(table: Table) -> bool:
    layout = table.text("layout", default="plain")
    if layout not in ("plain", "chat"):
        raise table.fault("layout", '"plain" or "chat"')
    chat_template = table.flag("chat_template", default=False)
    if chat_template and "layout" in table.entries and layout == "plain":
        raise table.fault("chat_template", 'absent or false where "layout" is "plain"')
    return chat_template or layout == "chat"


def _temperatures(table: Table) -> Temperatures:
    by_type = _by_type(table, "temperature_by_type")
    by_options = _by_options(table, "temperature_by_options")
    if by_type and by_options is not None:
        raise table.fault("temperature_by_options", "absent where temperature_by_type is given")
    schema_first = "temperature_schema_first"
    return Temperatures(
        plain=table.positive("temperature", default=1.0),
        by_type=by_type,
        by_options=by_options,
        schema_first=None if table.entries.get(schema_first) is None else table.positive(schema_first),
        schema_first_by_type=_by_type(table, "temperature_schema_first_by_type"),
    )


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


def _calibration(table: Table) -> Mapping[str, Temperatures]:
    return MappingProxyType({dtype: _temperatures(entry) for dtype, entry in _calibrated(table).items()})


def _calibrated(table: Table) -> dict[str, Table]:
    dtypes = table.object("x_calibration") or Table(table.where, {})
    entries = {}
    for dtype in dtypes.entries:
        entry = dtypes.object(dtype)
        if entry is None:
            raise dtypes.fault(dtype, "an object")
        entries[dtype] = entry
    return entries


def _unknown(table: Table) -> list[str]:
    """One sentence for each unknown key, those inside a calibration included."""
    inner = (entry.unknown(_TEMPERATURE_KEYS) for entry in _calibrated(table).values())
    return [*table.unknown(_KEYS), *(sentence for sentences in inner for sentence in sentences)]
