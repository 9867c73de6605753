"""A calibration into a `decider_config.json`: one dtype's entry replaced, everything else in the file kept.

It refuses to know what is fitted, and to touch a file that an engine would not load. Trap: an entry stands in for the
file's other temperatures as a whole; so it is written whole, or the layouts that were not calibrated lose theirs.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from decider.errors import ConfigError
from decider.questions.jsontext import JsonValue, loads
from decider.questions.limits import DEFAULT_LIMITS
from decider.tokens.calibration import CALIBRATION_KEYS, Calibration, to_json
from decider.tokens.config import DeciderConfig, load_config


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
    config = load_config(origin.parent, origin)
    entries = loads(origin.read_bytes(), DEFAULT_LIMITS)
    assert isinstance(entries, dict), origin
    return ConfigFile(path, origin, entries, config)


def write_calibration(file: ConfigFile, dtype: str, calibration: Calibration) -> None:
    """Write `file` with `calibration` as the entry of `dtype`, whole or not at all; a link is replaced by the file.

    Keys of that entry which mean nothing here are kept too. Raises ConfigError if it cannot be written.
    """
    calibrations = file.entries.get("x_calibration") or {}
    assert isinstance(calibrations, dict), calibrations
    before = calibrations.get(dtype, {})
    assert isinstance(before, dict), before
    kept = {key: value for key, value in before.items() if key not in CALIBRATION_KEYS}
    entries = {**file.entries, "x_calibration": {**calibrations, dtype: {**kept, **to_json(calibration)}}}
    text = json.dumps(entries, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        number, name = tempfile.mkstemp(prefix=f".{file.path.name}-", dir=file.path.parent)
        draft = Path(name)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as written:
                written.write(text)
                written.flush()
                os.fsync(written.fileno())
            # mkstemp makes files that only their owner can read.
            draft.chmod(file.path.stat().st_mode & 0o777 if file.path.exists() else 0o644)
            assert load_config(draft.parent, draft).for_dtype(dtype) == calibration
            draft.replace(file.path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {str(file.path)!r:.120}: {error.strerror}; write to another place") from error
