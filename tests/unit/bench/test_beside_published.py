"""The table beside the published engine: children that are stubs, an engine that is a stand-in, parts that are made up.

Refuses cards, speed, and the published engine itself. Trap: the stand-in has the names that are called and nothing of
that engine's arithmetic; what it proves is that nothing of ours is on its path.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from decider.bench.cases import CARD_CASES, Case, same
from decider.bench.names import SHAPES, TINY

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
PEER = "decider_ai-1.10.0-py3-none-any.whl"
STAND_IN = """
import os, sys
class Graph:
    def replay(self): pass
class EngineV2:
    max_rows = 32
    def __init__(self, model):
        import torch
        assert model.letters.tolist()[0] == 1000 and model.lm.dtype is torch.bfloat16 and model.tok.pad_token_id == 0
        assert not [path for path in sys.path if path.endswith(("benchmarks", "support"))], sys.path
        assert sys.path[0] == os.environ["PYTHONPATH"] == os.path.dirname(os.path.dirname(__file__))
        assert not [name for name in os.environ if name.startswith("DECIDER_")]
    def graph_shapes(self): return [(1, 8), (2, 8), (4, 16)]
    def warmup(self, shapes):
        self.graphs = {shape: (None, None, Graph()) for shape in shapes}
        return 1.5
    def seal(self):
        import warnings
        warnings.warn("old")
        if len(self.graphs) == 1: raise RuntimeError("no " + "graphs")
    def pad_len(self, n): return 8 if n <= 8 else 16
    def b_plan(self, n, length): return 4, None
    def score_items(self, items):
        assert all(item["slots"] == [len(item["ids"]) - 1] and item["nopts"] == [4] for item in items)
        assert len(items) != 3, "three rows"
    def score_shared(self, items): self.score_items(items)
"""
BATCHES = """
def plan_batches(lengths, pad_len, max_rows, widest):
    return [(length, [i for i, n in enumerate(lengths) if pad_len(n) == length]) for length in (8, 16)]
"""


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("beside_published")
    for name in ("beside_published", "published_parts", "published_table", "published_peer"):
        sys.modules.pop(name, None)


def wheel(path: Path, content: Mapping[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in content.items():
            archive.writestr(name, text)
    return path


def stand_in(folder: Path) -> Path:
    """The wheel of an engine, and in `needed` the one that it imports."""
    (folder / "needed").mkdir()
    wheel(folder / "needed" / "other-1-py3-none-any.whl", {"other.py": ""})
    engine = {"__init__.py": "import other", "engine_v2.py": STAND_IN, "batching.py": BATCHES}
    return wheel(folder / PEER, {f"decider/{name}": text for name, text in engine.items()})


def small(beside: Any, cases: tuple[Case, ...], **more: object) -> dict[str, Any]:
    return {**beside.plan_of(TINY, cases, fp8=False, device="cpu", repeats=1), **more}


def told(beside: Any, tmp_path: Path, body: str, *, limit_s: float = 60.0) -> tuple[Any, list[str]]:
    """The part of a child that runs `body`, asked for a row of 8 tokens and two of 8; and what was said."""
    script = tmp_path / "child.py"
    script.write_text("import json, sys, time\nplan = json.load(open(sys.argv[1]))\n" + body, encoding="utf-8")
    said: list[str] = []
    part = importlib.import_module("published_parts").run_part(
        [sys.executable, str(script)],
        small(beside, (same(0, 1, 8), same(0, 2, 8))),
        side="published", command="it", environ=os.environ, limit_s=limit_s, say=said.append,
    )  # fmt: skip
    return part, said


def test_what_a_child_tells_is_kept(beside: Any, tmp_path: Path) -> None:
    body = """
print("a library speaks"); print("[1]"); print(json.dumps({"loss": 1}))
print(json.dumps({"said": "starting"}))
print(json.dumps({"facts": {"torch": "2"}}))
print(json.dumps({"facts": {"n": 3}}))
print(json.dumps({"row": plan["cases"][0]["name"], "figures": {"rows_ms": 2.5, "replay_ms": None}}))
print(json.dumps({"failed": plan["cases"][1]["name"], "why": "no room"}))
"""
    part, said = told(beside, tmp_path, body)
    assert part.names == ("1 × 8", "2 × 8")
    assert part.facts == {"torch": "2", "n": 3}
    assert part.rows == {"1 × 8": {"rows_ms": 2.5, "replay_ms": None}}
    assert part.failed == {"2 × 8": "no room"}
    assert part.ended is None
    assert [line.split("published: ")[1] for line in said] == [
        "starting", "torch 2", "n 3", "1 × 8: rows_ms 2.5", "2 × 8 failed: no room",
    ]  # fmt: skip
    part.write(tmp_path / "part.json")
    assert importlib.import_module("published_parts").read_part(tmp_path / "part.json") == part


def test_a_child_that_breaks_gives_its_last_words(beside: Any, tmp_path: Path) -> None:
    part, said = told(beside, tmp_path, "raise RuntimeError('no card')")
    assert part.ended == "exit status 1: RuntimeError: no card"
    assert part.failed == dict.fromkeys(part.names, part.ended)
    assert "Traceback" in said[0]


def test_a_child_is_ended_at_its_limit_with_all_it_started(
    beside: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("published_parts.GRACE_S", 0.2)
    body = """
