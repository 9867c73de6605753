"""Groups and confusion matrices: who is in them, and that their figures are those of `metrics` and its neighbours.

Refuses to test a figure's formula; the tests of `metrics`, `bins`, `selection` and `bootstrap` do. Trap: a figure of
the wrong rows is as plausible as that of the right ones, so rows are found anew here, by loops.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_decisions import QUESTIONS, made_decisions

from decider.decisions import KINDS, NOUL, SCORE, Decisions, Float64Array, distributions, item_codes
from decider.evaluate import bins, bootstrap, metrics, selection
from decider.evaluate.summary import BY, MOST_TASKS, Group, Summary, summarise

DECISIONS = made_decisions(60)
DECISIONS = replace(DECISIONS, familiarity=np.arange(len(DECISIONS)) / (len(DECISIONS) - 1))
SHARES = distributions(DECISIONS, 1.0)


@pytest.fixture(scope="module")
def summary() -> Summary:
    return summarise(DECISIONS, SHARES, resamples=100, seed=3)


def wanted_rows(group: Group) -> list[int]:
    """The rows that a group says it is of."""

    def inside(row: int) -> bool:
        kind, task = KINDS[DECISIONS.kind[row]], DECISIONS.task[row]
        if group.by in ("options", "length"):
            low, _, high = group.name.removesuffix(" tokens").partition("–")
            value = DECISIONS.n_options[row] if group.by == "options" else DECISIONS.row_tokens[row]
            return bool(int(low) <= value <= int(high or low))
        if group.by == "familiarity":
            assert DECISIONS.familiarity is not None
            low, _, high = group.name.removesuffix(" %").partition("–")
            return bool(int(low) / 100 <= DECISIONS.familiarity[row] < (int(high) + 1) / 100)
        return (
            group.name
            in {"all": ("all",), "type": (kind,), "task": (task,), "task and type": (f"{task}: {kind}",)}[group.by]
        )

    return [row for row in range(len(DECISIONS)) if inside(row)]


def test_every_division_covers_all_decisions_in_order(summary: Summary) -> None:
    names = {by: [group.name for group in summary.groups if group.by == by] for by in BY}
    tasks = list(dict.fromkeys(question[0] for question in QUESTIONS))
    assert names["all"] == ["all"]
    assert names["type"] == ["choice", "score", "noul"]
    assert names["task"] == tasks
    assert names["task and type"] == [
        f"{tasks[0]}: choice",
        f"{tasks[0]}: noul",
        f"{tasks[1]}: score",
        f"{tasks[2]}: choice",
    ]
    assert names["options"] == ["2", "3", "5–8", "17–32"]
    assert names["length"] == ["1–128 tokens", "129–256 tokens", "257–512 tokens", "513–1024 tokens"]
    assert names["familiarity"] == ["0–24 %", "25–49 %", "50–74 %", "75–100 %"]
    assert [group.by for group in summary.groups] == sorted((group.by for group in summary.groups), key=BY.index)
    for by in BY:
        assert sum(group.n for group in summary.groups if group.by == by) == len(DECISIONS)


def test_figures_are_those_of_the_groups_own_rows(summary: Summary) -> None:
    for group in summary.groups:
        rows = np.array(wanted_rows(group))
        shares, gold, n_options = SHARES[rows], DECISIONS.gold[rows], DECISIONS.n_options[rows]
        confidence, correct = metrics.confidence_of(shares), metrics.correct_of(shares, gold)
        assert group.n == len(rows)
        assert group.accuracy.value == pytest.approx(correct.mean(), abs=1e-12)
        assert group.chance == pytest.approx((1 / n_options).mean(), abs=1e-12)
        assert group.nll.value == pytest.approx(metrics.mean(metrics.nll_of(shares, gold)), abs=1e-12)
        assert group.brier.value == pytest.approx(metrics.mean(metrics.brier_of(shares, gold)), abs=1e-12)
        assert group.n_infinite == 0
        for made, binning in (
            (group.equal_width, bins.equal_width(confidence)),
            (group.equal_mass, bins.equal_mass(confidence)),
        ):
            assert made.ece.value == pytest.approx(bins.ece(binning, confidence, correct), abs=1e-12)
            assert made.bins.n.tolist() == bins.reliability(binning, confidence, correct).n.tolist()
            assert 0 < made.floor.mean < made.floor.high
        assert group.aurc.value == pytest.approx(selection.aurc(confidence, correct), abs=1e-12)
        curve = selection.risk_coverage(confidence, correct)
        assert group.curve.risk.tolist() == pytest.approx(curve.risk.tolist(), abs=1e-12)


def test_figures_of_one_type_stand_where_all_are_of_it(summary: Summary) -> None:
    for group in summary.groups:
        rows = np.array(wanted_rows(group))
        shares, gold, n_options = SHARES[rows], DECISIONS.gold[rows], DECISIONS.n_options[rows]
        kinds = set(DECISIONS.kind[rows].tolist())
        assert (group.auroc is not None) == (kinds == {NOUL})
        assert (group.mae is not None) == (group.rps is not None) == (kinds == {SCORE})
        if group.auroc is not None:
            assert group.auroc.value == metrics.auroc(shares[:, 1], gold == 1)
        if group.mae is not None and group.rps is not None:
            assert group.mae.value == pytest.approx(metrics.absolute_error_of(shares, gold).mean(), abs=1e-12)
            assert group.rps.value == pytest.approx(metrics.rps_of(shares, n_options, gold).mean(), abs=1e-12)
    assert sum(group.auroc is not None for group in summary.groups) == 3
    assert sum(group.mae is not None for group in summary.groups) == 4


def test_intervals_resample_the_items_of_the_group(summary: Summary) -> None:
    group = next(group for group in summary.groups if group.name == "noul")
    rows = np.array(wanted_rows(group))
    items = item_codes([DECISIONS.key[row] for row in rows])
    drawn = bootstrap.resample(items, seed=3, resamples=100)
    assert drawn is not None
    shares, gold = SHARES[rows], DECISIONS.gold[rows]
    correct = metrics.correct_of(shares, gold)
    assert group.accuracy.interval == bootstrap.mean_interval(drawn, correct)
    assert group.nll.interval == bootstrap.mean_interval(drawn, metrics.nll_of(shares, gold))
    assert group.auroc is not None
    assert group.auroc.interval == bootstrap.auroc_interval(drawn, shares[:, 1], gold == 1)
    confidence = metrics.confidence_of(shares)
    assert group.aurc.interval == bootstrap.aurc_interval(drawn, confidence, correct)
    assert group.equal_width.ece.interval == bootstrap.ece_interval(
        drawn, bins.equal_width(confidence), confidence, correct
    )
    whole = summary.groups[0].accuracy.interval
    # Four questions an item, one unit.
    assert whole is not None
    assert whole.units == 60


def test_without_resamples_there_are_no_intervals() -> None:
    for group in summarise(DECISIONS, SHARES, resamples=0, seed=0).groups:
        for figure in (
            group.accuracy,
            group.nll,
            group.brier,
            group.equal_width.ece,
            group.aurc,
            group.auroc,
            group.rps,
        ):
            assert figure is None or figure.interval is None


def test_a_confusion_matrix_counts_right_against_answered(summary: Summary) -> None:
    assert [(one.question, one.kind) for one in summary.confusions] == [
        ("tone", "choice"),
        ("toxic", "noul"),
        ("stars", "score"),
    ]
    for one in summary.confusions:
        rows = [row for row, key in enumerate(DECISIONS.key) if key.endswith("/" + one.question)]
        counts = np.zeros((len(one.options), len(one.options)), dtype=int)
        for row in rows:
            counts[DECISIONS.gold[row], SHARES[row].argmax()] += 1
        assert one.counts == tuple(map(tuple, counts.tolist()))
        assert one.options == next(question[3] for question in QUESTIONS if question[1] == one.question)


def test_a_question_whose_options_differ_has_no_matrix() -> None:
    lists = (*DECISIONS.option_lists, ("bad", "fine", "neither"))
    which = DECISIONS.option_list.copy()
    which[0] = len(lists) - 1
    found = summarise(replace(DECISIONS, option_lists=lists, option_list=which), SHARES, resamples=0, seed=0).confusions
    assert [one.question for one in found] == ["toxic", "stars"]


def test_an_infinite_nll_is_said() -> None:
    shares = SHARES.copy()
    shares[0] = np.eye(20)[(DECISIONS.gold[0] + 1) % 3]
    found = summarise(DECISIONS, shares, resamples=100, seed=0)
    assert found.groups[0].nll.value == np.inf
    assert found.groups[0].n_infinite == 1
    interval = found.groups[0].nll.interval
    assert interval is not None
    assert interval.high == np.inf
    assert "1 of 240 right answers were given probability 0, so the NLL is infinite" in found.warnings


def part(n_items: int) -> tuple[Decisions, Float64Array]:
    rows = np.arange(n_items * len(QUESTIONS))
    return DECISIONS.take(rows), SHARES[rows]


def test_few_data_are_warned_of() -> None:
    decisions, shares = part(5)
    assert summarise(decisions, shares, resamples=0, seed=0).warnings == (
        "there are 20 decisions; fewer than 100 say little, so read the intervals",
    )
    warnings = summarise(DECISIONS, SHARES, resamples=0, seed=0).warnings
    assert warnings == (
        "fewer than 100 decisions say little, so read the intervals of score (60), noul (60), stars (60), intents (60)",
    )


def test_one_decision_is_enough() -> None:
    decisions = DECISIONS.take(np.array([1]))
    found = summarise(decisions, SHARES[1:2], resamples=100, seed=0)
    assert found.groups[0].n == 1
    assert found.groups[0].accuracy.interval is None
    # One answer alone is ever right.
    assert found.groups[0].auroc is None
    assert found.confusions == ()


def test_of_very_many_tasks_the_largest_have_figures() -> None:
    tasks = tuple("large" if row < 40 else f"task {row}" for row in range(len(DECISIONS)))
    found = summarise(replace(DECISIONS, task=tasks), SHARES, resamples=0, seed=0)
    names = [group.name for group in found.groups if group.by == "task"]
    assert len(names) == MOST_TASKS
    assert names[0] == "large"
    assert found.warnings[0] == "101 tasks of the fewest decisions have no figures of their own; 100 have"
