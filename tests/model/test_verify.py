"""`decider.verify` on tiny models: a sound executor passes, and each fault put into one is found by the check for it.

Refuses to test the executor itself. Trap: a verification that compares nothing passes too, so the sound runs count rows
and every fault is one that a single check is there for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_graphs import LABEL_IDS, FakeCapturer, load_tiny, random_row
from tiny_models import FAMILIES
from verify_ground import FREE, GRID, POSITIONS, ground

from decider.cli.verify import status_of
from decider.errors import DeviceError, EngineError, ModelError
from decider.model.source import ModelFolder
from decider.run import warmup
from decider.run.executor import Logits
from decider.run.grid import GridExecutor
from decider.run.prefix.cache import CachedDecoder
from decider.run.reference import ReferenceExecutor
from decider.run.stats import GridStats
from decider.tokens.rows import Row
from decider.verify.cases import Cases, make_cases
from decider.verify.compare import COARSE, FLOAT32, Judge, Verdict
from decider.verify.oracle import most_tokens, open_eager
from decider.verify.report import summary, verdict_text
from decider.verify.run import run_checks
from decider.verify.watch import Subject

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]

NAMES = ("rows", "bucket edges", "long rows", "shared prefixes", "cached splits", "padding", "finite and sealed")


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
    assert by_name["shared prefixes"].n_rows == 3 * 2 * 5
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
    assert by_name["shared prefixes"].n_rows == 2 * 2 * 5
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


def test_an_engine_error_of_the_executor_is_its_fault(llama: Pair, cases: Cases) -> None:
    class Fails(Broken):
        def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
            raise EngineError(f"out of order: {len(rows)}")

    grid, judge = llama
    verdicts = run(Fails(grid), judge, cases)
    assert wrong(verdicts) == set(NAMES) - {"cached splits", "finite and sealed"}
    assert verdicts[0].faults == (f"it raised EngineError: out of order: {len(cases.rows)}",)
