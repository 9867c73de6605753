"""A calibration into a `decider_config.json`: one dtype's entry replaced, everything else in the file kept.

It refuses to know what is fitted, and to touch a file that an engine would not load. Trap: an entry stands in for the
file's other temperatures as a whole; so it is written whole, or the layouts that were not calibrated lose theirs. And
minutes lie between reading and writing, in which another run may have written; so the file is read again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from decider.calibrate.whole import write_text
from decider.errors import ConfigError
from decider.questions.jsontext import JsonValue
from decider.tokens.calibration import CALIBRATION_KEYS, Calibration, to_json
from decider.tokens.config import DeciderConfig, config_entries, config_of


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A `decider_config.json` to be written, and what it holds before that."""

    path: Path
    origin: Path | None
    """Where that was read: `path`, another config that it starts as a copy of, or None for an empty one."""
    entries: Mapping[str, JsonValue]
    config: DeciderConfig
    """The same, parsed."""


def open_config(path: Path, template: Path | None) -> ConfigFile:
    """The file at `path`; where there is none, a copy of `template`, or an empty one.

    Raises ConfigError if `path` cannot be written, or what is there cannot be read, parsed or used.
    """
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(f"{str(path)!r:.120} cannot be written; name a file in a folder that is there")
    # A dangling link is a file that is there and cannot be read.
    origin = path if os.path.lexists(path) else template
    if origin is None:
        return ConfigFile(path, None, {}, DeciderConfig())
    entries = config_entries(origin, "name a readable decider_config.json")
    return ConfigFile(path, origin, entries, config_of(origin, entries))


def write_calibration(file: ConfigFile, dtype: str, calibration: Calibration) -> None:
    """Put `calibration` into `file` as the entry of `dtype`, whole or not at all; a link is replaced by the file.

    What was written there since it was opened is kept, and so are keys of that entry which mean nothing here. Raises
    ConfigError if the file cannot be written, or what answers in `dtype` are calibrated by was changed since: the new
    calibration was made upon that.
    """
    now = open_config(file.path, None) if os.path.lexists(file.path) else file
    if now.config.for_dtype(dtype) != file.config.for_dtype(dtype):
        raise ConfigError(
            f"the calibration of {dtype} in {str(file.path)!r:.120} was changed while this one was made, and is kept; "
            "calibrate again"
        )
    calibrations = now.entries.get("x_calibration") or {}
    assert isinstance(calibrations, dict), calibrations
    before = calibrations.get(dtype, {})
    assert isinstance(before, dict), before
    kept = {key: value for key, value in before.items() if key not in CALIBRATION_KEYS}
    entries = {**now.entries, "x_calibration": {**calibrations, dtype: {**kept, **to_json(calibration)}}}
    text = json.dumps(entries, indent=2, ensure_ascii=False, allow_nan=False)
    assert config_of(file.path, json.loads(text)).for_dtype(dtype) == calibration
    write_text(file.path, text)
