"""The model card: licences, tasks never trained, limits, and the base by its hash.

Refuses to train. Trap: a card is read by people, so a test asks for what must be said and not for its wording alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from decider.data.train_tasks import NEVER, TRAINED
from decider.evaluate.labelled import LabelledItem
from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.wire import parse_request
from decider.train.card import write_card
from decider.train.early import Evaluation, TaskFigures
from decider.train.loop import Outcome
from decider.train.recipe import Recipe

FACTS = {"data_sha256": "da" * 32, "base_sha256": "ba" * 32, "items_per_step": 8, "layout": "plain"}


def item(task: str, number: int) -> LabelledItem:
    request = parse_request(
        {"state": "s", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}, DEFAULT_LIMITS
    )
    return LabelledItem(f"{task}-{number}", task, request, MappingProxyType({"q": 1}))


def card(tmp_path: Path, tasks: list[str], manifest: Mapping[str, Any] | None, best: Evaluation | None = None) -> str:
    file = tmp_path / "README.md"
    write_card(
        file,
        base="smollm2-135m-instruct",
        recipe=Recipe(epochs=1.0, max_state_tokens=1024),
        facts=FACTS,
        items=[item(task, number) for task in tasks for number in range(3)],
        outcome=Outcome(10, 60.0, (), None, best, False),
        manifest=manifest,
        curves=None,
    )
    return file.read_text(encoding="utf-8")


def manifest() -> dict[str, Any]:
    tasks: dict[str, Any] = {each.task.name: {"licence": each.task.licence} for each in TRAINED}
    return {
        "tasks": tasks | {"lookup": {"programmatic": True}},
        "never_trained": NEVER,
        "sources": [{"requirement": "evals==3.0.1.post1", "licence": "MIT, mostly"}],
    }


def test_every_licence_is_named_and_whom_to_credit(tmp_path: Path) -> None:
    said = card(tmp_path, [*(each.task.name for each in TRAINED), "lookup", "ours"], manifest())
    for each in TRAINED:
        assert f"| {each.task.name} | 3 | 3 | {each.task.licence} |" in said
    assert "| lookup | 3 | 3 | made by program |" in said
    assert "| ours | 3 | 3 | not said |" in said
    credit = next(line for line in said.splitlines() if line.startswith("Whoever passes this model on"))
    assert "exams (CC BY-SA 4.0)" in credit
    assert "social (CC BY 4.0)" in credit
    assert "satire" not in credit
    assert "Share-alike" in said
    assert "`evals==3.0.1.post1` (MIT, mostly)" in said


def test_share_alike_is_said_of_such_sets_alone(tmp_path: Path) -> None:
    said = card(tmp_path, ["social"], manifest())
    assert "names the authors of social (CC BY 4.0)." in said
    assert "Share-alike" not in said
    assert "Whoever passes" not in card(tmp_path, ["satire"], manifest())


def test_what_was_never_trained_is_named_with_why(tmp_path: Path) -> None:
    said = card(tmp_path, ["reviews"], manifest())
    for task, why in NEVER.items():
        assert f"| {task} | {why} |" in said
    # Whoever trains on one after all has not held it out.
    assert "| tool_choice | held out" not in card(tmp_path, ["reviews", "tool_choice"], manifest())


@pytest.mark.parametrize("other", [None, {}, {"tasks": [], "never_trained": "none"}, {"tasks": {"reviews": "free"}}])
def test_a_manifest_of_another_maker_is_not_needed(tmp_path: Path, other: Mapping[str, Any] | None) -> None:
    said = card(tmp_path, ["reviews"], other)
    assert "| reviews | 3 | 3 | not said |" in said
    assert "## Never trained" not in said


def test_base_and_limits(tmp_path: Path) -> None:
    figures = {
        "reviews": TaskFigures(n=100, nll=0.2, accuracy=0.94, chance=0.5, ece=0.02),
        "exams": TaskFigures(n=100, nll=1.4, accuracy=0.27, chance=0.25, ece=0.04),
    }
    said = card(tmp_path, ["reviews", "exams"], manifest(), Evaluation(5, figures, 1.4, 0.7))
    assert f"`{FACTS['base_sha256']}`" in said
    assert "(0.700 at 1.40)" in said
    limits = said[said.index("## Limits") : said.index("## Training\n")]
    assert "exams" in limits
    assert "reviews" not in limits
    assert "1,024 tokens" in limits


def test_limits_of_a_run_that_measured_nothing(tmp_path: Path) -> None:
    assert "- Nothing was measured" in card(tmp_path, ["reviews"], None)
