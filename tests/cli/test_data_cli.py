"""`decider data`: the folder it prints, the table it lists, and faults of one line with status 2.

Refuses the network: made wheels lie in the cache's `downloads`. Trap: progress on standard output would break a script
that reads the folder from it.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from made_training import made_training
from made_wheels import made_tasks

from decider.cli import main
from decider.data import tasks as tasks_module
from decider.data import train_build
from decider.data.families.catalogue import FAMILIES
from decider.data.tasks import TASKS
from decider.data.train_tasks import NEVER, TRAINED


@pytest.fixture(autouse=True)
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECIDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tasks_module, "TASKS", made_tasks(tmp_path / "cache" / "downloads"))


def test_build_prints_the_folder_and_tells_its_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["data", "build", "eval", "--out", str(out), "--only", "satire", "social", "--limit", "4"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert "satire: 4 + 4 of 24 items (0 repeated, " in said.err
    assert list(json.loads((out / "manifest.json").read_text())["tasks"]) == ["satire", "social"]
    assert len((out / "all.test.jsonl").read_text().splitlines()) == 8


def test_build_makes_every_task_unless_told_otherwise(tmp_path: Path) -> None:
    assert main(["data", "build", "eval", "--out", str(tmp_path / "out")]) == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert list(manifest["tasks"]) == [task.name for task in TASKS]
    assert manifest["limit"] == 400


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--limit", "0"], "--limit is 0; it must be at least 1"),
        (["--only", "sarcasm"], "no task 'sarcasm'"),
        (["--seed", "1"], "--seed is of training data"),
    ],
)
def test_faults_are_one_line_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], fault: str
) -> None:
    assert main(["data", "build", "eval", "--out", str(tmp_path / "out"), *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("decider: error: ")
    assert fault in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_build_train_takes_names_a_limit_and_a_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("0", "3"):
        out = tmp_path / f"out{seed}"
        asked = [
            "data",
            "build",
            "train",
            "--out",
            str(out),
            "--only",
            "order",
            "trend",
            "--limit",
            "5",
            "--seed",
            seed,
        ]
        assert main(asked) == 0
        said = capsys.readouterr()
        assert said.out == f"{out}\n"
        assert "order: 5 items made" in said.err
        manifest = json.loads((out / "manifest.json").read_text())
        assert (manifest["seed"], manifest["limit"], list(manifest["tasks"])) == (int(seed), 5, ["trend", "order"])
        texts.append((out / "train.jsonl").read_text())
        assert len(texts[-1].splitlines()) == 10
    assert texts[0] != texts[1]


def test_build_train_reads_packages_from_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_training(tmp_path / "cache" / "downloads")
    monkeypatch.setattr(train_build, "build_train", partial(train_build.build_train, tasks=made))
    out = tmp_path / "out"
    assert main(["data", "build", "train", "--out", str(out), "--only", "reviews", "spam", "--limit", "9"]) == 0
    assert len((out / "train.jsonl").read_text().splitlines()) == 18
    assert {path.name for path in out.iterdir()} == {
        "train.jsonl", "heldout.jsonl", "heldout.reviews.jsonl", "heldout.spam.jsonl", "manifest.json",
    }  # fmt: skip


def test_what_is_never_trained_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "build", "train", "--out", str(tmp_path / "out"), "--only", "answerable"]) == 2
    assert "no training task 'answerable'; it is never trained: held out" in capsys.readouterr().err
    assert main(["data", "build", "train", "--out", str(tmp_path / "out"), "--limit", "0"]) == 2
    assert "--limit is 0" in capsys.readouterr().err


def test_a_folder_of_other_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    assert main(["data", "build", "eval", "--out", str(tmp_path / "out")]) == 2
    assert "name a new or empty folder" in capsys.readouterr().err


def test_list_shows_every_task_and_family(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    new = [each.task for each in TRAINED if each.task not in TASKS]
    assert len(lines) == 1 + len(TASKS) + len(new) + len(FAMILIES)
    for line, task in zip(lines[1:], (*TASKS, *new), strict=False):
        for text in (task.name, *task.kinds, task.options, task.source.package, task.licence, task.asks):
            assert text in line
        assert (" never " in line) == (task.name in NEVER)
    for line, family in zip(lines[-len(FAMILIES) :], FAMILIES, strict=True):
        made = "by hand" if family.name == "written" else "by program"
        for text in (family.name, *family.kinds, family.options, f"{family.share:,}", made, family.asks):
            assert text in line
    reviews = next(line for line in lines if line.startswith("reviews "))
    assert " – " in reviews
    assert " 2,325 " in reviews
    satire = next(line for line in lines if line.startswith("satire "))
    assert "400 + 400" in satire
    assert " 12,000 " in satire
