"""`decider bench serve`: the table, the JSON, the plot, the key, and what it refuses before anything is sent.

Refuses to judge speed. Trap: the key may come from the environment, so tests set or unset it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from stub_http import Say, reply, stub

from decider.cli import main

SHORT = ["--seconds", "0.4", "--warmup", "0.1"]


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TYPESAFE_API_KEY", raising=False)


def test_a_closed_loop_with_all_that_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, drawn = tmp_path / "load.json", tmp_path / "load.svg"
    with stub() as server:
        words = ["--url", server.url, "--clients", "2", *SHORT, "--json", str(figures), "--plot", str(drawn)]
        assert main(["bench", "serve", *words]) == 0
        assert all(b"Authorization" not in request for request in server.requests)
    shown = capsys.readouterr()
    assert f"{server.url}/v1/systemone, stub, 4 different requests" in shown.out
    assert "closed loop, 2 clients" in shown.out
    assert "\nfailures: none\n" in shown.out
    facts = json.loads(figures.read_text(encoding="utf-8"))
    assert (facts["loop"], facts["clients"], facts["model"], facts["failures"]) == ("closed", 2, "stub", {})
    assert facts["sent"] == facts["answered"] > 10
    assert facts["p50_ms"] <= facts["p99_ms"] <= facts["max_ms"]
    assert facts["generator_cpu_share"] > 0
    assert drawn.read_text(encoding="utf-8").startswith("<?xml")


def test_an_open_loop_replays_a_file_with_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TYPESAFE_API_KEY", "from-environment")
    file = tmp_path / "requests.jsonl"
    file.write_text('{"state": "one", "questions": {}}\n{"state": "two", "questions": {}}\n')
    with stub(lambda n: Say((reply(429, b"{}"),)) if n == 3 else Say()) as server:
        words = ["--url", server.url, "--rate", "50", "--arrivals", "fixed", "--requests", str(file)]
        assert main(["bench", "serve", *words, "--seconds", "0.4", "--warmup", "0"]) == 0
        sent = list(server.requests)
    # One to see that the server answers, then the load, in turn.
    assert len(sent) == 1 + 20
    assert all(b"Authorization: Bearer from-environment\r\n" in request for request in sent)
    assert sum(b'"state":"one"' in request for request in sent) == 11
    shown = capsys.readouterr()
    assert "open loop, 50 requests/s, fixed" in shown.out
    assert "failures: 429 × 1" in shown.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--clients", "0"], "--clients is 0"),
        (["--clients", "100000"], "at most 512"),
        (["--rate", "nan"], "--rate is nan"),
        (["--seconds", "-1"], "--seconds is -1"),
        (["--seconds", "inf"], "--seconds is inf"),
        (["--arrivals", "fixed"], "give --rate too"),
        (["--url", "localhost"], "--url is 'localhost'"),
        (["--api-key", "a\nb"], "characters that no header"),
        (["--requests", "no/such.jsonl"], "no/such.jsonl"),
        (["--json", "no/such/load.json"], "no/such/load.json"),
        (["--url", "http://127.0.0.1:9"], "cannot be asked"),
    ],
)
def test_what_cannot_be_sent_is_one_line_and_exit_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = [] if "--url" in words else ["--url", "http://127.0.0.1:9"]
    assert main(["bench", "serve", *url, *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("decider: error: ")
    assert shown.err.count("\n") == 1
    assert said in shown.err


def test_clients_and_rate_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "serve", "--clients", "1", "--rate", "1"])
    assert "not allowed with" in capsys.readouterr().err


def test_matplotlib_is_missed_before_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with stub() as server:
        assert main(["bench", "serve", "--url", server.url, "--plot", str(tmp_path / "x.svg")]) == 2
        assert server.requests == []
    assert "pip install" in capsys.readouterr().err


def test_a_load_needs_no_torch() -> None:
    """In a process of its own."""
    code = "import sys; from decider.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    with stub() as server:
        words = ["bench", "serve", "--url", server.url, "--seconds", "0.1", "--warmup", "0", "--clients", "1"]
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.stdout.endswith("\n0 False\n"), done.stderr
