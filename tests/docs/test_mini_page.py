"""decider-mini's page: its figures against made-up decisions, its targets, and the command that writes it.

Refuses models. Trap: the figures that stand in `docs/decider-mini.md` are of decisions that no checkout has, so
they are not checked here; what is checked is that the same code makes right ones.
"""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decider.data.families.catalogue import FAMILIES
from decider.data.split import Near
from decider.data.tasks import TASKS
from decider.data.train_tasks import NEVER, TRAINED
from decider.decisions import CHOICE, NOUL, Decisions, distributions
from decider.errors import ConfigError
from decider.evaluate.facts import RunFacts
from decider.evaluate.labelled import LabelledItem
from decider.evaluate.saved import save_decisions
from decider.evaluate.tables import read_data
from decider.questions.types import Noul

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "decider-mini.md"
DATA_PAGE = ROOT / "docs" / "data.md"
ASKED = ROOT / "benchmarks" / "asked.jsonl"
BASE = ROOT / "tests" / "data" / "embedded-decisions.npz"
FACTS = RunFacts("made", "fp32", "packed", "plain", 1, 0, "made.jsonl", "ab" * 32, "0.1.0")
N = 20
"""Decisions of each made-up task."""


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("mini_report")
    for name in ("mini_report", "mini_tables", "mini_targets"):
        sys.modules.pop(name, None)


def made(right: dict[str, int], n_options: int = 2, mark: str = "") -> Decisions:
    """`N` decisions of each task, of which so many are answered right, all with a probability of 0.8."""
    n = N * len(right)
    hit = np.concatenate([np.arange(N) < count for count in right.values()])
    gold = np.tile(np.arange(N) % 2, len(right))
    answered = np.where(hit, gold, 1 - gold)
    logits = np.zeros((n, n_options))
    logits[np.arange(n), answered] = np.log(4 * (n_options - 1))
    return Decisions(
        key=tuple(f"{mark}{task}-{item}/q" for task in right for item in range(N)),
        task=tuple(task for task in right for _ in range(N)),
        kind=np.full(n, NOUL if n_options == 2 else CHOICE),
        n_options=np.full(n, n_options),
        gold=gold,
        logits=logits,
        isolated=np.zeros(n, dtype=np.bool_),
        row_tokens=np.full(n, 100),
        option_lists=(("no", "yes") if n_options == 2 else tuple(f"option {place}" for place in range(n_options)),),
        option_list=np.zeros(n, dtype=np.int64),
    )


def figures(report: Any, decisions: Decisions) -> Any:
    nobody = made({"social": 1}, mark="other ")
    return report.made.figures_of(decisions, distributions(decisions, 1.0), nobody, resamples=100)


def verdicts(table: Any) -> dict[str, tuple[str, str]]:
    """What was reached and the verdict, by what was aimed at."""
    return {row[0]: (row[2], row[3]) for row in table.rows}


def test_every_task_is_in_one_group(report: Any) -> None:
    names = [*(task.name for task in TASKS), *(each.task.name for each in TRAINED), *(each.name for each in FAMILIES)]
    assert set(report.ORDER) == {*names, *report.made.ASKED}
    assert {name for name, group in report.ORDER.items() if group == "never"} == set(NEVER)
    by_lot = {each.name for each in FAMILIES if each.by_lot}
    assert by_lot == {"chance", "unsaid"} == {name for name, group in report.ORDER.items() if group == "lot"}
    held = {each.name for each in FAMILIES if each.held and not each.by_lot}
    assert held == {name for name, group in report.ORDER.items() if group == "daily"} >= {"ticket", "leads"}
    others = {each.name for each in FAMILIES} - by_lot - held
    assert {name for name, group in report.ORDER.items() if group == "family"} == others >= {"lookup", "rules"}
    assert set(report.made.UNSEEN) <= set(NEVER)
    assert {name for _, names in report.made.CANNOT for name in names} <= set(report.ORDER)


