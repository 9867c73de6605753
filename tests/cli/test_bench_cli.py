"""`decider bench engine`: the table, the JSON, and what it refuses; once in a process of its own.

Refuses to judge speed. Trap: a program reads the JSON, so its keys and types are a contract.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import link_checkpoint

from decider.cli import main

TinyFolder = Callable[[str], Path]

NUMBER, MAYBE = float, (float, type(None))
KEYS: dict[str, Any] = {
    "state_tokens": int,
    "questions": int,
    "question_tokens": (int, type(None)),
    "ms": NUMBER,
    "ratio": MAYBE,
    "executor": str,
    "dtype": str,
    "bucket": (str, type(None)),
    "padded_share": MAYBE,
    "replay_ms": MAYBE,
    "floor_parameters_ms": NUMBER,
    "floor_attention_ms": MAYBE,
    "share": MAYBE,
    "products_ms": MAYBE,
    "products_share": MAYBE,
    "shared": bool,
}


def engine(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DECIDER_")}
    return subprocess.run(
        [sys.executable, "-m", "decider.cli", "bench", "engine", *arguments],
        env={**environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def compared(tiny_folder: TinyFolder, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str, str]:
    """(JSON, standard output, standard error) of the grid beside the reference."""
    file = tmp_path_factory.mktemp("bench") / "bench.json"
    done = engine(
        "--model", str(tiny_folder("qwen3")), "--device", "cpu", "--repeats", "2", "--compare", "reference",
        "--json", str(file),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text(encoding="utf-8")), done.stdout, done.stderr


def test_the_json_is_what_was_promised(compared: tuple[Any, str, str]) -> None:
    facts, _, _ = compared
    rows = facts["rows"]
    assert [(row["state_tokens"], row["questions"], row["question_tokens"]) for row in rows] == [
        (0, 1, 200),
        (300, 1, 40),
        (300, 5, 40),
        (1000, 3, 40),
    ]
    for row in rows:
        for key, kind in KEYS.items():
            assert isinstance(row[key], kind), (key, row[key])
        assert (row["executor"], row["dtype"]) == ("grid", "float32")
        assert row["ms"] > 0
        assert row["ratio"] == pytest.approx(row["compared_ms"] / row["ms"])
        floor_ms = row["floor_parameters_ms"] + row["floor_attention_ms"]
        assert row["share"] == pytest.approx(floor_ms / row["ms"])
        # There are no graphs on a CPU.
        assert row["replay_ms"] is None
        assert row["shared"] == (row["bucket"] is None)
        assert row["runs"] == 2
    assert rows[0]["bucket"] == "1 × 256"
    assert rows[1]["shared"] is False
    # Both ways of a state with several questions are timed, whichever the engine takes.
    assert [row["shared_ms"] is not None and row["full_rows_ms"] is not None for row in rows] == [False] * 2 + [
        True
    ] * 2


def test_the_json_says_what_the_figures_were_made_on(compared: tuple[Any, str, str]) -> None:
    facts, _, _ = compared
    for key in ("machine", "torch", "transformers", "python", "describe", "compare_describe", "matmul_dtype"):
        assert isinstance(facts[key], str), key
        assert facts[key], key
    assert (facts["device"], facts["executor"], facts["compare"]) == ("cpu", "grid", "reference")
    assert facts["compare_describe"].endswith("float32 on cpu")
    assert (facts["pool_bytes"], facts["left_out"]) == (None, [])
    assert facts["warmup_s"] > 0
    assert facts["matmul_tflops"] > 0


def test_the_table_has_a_line_a_case(compared: tuple[Any, str, str]) -> None:
    facts, table, progress = compared
    lines = table.splitlines()
    assert facts["machine"] in lines[0]
    header = next(number for number, line in enumerate(lines) if "bucket" in line)
    for column in (
        "padded",
        "replay ms",
        "call ms",
        "param. floor ms",
        "att. floor ms",
        "share",
        "reference ms",
        "ratio",
    ):
        assert column in lines[header]
    assert [line.split()[:4] for line in lines[header + 1 :]] == [
        [str(state), str(questions), "×", str(tokens)]
        for state, questions, tokens in ((0, 1, 200), (300, 1, 40), (300, 5, 40), (1000, 3, 40))
    ]
    assert "1000 + 3 × 40: " in progress


def test_the_reference_counts_no_buckets_and_long_cases_are_left_out(
    tiny_folder: TinyFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = link_checkpoint(tiny_folder("llama"), tmp_path / "short", without="config.json")
    config = json.loads((tiny_folder("llama") / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}))
    file = tmp_path / "bench.json"
    words = ["--model", str(folder), "--device", "cpu", "--executor", "reference", "--repeats", "1"]
    assert main(["bench", "engine", *words, "--json", str(file)]) == 0
    facts = json.loads(file.read_text(encoding="utf-8"))
    assert [(row["state_tokens"], row["questions"]) for row in facts["rows"]] == [(0, 1), (300, 1), (300, 5)]
    for row in facts["rows"]:
        assert (row["executor"], row["dtype"], row["shared"]) == ("reference", "float32", False)
        assert [row[key] for key in ("bucket", "padded_share", "replay_ms", "ratio")] == [None] * 4
    assert facts["left_out"] == ["1000 + 3 × 40"]
    shown = capsys.readouterr()
    assert "512 positions" in shown.err
    assert "left out" in shown.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shape", "qwen3-1.7b", "--device", "cpu"], "CUDA"),
        (["--shape", "qwen3-1.7b", "--model", "x"], "exclude each other"),
        (["--repeats", "0"], "--repeats is 0"),
        (["--json", "no/such/folder/bench.json"], "no/such/folder"),
    ],
)
def test_what_cannot_be_measured_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["bench", "engine", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("decider: error: ")
    assert shown.err.count("\n") == 1
    assert said in shown.err


@pytest.mark.parametrize("source", ["environment", "file"])
def test_an_executor_that_is_set_elsewhere_is_the_one_timed(
    tiny_folder: TinyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    file = tmp_path / "bench.json"
    words = ["--model", str(tiny_folder("qwen3")), "--device", "cpu", "--repeats", "1", "--dtype", "float32"]
    if source == "environment":
        monkeypatch.setenv("DECIDER_EXECUTOR", "packed")
    else:
        (tmp_path / "decider.toml").write_text('executor = "packed"\n')
        words += ["--config", str(tmp_path / "decider.toml")]
    assert main(["bench", "engine", *words, "--json", str(file)]) == 0
    facts = json.loads(file.read_text(encoding="utf-8"))
    assert facts["executor"] == "packed"
    assert facts["describe"].startswith("packed: ")


def test_auto_is_no_executor_to_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DECIDER_EXECUTOR", "auto")
    assert main(["bench", "engine"]) == 2
    assert "executor is 'auto' (environment); this command takes one of " in capsys.readouterr().err


def test_packs_are_timed_beside_the_grid(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    words = ["--model", str(tiny_folder("qwen3")), "--device", "cpu", "--repeats", "1", "--dtype", "float32"]
    assert main(["bench", "engine", *words, "--executor", "packed", "--compare", "grid", "--json", str(file)]) == 0
    facts = json.loads(file.read_text(encoding="utf-8"))
    assert facts["describe"].startswith("packed: qwen3 backbone, ")
    for row in facts["rows"]:
        assert (row["executor"], row["dtype"], row["padded_share"]) == ("packed", "float32", 0)
        assert row["bucket"] == f"{row['tokens']} eager"
        assert 0 < row["products_share"] < 1
        assert row["shared"] == (row["questions"] > 1)
        assert row["ratio"] > 0


def test_a_fault_of_words_is_found_before_torch_is_imported() -> None:
    """In a process of its own."""
    code = "import sys; from decider.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    words = ["bench", "engine", "--repeats", "0"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "2 False\n", done.stderr
