"""`decider calibrate`: from saved decisions and through a model, what it writes, and what it refuses.

Refuses to judge a fit. Trap: a run that fails after its minutes is lost; faults of words come before any model.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_decisions import synthetic
from tiny_models import link_checkpoint

from decider.api import Decider
from decider.cli import main
from decider.cli.calibrate import Answered
from decider.evaluate.facts import RunFacts
from decider.evaluate.saved import save_decisions
from decider.tokens.calibration import Temperatures
from decider.tokens.config import load_config

TinyFolder = Callable[[str], Path]

FACTS = RunFacts("tiny", "bf16", "packed", "plain", 1, 0, "made.jsonl", "ab" * 32, "0.1.0")


def saved(folder: Path, n: int = 2000, **facts: Any) -> Path:
    path = folder / "decisions.npz"
    save_decisions(path, synthetic(n), RunFacts(**(FACTS.to_json() | facts)))
    return path


def test_saved_decisions_are_calibrated_without_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, figures = tmp_path / "out.json", tmp_path / "figures.json"
    words = ["calibrate", str(saved(tmp_path)), "--out", str(out), "--json", str(figures), "--risk-confidence", "0.8"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "made.jsonl: 2,000 decisions by tiny, bf16, plain" in shown
    assert "taken: one temperature: " in shown
    assert f"written: x_calibration.bf16 in {out}; use it with --decider-config {out}" in shown
    assert "none of its keys" in shown
    config = load_config(tmp_path, out)
    assert config.warnings == ()
    calibration = config.x_calibration["bf16"]
    assert calibration.temperatures.plain == pytest.approx(1.7, rel=0.2)
    assert calibration.selective is not None
    assert (calibration.selective.layout, calibration.selective.risk_confidence) == ("plain", 0.8)
    entries = json.loads(figures.read_text(encoding="utf-8"))
    assert entries["calibration"] == json.loads(out.read_text(encoding="utf-8"))["x_calibration"]["bf16"]
    assert entries["facts"] == FACTS.to_json()
    assert [form["name"] for form in entries["fit"]["forms"]] == ["uncalibrated", "scalar", "by_type", "by_options"]
    assert "not tried, as said" not in shown
    assert main([*words, "--no-noul-map"]) == 0
    assert "not tried, as said" in capsys.readouterr().out


def test_a_second_run_merges_and_knows_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    out.write_text(json.dumps({"layout": "chat", "note": 1, "x_calibration": {"fp32": {"temperature": 5.0}}}))
    for words in ([], ["--seed", "3", "--folds", "3", "--class-conditional"]):
        assert main(["calibrate", str(saved(tmp_path)), "--out", str(out), *words]) == 0
    assert "as in the file" in capsys.readouterr().out
    entries = json.loads(out.read_text(encoding="utf-8"))
    assert (entries["layout"], entries["note"]) == ("chat", 1)
    config = load_config(tmp_path, out)
    assert config.for_dtype("fp32").temperatures == Temperatures(5.0)
    selective = config.for_dtype("bf16").selective
    assert selective is not None
    assert selective.by_kind["choice"].by_class


def test_schema_first_decisions_set_the_temperature_of_those_layouts(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text(json.dumps({"temperature": 3.0}))
    assert main(["calibrate", str(saved(tmp_path, layout="plain_schema_first")), "--out", str(out)]) == 0
    given = load_config(tmp_path, out).x_calibration["bf16"].temperatures
    assert given.plain == 3.0
    assert given.schema_first == pytest.approx(1.7, rel=0.2)


def test_a_model_is_asked_and_its_own_file_written(
    tiny_folder: TinyFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = link_checkpoint(tiny_folder("qwen3"), tmp_path / "model")
    (folder / "decider_config.json").write_text(json.dumps({"version": "9", "temperature": 2.0}))
    questions: dict[str, dict[str, object]] = {
        "team": {"type": "choice", "instructions": "Which?", "criteria": {"red": "", "blue": "", "green": ""}},
        "late": {"type": "noul", "instructions": "Is it late?"},
    }
    rng = np.random.default_rng(0)
    lines = [
        {
            "state": f"State {number}.",
            "questions": questions,
            "gold": {"team": str(rng.choice(["red", "blue", "green"])), "late": bool(rng.integers(2))},
        }
        for number in range(50)
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    words = ["calibrate", str(data), "--model", str(folder), "--device", "cpu", "--dtype", "float32"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "data.jsonl: 100 decisions by " in shown.out
    assert "this model uses it from now on" in shown.out
    assert "asked 50 items" in shown.err
    config = load_config(folder)
    assert config.version == "9"
    assert {*config.x_calibration} == {"fp32"}
    with Decider(folder, device="cpu", dtype="float32", say=lambda _: None) as decider:
        assert decider.calibration == config.x_calibration["fp32"]
        answers = decider.ask("State 3.", {**questions}, error_rate=0.5)
        assert answers["team"].selection is not None
    # Elsewhere it begins as a copy of the model's own.
    assert main([*words, "--out", str(tmp_path / "other.json")]) == 0
    assert f"on a copy of {folder / 'decider_config.json'}" in capsys.readouterr().out
    assert load_config(tmp_path, tmp_path / "other.json").version == "9"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no.npz", "--out", "x.json"], "no file 'no.npz'"),
        (["{data}"], "--out is missing"),
        (["{data}", "--out", "{folder}"], "cannot be written"),
        (["{data}", "--out", "{folder}/no/out.json"], "cannot be written"),
        (["{data}", "--out", "{folder}/x.json", "--folds", "1"], "--folds is 1"),
        (["{data}", "--out", "{folder}/x.json", "--seed", "-1"], "--seed is -1"),
        (["{data}", "--out", "{folder}/x.json", "--risk-confidence", "1"], "--risk-confidence is 1.0"),
        (["{data}", "--out", "{folder}/x.json", "--json", "{folder}/no/x"], "--json"),
        (["{data}", "--out", "{folder}/x.json", "--mapping", "m.toml"], "--mapping is for tables"),
        (["{data}", "--out", "{folder}/x.json", "--dtype", "float32"], "made in bf16, not fp32"),
        (["{data}", "--out", "{folder}/x.json", "--layout", "chat"], "layout plain, not chat"),
        (["{data}", "--out", "{data}"], "--out '{data}' is read or written otherwise too"),
        (["{data}", "--out", "{folder}/x.json", "--json", "{data}"], "--json '{data}' is read or written otherwise"),
        (["{data}", "--out", "{folder}/x.json", "--json", "{folder}/./x.json"], "otherwise too"),
        (["{data}", "--model", "{folder}", "--json", "{folder}/decider_config.json"], "otherwise too"),
        (["{folder}", "--out", "{folder}/x.json"], "is no regular file; save it as one"),
        (["/dev/stdin", "--out", "{folder}/x.json"], "DATA '/dev/stdin' is no regular file"),
        (["{data}", "--out", "/dev/null"], "--out '/dev/null' is no regular file"),
        (["{data}", "--model", "{folder}", "--decider-config", "c.json"], "stands in for the model's own"),
        (["{data}", "--decider-config", "c.json", "--out", "{folder}/x.json"], "there is no file 'c.json'"),
    ],
)
def test_faults_are_one_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    data = saved(tmp_path, 50)
    before = data.read_bytes()
    assert main(["calibrate", *(word.format(data=data, folder=tmp_path) for word in words)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert said.format(data=data) in shown.err
    assert [file.name for file in tmp_path.iterdir()] == [data.name]
    assert data.read_bytes() == before


@pytest.mark.parametrize(
    ("facts", "words", "said"),
    [
        ({"dtype": "not said"}, [], "give --dtype"),
        ({"layout": "not said"}, [], "give --layout"),
        ({"layout": "mixed"}, [], "a calibration is of one layout"),
        ({"dtype": "not said"}, ["--dtype", "float16"], "fp16"),
        ({"dtype": "not said"}, ["--fp8"], "fp8"),
        ({"layout": "not said"}, ["--layout", "chat"], "chat"),
    ],
)
def test_what_saved_decisions_do_not_say_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], facts: dict[str, str], words: list[str], said: str
) -> None:
    data = saved(tmp_path, 200, **facts)
    assert main(["calibrate", str(data), "--out", str(tmp_path / "x.json"), *words]) == (0 if words else 2)
    shown = capsys.readouterr()
    assert said in (shown.out.splitlines()[0] if words else shown.err)


def test_a_link_to_what_is_read_is_no_other_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, link = saved(tmp_path, 200), tmp_path / "link.json"
    link.symlink_to(data)
    config = tmp_path / "config.json"
    config.write_text("{}", encoding="utf-8")
    before = data.read_bytes()
    assert main(["calibrate", str(data), "--out", str(tmp_path / "x.json"), "--json", str(link)]) == 2
    words = ["calibrate", str(data), "--decider-config", str(config)]
    assert main([*words, "--out", str(tmp_path / "x.json"), "--json", str(config)]) == 2
    assert capsys.readouterr().err.count("otherwise too") == 2
    assert data.read_bytes() == before
    # What is begun with may be what is written: the new entry is put in.
    assert main([*words, "--out", str(config)]) == 0
    assert "bf16" in load_config(tmp_path, config).x_calibration


def test_data_of_which_nothing_is_possible_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "d.npz", tmp_path / "out.json"
    logits = np.zeros((250, 3))
    logits[:, 0] = -np.inf
    np.savez(data, logits=logits, gold=np.zeros(250, dtype=np.int64))
    words = ["--out", str(out), "--json", str(tmp_path / "j.json"), "--dtype", "float32", "--layout", "plain"]
    assert main(["calibrate", str(data), *words]) == 2
    assert "there is nothing to fit" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [data]


def test_what_a_file_says_of_itself_cannot_steer_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = saved(tmp_path, 200, model="\x1b[2Jm", data="d\x07")
    assert main(["calibrate", str(data), "--out", str(tmp_path / "x\x1b.json")]) == 0
    shown = capsys.readouterr()
    assert r"d\x07: 200 decisions by \x1b[2Jm, bf16, plain" in shown.out
    assert not {"\x1b", "\x07"} & set(shown.out + shown.err)


@pytest.mark.parametrize("dtype", ["float32", "int3", ""])
def test_an_unknown_precision_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: str) -> None:
    assert main(["calibrate", str(saved(tmp_path, 200, dtype=dtype)), "--out", str(tmp_path / "x.json")]) == 2
    assert f"made in {dtype!r}, which is no precision; known are fp32, bf16" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()


def test_scores_of_both_forms_have_no_thresholds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decisions = synthetic(1200)
    mixed = replace(decisions, isolated=(decisions.kind == 1) & (np.arange(1200) % 2 == 0))
    for given, forms in (
        (decisions, {False}),
        (replace(decisions, isolated=decisions.kind == 1), {True}),
        (mixed, set()),
    ):
        data, out = tmp_path / "d.npz", tmp_path / "out.json"
        out.unlink(missing_ok=True)
        save_decisions(data, given, FACTS)
        assert main(["calibrate", str(data), "--out", str(out)]) == 0
        selective = load_config(tmp_path, out).for_dtype("bf16").selective
        assert selective is not None
        assert {kind: own.isolated for kind, own in selective.by_kind.items() if kind != "score"} == {
            "choice": False, "noul": False
        }  # fmt: skip
        assert {own.isolated for kind, own in selective.by_kind.items() if kind == "score"} == forms
        warned = "warning: score: no thresholds, since some have their levels judged one by one"
        assert (warned in capsys.readouterr().out) == (given is mixed)


def test_saved_decisions_need_no_torch(tmp_path: Path) -> None:
    """In a process of its own."""
    code = "import sys; from decider.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    words = ["calibrate", str(saved(tmp_path, 200, dtype="not said")), "--out", str(tmp_path / "x.json")]
    words += ["--dtype", "bfloat16"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1] == "0 False", done.stderr


def test_what_is_written_while_the_model_runs_is_kept_and_built_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "d.jsonl", tmp_path / "out.json"
    question = {"q": {"type": "noul", "instructions": "Late?"}}
    data.write_text(json.dumps({"state": "x", "questions": question, "gold": {"q": True}}), encoding="utf-8")
    out.write_text('{"version": "9"}', encoding="utf-8")

    def ask(*_: object) -> Answered:
        entries = {"fp32": {"temperature": 5.0}, "bf16": {"temperature_schema_first": 4.0}}
        out.write_text(json.dumps({"version": "9", "x_calibration": entries}), encoding="utf-8")
        return Answered(synthetic(2000), FACTS)

    monkeypatch.setattr("decider.cli.calibrate._ask", ask)
    assert main(["calibrate", str(data), "--out", str(out), "--decider-config", str(out)]) == 0
    capsys.readouterr()
    config = load_config(tmp_path, out)
    assert (config.version, config.for_dtype("fp32").temperatures.plain) == ("9", 5.0)
    assert config.for_dtype("bf16").temperatures.schema_first == 4.0
    assert config.for_dtype("bf16").temperatures.plain == pytest.approx(1.7, rel=0.2)
