"""The benchmark of the host's part: its tables for graphs that do nothing, and devices that are not here.

Refuses to judge times. Trap: it reaches into the executor, which nothing else would tell it of.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from decider.bench.cases import CARD_CASES

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def plan_packs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, as a module, with little to do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("plan_packs")
    monkeypatch.setattr(module, "REPEATS", 2)
    monkeypatch.setattr(module, "SHAPES", ((1, 3, 60, 30),))
    monkeypatch.setattr(sys, "argv", ["plan_packs.py", "--device", "cpu"])
    yield module
    sys.modules.pop("plan_packs", None)


def test_every_case_runs_in_packs_that_are_captured(plan_packs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plan_packs.main()
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("1 x (60 + 3 x 30)") for line in lines)
    found = {line.partition("|")[0].strip(): line for line in lines}
    for case in CARD_CASES:
        _, packs, *times = found[str(case)].split("|")
        assert int(packs) >= 1
        assert all(float(ms) > 0 for part in times for ms in part.split())


@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "cpu,cpu"])
def test_a_device_that_is_not_here_is_refused_first(
    plan_packs: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], device: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["plan_packs.py", "--device", device])
    with pytest.raises(SystemExit) as ended:
        plan_packs.main()
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert device in told.err
    assert not told.out
