"""`decider_config.json`: every key, every refusal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from decider.errors import ConfigError
from decider.questions.jsontext import JsonValue
from decider.tokens.calibration import Calibration, OptionTemperature, PlattMap, Temperatures
from decider.tokens.config import CONFIG_NAME, DeciderConfig, load_config


def write(folder: Path, content: object) -> Path:
    (folder / CONFIG_NAME).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def test_a_missing_file_gives_the_defaults(tmp_path: Path) -> None:
    config = load_config(tmp_path)
    assert config == DeciderConfig()
    assert not config.present


def test_an_empty_object_gives_the_defaults(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, {})) == DeciderConfig(present=True)


def test_the_defaults_are_the_documented_ones() -> None:
    config = DeciderConfig()
    assert (config.version, config.release_date) == ("dev", "1970-01-01")
    assert (config.chat, config.schema_first, config.schema_first_trained) == (False, False, False)
    assert (config.neutralize_none, config.isolated_levels, config.images) == (True, False, False)
    assert config.temperatures == Temperatures(1.0, {}, None, None, {})
    assert (config.x_calibration, config.warnings) == ({}, ())


def test_every_key_is_read(tmp_path: Path) -> None:
    calibration: dict[str, dict[str, JsonValue]] = {
        "fp8": {"temperature": 1.5, "noul_platt": {"a": 2, "b": 0}},
        "bf16": {},
    }
    content = {
        "version": "2b",
        "release_date": "2026-01-02",
        "layout": "chat",
        "chat_template": True,
        "temperature": 2,
        "temperature_by_type": {"choice": 1.25, "noul": 3},
        "temperature_unfamiliar_by_type": {"noul": 4},
        "temperature_by_options": None,
        "temperature_schema_first": 0.5,
        "temperature_schema_first_by_type": {"score": 0.75},
        "neutralize_none": False,
        "isolated_levels": True,
        "schema_first": True,
        "schema_first_trained": True,
        "images": True,
        "x_calibration": calibration,
    }
    assert load_config(write(tmp_path, content)) == DeciderConfig(
        present=True,
        version="2b",
        release_date="2026-01-02",
        chat=True,
        temperatures=Temperatures(2.0, {"choice": 1.25, "noul": 3.0}, None, 0.5, {"score": 0.75}, {"noul": 4.0}),
        neutralize_none=False,
        isolated_levels=True,
        schema_first=True,
        schema_first_trained=True,
        images=True,
        x_calibration={"fp8": Calibration(Temperatures(1.5), PlattMap(2.0, 0.0)), "bf16": Calibration()},
    )


def test_a_dtype_has_its_own_temperatures_and_unknown_keys_are_named(tmp_path: Path) -> None:
    content = {"temperature": 2, "x_calibration": {"fp32": {"temprature": 1, "temperature": 5, "platt": [1, 2]}}}
    config = load_config(write(tmp_path, content))
    assert config.for_dtype("fp32") == Calibration(Temperatures(5.0))
    assert config.for_dtype("bf16") == Calibration(Temperatures(2.0))
    assert [("temprature" in line, "no effect" in line) for line in config.warnings] == [(True, True), (False, True)]


@pytest.mark.parametrize(
    ("content", "chat"),
    [
        ({"layout": "plain"}, False),
        ({"layout": "chat"}, True),
        ({"chat_template": True}, True),
        ({"chat_template": False}, False),
        ({"layout": "plain", "chat_template": False}, False),
    ],
)
def test_chat(tmp_path: Path, content: object, chat: bool) -> None:
    assert load_config(write(tmp_path, content)).chat is chat


def test_temperature_by_options(tmp_path: Path) -> None:
    content = {"temperature_by_options": {"a": 1, "b": -0.25}, "temperature_by_type": {}}
    assert load_config(write(tmp_path, content)).temperatures.by_options == OptionTemperature(1.0, -0.25, 0.05)
    content = {"temperature_by_options": {"a": 1, "b": 0.5, "min": 2}}
    assert load_config(write(tmp_path, content)).temperatures.by_options == OptionTemperature(1.0, 0.5, 2.0)


BAD = [
    ({"version": 2}, "version is 2; it must be a string"),
    ({"version": ""}, "version is ''; it must be a string"),
    ({"release_date": None}, "release_date is None; it must be a string"),
    ({"layout": "chatty"}, 'layout is \'chatty\'; it must be "plain" or "chat"'),
    ({"layout": None}, "layout is None"),
    ({"layout": "plain", "chat_template": True}, 'chat_template is True; it must be absent or false where "layout"'),
    ({"chat_template": "yes"}, "chat_template is 'yes'; it must be true or false"),
    ({"temperature": 0}, "temperature is 0; it must be a finite number above 0"),
    ({"temperature": -1.5}, "temperature is -1.5"),
    ({"temperature": True}, "temperature is True"),
    ({"temperature": "1"}, "temperature is '1'"),
    ({"temperature": None}, "temperature is None"),
    ({"temperature": 10**400}, "temperature is an int of|cannot be read"),
    ({"temperature_by_type": [1]}, "temperature_by_type is a list of length 1; it must be an object"),
    ({"temperature_by_type": {"noul": False}}, "temperature_by_type: noul is False; it must be a finite number"),
    (
        {"temperature_by_type": {"nuol": 1}},
        r"unknown key 'nuol' \(did you mean 'noul'\?\); allowed are choice, noul, score",
    ),
    (
        {"temperature_by_type": {"noul": 1}, "temperature_unfamiliar_by_type": {"noul": 2, "score": 2}},
        "temperature_unfamiliar_by_type.*of types that temperature_by_type has, too, which score is not",
    ),
    ({"temperature_unfamiliar_by_type": {"noul": 0}}, "noul is 0; it must be a finite number above 0"),
    ({"temperature_by_options": {"a": 1}}, "temperature_by_options: b is missing; it must be a finite number"),
    ({"temperature_by_options": {"a": 1, "b": True}}, "b is True"),
    ({"temperature_by_options": {"a": 1, "b": 1, "min": 0}}, "min is 0; it must be a finite number above 0"),
    ({"temperature_by_options": {"a": 1, "b": 1, "max": 2}}, "unknown key 'max'.*; allowed are a, b, min"),
    (
        {"temperature_by_options": {"a": 1, "b": 1}, "temperature_by_type": {"noul": 1}},
        "absent where temperature_by_type",
    ),
    ({"temperature_schema_first": 0.0}, "temperature_schema_first is 0.0"),
    ({"temperature_schema_first_by_type": {"box": 1}}, "unknown key 'box'"),
    ({"neutralize_none": 1}, "neutralize_none is 1; it must be true or false"),
    ({"isolated_levels": None}, "isolated_levels is None"),
    ({"schema_first": "false"}, "schema_first is 'false'"),
    ({"schema_first_trained": 0}, "schema_first_trained is 0"),
    ({"images": []}, "images is a list of length 0; it must be true or false"),
    ({"x_calibration": [1]}, "x_calibration is"),
    ({"temperature_by_options": {"a": 1e308, "b": 1e308}}, "finite up to 255 options"),
    ({"x_calibration": {"fp8": None}}, "x_calibration: fp8 is None; it must be an object"),
    ({"x_calibration": {"fp8": {"temperature": 0}}}, "x_calibration: fp8: temperature is 0"),
    ([], "holds a list of length 0; it must be a JSON object"),
    ("", "cannot be read"),
    ('{"temperature": NaN}', "cannot be read"),
    ('{"temperature": 1, "temperature": 2}', "cannot be read"),
]


@pytest.mark.parametrize(("content", "message"), BAD)
def test_bad_content_is_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(write(tmp_path, content))
    assert str(tmp_path / CONFIG_NAME) in str(caught.value)


def test_long_values_are_cut(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="version is") as caught:
        load_config(write(tmp_path, {"version": ["x" * 1000]}))
    assert len(str(caught.value)) < len(str(tmp_path)) + 150


def test_a_file_that_is_there_but_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder" / CONFIG_NAME).mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "folder")
    (tmp_path / CONFIG_NAME).symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="cannot be read: there is no such file"):
        load_config(tmp_path)
    (tmp_path / "x").touch()
    for named, why in (("nowhere", "there is no such file"), ("x/y", "Not a directory")):
        with pytest.raises(ConfigError) as caught:
            load_config(tmp_path, tmp_path / named)
        # Once, and without the number and the quoted path of the system's own text.
        assert str(caught.value) == f"{tmp_path / named} cannot be read: {why}; name a readable decider_config.json"


def test_a_byte_order_mark_is_left_out_and_a_pipe_is_refused(tmp_path: Path) -> None:
    write(tmp_path, '\ufeff{"version": "own"}')
    assert load_config(tmp_path).version == "own"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe cannot be read: it is no regular file; name a readable"):
        load_config(tmp_path, tmp_path / "pipe")


def test_a_file_that_is_named_stands_in_for_the_folders(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"version": "other"}', encoding="utf-8")
    assert load_config(write(tmp_path, {"version": "own"}), other).version == "other"
    with pytest.raises(ConfigError, match=r"nowhere\.json cannot be read.*name a readable decider_config\.json"):
        load_config(tmp_path, tmp_path / "nowhere.json")


def test_unknown_keys_are_warned_about(tmp_path: Path) -> None:
    warnings = load_config(write(tmp_path, {"temprature": 2, "zzz": 1, "temperature": 1.5})).warnings
    assert len(warnings) == 2
    assert "unknown key 'temprature' (did you mean 'temperature'?)" in warnings[0]
    assert "unknown key 'zzz'; it has no effect" in warnings[1]
    assert all(CONFIG_NAME in warning for warning in warnings)
