"""Comparisons, tolerances, cases, prices and reports of `decider.verify`, on made logits.

Refuses to load a model. Trap: a tolerance that grows with what it judges lets everything through, so each test of one
has a difference that must be a fault.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from fake_graphs import LABEL_IDS, VOCAB, random_row
from verify_ground import FREE, POSITIONS, ReferenceStub, ground, logits_of

from decider.plan.buckets import Grid
from decider.run.executor import Logits
from decider.run.precision import full_float32
from decider.run.stats import GridStats
from decider.tokens.rows import Row
from decider.verify.cases import ROW_TOKENS, cuts_of, make_cases, make_row
from decider.verify.checks import check_prefixes
from decider.verify.compare import (
    COARSE,
    FLOAT32,
    FP8,
    MOST_ALLOWED,
    Findings,
    Judge,
    Verdict,
    difference,
    error,
    tolerance_for,
)
from decider.verify.pace import Pace, Point, afford, measure_pace
from decider.verify.report import as_json, summary, verdict_text
from decider.verify.run import Setup
from decider.verify.watch import Watched

SETUP = Setup("m", "e", (), "o", "t", "p", 1.0, 2.0)


def test_a_difference_is_the_worst_slots_and_counts_clear_winners_only() -> None:
    row = Row((1, 2, 3, 4), (1, 2, 3), (2, 2, 1), 0)
    theirs = logits_of([1.0, 0.0, 9.0], [0.001, 0.0, 0.0], [0.0, 5.0, 5.0])
    ours = logits_of([0.0, 1.0, 0.0], [0.0, 0.001, 0.0], [7.0, 5.0, 5.0])
    found = difference("so", row, ours, theirs)
    assert (found.slot, found.changed) == (1, 1)
    assert found.shift == pytest.approx(2 / (1 + math.exp(-1)) - 1)
    assert difference("so", row, theirs, theirs).shift == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_infinitely_far(value: float) -> None:
    row = Row((1, 2), (0, 1), (2, 2), 0)
    theirs = logits_of([1.0, 0.0], [1.0, 0.0])
    ours = theirs.copy()
    ours[1, 1] = value
    found = difference("so", row, ours, theirs)
    assert (found.shift, found.slot, found.changed) == (math.inf, 1, 1)
    findings = Findings(Judge(ReferenceStub(theirs), FLOAT32, None))
    findings.against_oracle("so", [row], [ours], [theirs])
    verdict = findings.verdict("x", "y")
    assert not verdict.passed
    assert json.loads(as_json(SETUP, [verdict]))["checks"][0]["largest_shift"] is None


class LeansApart(ReferenceStub):
    """Its ways are on two sides of the oracle, each within the tolerance."""

    @property
    def stats(self) -> GridStats:
        return GridStats()

    def score_shared(self, rows: Sequence[Row], *, gate: bool = True) -> list[Logits] | None:  # noqa: ARG002
        return [-self.logits for _ in rows]

    def why_not_shared(self, rows: Sequence[Row], *, gate: bool = True) -> str | None:  # noqa: ARG002
        return None


def test_two_ways_near_the_oracle_may_be_too_far_from_each_other() -> None:
    # A logit moves the probability of one of two equal options by a quarter of what it is moved by.
    lean = logits_of([4 * 0.8 * FLOAT32.floor, 0.0])
    rows = [Row((1, 2, last), (2,), (2,), 2) for last in (3, 4)]
    verdict = check_prefixes(Watched(LeansApart(lean)), Judge(ReferenceStub(0 * lean), FLOAT32, None), [rows])
    assert [fault.partition(", 3 tokens: ")[0] for fault in verdict.faults] == [
        "behind 2 shared tokens, against full rows"
    ] * 2
    assert verdict.largest_shift == pytest.approx(1.6 * FLOAT32.floor, rel=0.01)


def test_the_yardstick_sets_the_tolerance_of_coarse_types() -> None:
    row = Row((1,), (0,), (2,), 0)
    oracle, near = logits_of([1.0, 0.0]), logits_of([1.04, 0.0])
    deviation = difference("", row, near, oracle).shift
    tolerance = COARSE["bfloat16"]
    judge = Judge(ReferenceStub(oracle), tolerance, ReferenceStub(oracle))
    judge.want([row])
    assert judge.allowed == tolerance.floor
    judge = Judge(ReferenceStub(oracle), tolerance, ReferenceStub(near))
    judge.want([row])
    assert judge.allowed == pytest.approx(3 * deviation)
    assert judge.allowed > tolerance.floor
    judge = Judge(ReferenceStub(oracle), FP8, ReferenceStub(logits_of([0.0, 1.0])))
    judge.want([row])
    assert judge.allowed == MOST_ALLOWED
    judge = Judge(ReferenceStub(oracle), tolerance, ReferenceStub(logits_of([math.inf, 1.0])))
    judge.want([row])
    assert judge.allowed == tolerance.floor


def test_a_far_yardstick_excuses_little_more_than_itself() -> None:
    row = Row((1,), (0,), (2,), 0)
    oracle, far = logits_of([0.0, 0.0]), logits_of([0.8, 0.0])
    deviation = difference("", row, far, oracle).shift
    assert deviation == pytest.approx(0.19, abs=0.001)
    judge = Judge(ReferenceStub(oracle), COARSE["bfloat16"], ReferenceStub(far))
    judge.want([row])
    assert judge.allowed == pytest.approx(deviation + COARSE["bfloat16"].margin)
    assert judge.allowed < 3 * deviation


def test_an_error_is_that_of_all_labels_without_their_common_shift() -> None:
    logits = logits_of([1.0, 2.0, 3.0, 6.0])[0]
    assert error(logits + 5, logits) == pytest.approx(1e-4)
    assert error(logits * 1.1, logits) == pytest.approx(0.1, rel=1e-5)
    assert error(logits * -1, logits) == pytest.approx(2)
    assert error(logits, 0 * logits) > 1


def judged(n_rows: int, times: float) -> Verdict:
    """`n_rows` of ten equal options, whose logits are `times` as far from the oracle as the yardstick's."""
    rng = np.random.default_rng(0)
    wants, eager, ours = rng.normal(size=(3, n_rows, 1, 40)).astype(np.float32)
    rows = [Row((place,), (0,), (40,), 0) for place in range(n_rows)]

    class Each(ReferenceStub):
        def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
            return [self.logits[row.ids[0]] for row in rows]

    judge = Judge(Each(wants), COARSE["bfloat16"], Each(wants + 0.003 * eager))
    findings = Findings(judge)
    findings.against_oracle("so", rows, [*(wants + times * 0.003 * ours)], judge.want(rows))
    return findings.verdict("x", "y", ["first"])


