"""`decider serve` in its own process: a real model behind it, and every fault that is found before it is loaded.

Refuses to know the routes. Trap: what a bad configuration costs is paid at each try of a supervisor, so a torch that
cannot be imported stands by to prove that nothing tried.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest
from command import Call, Done, assert_fault, environment, here, process, without_torch

from decider.cli import main, serve

TinyFolder = Callable[[str], Path]
KEY = "a-key-of-some-length"


def test_a_model_is_served_until_a_signal(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(KEY)
    keys.chmod(0o600)
    settings = tmp_path / "decider.toml"
    settings.write_text(f'model = "{tiny_folder("llama")}"\ndevice = "cpu"\n[serve]\nport = 0\nlog_content = false\n')
    command = [sys.executable, "-m", "decider.cli", "serve", "--config", str(settings), "--api-keys", str(keys)]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stdout is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if "serving decider-" in line:
                    break
            port = int(said[-1].rpartition(":")[2])
            question = {"type": "noul", "instructions": "Is it?"}
            body = json.dumps({"state": "in secret", "model": "jev-latest", "questions": {"q": question}})
            connection = HTTPConnection("127.0.0.1", port, timeout=30)
            headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
            connection.request("POST", "/v1/systemone", body, headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
            assert response.status == 200
            assert 0 < answer["answers"]["q"]["noul"] < 1
            connection.request("POST", "/v1/systemone", body, {"content-type": "application/json"})
            response = connection.getresponse()
            response.read()
            assert response.status == 403
            connection.close()
            process.send_signal(signal.SIGTERM)
            log, rest = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0
    events = [json.loads(line) for line in log.splitlines()]
    assert [event.get("status") for event in events if event["event"] == "request"] == [200, 403]
    assert "in secret" not in log + rest + "".join(said)
    assert KEY not in log + rest + "".join(said)


BAD_WORDS: list[tuple[list[str], dict[str, str], str]] = [
    (["--port", "65536"], {}, "port is 65536"),
    (["--port", "http"], {}, "invalid int value"),
    (["--host", "no.such.host.invalid"], {}, "host 'no.such.host.invalid' is no address"),
    (["--host", "192.0.2.1"], {}, "cannot listen on '192.0.2.1'"),
    (["--api-keys", "/nowhere/keys"], {}, "cannot read the API keys"),
    ([], {"DECIDER_SERVE_PROT": "1"}, "did you mean 'port'"),
    ([], {"DECIDER_SERV_PORT": "1"}, "unknown setting 'serv_port'"),
    (["--config", "/nowhere/decider.toml"], {}, "cannot read the settings file"),
    (["--executor", "fast"], {}, "fast"),
]


@pytest.fixture(scope="module")
def refused() -> dict[str, Done]:
    """What became of each, by what has to be said of it."""
    done = without_torch([Call(["serve", "--port", "0", *words], "", variables) for words, variables, _ in BAD_WORDS])
    return {said: one for (_, _, said), one in zip(BAD_WORDS, done, strict=True)}


@pytest.mark.parametrize("said", [said for _, _, said in BAD_WORDS])
def test_a_bad_word_is_one_line_before_torch_is_imported(refused: dict[str, Done], said: str) -> None:
    assert_fault(refused[said], said)


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (done,) = without_torch([Call(["serve", "--port", str(port)])])
    assert_fault(done, f"port {port}: Address already in use")


def test_a_model_that_cannot_be_loaded_is_one_line() -> None:
    done = process("serve", "--port", "0", "--model", "no such model")
    assert json.loads(done.stdout)["event"] == "started"
    assert_fault(replace(done, stdout=""), "no such model")


def test_a_missing_package_comes_with_its_install_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("DECIDER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "uvicorn" else object())
    assert main(["serve"]) == 2
    error = capsys.readouterr().err
    assert "decider serve needs uvicorn" in error
    assert error.endswith("pip install '.[serve]'\n")


def test_other_commands_take_the_servers_settings_for_none_of_theirs(tmp_path: Path) -> None:
    settings = tmp_path / "decider.toml"
    settings.write_text("[serve]\nport = 1\n")
    variables = {"DECIDER_SERVE_PORT": "2", "DECIDER_API_KEYS": KEY, "DECIDER_CONFIG": str(settings)}
    done = here("models", **variables)
    assert done.status == 0, done.stderr
