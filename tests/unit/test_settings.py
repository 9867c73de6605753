"""Settings: precedence, types, unknown keys. Refuses the real environment. Trap: `False` is a value, None is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from decider.errors import ConfigError
from decider.settings import load_settings


def test_arguments_win_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "decider.toml"
    file.write_text('model = "file"\ndevice = "cpu"\nlayout = "chat"\ntemperature = 2\n')
    environ = {
        "DECIDER_CONFIG": str(file),
        "DECIDER_MODEL": "env",
        "DECIDER_DEVICE": "mps",
        "DECIDER_CACHE": "/x",
        "HOME": "/",
    }
    settings = load_settings({"model": "argument", "device": None}, environ=environ)
    assert (settings.model, settings.device, settings.layout, settings.temperature) == ("argument", "mps", "chat", 2.0)
    assert settings.sources["model"] == "argument"
    assert settings.sources["device"] == "environment"
    assert settings.sources["layout"] == str(file)
    assert settings.sources["truncate"] == "default"


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "decider.toml"
    file.write_text('device = "cpu"\n', encoding="utf-8-sig")
    assert load_settings({}, environ={}, file=file).device == "cpu"


def test_a_false_argument_overrides_a_true_variable() -> None:
    assert load_settings({"truncate": False}, environ={"DECIDER_TRUNCATE": "yes"}).truncate is False
    assert load_settings({}, environ={"DECIDER_TRUNCATE": "1", "DECIDER_MAX_STATE_TOKENS": "9"}).max_state_tokens == 9


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"DECIDER_MODLE": "x"}, "did you mean 'model'"),
        ({"DECIDER_TRUNCATE": "maybe"}, "DECIDER_TRUNCATE is 'maybe'"),
        ({"DECIDER_TEMPERATURE": "hot"}, "must be a number"),
        ({"DECIDER_MAX_STATE_TOKENS": "1.5"}, "must be a whole number"),
        ({"DECIDER_DECIDER_CONFIG": ""}, "setting 'decider_config' is empty"),
        ({"DECIDER_MODEL": ""}, "setting 'model' is empty"),
        ({"DECIDER_MAX_STATE_TOKENS": "0"}, "at least 1"),
        ({"DECIDER_CONFIG": "/nowhere/decider.toml"}, "cannot read the settings file"),
    ],
)
def test_a_bad_variable_is_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_settings({}, environ=environ)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour = 1", "unknown setting 'colour'"),
        ('truncate = "yes"', "must be of type bool"),
        ("max_state_tokens = true", "must be of type int"),
        ("sources = 1", "unknown setting 'sources'"),
        ("model =", "not valid TOML"),
        ("temperature = 1" + 400 * "0", "temperature is 1000"),
        ("temperature = 1" + 5000 * "0", "not valid TOML"),
        ("model = " + 5000 * "[", "not valid TOML"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "decider.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_settings({}, environ={}, file=file)