@pytest.mark.parametrize(("n_rows", "times", "sound"), [(30, 1.0, True), (30, 2.0, True), (30, 4.0, False)])
def test_logits_that_are_farther_than_rounding_in_the_mean_are_a_fault(n_rows: int, times: float, sound: bool) -> None:
    """None of them is farther than a single place may be."""
    verdict = judged(n_rows, times)
    assert verdict.largest_shift < verdict.allowed
    assert verdict.passed == sound
    if not sound:
        [fault] = verdict.faults
        assert fault.startswith("so: logits are 3.8 times ")
        assert "as those of eager bfloat16, in the mean of 30 places; allowed 2.9" in fault


def test_few_places_are_not_judged_as_many() -> None:
    assert judged(1, 4.0).passed
    assert not judged(1, 40.0).passed


def test_what_rounding_itself_changes_is_noted() -> None:
    first, note = judged(30, 1.0).notes
    assert first == "first"
    assert note.startswith("rounding alone: eager bfloat16 differs from float32 by |Δp| ")
    assert note.endswith(" clear answers")


def test_a_winner_that_the_oracle_is_sure_of_may_not_change() -> None:
    """Both probabilities move by little more than half their difference, each within the tolerance."""
    row, oracle, far = Row((1,), (0,), (2,), 0), logits_of([0.5, 0.0]), logits_of([1.4, 0.0])
    judge = Judge(ReferenceStub(oracle), replace(COARSE["bfloat16"], margin=0.02), ReferenceStub(far))
    findings, want = Findings(judge), judge.want([row])
    findings.against_oracle("so", [row], [logits_of([-0.05, 0.0])], want)
    verdict = findings.verdict("x", "y")
    assert verdict.largest_shift < verdict.allowed < 2 * verdict.largest_shift
    assert verdict.faults[0].endswith("a winner by 0.24 changed")


