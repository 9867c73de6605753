"""A calibration into a file: everything else stays, and nothing is half written.

Refuses to test parsing, which has tests of its own. Trap: a file that an engine cannot load must not be made "whole" by
writing to it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import MappingProxyType

import pytest

from decider.calibrate.write import open_config, write_calibration
from decider.errors import ConfigError
from decider.tokens.calibration import (
    Calibration,
    IsotonicMap,
    OptionTemperature,
    PlattMap,
    Selective,
    Temperatures,
    Thresholds,
)
from decider.tokens.config import load_config

THRESHOLDS = Thresholds(30, (0.1, 0.2), (0.75, 1 / 3), (None, 0.7), MappingProxyType({"é": (9, (1.0, 0.1))}))
LEVELS = Thresholds(30, (0.1,), (0.75,), (0.7,), isolated=True)
FULL = Calibration(
    Temperatures(1.25, schema_first=0.1 + 0.2, schema_first_by_type=MappingProxyType({"noul": 2.0})),
    IsotonicMap((0.1, 0.7), (0.25, 1 / 3)),
    Selective("chat", 1, 0.9, MappingProxyType({"choice": THRESHOLDS, "score": LEVELS})),
)
BEFORE = {
    "version": "7b",
    "layout": "chat",
    "novel": {"key": [1, 2.5, None]},
    "temperature": 2,
    "x_calibration": {
        "bf16": {"temperature": 3.0, "unknown": 1},
        "fp32": {"temperature_by_type": {"noul": 4}, "noul_platt": {"a": 1, "b": 0}, "note": "ours"},
    },
}


def written(path: Path, dtype: str, calibration: Calibration, template: Path | None = None) -> dict[str, object]:
    write_calibration(open_config(path, template), dtype, calibration)
    entries = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(entries, dict)
    return entries


@pytest.mark.parametrize(
    "calibration",
    [
        FULL,
        Calibration(),
        Calibration(Temperatures(by_options=OptionTemperature(1.0, -0.1, 0.3)), PlattMap(0.3, -1.0)),
        Calibration(Temperatures(1.0, MappingProxyType({"choice": 1 / 7}))),
    ],
)
def test_a_new_file_is_read_back_as_it_was(tmp_path: Path, calibration: Calibration) -> None:
    path = tmp_path / "decider_config.json"
    assert list(written(path, "fp32", calibration)) == ["x_calibration"]
    config = load_config(tmp_path)
    assert config.for_dtype("fp32") == calibration
    assert config.warnings == ()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o644


def test_every_other_key_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "any name.json"
    path.write_text(json.dumps(BEFORE), encoding="utf-8")
    path.chmod(0o640)
    before = open_config(path, tmp_path / "not looked at")
    assert (before.origin, before.config.version) == (path, "7b")
    after = written(path, "fp32", FULL)
    calibrations = after.pop("x_calibration")
    assert isinstance(calibrations, dict)
    kept = dict(BEFORE)
    assert kept.pop("x_calibration") is not None
    assert after == kept
    assert list(after) == list(kept)
    assert calibrations["bf16"] == {"temperature": 3.0, "unknown": 1}
    assert calibrations["fp32"]["note"] == "ours"
    assert not {"noul_platt", "temperature_by_type"} & set(calibrations["fp32"])
    assert load_config(tmp_path, path).for_dtype("fp32") == FULL
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("there", [True, False])
def test_what_another_run_wrote_meanwhile_is_kept(tmp_path: Path, there: bool) -> None:
    path, template = tmp_path / "out.json", tmp_path / "template.json"
    (path if there else template).write_text('{"temperature": 1.5, "note": 1}', encoding="utf-8")
    first, second = (open_config(path, template) for _ in range(2))
    write_calibration(first, "fp32", Calibration(Temperatures(2.0)))
    write_calibration(second, "bf16", Calibration(Temperatures(3.0)))
    config = load_config(tmp_path, path)
    assert {name: own.temperatures.plain for name, own in config.x_calibration.items()} == {"fp32": 2.0, "bf16": 3.0}
    assert json.loads(path.read_text(encoding="utf-8"))["note"] == 1


def test_what_it_was_made_upon_may_not_have_changed_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text('{"temperature": 1.5}', encoding="utf-8")
    first, second = (open_config(path, None) for _ in range(2))
    write_calibration(first, "fp32", Calibration(Temperatures(2.0)))
    with pytest.raises(ConfigError, match=r"calibration of fp32 in .* was changed while this one was made"):
        write_calibration(second, "fp32", Calibration(Temperatures(3.0)))
    assert load_config(tmp_path, path).for_dtype("fp32").temperatures == Temperatures(2.0)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be read"):
        write_calibration(first, "bf16", FULL)
    assert path.read_text(encoding="utf-8") == "{"


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text('\ufeff{"temperature": 1.5}', encoding="utf-8")
    assert written(path, "fp32", FULL)["temperature"] == 1.5


def test_where_there_is_none_it_begins_as_a_copy_of_the_models(tmp_path: Path) -> None:
    template = tmp_path / "decider_config.json"
    template.write_text(json.dumps(BEFORE), encoding="utf-8")
    after = written(tmp_path / "out.json", "fp8", FULL, template)
    assert after["layout"] == "chat"
    assert json.loads(template.read_text(encoding="utf-8")) == BEFORE
    assert load_config(tmp_path, tmp_path / "out.json").for_dtype("bf16").temperatures == Temperatures(3.0)


def test_a_link_is_replaced_and_what_it_names_is_not_touched(tmp_path: Path) -> None:
    target, link = tmp_path / "blob", tmp_path / "decider_config.json"
    target.write_text(json.dumps(BEFORE), encoding="utf-8")
    link.symlink_to(target)
    written(link, "fp32", FULL)
    assert not link.is_symlink()
    assert json.loads(target.read_text(encoding="utf-8")) == BEFORE


@pytest.mark.parametrize("content", ["{", "[1]", '{"temperature": 0}', '{"x_calibration": {"fp32": 1}}', ""])
def test_a_file_that_cannot_be_used_is_refused_and_stays(tmp_path: Path, content: str) -> None:
    path = tmp_path / "decider_config.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"decider_config\.json"):
        open_config(path, None)
    assert path.read_text(encoding="utf-8") == content


def test_what_cannot_be_written_is_said_before_anything_is_fitted(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "such.json"):
        with pytest.raises(ConfigError, match="cannot be written"):
            open_config(path, None)
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="cannot be read"):
        open_config(tmp_path / "dangling.json", None)


def test_a_write_that_fails_leaves_the_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "decider_config.json"
    path.write_text(json.dumps(BEFORE), encoding="utf-8")
    file = open_config(path, None)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        write_calibration(file, "fp32", FULL)
    assert json.loads(path.read_text(encoding="utf-8")) == BEFORE
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
