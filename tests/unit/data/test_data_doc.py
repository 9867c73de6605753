"""`docs/data.md` names every task and package as the code has them.

Trap: a table nobody checks is soon another build's.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from decider.data.families.catalogue import FAMILIES
from decider.data.families.making import Family
from decider.data.items import Task
from decider.data.sources import NPM_SOURCES, SOURCES
from decider.data.tasks import TASKS
from decider.data.train_tasks import NEVER, TRAINED, TrainTask

TEXT = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
LINES, TRAINING = (part.splitlines() for part in TEXT.split("# Training data\n"))


def cells_of(name: str, lines: list[str]) -> list[str]:
    (row,) = [line for line in lines if line.startswith(f"| `{name}` |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_tasks_row(task: Task) -> None:
    cells = cells_of(task.name, LINES)
    assert cells[1:4] == [", ".join(dict.fromkeys(task.kinds)), task.options, "{} + {}".format(*task.n_decisions)]
    assert cells[5:] == [f"`{task.source.package}`", task.licence, task.asks]


def test_the_packages() -> None:
    for source in SOURCES:
        assert sum(line.startswith(f"| `{source.wheel.requirement}` |") for line in LINES) == 1
    for source in NPM_SOURCES:
        cells = cells_of(source.wheel.requirement, TRAINING)
        assert cells[1:3] == [f"{source.n_bytes / 1e6:.1f} MB", source.licence]


@pytest.mark.parametrize("each", TRAINED, ids=lambda each: each.task.name)
def test_a_training_sets_row(each: TrainTask) -> None:
    cells = cells_of(each.task.name, TRAINING)
    assert cells[1:4] == [", ".join(dict.fromkeys(each.task.kinds)), each.task.options, f"{each.n_train:,}"]
    assert (cells[4] == "the evaluation") is each.evaluated
    assert cells[5:] == [f"`{each.task.source.package}`", each.task.licence, each.task.asks]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_familys_row(family: Family) -> None:
    cells = cells_of(family.name, TRAINING)
    assert cells[1:] == [", ".join(family.kinds), family.options, f"{family.share:,}", family.asks]


def test_the_whole_and_what_is_never_trained() -> None:
    n = sum(each.n_train for each in TRAINED) + sum(family.share for family in FAMILIES)
    assert any(line.startswith(f"| `train.jsonl` | {n:,} items, ") for line in TRAINING)
    (start,) = [place for place, line in enumerate(TRAINING) if line == "## Never trained"]
    for name in NEVER:
        assert any(f"`{name}`" in line for line in TRAINING[start:])
