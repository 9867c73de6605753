"""The server's settings: precedence, limits that hold together, keys. Refuses the real environment.

Trap: the same file and the same prefix of variables carry the model's settings, and neither reader may trip over the
other's.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import pytest

from decider.errors import ConfigError
from decider.serve.config import ServeConfig, key_digest, load_serve_config
from decider.settings import load_settings

KEY, OTHER = "correct-horse-battery", "another-key-entirely"


def test_arguments_win_over_environment_over_table(tmp_path: Path) -> None:
    file = tmp_path / "decider.toml"
    file.write_text('model = "m"\n[serve]\nport = 1\nhost = "0.0.0.0"\ndeadline_s = 3\nlog_content = true\n')
    environ = {
        "DECIDER_CONFIG": str(file),
        "DECIDER_SERVE_PORT": "2",
        "DECIDER_SERVE_HOST": "::1",
        "DECIDER_CACHE": "/",
    }
    config = load_serve_config({"port": 3, "host": None}, environ=environ)
    assert (config.port, config.host, config.deadline_s, config.log_content) == (3, "::1", 3.0, True)
    assert config.drain_s == ServeConfig().drain_s


def test_both_readers_take_the_same_file_and_environment(tmp_path: Path) -> None:
    file = tmp_path / "decider.toml"
    file.write_text('device = "cpu"\n[serve]\nport = 9\n')
    environ = {"DECIDER_SERVE_PACK_TOKENS": "64", "DECIDER_API_KEYS": KEY, "DECIDER_MODEL": "m"}
    assert load_settings({}, environ=environ, file=file).device == "cpu"
    assert load_serve_config({}, environ=environ, file=file).pack_tokens == 64


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"DECIDER_SERVE_PROT": "1"}, "did you mean 'port'"),
        ({"DECIDER_SERVE_PORT": "http"}, "DECIDER_SERVE_PORT is 'http'; it must be a whole number"),
        ({"DECIDER_SERVE_PORT": "65536"}, "at most 65535"),
        ({"DECIDER_SERVE_PORT": "-1"}, "at least 0"),
        ({"DECIDER_SERVE_PREPARE_THREADS": "0"}, "at least 1"),
        ({"DECIDER_SERVE_DEADLINE_S": "0"}, "deadline_s is 0"),
        ({"DECIDER_SERVE_DEADLINE_S": "nan"}, "deadline_s is nan"),
        ({"DECIDER_SERVE_DRAIN_S": "inf"}, "drain_s is inf"),
        ({"DECIDER_SERVE_OVERLOAD_STATUS": "503"}, "429 or 529"),
        ({"DECIDER_SERVE_MAX_REQUEST_TOKENS": "999999"}, "over max_queued_tokens"),
        ({"DECIDER_SERVE_MAX_HELD_BYTES": "8388607"}, "under max_body_bytes and max_decompressed_bytes together"),
        ({"DECIDER_SERVE_MAX_JSON_DEPTH": "65"}, "max_json_depth is 65; it must be at most 64"),
        ({"DECIDER_SERVE_HOST": ""}, "setting 'host' is empty"),
        ({"DECIDER_SERVE_LOG_CONTENT": "perhaps"}, "true or false"),
        ({"DECIDER_API_KEYS": ""}, "is no key"),
        ({"DECIDER_API_KEYS": "short"}, "8 or more visible ASCII"),
        ({"DECIDER_API_KEYS": KEY, "DECIDER_SERVE_API_KEYS_FILE": "f"}, "both set"),
        ({"DECIDER_SERVE_API_KEYS": KEY}, "did you mean 'api_keys_file'"),
    ],
)
def test_a_bad_variable_is_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_serve_config({}, environ=environ)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[serve]\ncolour = 1", "unknown setting 'colour'"),
        ("[serve]\nport = true", "must be of type int"),
        ("[serve]\ndeadline_s = nan", "deadline_s is nan"),
        ("serve = 1", "is no table"),
        ('[serve]\napi_keys = ["k"]', "unknown setting 'api_keys'"),
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "decider.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_serve_config({}, environ={}, file=file)


def test_limits_are_what_the_parser_is_held_to() -> None:
    config = load_serve_config({"max_decompressed_bytes": 10, "max_questions": 2, "max_json_depth": 3}, environ={})
    assert (config.limits.max_body_bytes, config.limits.max_questions, config.limits.max_depth) == (10, 2, 3)


def test_keys_are_kept_as_digests_alone(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# two\n\n{KEY}\n  {OTHER}  \n")
    file.chmod(0o600)
    config = load_serve_config({"api_keys_file": str(file)}, environ={})
    assert config.api_keys == {key_digest(KEY), hashlib.sha256(OTHER.encode()).digest()}
    assert config.warnings == ()
    shown = repr(config) + repr(config.api_keys)
    assert KEY not in shown
    assert "api_keys" not in repr(config)


def test_keys_come_from_the_first_source_that_has_any(tmp_path: Path) -> None:
    named, table = tmp_path / "named", tmp_path / "table"
    named.write_text(KEY)
    table.write_text("a key of the table's"[:12].replace(" ", "-"))
    settings = tmp_path / "decider.toml"
    settings.write_text(f'[serve]\napi_keys_file = "{table}"\n')
    environ = {"DECIDER_API_KEYS": f"{OTHER}, {KEY}"}
    both = {key_digest(OTHER), key_digest(KEY)}
    assert load_serve_config({}, environ=environ, file=settings).api_keys == both
    by_argument = load_serve_config({"api_keys_file": str(named)}, environ=environ, file=settings)
    assert by_argument.api_keys == {key_digest(KEY)}
    assert len(load_serve_config({}, environ={}, file=settings).api_keys) == 1


def test_a_key_file_that_everyone_reads_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(KEY)
    file.chmod(0o644)
    (warning,) = load_serve_config({"api_keys_file": str(file)}, environ={}).warnings
    assert "chmod 600" in warning
    assert KEY not in warning


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"# none\n", "holds no API key"),
        (b"\xff\xfe", "no UTF-8"),
        (b"good-enough-key\nwith space\n", "line 2"),
        ("schl\u00fcssel-lang".encode(), "line 1"),
    ],
    ids=["none", "binary", "space", "letters"],
)
def test_a_bad_key_file_is_refused_without_its_content(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        load_serve_config({"api_keys_file": str(file)}, environ={})
    assert "with space" not in str(caught.value)
    assert "lang" not in str(caught.value)


def test_a_missing_key_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot read the API keys in '/nowhere/keys'"):
        load_serve_config({"api_keys_file": "/nowhere/keys"}, environ={})


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("example.com", False)],
)  # fmt: skip
def test_loopback(host: str, is_loopback: bool) -> None:
    assert ServeConfig(host=host).is_loopback is is_loopback


def test_a_config_made_by_hand_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="deadline_s"):
        ServeConfig(deadline_s=math.nan)
