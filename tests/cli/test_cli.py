"""The command line: what is on standard output, what on standard error, and the exit status.

Refuses to check probabilities. Trap: a library's warning on standard output breaks every caller that parses JSON, and
comes once a process; so each kind of output is seen in a process of its own as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Call, Done, assert_fault, here, process, without_torch
from tiny_models import link_checkpoint

ROOT = Path(__file__).parents[2]
TICKET = ROOT / "examples" / "ticket.json"
TinyFolder = Callable[[str], Path]
GOOD = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}


def test_json_is_the_wire_response_and_nothing_else_and_utf_8_whatever_the_locale(tiny_folder: TinyFolder) -> None:
    request = json.loads(TICKET.read_text())
    request["questions"]["é😀"] = {"type": "noul", "instructions": "Is it?"}
    options = ["--json", "--model", str(tiny_folder("qwen3_5")), "--device", "cpu"]
    done = process("ask", "-", *options, stdin=json.dumps(request), PYTHONIOENCODING="ascii")
    assert done.status == 0, done.stderr
    response = json.loads(done.stdout)
    assert list(response) == ["model", "answers", "usage"]
    assert list(response["answers"]) == ["team", "severity", "churn", "é😀"]
    assert "é😀" in done.stdout
    assert set(response["answers"]["severity"]) >= {"type", "score", "confidence", "legend", "probabilities"}


def test_the_table_shows_every_option_of_standard_input_whatever_the_locale(tiny_folder: TinyFolder) -> None:
    request = json.loads(TICKET.read_text())
    request["questions"]["team"]["criteria"]["[bold]markup[/bold]"] = None
    request["questions"]["é😀"] = {"type": "noul", "instructions": "Is it?"}
    options = ["--model", str(tiny_folder("llama")), "--truncate"]
    done = process("ask", "-", *options, stdin=json.dumps(request), PYTHONIOENCODING="ascii")
    assert done.status == 0, done.stderr
    assert done.stderr == ""
    shown = ("team", "billing", "[bold]markup[/bold]", "severity", "nothing works any more", "churn", "yes", "tokens")
    for text in shown:
        assert text in done.stdout
    assert "é😀" in done.stdout
    assert "█" in done.stdout


def test_a_file_with_a_byte_order_mark_is_read(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    file = tmp_path / "with a space.json"
    file.write_text(json.dumps(GOOD), encoding="utf-8-sig")
    done = here("ask", str(file), "--json", "--model", str(tiny_folder("llama")))
    assert done.status == 0, done.stderr


def test_closed_standard_input_is_said() -> None:
    command = f"{sys.executable} -m decider.cli ask - <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert_fault(Done(done.returncode, done.stdout, done.stderr), "standard input is closed")


def test_a_callers_text_cannot_steer_the_terminal(tiny_folder: TinyFolder) -> None:
    question = {"type": "choice", "criteria": ["a\u001b]0;pwn", "b"]}
    shown = here(
        "ask",
        "-",
        "--model",
        str(tiny_folder("llama")),
        stdin=json.dumps({"state": "x", "questions": {"q\u001b[31m": question}}),
    )
    assert shown.status == 0, shown.stderr
    assert "\x1b" not in shown.stdout
    assert "pwn" in shown.stdout
    fault = here("ask", "-", stdin=json.dumps({"state": "x", "questions": {"q\u001b[31m\nrow": {"type": "box"}}}))
    assert_fault(fault, "box")
    assert "\x1b" not in fault.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("form", ["--json", "--truncate"])
def test_a_full_disk_is_one_line(tiny_folder: TinyFolder, form: str) -> None:
    command = f"{sys.executable} -m decider.cli ask - {form} --model {tiny_folder('llama')} > /dev/full"
    done = subprocess.run(
        ["bash", "-c", command], input=json.dumps(GOOD), capture_output=True, text=True, timeout=60, check=False
    )
    assert_fault(Done(done.returncode, done.stdout, done.stderr), "cannot write the output")


def test_a_configured_model_must_be_the_one_asked_for(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    link_checkpoint(tiny_folder("llama"), tmp_path)
    (tmp_path / "decider_config.json").write_text('{"version": "9"}')
    served = here("ask", "-", "--json", stdin=json.dumps({**GOOD, "model": "decider-9"}), DECIDER_MODEL=str(tmp_path))
    assert served.status == 0, served.stderr
    other = here("ask", "-", "--json", stdin=json.dumps({**GOOD, "model": "zzz"}), DECIDER_MODEL=str(tmp_path))
    assert_fault(other, "unknown model 'zzz'")


def test_the_requests_model_is_loaded_unless_an_option_names_one(tiny_folder: TinyFolder) -> None:
    named = json.dumps({**GOOD, "model": str(tiny_folder("llama"))})
    done = here("ask", "-", "--json", stdin=named)
    assert done.status == 0, done.stderr
    wins = here("ask", "-", "--json", "--model", str(tiny_folder("gemma3")), stdin=named)
    assert wins.status == 0, wins.stderr
    assert json.loads(wins.stdout)["answers"] != json.loads(done.stdout)["answers"]
    by_variable = here("ask", "-", "--json", stdin=json.dumps(GOOD), DECIDER_MODEL=str(tiny_folder("gemma3")))
    assert by_variable.stdout == wins.stdout


BAD_REQUESTS = [
    ("{", "malformed JSON"),
    ("[]", "request"),
    ('{"state": "x"}', "questions"),
    ('{"state": "x", "questions": []}', "questions"),
    ('{"state": "x", "questions": {}}', "question"),
    ('{"state": "x", "state": "y", "questions": {}}', "state"),
    ('{"state": NaN, "questions": {"q": {"type": "noul", "instructions": "x"}}}', "NaN"),
    ('{"state": "\\ud800", "questions": {"q": {"type": "noul", "instructions": "x"}}}', "surrogate"),
    ('{"state": "x", "questions": {"q": {"type": "noul"}}}', "questions.q"),
    ('{"state": "x", "questions": {"q": {"type": "box"}}}', "box"),
    ('{"state": "x", "questions": {"q": "yes?"}}', "questions.q"),
    ('{"state": "x", "questions": {"q": {"type": "choice", "criteria": {}}}}', "no options (0)"),
    ('{"state": "x", "questions": {"q": {"type": "choice", "criteria": ["a", "a"]}}}', "'a'"),
    (
        json.dumps({"state": "x", "questions": {"q": {"type": "choice", "criteria": list(map(str, range(256)))}}}),
        "256",
    ),
    (json.dumps({**GOOD, "state": "x" * (3 << 20)}), "max_state_bytes"),
    (json.dumps({**GOOD, "state": "x" * (10 << 20)}), "8,388,608"),
]
BAD_RATES = ["0", "1", "nan"]


@pytest.fixture(scope="module")
def refused() -> dict[str, Done]:
    """What became of every bad request and of every bad error rate, before torch is imported."""
    calls = {body: Call(["ask", "-"], body) for body, _ in BAD_REQUESTS}
    calls |= {rate: Call(["ask", "-", "--error-rate", rate], json.dumps(GOOD)) for rate in BAD_RATES}
    return dict(zip(calls, without_torch(list(calls.values())), strict=True))


@pytest.mark.parametrize(("body", "said"), BAD_REQUESTS)
def test_a_bad_request_is_one_line_before_torch_is_imported(refused: dict[str, Done], body: str, said: str) -> None:
    assert_fault(refused[body], said)


@pytest.mark.parametrize("rate", BAD_RATES)
def test_a_bad_error_rate_is_found_before_torch_is_imported(refused: dict[str, Done], rate: str) -> None:
    assert_fault(refused[rate], "error_rate is")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ask", "nowhere.json"], "cannot read 'nowhere.json'"),
        (["ask", "."], "cannot read '.'"),
        (["ask"], "FILE"),
        (["frobnicate"], "frobnicate"),
        (["ask", "-", "--layout", "fancy"], "fancy"),
        (["ask", "-", "--temperature", "hot"], "hot"),
        (["ask", "-", "--model", "no such model"], "no such model"),
        (["ask", "-", "--model", "smollm"], "did you mean 'smollm2'"),
        (["ask", "-", "--config", "nowhere.toml"], "nowhere.toml"),
        (["ask", "-", "--error-rate", "often"], "often"),
        (["ask", "-", "--gguf-file", "x.gguf"], "x.gguf"),
    ],
)
def test_a_bad_option_is_one_line(arguments: list[str], said: str) -> None:
    assert_fault(here(*arguments, stdin=json.dumps(GOOD)), said)


def test_sets_and_abstention_are_shown(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    fitted = {"n": 9, "error_rates": [0.1], "set_thresholds": [1.0], "accept": [None]}
    selective = {"layout": "plain", "permutations": 1, "risk_confidence": 0.9, "choice": fitted, "noul": fitted}
    config = tmp_path / "calibrated.json"
    config.write_text(json.dumps({"x_calibration": {"fp32": {"selective": selective}}}))
    asked = {"q": {"type": "noul", "question": "x"}, "c": {"type": "choice", "options": ["a\u001b", "b" * 60]}}
    options = ["--model", str(tiny_folder("llama")), "--dtype", "float32", "--decider-config", str(config)]
    done = here("ask", "-", *options, "--error-rate", "0.2", stdin=json.dumps({"state": "x", "questions": asked}))
    assert done.status == 0, done.stderr
    assert "at error rate 0.2: no, yes  (abstain)" in done.stdout
    assert f"at error rate 0.2: a\\x1b, {'b' * 47}… (abstain)" in " ".join(done.stdout.split())
    response = json.loads(here("ask", "-", "--json", *options, stdin=json.dumps({**GOOD, "error_rate": 0.3})).stdout)
    assert response["answers"]["q"]["x_set"] == [False, True]
    assert "at error rate" not in here("ask", "-", *options, stdin=json.dumps(GOOD)).stdout


@pytest.mark.parametrize("temperature", ["0", "-1", "nan", "inf"])
def test_a_bad_temperature_is_found_before_the_model_is_loaded(temperature: str) -> None:
    done = here("ask", "-", "--temperature", temperature, "--model", "/nowhere", stdin=json.dumps(GOOD))
    assert_fault(done, "temperature")


def test_a_bad_model_configuration_is_an_error_at_load(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    link_checkpoint(tiny_folder("llama"), tmp_path)
    (tmp_path / "decider_config.json").write_text('{"temperature": 0}')
    assert_fault(here("ask", "-", "--model", str(tmp_path), stdin=json.dumps(GOOD)), "temperature")


def test_doctor_tells_facts_and_reasons(tiny_folder: TinyFolder) -> None:
    done = here("doctor", "--model", str(tiny_folder("llama")), DECIDER_DEVICE="cpu")
    assert done.status == 0, done.stderr
    for text in ("Detected", "torch", "threads", "cache", "Chosen", "executor", "asked for", "layout", "labels"):
        assert text in done.stdout


def test_models_works_with_an_empty_cache(tmp_path: Path) -> None:
    done = here("models", DECIDER_CACHE=str(tmp_path / "empty"))
    assert done.status == 0, done.stderr
    assert "smollm2-135m-instruct" in done.stdout
    assert "on first use" in " ".join(done.stdout.split())
    assert not (tmp_path / "empty").exists()


def test_a_closed_pipe_is_no_traceback(tiny_folder: TinyFolder) -> None:
    command = f"{sys.executable} -m decider.cli ask - --model {tiny_folder('llama')} | true"
    done = subprocess.run(
        ["bash", "-c", command], input=json.dumps(GOOD), capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stderr


def test_importing_the_package_is_light() -> None:
    code = "import sys, decider; sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_public_names_are_the_listed_ones() -> None:
    code = "import decider; print(*[getattr(decider, name) and name for name in decider.__all__])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = done.stdout.split()
    assert len(names) <= 24
    assert names == sorted(names)
    assert {"Decider", "Choice", "Score", "Noul"} <= set(names)