import signal, subprocess
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(json.dumps({"row": "1 × 8", "figures": {"rows_ms": 1}}), flush=True)
deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"
subprocess.run([sys.executable, "-c", deaf])
"""
    began = time.monotonic()
    part, _ = told(beside, tmp_path, body, limit_s=1.5)
    assert time.monotonic() - began < 20
    assert part.ended == "stopped at its limit of 1.5 s"
    assert list(part.rows) == ["1 × 8"]
    assert part.failed == {"2 × 8": part.ended}


def test_the_published_side_runs_on_its_own_path(beside: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS))
    monkeypatch.setenv("DECIDER_DEVICE", "nowhere")
    peer = stand_in(tmp_path)
    cases = (same(0, 2, 8), same(0, 1, 30), Case(0, (5, 8, 12)), Case(0, (5, 12)), same(0, 3, 8), same(6, 2, 4))
    plan = small(beside, cases, shapes=[[1, 8], [2, 8]])
    part = beside.published(plan, peer, tmp_path / "needed", command="it", limit_s=120)
    assert part.ended is None, part.ended
    assert {name: set(figures) for name, figures in part.rows.items()} == {
        "2 × 8": {"rows_ms", "replay_ms"},
        "1 × 30": {"rows_ms"},
        "3 × mixed": {"rows_ms", "padded_tokens"},
        "2 × mixed": {"rows_ms", "padded_tokens"},
        "6 + 2 × 4": {"rows_ms", "shared_ms"},
    }
    assert part.rows["2 × mixed"]["padded_tokens"] == 4 * 8 + 4 * 16
    assert part.failed == {"3 × 8": "AssertionError: three rows"}
    assert part.facts["graphs"] == "2 of 3"
    assert part.facts["warmup_s"] == 1.5
    assert part.facts["wheel"].startswith(PEER)


def test_a_fault_of_the_published_engine_shows_no_line_of_it(
    beside: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = small(beside, (same(0, 1, 8),), shapes=[[1, 8]])
    part = beside.published(plan, stand_in(tmp_path), tmp_path / "needed", command="it", limit_s=120)
    assert part.ended == "exit status 1: RuntimeError: no graphs"
    assert part.facts["torch"]
    seen = "".join(capfd.readouterr())
    assert "RuntimeError: no graphs" in seen
    assert "engine_v2" not in seen
    assert '"no "' not in seen
    assert "warn" not in seen


def test_another_decider_is_not_timed(beside: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = importlib.import_module("published_peer")
    for name in ("decider.engine_v2", "decider.batching"):
        module = ModuleType(name)
        module.__file__ = str(tmp_path / "elsewhere" / "decider" / "engine_v2.py")
        monkeypatch.setitem(sys.modules, name, module)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(small(beside, (same(0, 1, 8),), site=str(tmp_path / "site"))), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["published_peer.py", str(plan)])
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)
    with pytest.raises(SystemExit, match="not the published engine"):
        peer.main()


def test_our_side_says_what_the_bench_says(beside: Any) -> None:
    part = beside.ours(small(beside, (same(0, 2, 8), same(6, 2, 4))), command="it", limit_s=120)
    assert part.ended is None, part.ended
    assert list(part.rows) == ["2 × 8", "6 + 2 × 4"]
    assert part.rows["6 + 2 × 4"]["executor"] == "packed"
    assert part.rows["6 + 2 × 4"]["ms"] > 0
    assert part.facts["torch"]
    assert part.failed == {}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("kernels-1-cp312-cp312-linux_x86_64.whl", {"kernels.py": ""}, "is not plain Python"),
        ("engine-1-py3-none-any.whl", {"decider/api.py": ""}, "brings a `decider`"),
    ],
)
def test_a_wheel_that_does_not_belong_is_refused(
    beside: Any, tmp_path: Path, name: str, content: dict[str, str], reason: str
) -> None:
    with pytest.raises(SystemExit, match=reason):
        beside.check_wheel(wheel(tmp_path / name, content), needed=True)
    broken = tmp_path / "broken-1-py3-none-any.whl"
    broken.write_text("not found", encoding="utf-8")
    with pytest.raises(SystemExit, match="cannot be unpacked"):
        beside.check_wheel(broken, needed=False)


def parts() -> tuple[Any, Any]:
    """Made-up parts: one row met by its replay, one missed, one that only ours has."""
    made = importlib.import_module("published_parts").Part
    names = ("1 × 256", "1500 + 16 × 40", "256 × mixed")
    facts = {"machine": "card", "torch": "2.11", "transformers": "5.17", "warmup_s": 27.0, "pool_bytes": 1.2e9}
    ours = made(
        side="ours", shape=SHAPES[0], precision="bf16", date="2026-11-30T10:00:00+00:00", command="a", names=names,
        facts=facts,
        rows={
            "1 × 256": {"ms": 3.0, "replay_ms": 2.5, "products_ms": 1.5, "products_share": 0.5},
            "1500 + 16 × 40": {"ms": 20.0, "replay_ms": 19.0, "products_ms": None, "products_share": None},
        },
        failed={"256 × mixed": "no room"}, ended=None, wall_s=60.0,
    )  # fmt: skip
    other = {
        "1 × 256": {"rows_ms": 6.0, "replay_ms": 5.0},
        "1500 + 16 × 40": {"rows_ms": 364.0, "shared_ms": 100.0},
        "256 × mixed": {"rows_ms": 996.0, "padded_tokens": 90624},
    }
    published = replace(
        ours,
        side="published",
        command="b",
        rows=other,
        failed={},
        facts={**facts, "graphs": "23 of 89", "warmup_s": 40.0},
    )
    return ours, published


def test_lines_have_the_aim_and_the_better_way(beside: Any) -> None:
    table = importlib.import_module("published_table")
    first, second, third = table.lines_of(*parts(), beside.read_aims())
    assert (first.aim_ms, first.aim_of, first.met) == (2.6, "replay", True)
    assert (first.ratio, first.replay_ratio) == (2.0, 2.0)
    assert (second.aim_ms, second.aim_of, second.met, second.ratio) == (13, "call", False, 5.0)
    assert second.replay_ratio is None
    assert (third.ours_ms, third.met, third.ratio, third.published_rows_ms) == (None, None, None, 996.0)


def test_fp8_has_aims_of_its_own(beside: Any) -> None:
    table = importlib.import_module("published_table")
    ours, published = parts()
    first, second, _ = table.lines_of(replace(ours, precision="fp8"), published, beside.read_aims())
    assert (first.aim_ms, first.aim_of, first.met) == (None, None, None)
    assert second.aim_ms == 9.5


def test_notes_say_what_makes_ratios_doubtful(beside: Any) -> None:
    table = importlib.import_module("published_table")
    ours, published = parts()
    aims = beside.read_aims()
    notes = table.notes_of(ours, published, aims)
    assert notes == [
        "start-up: ours 27.0 s (aim 30 s warm, 120 s cold), published 40.0 s for 23 of 89 graphs",
        "memory of graphs: ours 1.20 GB (aim 2 GB), published 1.20 GB for 23 of 89 graphs",
        "ours, 256 × mixed: no figure: no room",
    ]
    rows = {**published.rows, "256 × mixed": {"rows_ms": 900.0, "padded_tokens": 80000}}
    doubtful = table.notes_of(ours, replace(published, facts={**published.facts, "torch": "2.13"}, rows=rows), aims)
    assert "not comparable: torch is 2.11 for ours and 2.13 for the published engine" in doubtful
    assert any("80,000 padded tokens, not the 90,624" in note for note in doubtful)


def test_parts_are_joined(beside: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, published = parts()
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for part, file in zip((published, ours), files, strict=True):
        part.write(file)
    out = tmp_path / "out"
    assert beside.main(["--join", *map(str, files), "--out", str(out)]) == 1
    printed = capsys.readouterr().out
    assert printed == (out / "table.md").read_text(encoding="utf-8")
    assert "| 1 × 256 | 3 | 2.5 | 1.5 | 50% | 2.6 replay | yes | 6 | - | 5 | 2.00 | 2.00 |" in printed
    assert "| 1500 + 16 × 40 | 20 | 19 | - | - | 13 | no | 364 | 100 | - | 5.00 | - |" in printed
    assert "- ours: machine card, torch 2.11, transformers 5.17; 2026-11-30T10:00:00+00:00, 60 s; `a`" in printed
    table = json.loads((out / "table.json").read_bytes())
    assert table["rows"][1]["published_shared_ms"] == 100.0
    assert table["ours"]["failed"] == {"256 × mixed": "no room"}
    replace(published, shape=SHAPES[1]).write(files[0])
    with pytest.raises(SystemExit, match=r"qwen3\.5-2b and qwen3-1\.7b"):
        beside.main(["--join", *map(str, files), "--out", str(out)])
    ours.write(files[0])
    with pytest.raises(SystemExit, match="one part of ours"):
        beside.main(["--join", *map(str, files), "--out", str(out)])
    replace(published, names=("1 × 256",)).write(files[0])
    whole = json.loads(files[0].read_bytes())
    wrong: list[object] = [{}, [], {**whole, "rows": 5}, {**whole, "facts": None}, {**whole, "rows": {"1 × 256": 7}}]
    for foreign in wrong:
        files[0].write_text(json.dumps(foreign), encoding="utf-8")
        with pytest.raises(SystemExit, match="no part of this benchmark"):
            beside.main(["--join", *map(str, files), "--out", str(out)])


def test_both_sides_in_one_command(beside: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, published = parts()
    asked: list[tuple[str, Any]] = []

    def run(plan: Any, *arguments: object, command: str, limit_s: float) -> Any:
        asked.append((command, plan))
        assert limit_s == 9
        return replace(published if arguments else ours, failed={})

    monkeypatch.setattr(beside, "ours", run)
    monkeypatch.setattr(beside, "published", run)
    wheel(tmp_path / PEER, {"decider/engine_v2.py": ""})
    words = [
        "--shape",
        SHAPES[0],
        "--peer",
        str(tmp_path / PEER),
        "--out",
        str(tmp_path / "o"),
        "--limit-s",
        "9",
        "--fp8",
    ]
    assert beside.main(words) == 0
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == [
        "ours.json", "published.json", "table.json", "table.md",
    ]  # fmt: skip
    (command, own), (_, other) = asked
    assert command.startswith("python benchmarks/beside_published.py --shape qwen3.5-2b")
    assert (own["fp8"], other["fp8"], own["device"], other["device"]) == (True, False, "cuda", "cuda")
    assert own["cases"] == other["cases"]
    assert len(other["shapes"]) == 23
    assert beside.main([*words, "--every-shape", "--only", "published"]) == 0
    assert asked[-1][1]["shapes"] is None


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--out", "o"], "--shape --join is required"),
        (["--out", "o", "--shape", SHAPES[0]], "--peer is None"),
        (["--out", "o", "--shape", SHAPES[0], "--join", "a", "b"], "not allowed with argument"),
        (["--out", "o", "--shape", SHAPES[0], "--only", "ours", "--limit-s", "0"], "--limit-s is 0"),
        (["--out", "o", "--shape", SHAPES[0], "--only", "ours", "--repeats", "0"], "--repeats is 0"),
        (["--out", "o", "--shape", SHAPES[0], "--only", "ours", "--wheels", "nowhere"], "--wheels is nowhere"),
        (["--out", __file__, "--shape", SHAPES[0], "--only", "ours"], "which is a file"),
    ],
)
def test_words_are_checked_first(
    beside: Any, capsys: pytest.CaptureFixture[str], words: list[str], reason: str
) -> None:
    with pytest.raises(SystemExit):
        beside.main(words)
    assert reason in capsys.readouterr().err


def test_aims_are_of_rows_that_are_run(beside: Any) -> None:
    aims = beside.read_aims()
    names = {beside.name_of(case) for case in CARD_CASES}
    assert set(aims) == {*SHAPES, "start", "published"}
    for shape in SHAPES:
        assert set(aims[shape]) <= names
        assert all({"ms"} <= set(aim) <= {"ms", "fp8_ms", "of"} for aim in aims[shape].values())
        assert {aim["of"] for aim in aims[shape].values() if "of" in aim} == {"replay"}
    plain = {(len(case.lengths), case.question_tokens) for case in CARD_CASES if not case.state_tokens}
    assert {each for each in plain if each[1]} <= {tuple(shape) for shape in aims["published"]["shapes"]}


def test_the_command_needs_no_torch_before_its_children() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, beside_published; sys.exit('torch' in sys.modules)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), *filter(None, sys.path)])},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
