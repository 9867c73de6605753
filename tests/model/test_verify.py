"""`decider.verify` on tiny models: a sound executor passes, and each fault put into one is found by the check for it.

Refuses to test the executor itself. Trap: a verification that compares nothing passes too, so the sound runs count rows
and every fault is one that a single check is there for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_graphs import LABEL_IDS, VOCAB, FakeCapturer, load_tiny, random_row
from tiny_models import FAMILIES

from decider.cli.verify import status_of
from decider.errors import DeviceError, EngineError, ModelError
from decider.model.source import ModelFolder
from decider.plan.buckets import Grid
from decider.run import warmup
from decider.run.executor import Logits
from decider.run.grid import GridExecutor
from decider.run.prefix.cache import CachedDecoder
from decider.run.reference import ReferenceExecutor
from decider.run.stats import GridStats
from decider.tokens.rows import Row
from decider.verify.cases import ROW_TOKENS, Cases, Ground, cuts_of, make_cases, make_row
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
    tolerance_for,
)
from decider.verify.oracle import full_float32, most_tokens, open_eager
from decider.verify.pace import Pace, Point, afford, measure_pace
from decider.verify.report import as_json, summary, verdict_text
from decider.verify.run import Setup, run_checks
from decider.verify.watch import Subject, Watched

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]

POSITIONS = 200
# No length of the ladder is one that the check of rows runs, so that a fault at an edge is the edges' to find.
GRID = Grid(lengths=(16, 48, 64, 96), batches=(1, 2, 4), token_budget=256, long_multiple=32)
FREE = Pace((Point(64, 0.0, 0.0),))
NAMES = ("rows", "bucket edges", "long rows", "shared prefixes", "cached splits", "padding", "finite and sealed")


def ground(grid: Grid = GRID, *, positions: int = POSITIONS, oracle_tokens: int | None = None) -> Ground:
    return Ground(VOCAB, len(LABEL_IDS), positions, grid.lengths, grid.long_multiple, oracle_tokens)


Pair = tuple[GridExecutor, Judge]


def make_pair(folder: Path) -> Pair:
    loaded, head = load_tiny(folder, positions=POSITIONS, quieter=2.0)
    grid = GridExecutor(loaded, head, GRID, FakeCapturer(), lambda _: None)
    with pytest.MonkeyPatch.context() as patch:
        # Launches so dear that a plan pads wherever it can.
        dear = {shape: 1.0 + 1e-6 * shape[0] * shape[1] for shape in GRID.graph_shapes()}
        patch.setattr(warmup, "verify", lambda *_, **__: dear)
        grid.warmup()
    grid.seal()
    own, own_head = load_tiny(folder, attention="eager", quieter=2.0)
    return grid, Judge(ReferenceExecutor(own, own_head), FLOAT32, None)


@pytest.fixture(scope="module")
def llama(tiny_folder: TinyFolder) -> Pair:
    """A sealed grid on fake graphs, and a judge that remembers what its oracle said."""
    return make_pair(tiny_folder("llama"))


@pytest.fixture(scope="module")
def cases() -> Cases:
    return make_cases(ground(), FREE, 60.0)


def run(subject: Subject, judge: Judge, cases: Cases) -> tuple[Verdict, ...]:
    said: list[str] = []
    shown: list[Verdict] = []
    verdicts = run_checks(subject, judge, cases, say=said.append, show=shown.append)
    assert said == [f"checking {name}" for name in NAMES]
    assert tuple(shown) == verdicts
    assert tuple(verdict.name for verdict in verdicts) == NAMES
    return verdicts


def wrong(verdicts: Sequence[Verdict]) -> set[str]:
    return {verdict.name for verdict in verdicts if not verdict.passed}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sound_executor_passes_every_check(tiny_folder: TinyFolder, cases: Cases, family: str) -> None:
    grid, judge = make_pair(tiny_folder(family))
    verdicts = run(grid, judge, cases)
    assert wrong(verdicts) == set()
    by_name = {verdict.name: verdict for verdict in verdicts}
    assert by_name["rows"].n_rows == 3 * len(cases.rows) > 30
    assert by_name["bucket edges"].n_rows == 2 * 3 * 4
    assert by_name["long rows"].n_rows == 2 * len(cases.long) + 1 > 8
    assert by_name["shared prefixes"].n_rows == 2 * 2 * 5
    assert cases.split is not None
    assert by_name["cached splits"].n_rows == 4 * len(cases.split.cuts) > 80
    assert by_name["padding"].n_rows == sum(2 + len(case.neighbours) for case in cases.padded)
    assert by_name["padding"].notes == ("the row was padded in 8 of 8 calls",)
    assert 0 < max(verdict.largest_shift for verdict in verdicts) <= FLOAT32.floor
    assert grid.stats.shared_calls >= 2 + 2 * len(cases.split.cuts)
    assert grid.stats.unbucketed_rows >= 2 * len(cases.long)
    assert summary(verdicts).startswith("verify: 7 checks, ")
    assert summary(verdicts).endswith(", 0 answers changed: pass")
    assert status_of(verdicts) == 0


@dataclass
class Broken:
    """A sound executor but for one thing; this one is sound in all."""

    sound: GridExecutor
    calls: list[int] = field(default_factory=list)

    @property
    def stats(self) -> GridStats:
        return self.sound.stats

    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        return self.sound.label_logits(rows)

    def score_shared(self, rows: Sequence[Row], *, gate: bool = True) -> list[Logits] | None:
        return self.sound.score_shared(rows, gate=gate)

    def why_not_shared(self, rows: Sequence[Row], *, gate: bool = True) -> str | None:
        return self.sound.why_not_shared(rows, gate=gate)


class OffByOneAtAnEdge(Broken):
    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        return self.sound.label_logits([self.read_before(row) if len(row.ids) == 96 else row for row in rows])

    def read_before(self, row: Row) -> Row:
        return replace(row, slots=tuple(max(0, slot - 1) for slot in row.slots))


class RaisesAtAnEdge(Broken):
    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        assert all(len(row.ids) != 97 for row in rows), "97 does not fit"
        return self.sound.label_logits(rows)


class CutsLongRows(Broken):
    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        return self.sound.label_logits([self.cut(row) for row in rows])

    def cut(self, row: Row) -> Row:
        # As one that rounds a row above the ladder into the last bucket; of the others' rows none is so long.
        if len(row.ids) <= 150:
            return row
        return replace(row, ids=row.ids[:96], slots=tuple(min(95, slot) for slot in row.slots))


class SwapsNeighbours(Broken):
    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        results = self.sound.label_logits(rows)
        slots = [len(row.slots) for row in rows]
        same = [place for place, n_slots in enumerate(slots) if n_slots == 1]
        if len(rows) > 10 and len(same) > 1:
            first, second = same[:2]
            results[first], results[second] = results[second], results[first]
        return results


class SwapsSuffixes(Broken):
    def score_shared(self, rows: Sequence[Row], *, gate: bool = True) -> list[Logits] | None:
        results = self.sound.score_shared(rows, gate=gate)
        if results is not None and len(rows) > 2:
            results[-1], results[-2] = results[-2], results[-1]
        return results


class PaddingLeaks(Broken):
    """Two tokens of padding reach a row that is padded by more than 20."""

    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        longest = max(len(row.ids) for row in rows)
        if len(rows) > 10:
            return self.sound.label_logits(rows)
        return self.sound.label_logits([self.leak(row) if longest - len(row.ids) > 20 else row for row in rows])

    def leak(self, row: Row) -> Row:
        return replace(row, ids=(0, 0, *row.ids), slots=tuple(slot + 2 for slot in row.slots))


class GivesNaN(Broken):
    """In a label that no option of the row reads."""

    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        results = self.sound.label_logits(rows)
        for result, row in zip(results, rows, strict=True):
            if len(row.ids) == 21:
                result[0, -1] = np.nan
        return results


class Captures(Broken):
    @property
    def stats(self) -> GridStats:
        return self.sound.stats + GridStats(captures=len(self.calls))

    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        if len(rows[0].ids) > 96:
            self.calls.append(1)
        return self.sound.label_logits(rows)


class LosesARow(Broken):
    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        return self.sound.label_logits(rows)[:10]


class LosesASlot(Broken):
    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        results = self.sound.label_logits(rows)
        return [one[:-1] if len(one) > 64 else one for one in results]


class DeclinesWithoutReason(Broken):
    def score_shared(self, rows: Sequence[Row], *, gate: bool = True) -> list[Logits] | None:  # noqa: ARG002
        return None


@pytest.mark.parametrize(
    ("broken", "name", "said"),
    [
        (OffByOneAtAnEdge, "bucket edges", "alone, 96 tokens: |Δp|"),
        (RaisesAtAnEdge, "bucket edges", "it raised AssertionError: 97 does not fit"),
        (CutsLongRows, "long rows", "one at a time, "),
        (SwapsNeighbours, "rows", "in one call, "),
        (SwapsSuffixes, "shared prefixes", "behind 20 shared tokens"),
        (PaddingLeaks, "padding", "beside 1 longer, "),
        (GivesNaN, "finite and sealed", " logits are not finite"),
        (Captures, "finite and sealed", "graphs were captured while rows ran"),
        (LosesARow, "rows", "it gave 10 results for "),
        (LosesASlot, "rows", "logits of shape (64, 255)"),
        (DeclinesWithoutReason, "shared prefixes", "it declined to share a prefix and knows no reason"),
    ],
)
def test_a_fault_is_found_by_its_check(llama: Pair, cases: Cases, broken: type[Broken], name: str, said: str) -> None:
    grid, judge = llama
    verdicts = run(broken(grid), judge, cases)
    assert name in wrong(verdicts)
    [verdict] = [verdict for verdict in verdicts if verdict.name == name]
    assert any(said in fault for fault in verdict.faults), verdict.faults
    assert status_of(verdicts) == 1
    assert "FAULT" in summary(verdicts).rpartition(": ")[2]
    assert name in summary(verdicts).rpartition("(")[2]
    if broken not in (DeclinesWithoutReason, LosesASlot, GivesNaN, PaddingLeaks):
        # It is that check's alone, so no other would do in its place.
        assert wrong(verdicts) <= {name, *(("long rows",) if broken is RaisesAtAnEdge else ())}


@pytest.mark.parametrize("fault", ["positions", "mask", "one split"])
def test_a_model_that_goes_wrong_behind_a_cache_is_found(
    llama: Pair, cases: Cases, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """After the probe of the engine, which would have refused it: as of a kernel that another shape picks."""
    grid, judge = llama
    run_suffixes = CachedDecoder.run_suffixes

    def mistaken(self: CachedDecoder, ids: torch.Tensor, cache: Any, n_prefix: int) -> torch.Tensor:
        if fault == "positions":
            return run_suffixes(self, ids, cache, n_prefix + 1)
        if fault == "mask" or n_prefix == 33:
            for layer in cache.layers:
                layer.values[:, :, -1:] = 0
        return run_suffixes(self, ids, cache, n_prefix)

    monkeypatch.setattr(CachedDecoder, "run_suffixes", mistaken)
    verdicts = run(grid, judge, cases)
    assert wrong(verdicts) == {"cached splits"} | ({"shared prefixes"} if fault != "one split" else set())
    [verdict] = [verdict for verdict in verdicts if verdict.name == "cached splits"]
    assert "cached tokens" in verdict.faults[0]


def test_a_refused_cache_is_said_and_no_fault(llama: Pair, cases: Cases) -> None:
    class Refuses(Broken):
        def score_shared(self, rows: Sequence[Row], *, gate: bool = True) -> list[Logits] | None:  # noqa: ARG002
            return None

        def why_not_shared(self, rows: Sequence[Row], *, gate: bool = True) -> str | None:  # noqa: ARG002
            return "its cache: cannot be forked"

    grid, judge = llama
    verdicts = run(Refuses(grid), judge, cases)
    assert wrong(verdicts) == set()
    by_name = {verdict.name: verdict for verdict in verdicts}
    assert by_name["cached splits"].n_rows == 0
    assert by_name["shared prefixes"].n_rows == 2 * 5
    for name, least in (("shared prefixes", 1), ("cached splits", 20)):
        [note] = by_name[name].notes
        assert "its cache: cannot be forked (and " in note
        assert int(note.rpartition("(and ")[2].split()[0]) >= least
    assert "nothing was compared" in verdict_text(by_name["cached splits"])


def test_the_oracles_own_faults_are_not_the_executors(llama: Pair, cases: Cases) -> None:
    grid, _ = llama

    class Blind:
        def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
            return [np.full((len(row.slots), len(LABEL_IDS)), np.nan) for row in rows]

        describe = close = None

    with pytest.raises(ModelError, match="the oracle's own logits of a row of 1 random tokens are not finite"):
        run(grid, Judge(Blind(), FLOAT32, None), cases)  # type: ignore[arg-type]


# Comparisons and tolerances.


def logits_of(*slots: Sequence[float]) -> Logits:
    return np.array(slots, dtype=np.float32)


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


SETUP = Setup("m", "e", (), "o", "t", "p", 1.0, 2.0)


@dataclass
class ReferenceStub:
    """Gives the same logits to every row, and counts them."""

    logits: Logits
    n_rows: int = 0

    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        self.n_rows += len(rows)
        return [self.logits for _ in rows]

    def describe(self) -> Any:
        return "stub"

    def close(self) -> None:
        return None


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
    assert FLOAT32.floor <= 1e-4
    assert tolerance_for("bfloat16", fp8=False).factor == 3
    assert tolerance_for("bfloat16", fp8=True) is FP8
    assert tolerance_for("float16", fp8=False).floor < tolerance_for("bfloat16", fp8=False).floor


def test_a_bfloat16_executor_is_judged_by_what_bfloat16_can_do(tiny_folder: TinyFolder) -> None:
    folder, cases = tiny_folder("llama"), make_cases(ground(positions=160), FREE, 60.0)
    loaded, head = load_tiny(folder, "bfloat16", positions=160, quieter=2.0)
    grid = GridExecutor(loaded, head, GRID, None, lambda _: None)
    grid.warmup()
    grid.seal()
    yardstick = ReferenceExecutor(*load_tiny(folder, "bfloat16", attention="eager", quieter=2.0))
    oracle = ReferenceExecutor(*load_tiny(folder, attention="eager", quieter=2.0))
    judge = Judge(oracle, COARSE["bfloat16"], yardstick)
    sound = run(grid, judge, cases)
    assert wrong(sound) == set()
    assert max(verdict.largest_shift for verdict in sound) > FLOAT32.floor
    assert "long rows" in wrong(run(CutsLongRows(grid), judge, cases))


def test_an_oracle_without_room_is_no_fault(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = open_eager(ModelFolder(tiny_folder("llama"), "tiny", "a test"), LABEL_IDS, device="cpu", dtype="float32")
    assert most_tokens(eager) is None
    monkeypatch.setattr("decider.verify.oracle.free_bytes", lambda _: 4 * 4 * 4 * 300**2)
    assert most_tokens(eager) == 300

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("out of memory\nat length")

    monkeypatch.setattr(ReferenceExecutor, "_one", full)
    with pytest.raises(DeviceError, match="no room for a row of 9 tokens on cpu: out of memory; free memory"):
        eager.label_logits([random_row(9)])


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


def test_an_engine_error_of_the_executor_is_its_fault(llama: Pair, cases: Cases) -> None:
    class Fails(Broken):
        def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
            raise EngineError(f"out of order: {len(rows)}")

    grid, judge = llama
    verdicts = run(Fails(grid), judge, cases)
    assert wrong(verdicts) == set(NAMES) - {"cached splits", "finite and sealed"}
    assert verdicts[0].faults == (f"it raised EngineError: out of order: {len(cases.rows)}",)
