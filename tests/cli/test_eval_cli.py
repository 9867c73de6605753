"""`decider eval`: on saved decisions and on a tiny model, two reports compared, and what is refused before a run.

Refuses to test figures. Trap: saved decisions need no model, so a run on them must not import torch; that is seen only
in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_decisions import FACTS, SCRIPT, made_decisions

from decider.api import Decider
from decider.cli import main
from decider.decisions import distributions
from decider.evaluate.saved import load_decisions, save_decisions

TinyFolder = Callable[[str], Path]

QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": "charges", "tech": "", "else": ""},
    },
    "urgent": {"type": "noul", "instructions": "Is it urgent?"},
    "mood": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "cross", "furious"]},
}
CONFIG = {"temperature": 2.0, "x_calibration": {"fp32": {"temperature": 1.5, "noul_platt": {"a": 0.5, "b": 0.1}}}}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    file = tmp_path / "decisions.npz"
    save_decisions(file, made_decisions(30), FACTS)
    return file


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Six items of three questions, and one that no tiny model has the positions for."""
    file = tmp_path / "tickets.jsonl"
    items = [
        {
            "id": f"t{n}",
            "task": f"tickets {SCRIPT}" if n < 3 else "others",
            "state": "the cat sat on the mat " * (n + 1),
            "questions": QUESTIONS,
            "gold": {"team": ("billing", "tech", "else")[n % 3], "urgent": n % 2 == 0, "mood": n % 3},
        }
        for n in range(6)
    ]
    items.append({**items[0], "id": "long", "state": "the cat sat " * 4000})
    file.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    return file


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def test_saved_decisions_are_reported_without_torch(saved: Path, tmp_path: Path) -> None:
    """In a process of its own."""
    code = (
        "import sys; from decider.cli import main; status = main(sys.argv[1:]);"
        "print(status, 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    outputs = ["--json", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html")]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DECIDER_")}
    done = subprocess.run(
        [sys.executable, "-c", code, "eval", str(saved), *outputs],
        env=environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0 False False", done.stderr
    assert done.stderr == ""
    table = done.stdout.splitlines()[:-1]
    assert max(map(len, table)) <= 100
    assert table[0] == "model        tiny  (fp32, packed, layout plain)"
    assert table[1] == "data         made.jsonl, 120 decisions"
    assert table[2] == "calibration  none, as the logits are"
    report = read(tmp_path / "r.json")
    whole = report["groups"][0]
    line = next(line for line in table if line.startswith("all "))
    assert line.split()[:3] == ["all", "120", f"{whole['accuracy']['value']:.3f}"]
    assert f"{whole['nll']['value']:.3f}" in line
    assert whole["accuracy"]["interval"]["resamples"] == 1000
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_seed_makes_the_report(saved: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.json" for n in range(3)]
    for file, seed in zip(files, ("7", "7", "8"), strict=True):
        assert main(["eval", str(saved), "--seed", seed, "--bootstrap", "100", "--json", str(file)]) == 0
    first, second, third = (file.read_text(encoding="utf-8") for file in files)
    assert first == second
    assert read(files[0])["groups"][0]["nll"]["value"] == read(files[2])["groups"][0]["nll"]["value"]
    assert read(files[0])["groups"][0]["nll"]["interval"] != read(files[2])["groups"][0]["nll"]["interval"]
    assert first != third


def test_the_calibration_is_the_files_or_the_temperature_given(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = tmp_path / "decider_config.json", tmp_path / "r.json"
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    decisions, _ = load_decisions(saved)

    def probabilities(*words: str) -> list[float]:
        assert main(["eval", str(saved), "--bootstrap", "0", "--json", str(out), *words]) == 0
        found: list[float] = read(out)["decisions"]["p_max"]
        return found

    raw = distributions(decisions, 1.0).max(axis=1)
    assert probabilities() == raw.tolist()
    assert read(out)["calibration"] == "none, as the logits are"
    assert read(out)["groups"][0]["accuracy"]["interval"] is None
    found = np.array(probabilities("--decider-config", str(config)))
    assert read(out)["calibration"] == "temperature 1.5; P(yes) by Platt map; for fp32"
    softer = distributions(decisions, 1.5)
    nouls = decisions.kind == 2
    assert found[~nouls].tolist() == softer.max(axis=1)[~nouls].tolist()
    yes = softer[nouls, 1]
    mapped = 1 / (1 + np.exp(-(0.5 * np.log(yes / (1 - yes)) + 0.1)))
    assert found[nouls] == pytest.approx(np.maximum(mapped, 1 - mapped), abs=1e-12)
    # A temperature switches the map off too.
    given = probabilities("--decider-config", str(config), "--temperature", "3")
    assert given == distributions(decisions, 3.0).max(axis=1).tolist()
    assert read(out)["calibration"] == "temperature 3 for all, as given"
    assert capsys.readouterr().err == ""


def test_a_mixed_layout_is_warned_of_where_order_matters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, config = tmp_path / "mixed.npz", tmp_path / "c.json"
    save_decisions(file, made_decisions(3), replace(FACTS, layout="mixed"))
    config.write_text(json.dumps({"temperature": 1.5, "temperature_schema_first": 2.0}), encoding="utf-8")
    assert main(["eval", str(file), "--decider-config", str(config), "--bootstrap", "0"]) == 0
    assert "note: the layout is mixed; every decision has the temperature of state first" in capsys.readouterr().out
    save_decisions(file, made_decisions(3), replace(FACTS, layout="plain_schema_first"))
    assert main(["eval", str(file), "--decider-config", str(config), "--bootstrap", "0"]) == 0
    assert "calibration  temperature 2; for fp32" in capsys.readouterr().out


def test_a_model_is_asked_reported_and_its_decisions_saved(
    tiny_folder: TinyFolder, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, page, decisions = tmp_path / "r.json", tmp_path / "r.html", tmp_path / "d.npz"
    model = ["--model", str(tiny_folder("llama")), "--device", "cpu", "--dtype", "float32", "--executor", "reference"]
    words = ["eval", str(lines), *model, "--bootstrap", "100", "--sensitivity", "2"]
    assert main([*words, "--json", str(report), "--html", str(page), "--save", str(decisions)]) == 0
    shown = capsys.readouterr()
    assert "decider: asked 7 items" in shown.err
    assert "refused long: " in shown.out
    assert "note: 1 of 7 items could not be asked; no figure counts them" in shown.out
    assert "\n  tickets <script>" in shown.out
    found = read(report)
    assert found["facts"]["dtype"] == "fp32"
    assert found["facts"]["executor"] == "reference"
    assert found["decisions"]["key"] == [f"t{n}/{question}" for n in range(6) for question in QUESTIONS]
    assert found["decisions"]["gold"][:6] == [0, 1, 0, 1, 0, 1]
    assert [refused["item"] for refused in found["refused"]] == ["long"]
    assert found["sensitivity"]["items"] == 2
    assert [rate["name"] for rate in found["sensitivity"]["rates"]] == ["order", "reversal", "ids", "neighbours"]
    assert "asked again" in shown.out
    text = page.read_text(encoding="utf-8")
    assert SCRIPT not in text
    assert "Sensitivity" in text
    # What was saved gives the same figures without the model.
    again = tmp_path / "again.json"
    assert main(["eval", str(decisions), "--bootstrap", "100", "--json", str(again)]) == 0
    assert read(again)["groups"] == found["groups"]
    assert read(again)["facts"] == found["facts"]


def test_the_first_items_can_be_asked_alone(
    tiny_folder: TinyFolder, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "r.json"
    model = ["--model", str(tiny_folder("llama")), "--device", "cpu", "--executor", "reference"]
    words = ["--limit", "2", "--sensitivity", "0", "--bootstrap", "0", "--temperature", "1", "--json", str(report)]
    assert main(["eval", str(lines), *model, *words]) == 0
    assert "note: the first 2 of 7 items were asked, as --limit says" in capsys.readouterr().out
    found = read(report)
    assert len(found["decisions"]["key"]) == 6
    assert found["sensitivity"] is None
    assert found["calibration"] == "temperature 1 for all, as given"


def test_two_reports_are_compared(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json", "c.json")]
    assert main(["eval", str(saved), "--bootstrap", "0", "--json", files[0]]) == 0
    assert main(["eval", str(saved), "--bootstrap", "0", "--temperature", "2", "--json", files[1]]) == 0
    capsys.readouterr()
    assert main(["eval", "--compare", *files[:2], "--json", files[2]]) == 0
    shown = capsys.readouterr().out
    assert "data         120 decisions of 30 items" in shown
    found = {figure["figure"]: figure for figure in read(Path(files[2]))["figures"]}
    before, after = (read(Path(file))["groups"][0] for file in files[:2])
    assert found["nll"]["first"] == pytest.approx(before["nll"]["value"])
    assert found["nll"]["second"] == pytest.approx(after["nll"]["value"])
    assert found["accuracy"]["difference"] == 0
    row = next(line for line in shown.splitlines() if line.startswith("nll "))
    assert row.split()[1:4] == [
        f"{found['nll']['first']:.4f}",
        f"{found['nll']['second']:.4f}",
        f"{found['nll']['difference']:+.4f}",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is no DATA; give a file of labelled decisions, or --compare with two reports"),
        (["none.jsonl"], "there is no file 'none.jsonl'; name one that is there"),
        (["d.npz", "--model", "x"], "'d.npz' holds decisions, so no model runs; leave out --model"),
        (["d.npz", "--fp8"], "'d.npz' holds decisions, so no model runs; leave out --fp8"),
        (["d.npz", "--mapping", "m.toml"], "leave out --mapping"),
        (["d.npz", "--limit", "3"], "leave out --limit"),
        (["d.npz", "--sensitivity", "3"], "leave out --sensitivity"),
        (["d.npz", "--save", "e.npz"], "leave out --save"),
        (["d.npz", "--temperature", "0"], "temperature is 0.0; it must be a finite number above 0"),
        (["d.npz", "--decider-config", "none.json"], "none.json"),
        (["d.npz", "--seed", "-1"], "--seed is -1; it must be a whole number from 0 on"),
        (["d.npz", "--bootstrap", "5"], "--bootstrap is 5; it must be 0 (off), or at least 100"),
        (["d.npz", "--json", "no/r.json"], "--json 'no/r.json' cannot be written"),
        (["d.npz", "--html", "no/r.html"], "--html 'no/r.html' cannot be written"),
        (["d.npz", "--json", "d.npz"], "--json 'd.npz' is read or written otherwise too; name another file"),
        (["d.npz", "--json", "r", "--html", "r"], "--html 'r' is read or written otherwise too; name another file"),
        (["d.npz", "--decider-config", "c.json", "--json", "c.json"], "there is no file 'c.json'"),
        (
            ["d.npz", "--decider-config", "t.jsonl", "--json", "t.jsonl"],
            "--json 't.jsonl' is read or written otherwise",
        ),
        (["d.npz", "--json", "/dev/null"], "--json '/dev/null' is no regular file"),
        (["/dev/stdin"], "DATA '/dev/stdin' is no regular file; save it as one"),
        (["."], "DATA '.' is no regular file"),
        (["t.jsonl", "--limit", "0"], "--limit is 0; it must be a whole number from 1 on"),
        (["t.jsonl", "--sensitivity", "-1"], "--sensitivity is -1; it must be a whole number from 0 on"),
        (["t.jsonl", "--save", "r.json"], "--save 'r.json' does not end in .npz"),
        (["t.jsonl", "--model", "x"], "t.jsonl, line 1"),
        (["--compare", "d.npz", "none.json"], "there is no file 'none.json'; name one that is there"),
        (["t.jsonl", "--compare", "d.npz", "d.npz"], "--compare reads two reports; leave out DATA"),
        (["--html", "r", "--compare", "d.npz", "d.npz"], "--compare reads two reports; leave out --html"),
        (["--compare", "d.npz", "d.npz"], "d.npz is no JSON"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    save_decisions(Path("d.npz"), made_decisions(3), FACTS)
    Path("t.jsonl").write_text("{}\n", encoding="utf-8")
    assert main(["eval", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("decider: error: ")
    assert shown.err.count("\n") == 1
    assert said in shown.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.npz", "t.jsonl"]


@pytest.mark.parametrize(
    ("package", "words"), [("scipy", []), ("matplotlib", ["--html", "r.html", "--bootstrap", "0"])]
)
def test_a_missing_package_is_missed_before_the_run(
    lines: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: str, words: list[str]
) -> None:
    monkeypatch.chdir(lines.parent)
    monkeypatch.setattr("decider.cli.eval.find_spec", lambda name: None if name == package else object())
    assert main(["eval", str(lines), "--model", "no/such/folder", *words]) == 2
    said = capsys.readouterr().err
    assert package in said
    assert said.endswith("pip install '.[eval]'\n")


def test_a_file_without_decisions_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "d.npz"
    save_decisions(file, made_decisions(3).take(np.zeros(0, dtype=np.int64)), FACTS)
    assert main(["eval", str(file)]) == 2
    assert "d.npz" in capsys.readouterr().err


@pytest.mark.parametrize("save", [True, False])
def test_an_interrupted_run_saves_what_was_asked(
    tiny_folder: TinyFolder,
    lines: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    save: bool,
) -> None:
    monkeypatch.setattr("decider.evaluate.ask.CHUNK_ROWS", 10)
    asked: list[int] = []
    original = Decider.raw

    def raw(self: Decider, requests: Any) -> Any:
        asked.append(len(requests))
        if len(asked) > 2:
            raise KeyboardInterrupt
        return original(self, requests)

    monkeypatch.setattr(Decider, "raw", raw)
    file, report = tmp_path / "d.npz", tmp_path / "r.json"
    model = ["--model", str(tiny_folder("llama")), "--device", "cpu", "--dtype", "float32", "--executor", "reference"]
    words = ["eval", str(lines), *model, "--json", str(report), *(["--save", str(file)] if save else [])]
    assert main(words) == 130
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.endswith("decider: interrupted\n")
    assert not report.exists()
    if not save:
        assert "4 of 7 items were asked, and nothing is kept; --save keeps what was asked" in shown.err
        assert not file.exists()
        return
    assert f"4 of 7 items were asked; their 12 decisions are kept in {file}" in shown.err
    monkeypatch.undo()
    assert main(["eval", str(file), "--bootstrap", "0", "--json", str(report)]) == 0
    assert read(report)["decisions"]["key"] == [f"t{n}/{question}" for n in range(4) for question in QUESTIONS]


def test_a_report_that_cannot_be_written_leaves_the_old_one(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / f"r.{name}" for name in ("json", "html")}
    for file in files.values():
        file.write_text("before", encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for name, file in files.items():
        assert main(["eval", str(saved), "--bootstrap", "0", f"--{name}", str(file)]) == 2
        assert "No space left on device" in capsys.readouterr().err
        assert file.read_text(encoding="utf-8") == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decisions.npz", "r.html", "r.json"]
