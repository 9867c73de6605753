"""A verification from end to end: open model, engine and oracle, measure the pace, make cases, run every check.

It refuses to print. Trap: an engine that fails a check by raising is a fault found, and the other checks still run;
a model, device or oracle that fails is no verdict at all, and raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from decider.assembly import PACK_LIMITS, make_executor, open_model
from decider.backbone.load import backbone_of
from decider.errors import ConfigError, DeviceError, EngineError, first_line
from decider.plan.buckets import Grid
from decider.run.grid import GridExecutor, bounded
from decider.run.packed import PackedExecutor
from decider.settings import Settings
from decider.verify.cases import EDGES, SHARES, Cases, Ground, make_cases, make_row
from decider.verify.checks import (
    TWIN,
    WATCHED,
    check_edges,
    check_long,
    check_padding,
    check_prefixes,
    check_rows,
    check_splits,
    check_twin,
    check_watched,
)
from decider.verify.compare import Judge, Verdict, tolerance_for
from decider.verify.oracle import Eager, most_tokens, open_eager
from decider.verify.pace import measure_pace
from decider.verify.watch import Subject, Watched

Say = Callable[[str], None]
Show = Callable[[Verdict], None]

BUDGET_S = 90.0
"""Seconds that the checks take at most by measured prices, if nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What was compared, on what, and how much of it the time budget paid for."""

    model: str
    executor: str
    picks: tuple[tuple[str, str, str], ...]
    """(name, value, reason) of each choice of the engine: the attention policy is among them."""
    oracle: str
    tolerance: str
    pace: str
    planned_s: float
    budget_s: float


def run_checks(
    subject: Subject, judge: Judge, cases: Cases, *, say: Say, show: Show, twin: Subject | None = None
) -> tuple[Verdict, ...]:
    """Every check on `subject`; `say` hears of each before it starts, `show` gets each verdict as it is found.

    `twin`: an executor in float32 of the same code, if `subject` is of a coarser type.
    """
    engine = Watched(subject)
    notes = cases.notes
    checks: dict[str, Callable[[], Verdict]] = {
        "rows": lambda: check_rows(engine, judge, cases.rows, notes["rows"]),
        EDGES: lambda: check_edges(engine, judge, cases.edges, notes[EDGES]),
        "long rows": lambda: check_long(engine, judge, cases.long, cases.short, notes["long rows"]),
        "shared prefixes": lambda: check_prefixes(engine, judge, cases.prefixes, notes["shared prefixes"]),
        "cached splits": lambda: check_splits(engine, judge, cases.split, notes["cached splits"]),
        "padding": lambda: check_padding(engine, judge, cases.padded, notes["padding"]),
    }
    assert checks.keys() == {*SHARES, EDGES}
    if twin is not None:
        checks[TWIN] = lambda: check_twin(Watched(twin), judge.in_float32(), cases.prefixes)
    checks[WATCHED] = lambda: check_watched(engine, judge)
    verdicts = []
    for name, check in checks.items():
        say(f"checking {name}")
        try:
            verdict = check()
        except EngineError as error:
            verdict = Verdict(name, "stopped early", 0, 0.0, judge.allowed, 0, (str(error),), ())
        show(verdict)
        verdicts.append(verdict)
    return tuple(verdicts)


def _twin(oracle: Eager) -> PackedExecutor:
    """Packs in float32 by our own backbone, over the oracle's weights. Raises DeviceError without room for it."""
    try:
        return PackedExecutor(backbone_of(oracle.loaded), oracle.reference.head, PACK_LIMITS)
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{oracle.loaded.device} has no room for the executor in float32 beside its oracle: "
            f"{first_line(error):.120}; verify on a device with more memory"
        ) from error


def verify(
    settings: Settings, *, budget_s: float, say: Say, begin: Callable[[Setup], None], show: Show
) -> tuple[Verdict, ...]:
    """Compare the executor of `settings` with the oracle, on their model and device.

    `begin` gets the setup before the first check. Raises what loading, warm-up and the oracle raise.
    """
    opened = open_model(settings, say)
    made = make_executor(settings, opened, say)
    if not isinstance(made, (GridExecutor, PackedExecutor)):
        raise ConfigError(f"executor {settings.executor!r} cannot be verified; use grid or packed")
    # Packs have no buckets; the edges of the grid's are lengths as good as others.
    grid = made.grid if isinstance(made, GridExecutor) else bounded(Grid(), opened.loaded.max_positions)
    try:
        loaded = opened.loaded
        say("loading the oracle's own weights in float32")
        oracle = open_eager(opened.folder, opened.labels.ids, device=loaded.device, dtype="float32")
        tolerance = tolerance_for(loaded.dtype, fp8=settings.fp8)
        yardstick = None
        if tolerance.factor:
            say(
                f"loading a yardstick in {loaded.dtype}: how far its eager forwards are from float32 sets the tolerance"
            )
            yardstick = open_eager(opened.folder, opened.labels.ids, device=loaded.device, dtype=loaded.dtype)
        judge = Judge(oracle, tolerance, yardstick)
        twin = _twin(oracle) if yardstick is not None and isinstance(made, PackedExecutor) else None
        ground = Ground(
            vocab=int(loaded.module.config.get_text_config().vocab_size),
            labels=len(opened.labels),
            positions=loaded.max_positions,
            lengths=grid.lengths,
            long_multiple=grid.long_multiple,
            oracle_tokens=most_tokens(oracle),
        )
        say("measuring what a row takes")
        pace = measure_pace(
            judge.judges,
            made.label_logits,
            lambda n_tokens: make_row(ground, n_tokens, seed="pace"),
            most_tokens=ground.most_tokens,
            # The first forward of a length may tune its kernels, and on a busy machine one measurement says little.
            repeats=2,
        )
        cases = make_cases(ground, pace, budget_s)
        report = made.describe()
        begin(
            Setup(
                model=f"{opened.folder.name} ({opened.folder.origin})",
                executor=str(report),
                picks=tuple((pick.name, pick.value, pick.reason) for pick in report.picks),
                oracle=str(oracle.describe()),
                tolerance=tolerance.reason,
                pace=str(pace),
                planned_s=cases.planned_s,
                budget_s=budget_s,
            )
        )
        return run_checks(made, judge, cases, say=say, show=show, twin=twin)
    finally:
        made.close()