def test_targets_of_accuracy_are_means_of_tasks(report: Any) -> None:
    everyday = dict(zip(report.mini_targets.EVERYDAY, (20, 18, 18, 16), strict=True))
    unseen = dict.fromkeys(report.made.UNSEEN, 13)
    # What is drawn by lot, or worded as nothing in training, is answered wrongly here, and that must not count.
    families = {each.name: 1 if each.held else 19 for each in FAMILIES} | {"lookup_64": 16}
    found = verdicts(report.mini_targets.targets(figures(report, made(everyday | unseen | families)), [], 9.5))
    assert found["accuracy, mean of reviews, spam, satire, log_severity"] == ("0.900", "met")
    assert next(cells for what, cells in found.items() if "never trained)" in what) == ("0.650", "missed")
    assert found["accuracy, mean of the families"][1] == "met"
    assert found["accuracy, look-up among 64 options"] == ("0.800", "missed")
    assert found["minutes of a run of its training, on one card"] == ("9.500", "missed")


def test_a_target_without_its_tasks_is_not_measured(report: Any) -> None:
    found = verdicts(report.mini_targets.targets(figures(report, made({"reviews": 20, "spam": 20})), [], None))
    assert found["accuracy, mean of reviews, spam, satire, log_severity"] == ("-", "not measured")
    assert found["ECE, never trained together"][1] == "not measured"
    assert found["ECE, never trained, the five named ones together"][1] == "not measured"
    assert found["ECE, never trained one by one"] == ("-", "not measured")
    assert found["ECE beyond 10 options, against up to 10"][1] == "not measured"
    assert found["answers changed by one rotation"] == ("-", "not measured")


def test_targets_of_calibration(report: Any) -> None:
    # All say 0.8: 16 of 20 is calibrated, 20 of 20 off by 0.2, and together they are off by 0.1.
    few = made({"reviews": 16, "spam": 20, "tool_fits": 15, "answerable": 15})
    many = made({"occupation": 17}, n_options=20)
    table = report.mini_targets.targets(figures(report, report.joined([few, many])), [], None)
    found = verdicts(table)
    assert found["ECE, noul"] == ("0.025", "met")
    assert found["ECE, choice"] == ("0.050", "met")
    assert found["ECE, trained sets together"] == ("0.083", "missed")
    assert found["ECE, never trained together"] == ("0.050", "met")
    assert found["ECE, never trained, the five named ones together"] == ("0.050", "met")
    assert found["ECE, trained sets one by one"] == ("2 of 3 tasks", "missed")
    assert any(row[4].startswith("spam 0.200; 0 of these") for row in table.rows)


def test_what_is_drawn_by_lot_is_aimed_at_by_its_calibration_alone(report: Any) -> None:
    drawn = figures(report, made({"chance": 16, "unsaid": 10}))
    rows = [row for row in report.mini_targets.targets(drawn, [], None).rows if "uncertain by design" in row[0]]
    assert [row[:4] for row in rows] == [
        ("ECE, uncertain by design together", "at most 0.05", "0.150", "missed"),
        ("ECE, uncertain by design one by one", "at most 0.05", "1 of 2 tasks", "missed"),
    ]
    assert [row[0] for row in report.made.tasks(drawn, "lot").rows] == ["chance", "unsaid"]
    assert report.made.tasks(drawn, "lot").columns[4] == "accuracy"
    assert report.made.tasks(drawn, "family").rows == ()


def test_more_options_may_not_be_calibrated_worse(report: Any) -> None:
    both = report.joined([made({"reviews": 16}), made({"occupation": 8}, n_options=20)])
    found = verdicts(report.mini_targets.targets(figures(report, both), [], None))
    assert found["ECE beyond 10 options, against up to 10"] == ("0.400", "missed")
    # What chance may make of so few stands beside it.
    both = report.joined([made({"reviews": 16}), made({"occupation": 17}, n_options=20)])
    rows = report.mini_targets.targets(figures(report, both), [], None).rows
    (row,) = [row for row in rows if row[0].startswith("ECE beyond")]
    assert row[1:4] == ("at most 0.000", "0.050", "missed")
    said = re.fullmatch(r"20 decisions, whose noise floor is (0\.\d{3}), against 20", row[4])
    assert said
    assert 0.1 < float(said[1]) < 0.3
    both = report.joined([made({"reviews": 6}), made({"occupation": 8}, n_options=20)])
    found = verdicts(report.mini_targets.targets(figures(report, both), [], None))
    assert found["ECE beyond 10 options, against up to 10"] == ("0.400", "met")


