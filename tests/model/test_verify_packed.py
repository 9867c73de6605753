"""`decider.verify` on packs: sound ones pass in every dtype, and a broken tree is a fault in each, however coarse.

Refuses to test the check at load, which would have refused these trees before. Trap: a check of several prefixes sees
a wrong trunk only where they run in one pack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from broken_trees import BROKEN, break_trees
from fake_graphs import LABEL_IDS
from packed_rows import load_known
from verify_ground import FREE, GRID, ground

from decider.assembly import PACK_LIMITS
from decider.backbone.load import backbone_of
from decider.cli import main
from decider.model.head import label_head
from decider.run.packed import PackedExecutor
from decider.run.reference import ReferenceExecutor
from decider.verify.cases import Cases, make_cases
from decider.verify.checks import TWIN
from decider.verify.compare import Judge, Verdict, tolerance_for
from decider.verify.run import run_checks

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]


@pytest.fixture(scope="module")
def cases() -> Cases:
    return make_cases(ground(GRID, positions=160), FREE, 60.0)


@pytest.fixture(scope="module")
def few(cases: Cases) -> Cases:
    """The shared prefixes and some rows."""
    return replace(cases, rows=cases.rows[:6], edges=(), long=(), split=None, padded=())


def executor(name: str, dtype: str) -> PackedExecutor:
    loaded = load_known(name, dtype, quieter=4.0)
    return PackedExecutor(backbone_of(loaded), label_head(loaded, LABEL_IDS), PACK_LIMITS)


def eager(name: str, dtype: str) -> ReferenceExecutor:
    loaded = load_known(name, dtype, quieter=4.0)
    return ReferenceExecutor(loaded, label_head(loaded, LABEL_IDS))


@pytest.fixture(scope="module")
def judge_of() -> Callable[[str, str], Judge]:
    """Judges by family and dtype, each of which remembers what its oracle said."""
    known: dict[tuple[str, str], Judge] = {}

    def judge(name: str, dtype: str) -> Judge:
        if (name, dtype) not in known:
            yardstick = None if dtype == "float32" else eager(name, dtype)
            known[name, dtype] = Judge(eager(name, "float32"), tolerance_for(dtype, fp8=False), yardstick)
        return known[name, dtype]

    return judge


def verdicts_of(name: str, dtype: str, judge: Judge, cases: Cases) -> dict[str, Verdict]:
    twin = None if dtype == "float32" else executor(name, "float32")
    made = executor(name, dtype)
    found = run_checks(made, judge, cases, say=lambda _: None, show=lambda _: None, twin=twin)
    assert made.stats.shared_calls >= 4
    assert twin is None or twin.stats.shared_calls == 4
    return {verdict.name: verdict for verdict in found}


Judges = Callable[[str, str], Judge]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "bfloat16") for name in ("llama", "llama_tied", "qwen2", "qwen3", "qwen3_5")),
        ("llama", "float32"),
        ("qwen3_5", "float32"),
        ("llama", "float16"),
    ],
)
def test_sound_packs_pass(judge_of: Judges, cases: Cases, name: str, dtype: str) -> None:
    verdicts = verdicts_of(name, dtype, judge_of(name, dtype), cases)
    assert {verdict.faults for verdict in verdicts.values()} == {()}
    assert (TWIN in verdicts) == (dtype != "float32")
    if TWIN in verdicts:
        assert verdicts[TWIN].n_rows == 2 * 2 * 5
        assert 0 < verdicts[TWIN].largest_shift <= verdicts[TWIN].allowed < 1e-3
        assert any(note.startswith(f"rounding alone: eager {dtype} ") for note in verdicts["rows"].notes)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("mistake", BROKEN)
@pytest.mark.parametrize("name", ["llama", "qwen3_5"])
def test_broken_trees_are_faults(
    judge_of: Judges, few: Cases, monkeypatch: pytest.MonkeyPatch, name: str, mistake: str, dtype: str
) -> None:
    if name == "llama" and mistake == "look_back_too_far":
        # Nothing looks back in it.
        mistake = "another_trunk"
    break_trees(monkeypatch, mistake)
    verdicts = verdicts_of(name, dtype, judge_of(name, dtype), few)
    assert not verdicts["shared prefixes" if dtype == "float32" else TWIN].passed
    assert verdicts["rows"].passed


@pytest.mark.parametrize("mistake", sorted(BROKEN.keys() - {"look_back_too_far"}))
def test_in_bfloat16_alone_they_are_faults_too(
    judge_of: Judges, few: Cases, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    break_trees(monkeypatch, mistake)
    assert not verdicts_of("llama", "bfloat16", judge_of("llama", "bfloat16"), few)["shared prefixes"].passed


def test_the_command_checks_a_twin_and_refuses_a_broken_tree(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["verify", "--model", str(tiny_folder("llama")), "--device", "cpu", "--executor", "packed"]
    # No budget pays for more than the least of every check; a second's did on a fast machine.
    words += ["--dtype", "bfloat16", "--budget", "0.01"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("verify: 8 checks, ")
    assert lines[-1].endswith(": pass")
    assert any(line.startswith(f"{TWIN} ") and " pass: 20 rows" in line for line in lines)
    assert any("at most 0.15 more" in line for line in lines if line.startswith("tolerance "))
    assert any("note: rounding alone: eager bfloat16 differs from float32" in line for line in lines)
    break_trees(monkeypatch, "one_position_too_far")
    assert main(words) == 2
    assert "our backbone answers" in capsys.readouterr().err