def test_the_oracle_runs_each_row_once() -> None:
    oracle = ReferenceStub(logits_of([1.0, 0.0]))
    judge = Judge(oracle, FLOAT32, None)
    row = Row((1,), (0,), (2,), 0)
    judge.want([row, row])
    judge.want([replace(row, prefix_tokens=1)])
    assert oracle.n_rows == 1
    judge.want([replace(row, ids=(2,))])
    assert oracle.n_rows == 2


def test_tolerances_by_type() -> None:
    assert tolerance_for("float32", fp8=False) is FLOAT32
    assert FLOAT32.floor <= 2e-4
    assert tolerance_for("bfloat16", fp8=False).factor == 3
    assert tolerance_for("bfloat16", fp8=True) is FP8
    assert tolerance_for("float16", fp8=False).floor < tolerance_for("bfloat16", fp8=False).floor


def test_tf32_is_off_for_the_oracle_and_restored() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        inside: list[object] = []

        def fail() -> None:
            with full_float32():
                inside.extend((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert inside == ["highest", False]
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


# Cases and their budget.


def test_cases_are_the_same_each_time_and_within_bounds() -> None:
    made, again = make_cases(ground(), FREE, 60.0), make_cases(ground(), FREE, 60.0)
    assert made == again
    rows = [*made.rows, *(row for rows in made.edges for row in rows), *made.long, made.short]
    rows += [row for group in made.prefixes for row in group]
    rows += [row for case in made.padded for row in (case.row, *case.neighbours)]
    for row in rows:
        assert len(row.ids) <= POSITIONS
        assert all(0 <= each < VOCAB for each in row.ids)
        assert list(row.slots) == sorted(set(row.slots))
        assert row.slots[-1] == len(row.ids) - 1
        assert all(1 <= n <= len(LABEL_IDS) for n in row.n_options)
    assert [len(row.ids) for rows in made.edges for row in rows] == [15, 16, 17, 47, 48, 49, 63, 64, 65, 95, 96, 97]
    assert [len(row.ids) for row in made.long] == [97, 112, 128, 129, 192]
    assert max(len(row.slots) for row in made.rows) > 64
    assert {len(LABEL_IDS), 2} <= {n for row in made.rows for n in row.n_options}
    for group in made.prefixes:
        n_prefix = group[0].prefix_tokens
        assert {row.ids[:n_prefix] for row in group} == {group[0].ids[:n_prefix]}
        assert len({row.ids[n_prefix] for row in group}) == len(group)
        assert all(row.slots[0] == n_prefix == row.prefix_tokens for row in group)


def test_cuts_lie_around_powers_of_two_and_at_the_end() -> None:
    assert cuts_of(24) == (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 22, 23)
    cuts = cuts_of(136)
    assert {31, 32, 33, 63, 64, 65, 127, 128, 129, 134, 135} <= set(cuts)
    assert cuts[-1] == 135


def test_what_the_budget_leaves_out_is_noted() -> None:
    # A millisecond a token, for the oracle and for the executor.
    pace = Pace((Point(1, 0.001, 0.001), Point(10_000, 10.0, 10.0)))
    little, much = (make_cases(ground(Grid(), positions=10_000), pace, budget_s) for budget_s in (10.0, 2000.0))
    assert little.planned_s <= 11
    assert "left out by the time budget: 256, 320, 384" in little.notes["bucket edges"][0]
    assert little.notes["bucket edges"][0].endswith("6,144, 8,192 tokens")
    assert little.notes["long rows"] == ("left out by the time budget: 8,193, 8,704, 9,216, 9,217, 10,000 tokens",)
    assert little.notes["rows"] == ("left out by the time budget: 233, 377, 610, 987, 1,597 tokens",)
    assert little.notes["cached splits"] == ("left out by the time budget: rows of 72 tokens and more",)
    assert little.notes["padding"] == ("left out by the time budget: padding to 64 tokens and more",)
    assert little.notes["shared prefixes"] == ("left out by the time budget: 300, 1,100 tokens",)
    assert all(notes == () for notes in much.notes.values()), much.notes
    assert len(much.rows) == len(ROW_TOKENS) + 1
    assert max(len(row.ids) for row in much.long) == 10_000
    assert much.planned_s <= 2000


def test_rows_that_have_no_place_are_noted() -> None:
    made = make_cases(ground(Grid(lengths=(16, 40)), positions=40), FREE, 60.0)
    assert made.long == ()
    assert made.notes["long rows"] == ("none fits: the last bucket of 40 tokens holds all 40 positions",)
    assert made.notes["shared prefixes"] == ("none fits: 40 positions are too few",)
    assert [len(row.ids) for row in made.edges[-1]] == [39, 40]
    assert made.notes["bucket edges"] == ("41 tokens are left out: the model has 40 positions",)
    small = make_cases(ground(positions=300, oracle_tokens=100), FREE, 60.0)
    assert max(len(row.ids) for row in small.long) == 97
    assert small.notes["long rows"] == ("left out, as the oracle has no memory for them: rows of more than 100 tokens",)
    tiny = make_cases(ground(Grid(lengths=(8,)), positions=8), FREE, 60.0)
    assert (tiny.split, tiny.padded) == (None, ())
    assert tiny.notes["cached splits"] == ("none fits: 8 positions are too few",)


def test_prices_between_and_beyond_what_was_timed() -> None:
    pace = Pace((Point(10, 1.0, 2.0), Point(20, 3.0, 4.0)))
    assert pace.seconds(1, runs=1) == 3.0
    assert pace.seconds(15, runs=1) == pytest.approx(5.0)
    assert pace.seconds(15, runs=3, judged=2) == pytest.approx(2 * 2.0 + 3 * 3.0)
    assert pace.seconds(20, runs=1, judged=0) == 4.0
    assert pace.seconds(60, runs=1) == pytest.approx(9 * 7.0)
    assert afford([5, 1, 1], float, 6.0, least=1) == ([5, 1], 6.0)
    assert afford([5, 1, 1], float, 0.0, least=1) == ([5], 5.0)
    assert afford([5, 1, 1], float, 0.0, least=0) == ([], 0.0)


def test_pace_is_measured_up_to_where_rows_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("decider.verify.pace.time.perf_counter", lambda: clock[0])

    class Slow(ReferenceStub):
        def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
            clock[0] += len(rows[0].ids) / 200
            return super().label_logits(rows)

    slow = Slow(logits_of([0.0]))

    def row_of(n_tokens: int) -> Row:
        return make_row(ground(positions=10_000), n_tokens, seed="x")

    pace = measure_pace([slow, slow], slow.label_logits, row_of, most_tokens=9_999, repeats=1)
    assert [point.n_tokens for point in pace.points] == [64, 128]
    assert pace.points[-1].judge_s == pytest.approx(2 * pace.points[-1].run_s) == pytest.approx(1.28)
    short = measure_pace([slow], slow.label_logits, row_of, most_tokens=40, repeats=2)
    assert [point.n_tokens for point in short.points] == [40]


# Reports.


def test_the_last_line_names_the_checks_at_fault() -> None:
    good = Verdict("rows", "a", 400, 2.1e-6, 5e-5, 0, (), ("a note",))
    bad = Verdict("bucket edges", "b", 12, 0.5, 5e-5, 1, ("so wrong", "and so"), ())
    all_calls = Verdict("finite and sealed", "c", 412, 0.0, 5e-5, 0, (), ())
    assert summary([good, all_calls]) == "verify: 2 checks, 400 rows, largest |Δp| 2.1e-06, 0 answers changed: pass"
    assert (
        summary([good, bad, all_calls])
        == "verify: 3 checks, 412 rows, largest |Δp| 5.0e-01, 1 answer changed: 1 FAULT (bucket edges)"
    )
    assert summary([bad, replace(bad, name="long rows")]).endswith(": 2 FAULTS (bucket edges, long rows)")
    lines = verdict_text(bad).splitlines()
    assert [line.split()[0] for line in lines] == ["bucket", "fault:", "fault:"]
    assert "note: a note" in verdict_text(good)
    report = json.loads(as_json(SETUP, [good, bad]))
    assert [check["passed"] for check in report["checks"]] == [True, False]
    assert (report["passed"], report["summary"]) == (False, summary([good, bad]))
    assert report["setup"]["budget_s"] == 2.0


def test_random_rows_differ_by_seed() -> None:
    assert make_row(ground(), 9, seed="a") != make_row(ground(), 9, seed="b")
    assert random_row(9).prefix_tokens == make_row(ground(), 9, seed="a").prefix_tokens == 0