def test_aims_are_those_that_were_set(report: Any) -> None:
    rows = report.mini_targets.targets(figures(report, made({"reviews": 16})), [], None).rows
    aims = {row[0]: row[1] for row in rows}
    for group, aim in (("trained", 0.05), ("family", 0.05), ("daily", 0.05), ("lot", 0.05), ("never", 0.08)):
        for how in ("together", "one by one"):
            assert aims[f"ECE, {report.made.GROUPS[group]} {how}"] == f"at most {aim:.2f}"
    assert [aims[f"ECE, {kind}"] for kind in ("choice", "score", "noul")] == ["at most 0.10"] * 3
    assert aims["answers changed by one rotation"] == "at most 0.08"
    assert aims["by renaming ids"] == "at most 0.00"
    never = {"name": "ids", "askings": 20, "changed_askings": 0}
    found = verdicts(report.mini_targets.targets(figures(report, made({"reviews": 16})), [never], None))
    assert found["by renaming ids"] == ("0.000", "met")


def test_rotations_count_askings(report: Any) -> None:
    rate = {"name": "order", "changed_what": "options rotated", "n": 10, "changed": 4, "rate": 0.4, "low": 0.1,
            "high": 0.7, "askings": 70, "changed_askings": 5, "largest_shift": 0.3}  # fmt: skip
    found = verdicts(report.mini_targets.targets(figures(report, made({"reviews": 16})), [rate], None))
    assert found["answers changed by one rotation"] == ("0.071", "met")
    assert report.made.rotations([rate]).rows[0][3:5] == ("5 of 70", "0.071")


