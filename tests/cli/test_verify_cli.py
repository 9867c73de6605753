"""`decider verify`: exit status 0, 1 and 2, the last line, and the JSON file.

Refuses to look for faults; `test_verify` does. Trap: the exit status 1 of an uncaught exception looks like a fault
found, so the last line is read too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command import assert_fault, here, process

from decider.cli import main, verify
from decider.errors import ConfigError
from decider.run.executor import Logits
from decider.run.grid import GridExecutor
from decider.settings import Settings
from decider.tokens.rows import Row
from decider.verify.compare import Verdict

TinyFolder = Callable[[str], Path]


def test_a_sound_engine_exits_0_and_the_last_line_sums_up(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    file = tmp_path / "verdicts.json"
    folder = str(tiny_folder("llama"))
    done = process("verify", "--model", folder, "--device", "cpu", "--budget", "1", "--json", str(file))
    assert done.status == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("verify: 7 checks, ")
    assert lines[-1].endswith(", 0 answers changed: pass")
    assert any(line.startswith("time ") and " s of a budget of 1 s " in line for line in lines)
    assert any(line.startswith("attention back ends ") for line in lines)
    assert next(line for line in done.stderr.splitlines() if "checking" in line) == "decider: checking rows"
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["summary"] == lines[-1]
    assert report["passed"] is True
    assert len(report["checks"]) == 7
    assert all(check["passed"] for check in report["checks"])


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    verify.add(parser.add_subparsers())
    return parser.parse_args(["verify", *arguments])


def test_a_fault_exits_1_and_is_named(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sound = GridExecutor.label_logits

    def swapped(self: GridExecutor, rows: Sequence[Row]) -> list[Logits]:
        return sound(self, rows) if len(rows) == 1 else sound(self, [*rows[:-1], rows[0]])

    monkeypatch.setattr(GridExecutor, "label_logits", swapped)
    file = tmp_path / "verdicts.json"
    parsed = parse("--model", str(tiny_folder("llama")), "--device", "cpu", "--budget", "1", "--json", str(file))
    assert verify.run(parsed) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert "FAULTS (rows, bucket edges, " in last
    report = json.loads(file.read_text(encoding="utf-8"))
    assert (report["passed"], report["summary"]) == (False, last)
    assert report["checks"][0]["faults"]


def test_the_engine_is_closed_also_after_a_failure(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed: list[GridExecutor] = []
    close = GridExecutor.close

    def note(self: GridExecutor) -> None:
        closed.append(self)
        close(self)

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(GridExecutor, "close", note)
    monkeypatch.setattr("decider.verify.run.most_tokens", stop)
    with pytest.raises(KeyboardInterrupt):
        verify.run(parse("--model", str(tiny_folder("llama")), "--device", "cpu"))
    assert len(closed) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--executor", "reference"), "invalid choice: 'reference'"),
        (("--model", "/no/such/folder"), "/no/such/folder"),
        (("--nonsense",), "unrecognized arguments: --nonsense"),
    ],
)
def test_what_cannot_run_exits_2_with_one_line(arguments: tuple[str, ...], said: str) -> None:
    assert_fault(here("verify", *arguments), said)


@pytest.mark.parametrize("source", ["environment", "file"])
def test_an_executor_that_is_set_elsewhere_is_checked_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    checked: list[str] = []

    def note(settings: Settings, **_: object) -> tuple[Verdict, ...]:
        checked.append(settings.executor)
        return ()

    monkeypatch.setattr("decider.verify.run.verify", note)
    file = tmp_path / "decider.toml"
    words = ["verify", "--config", str(file)]
    for executor, status in (("packed", 0), ("reference", 2)):
        file.write_text("" if source == "environment" else f'executor = "{executor}"\n')
        if source == "environment":
            monkeypatch.setenv("DECIDER_EXECUTOR", executor)
        assert main(words) == status
    assert checked == ["packed"]
    told = "environment" if source == "environment" else str(file)
    assert (
        capsys.readouterr().err
        == f"decider: error: executor is 'reference' ({told}); this command takes one of grid, packed\n"
    )


@pytest.mark.parametrize("budget", ["0", "-1", "nan", "inf"])
def test_a_budget_is_a_number_of_seconds(budget: str) -> None:
    with pytest.raises(ConfigError, match=r"^--budget is .*; it must be a finite number of seconds above 0$"):
        verify.run(parse(f"--budget={budget}"))


def test_the_json_file_is_checked_before_a_model_is_loaded(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "no" / "file.json"):
        with pytest.raises(ConfigError, match=r"cannot be written; name a file in a folder that is there$"):
            verify.run(parse("--model", "/no/such/folder", "--json", str(place)))
