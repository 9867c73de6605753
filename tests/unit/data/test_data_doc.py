"""`docs/data.md` names every task and package as the code has them.

Trap: a table nobody checks is soon another build's.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from decider.data.items import Task
from decider.data.sources import SOURCES
from decider.data.tasks import TASKS

LINES = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_tasks_row(task: Task) -> None:
    (row,) = [line for line in LINES if line.startswith(f"| `{task.name}` |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:4] == [", ".join(dict.fromkeys(task.kinds)), task.options, "{} + {}".format(*task.n_decisions)]
    assert cells[5:] == [f"`{task.source.package}`", task.licence, task.asks]


def test_the_packages() -> None:
    for source in SOURCES:
        assert sum(line.startswith(f"| `{source.wheel.requirement}` |") for line in LINES) == 1
