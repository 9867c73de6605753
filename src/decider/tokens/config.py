"""`decider_config.json`, which lies next to the weights: read strictly, every known key checked.

It refuses to know settings and requests, which may override it. Trap: a raw checkpoint without the file is fine, but a
file that is there and cannot be used is an error; a default in its place would answer in the wrong layout.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from decider.errors import ConfigError, InputError
from decider.questions.faults import show
from decider.questions.jsontext import JsonValue, loads
from decider.questions.limits import DEFAULT_LIMITS
from decider.tokens.calibration import (
    CALIBRATION_KEYS,
    DTYPE_KEYS,
    DTYPES,
    TEMPERATURE_KEYS,
    Calibration,
    Temperatures,
    parse_calibration,
    parse_temperatures,
)
from decider.tokens.table import Table, near_miss

CONFIG_NAME = "decider_config.json"
WORDINGS_NAME = "decider_wordings.npy"
"""What `tokens/wordings.py` reads."""
BESIDE = (CONFIG_NAME, WORDINGS_NAME)
"""What of ours may lie beside a model's weights, and goes where they go."""

_KEYS = (
    "version",
    "release_date",
    "layout",
    "chat_template",
    *TEMPERATURE_KEYS,
    "neutralize_none",
    "isolated_levels",
    "schema_first",
    "schema_first_trained",
    "images",
    "x_calibration",
)


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
    x_calibration: Mapping[str, Calibration] = field(default_factory=lambda: MappingProxyType({}))
    """By dtype (`fp32`, `bf16`, …). An entry replaces the file's other temperatures as a whole."""
    warnings: tuple[str, ...] = ()
    """One sentence for each key of the file that is not known here."""

    def for_dtype(self, dtype: str) -> Calibration:
        """What answers in `dtype` are calibrated by: its entry, or the file's other temperatures where it has none."""
        return self.x_calibration.get(dtype, Calibration(self.temperatures))


def load_config(folder: Path, file: Path | None = None) -> DeciderConfig:
    """Read `file`, which must be there, or else the model folder's config; the defaults if that has no such file.

    Raises ConfigError, naming file, key, value and what is allowed, if the file cannot be read or parsed or if a known
    key holds a value out of range.
    """
    path = folder / CONFIG_NAME if file is None else file
    # A dangling link is a file that is there and cannot be read, so `exists` would be too lenient.
    if file is None and not os.path.lexists(path):
        return DeciderConfig()
    remedy = "repair it, or remove it for the defaults" if file is None else "name a readable decider_config.json"
    return config_of(path, config_entries(path, remedy))


def config_entries(path: Path, remedy: str) -> dict[str, JsonValue]:
    """The JSON object in the file at `path`, a byte-order mark before it or not.

    Raises ConfigError, with the `remedy` for what cannot be read.
    """
    # Of a pipe nothing would come, or never an end.
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} cannot be read: it is no regular file; {remedy}")
    try:
        entries = loads(path.read_bytes().removeprefix(codecs.BOM_UTF8), DEFAULT_LIMITS)
    except FileNotFoundError as error:
        raise ConfigError(f"{path} cannot be read: there is no such file; {remedy}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}; {remedy}") from error
    except InputError as error:
        raise ConfigError(f"{path} cannot be read: {error}; {remedy}") from error
    if not isinstance(entries, dict):
        raise ConfigError(f"{path} holds {show(entries)}; it must be a JSON object")
    return entries


def config_of(path: Path, entries: Mapping[str, JsonValue]) -> DeciderConfig:
    """The config that the `entries` of a file at `path` make. Raises ConfigError as `load_config` does."""
    table = Table(str(path), entries)
    isolated_levels = table.flag("isolated_levels", default=False)
    return DeciderConfig(
        present=True,
        version=table.text("version", default="dev"),
        release_date=table.text("release_date", default="1970-01-01"),
        chat=_chat(table),
        temperatures=parse_temperatures(table),
        neutralize_none=table.flag("neutralize_none", default=True),
        isolated_levels=isolated_levels,
        schema_first=table.flag("schema_first", default=False),
        schema_first_trained=table.flag("schema_first_trained", default=False),
        images=table.flag("images", default=False),
        x_calibration=MappingProxyType(
            {
                dtype: parse_calibration(entry, isolated_levels=isolated_levels)
                for dtype, entry in _calibrated(table).items()
            }
        ),
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
    inner = (entry.unknown(CALIBRATION_KEYS) for entry in _calibrated(table).values())
    dtypes = [_unknown_dtype(f"{table.where}: x_calibration", dtype) for dtype in _calibrated(table)]
    return [
        *table.unknown(_KEYS),
        *(sentence for sentence in dtypes if sentence is not None),
        *(sentence for sentences in inner for sentence in sentences),
    ]


def _unknown_dtype(where: str, dtype: str) -> str | None:
    """The sentence for an entry of `x_calibration` by whose name no precision goes; None for a known one."""
    if dtype in DTYPES:
        return None
    # Of torch's names for precisions only some resemble ours.
    near = f" (did you mean {DTYPE_KEYS[dtype]!r}?)" if dtype in DTYPE_KEYS else near_miss(dtype, DTYPES)
    return f"{where}: unknown precision {show(dtype)}{near}; known are {', '.join(DTYPES)}"