def test_decisions_are_told_apart_by_familiarity(report: Any) -> None:
    decisions = made({"reviews": 6, "social": 2})
    known = np.repeat([0.245, 0.25, 0.995, 1.0], len(decisions) // 4)
    told = figures(report, replace(decisions, familiarity=known)).after
    groups = {name: group.n for (by, name), group in told.items() if by == "familiarity"}
    assert groups == {"0–24 %": len(decisions) // 4, "25–49 %": len(decisions) // 4, "75–100 %": len(decisions) // 2}
    assert "familiarity" not in {by for by, _ in figures(report, decisions).after}
    one, other = (replace(made({name: 1}, mark=name), familiarity=np.full(N, 0.5)) for name in ("reviews", "social"))
    assert report.joined([one, other]).familiarity.tolist() == [0.5] * 2 * N
    assert report.joined([one, replace(other, familiarity=None)]).familiarity is None


def test_files_are_joined(report: Any) -> None:
    first, second = made({"reviews": 20}), made({"occupation": 3}, n_options=20)
    both = report.joined([first, second])
    assert both.logits.shape == (2 * N, 20)
    assert np.isneginf(both.logits[:N, 2:]).all()
    assert both.option_lists[both.option_list[0]] == ("no", "yes")
    assert both.option_lists[both.option_list[N]][19] == "option 19"
    assert both.key == (*first.key, *second.key)


def test_what_does_not_belong_together_is_refused(report: Any, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.npz" for name in ("one", "two", "three")]
    save_decisions(paths[0], made({"reviews": 20}), FACTS)
    save_decisions(paths[1], made({"spam": 20}), RunFacts("made", "bf16", "packed", "plain", 1, 0, "b", "cd" * 32, "1"))
    save_decisions(paths[2], made({"nobody's": 20}), FACTS)
    with pytest.raises(ConfigError, match="dtype 'bf16', not 'fp32'"):
        report.load(paths[:2])
    with pytest.raises(ConfigError, match="share decisions"):
        report.load([paths[0], paths[0]])
    with pytest.raises(ConfigError, match="no task of `decider data`"):
        report.load(paths[2:])
    with pytest.raises(ConfigError, match="20 items were calibrated on and are evaluated"):
        report.fitted_on(made({"reviews": 20}), paths[:1])


def test_calibration_on_tasks_never_trained_is_said(report: Any, tmp_path: Path) -> None:
    save_decisions(tmp_path / "a.npz", made({"spam": 20}), FACTS)
    save_decisions(tmp_path / "b.npz", made({"tool_fits": 20}), FACTS)
    evaluated = made({"reviews": 20})
    assert "none of them of a task never trained" in report.fitted_on(evaluated, [tmp_path / "a.npz"])
    assert report.fitted_on(evaluated, [tmp_path / "b.npz"]).endswith("also of tool_fits")


def test_the_commonest_answer_needs_one_list_of_options(report: Any) -> None:
    own = made({"log_severity": 20})
    own.gold[:] = 0
    own.gold[:3] = 1
    assert report.made.commonest(own, "log_severity") == 0.85
    other = made({"log_severity": 20}, n_options=3, mark="more ")
    assert report.made.commonest(report.joined([own, other]), "log_severity") is None


def test_limits_are_told_beside_guessing(report: Any) -> None:
    decisions = made({"exams": 20, "deduction": 10, "likelihood": 19})
    # Three of four answers are the first option.
    decisions.gold[2 * N :] = np.arange(N) % 4 == 3
    decisions.logits[2 * N :] = np.where(np.arange(2) == decisions.gold[2 * N :, None], 2.0, 0.0)
    decisions.logits[-1] = decisions.logits[-1, ::-1]
    rows = {row[1]: row[-1] for row in report.made.limits(figures(report, decisions)).rows}
    assert rows == {
        "exams": "100 % of the way from chance to all right",
        "deduction": "no better than chance, as far as can be told",
        "likelihood": "80 % of the way from the commonest to all right",
    }


def test_another_precision_is_paired_by_key(report: Any) -> None:
    first = made({"reviews": 20, "spam": 20})
    second = made({"spam": 18, "reviews": 20})
    other = RunFacts("made", "bf16", "packed", "plain", 1, 0, "b", "cd" * 32, "1")
    table = report.made.precision(first, FACTS, (second, other))
    assert [row[0] for row in table.rows] == ["fp32", "bf16"]
    assert table.rows[1][2] == "0.950"
    assert table.rows[1][4] == "2 (5.0 %)"
    with pytest.raises(ConfigError, match="others than those in fp32"):
        report.made.precision(first, FACTS, (made({"spam": 18}, mark="other "), other))
    some = report.made.precision(first, FACTS, (second.take(np.arange(3)), other))
    assert [row[1] for row in some.rows] == ["3", "3"]


def test_only_what_is_marked_is_replaced(report: Any) -> None:
    text = "a\n<!-- figures: one -->\nold\n<!-- end -->\nb\n<!-- figures: two -->\n<!-- end -->\n"
    filled = report.filled(text, {"one": r"| \1 |" + "\n", "two": "new\n"})
    assert filled == ("a\n<!-- figures: one -->\n| \\1 |\n<!-- end -->\nb\n<!-- figures: two -->\nnew\n<!-- end -->\n")
    with pytest.raises(ConfigError, match="the page marks one, two"):
        report.filled(text, {"one": ""})


def test_the_command_writes_both_pages(
    report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, html = tmp_path / "page.md", tmp_path / "page.html"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["mini_report.py", str(BASE), "--page", str(page), "--html", str(html)])
    report.main()
    assert "| accuracy, look-up among 64 options | at least 0.85 | - | not measured" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    # As docs/embedded-model.md says of the same file.
    social = next(line for line in text.splitlines() if line.startswith("| social |"))
    cells = [cell.strip() for cell in social.split("|")]
    assert cells[2:7] == ["choice; 3", "400", "0.333", "0.323", "0.275–0.367"]
    assert cells[-3] == "0.323"
    outside = re.compile(r"(<!-- figures: \w+ -->\n).*?(<!-- end -->)", re.S)
    assert outside.sub(r"\1\2", text) == outside.sub(r"\1\2", PAGE.read_text(encoding="utf-8"))
    drawn = html.read_text(encoding="utf-8")
    assert "<script" not in drawn
    assert not re.search(r"(?:src|href)=\"(?!#)", drawn)
    assert drawn.count("<svg") == 2 * (2 + 3)
    ids = re.findall(r'\bid="([^"]+)"', drawn)
    assert len(set(ids)) == len(ids)


def test_published_figures_name_their_sources(report: Any) -> None:
    figures = tomllib.loads(report.made.PUBLISHED.read_text(encoding="utf-8"))["figure"]
    assert len(figures) > 10
    for figure in figures:
        assert figure["task"] in ("", *report.ORDER)
        assert re.search(r"\b20\d\d\b", figure["source"]), figure
        assert figure["differs"]
        assert bool(figure["measure"]) or not figure["value"], figure


def test_the_page_calibrates_on_every_trained_task_of_the_evaluation() -> None:
    named = re.search(r"eval-data/\{([\w,]+)\}\.calibrate\.jsonl", PAGE.read_text(encoding="utf-8"))
    assert named is not None
    assert set(named[1].split(",")) == {each.task.name for each in TRAINED if each.evaluated}


def test_a_training_in_parts_is_as_long_as_its_longest(report: Any) -> None:
    parts = [{"step": 1, "elapsed_s": 90.0}, {"resumed": 4, "elapsed_s": 100.0}, {"resumed": 9, "elapsed_s": 350.0}]
    assert report.longest_run_s({"history": parts, "elapsed_s": 400.0}) == 250
    assert report.longest_run_s({"history": [], "elapsed_s": 400.0}) == 400


def share_of_yes(items: Sequence[LabelledItem]) -> float:
    """Of the Nouls' golds."""
    golds = [each.gold[name] for each in items for name, asked in each.request.questions.items() if type(asked) is Noul]
    return sum(map(bool, golds)) / len(golds)


def shared(asked: Sequence[LabelledItem], calibrating: Sequence[LabelledItem]) -> set[str]:
    """The names of the items of `calibrating` that have an item's name of `asked`, or a state near to one."""
    names, near = {each.id for each in asked}, Near(each.request.state for each in asked)
    return {each.id for each in calibrating if each.id in names or near.has(each.request.state)}


def check_asked(items: Sequence[LabelledItem], n_items: int, n_decisions: int) -> None:
    """By hand, so: names and states are there once, as many as `docs/data.md` says, and yes is as common as no."""
    assert len({each.id for each in items}) == len(items) == n_items
    assert len({each.request.state for each in items}) == n_items
    assert sum(len(each.gold) for each in items) == n_decisions
    assert all(each.gold.keys() == each.request.questions.keys() for each in items)
    assert 0.45 < share_of_yes(items) < 0.55
    assert f"{n_items:,} items with {n_decisions:,} decisions" in DATA_PAGE.read_text(encoding="utf-8")


def test_what_somebody_else_asked_is_of_the_page_s_groups(report: Any) -> None:
    items = read_data(ASKED, None)
    check_asked(items, 472, 1474)
    assert {each.task for each in items} == set(report.made.ASKED)
    assert len(report.made.ASKED) == 15
    assert all(task.startswith("asked_") for task in report.made.ASKED)
    assert sum(each.task == "asked_mixed" for each in items) == 303


def test_what_calibrates_free_questions_is_none_of_what_is_evaluated(report: Any) -> None:
    asked, items = read_data(ASKED, None), read_data(report.TO_CALIBRATE, None)
    check_asked(items, 1224, 3715)
    authors = ("documents", "everyday", "operations")
    assert {each.task for each in items} == {f"asked_{name}" for name in authors}
    assert report.to_calibrate() == {each.id for each in items}
    assert not shared(asked, items)
    for place in (0, -1):
        renamed = replace(items[place], id="another")
        assert items[place].id in shared([*asked, renamed], items)
        assert items[place].id in shared([*asked, replace(asked[0], id=items[place].id)], items)


def test_what_calibrates_free_questions_is_never_shown_as_evaluated(report: Any, tmp_path: Path) -> None:
    """Even under a task's name that `asked.jsonl` has."""
    decisions = made({"asked_rules": 20})
    fitted = replace(decisions, key=tuple(f"asked-operations-{place:03}/q1" for place in range(1, N + 1)))
    save_decisions(tmp_path / "fitted.npz", fitted, FACTS)
    with pytest.raises(ConfigError, match=r"20 items are of `asked_calibrate.jsonl`, as 'asked-operations-001'"):
        report.load([tmp_path / "fitted.npz"])
    said = report.fitted_on(decisions, [tmp_path / "fitted.npz"])
    assert said.startswith("20 other decisions of 1 tasks, 20 asked freely (`asked_calibrate.jsonl`), none of them")
    save_decisions(tmp_path / "others.npz", made({"spam": 20}), FACTS)
    assert "freely" not in report.fitted_on(decisions, [tmp_path / "others.npz"])
