"""`decider train` from words to a folder that `decider ask` serves, and what it refuses before anything is loaded.

Refuses to judge what is learned. Trap: a run that fails after its minutes is lost; faults of words come first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from train_data import write_data

from decider.cli import main
from decider.model.adapter import load_adapter
from decider.tokens.config import load_config

TinyFolder = Callable[[str], Path]

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_model_is_trained_and_served(
    tiny_folder: TinyFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write_data(tmp_path / "data", 20, 6), tmp_path / "out"
    manifest = {"tasks": {"words": {"licence": "CC0 | ours"}}}
    (data / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    words = ["train", str(data), "--out", str(out), "--model", str(tiny_folder("qwen3")), "--device", "cpu"]
    assert main([*words, "--preset", "tiny", "--tokens-per-step", "400", "--schema-first", "--smoothing", "0.05"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{out}\n"
    assert "lora of " in shown.err
    assert "held-out NLL" in shown.err
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "| words | 20 | 40 | CC0 \\| ours |" in card
    assert "| smoothing | 0.05 |" in card
    assert "| rank | 4 |" in card
    assert str(tmp_path) not in card
    assert (out / "curves.svg").read_text(encoding="utf-8").count("<svg") == 1
    training = json.loads((out / "training.json").read_text(encoding="utf-8"))
    assert training["facts"]["recipe"]["rank"] == 4
    assert training["step"] == len([entry for entry in training["history"] if "loss" in entry])
    config = load_config(out)
    assert (config.version, config.schema_first_trained, config.warnings) == ("out", True, ())
    adapter = load_adapter(out / "adapter.safetensors")
    # No path of whoever trained it.
    assert adapter.base == tiny_folder("qwen3").name

    request = {"state": "The box is red.", "questions": {"q": {"type": "choice", "criteria": ["red", "blue"]}}}
    (tmp_path / "request.json").write_text(json.dumps(request), encoding="utf-8")
    assert main(["ask", str(tmp_path / "request.json"), "--model", str(out), "--device", "cpu"]) == 0
    assert "red" in capsys.readouterr().out

    # The run is over, and resuming it says so again.
    before = (out / "model.safetensors").read_bytes()
    again = [
        *words,
        "--preset",
        "tiny",
        "--tokens-per-step",
        "400",
        "--schema-first",
        "--smoothing",
        "0.05",
        "--resume",
    ]
    assert main(again) == 0
    assert "resumed" in capsys.readouterr().err
    assert (out / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no.jsonl"], "no file 'no.jsonl'"),
        (["{data}", "--epochs", "1", "--minutes", "1"], "either epochs"),
        (["{data}", "--rank", "0"], "rank is 0"),
        (["{data}", "--learning-rate", "nan"], "learning_rate is nan"),
        (["{data}", "--workers", "-1"], "--workers is -1"),
        (["{data}", "--heldout", "{folder}/none.jsonl"], "none.jsonl"),
        (["{data}", "--device", "cuda:77"], "cuda:77"),
        (["{data}", "--model", "{folder}/nothing here"], "no model"),
        (["{data}", "--preset", "huge"], "invalid choice"),
        (["{data}", "--dtype", "float16"], "invalid choice"),
    ],
)
def test_faults_are_one_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    data = write_data(tmp_path / "data", 2, 1)
    given = [word.format(data=data, folder=tmp_path) for word in words]
    try:
        status = main(["train", *given, "--out", str(tmp_path / "out")])
    except SystemExit as exit_:
        status = int(str(exit_.code))
    assert status == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert said in shown.err
    assert not (tmp_path / "out").exists()


def test_a_place_that_holds_a_model_is_left_alone(
    tiny_folder: TinyFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_data(tmp_path / "data", 2, 1)
    model = tiny_folder("llama")
    before = sorted(file.name for file in model.iterdir())
    assert main(["train", str(data), "--out", str(model), "--model", str(model), "--device", "cpu"]) == 2
    assert "holds a model" in capsys.readouterr().err
    assert sorted(file.name for file in model.iterdir()) == before


def test_the_adapter_is_stored_as_asked(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", 20, 6)
    words = ["train", str(data), "--model", str(tiny_folder("llama")), "--device", "cpu", "--preset", "tiny"]
    sizes: dict[str | None, int] = {}
    for stored in (None, "int8"):
        out = tmp_path / str(stored)
        more = [] if stored is None else ["--adapter-dtype", stored]
        assert main([*words, "--tokens-per-step", "400", "--out", str(out), *more]) == 0
        tensors = load_file(out / "adapter.safetensors")
        assert {tensor.dtype for name, tensor in tensors.items() if name.endswith(".weight")} == {
            torch.float32 if stored is None else torch.int8
        }
        sizes[stored] = sum(tensor.nbytes for tensor in tensors.values())
    assert sizes["int8"] < 0.6 * sizes[None]
    assert main([*words, "--out", str(tmp_path / "x"), "--method", "full", "--adapter-dtype", "int8"]) == 2


def test_a_place_of_other_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = write_data(tmp_path / "data", 2, 1), tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine", encoding="utf-8")
    for more in ([], ["--resume"]):
        assert main(["train", str(data), "--out", str(out), "--device", "cpu", *more]) == 2
        assert "holds other files; name a new or empty folder" in capsys.readouterr().err
    assert [file.name for file in out.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("there", [True, False])
def test_a_place_that_cannot_be_written_is_found_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    data, out = write_data(tmp_path / "data", 2, 1), tmp_path / "place" / "out"
    (out if there else out.parent).mkdir(parents=True)
    tried: list[Path] = []

    # Modes do not keep root from writing.
    def refuse(*, dir: Path) -> None:  # noqa: A002 - the library's name
        tried.append(dir)
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert main(["train", str(data), "--out", str(out), "--model", "no model", "--device", "cpu"]) == 2
    assert "cannot write in" in (said := capsys.readouterr().err)
    assert "Read-only file system; name another folder" in said
    assert tried == [out if there else out.parent]


def test_an_empty_place_is_taken_and_left_as_it_was_by_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write_data(tmp_path / "data", 2, 1), tmp_path / "out"
    out.mkdir()
    assert main(["train", str(data), "--out", str(out), "--model", "no model", "--device", "cpu"]) == 2
    assert "no model 'no model'" in capsys.readouterr().err
    assert list(out.iterdir()) == []


def test_a_typing_error_costs_no_torch(tmp_path: Path) -> None:
    """In a process of its own."""
    code = "import sys; from decider.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    words = ["train", str(tmp_path), "--out", "x", "--workers", "-1"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1] == "2 False", done.stderr
