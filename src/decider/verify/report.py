"""A verification as text and as JSON.

It refuses to decide anything. Trap: the last line is what scripts read; nothing may follow it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from decider.verify.checks import WATCHED
from decider.verify.compare import CLEAR, Verdict
from decider.verify.run import Setup

NAME_WIDTH = 17


def setup_text(setup: Setup) -> str:
    """What is compared, on what, within which tolerance and time; a line each."""
    lines = [("model", setup.model), ("executor", setup.executor)]
    lines += [(name, f"{value}  ({reason})") for name, value, reason in setup.picks]
    lines += [
        ("oracle", setup.oracle),
        ("tolerance", setup.tolerance),
        ("changed", f"another answer, where the oracle's two largest probabilities differ by more than {CLEAR:g}"),
        ("time", f"planned {setup.planned_s:.0f} s of a budget of {setup.budget_s:g} s ({setup.pace}); see --budget"),
    ]
    return "\n".join(f"{name:<{NAME_WIDTH}} {value}" for name, value in lines)


def verdict_text(verdict: Verdict) -> str:
    """One line, and one for each fault and note."""
    result = "pass" if verdict.passed else "FAULT"
    figures = f"{_rows(verdict.n_rows)}, {_differences(verdict.largest_shift, verdict.changed)}"
    if not verdict.n_rows:
        figures = "nothing was compared"
    elif verdict.name != WATCHED:
        figures += f" (allowed {verdict.allowed:.2g})"
    lines = [f"{verdict.name:<{NAME_WIDTH}} {result}: {figures}; {verdict.compared}"]
    lines += [f"{'':<{NAME_WIDTH}} fault: {fault}" for fault in verdict.faults]
    lines += [f"{'':<{NAME_WIDTH}} note: {note}" for note in verdict.notes]
    return "\n".join(lines)


def summary(verdicts: Sequence[Verdict]) -> str:
    """The last line."""
    wrong = [verdict.name for verdict in verdicts if not verdict.passed]
    compared = [verdict for verdict in verdicts if verdict.name != WATCHED]
    n_rows = sum(verdict.n_rows for verdict in compared)
    shift = max((verdict.largest_shift for verdict in compared), default=0.0)
    changed = sum(verdict.changed for verdict in compared)
    result = f"{len(wrong)} {'FAULT' if len(wrong) == 1 else 'FAULTS'} ({', '.join(wrong)})" if wrong else "pass"
    return f"verify: {len(verdicts)} checks, {_rows(n_rows)}, {_differences(shift, changed)}: {result}"


def as_json(setup: Setup, verdicts: Sequence[Verdict]) -> str:
    """The setup, each verdict with `passed`, and the last line. A difference that is infinite is null."""
    checks = [asdict(verdict) | {"passed": verdict.passed} for verdict in verdicts]
    for check in checks:
        if not math.isfinite(check["largest_shift"]):
            check["largest_shift"] = None
    report = {
        "setup": asdict(setup),
        "checks": checks,
        "passed": all(verdict.passed for verdict in verdicts),
        "summary": summary(verdicts),
    }
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False)


def _rows(n_rows: int) -> str:
    return f"{n_rows:,} {'row' if n_rows == 1 else 'rows'}"


def _differences(shift: float, changed: int) -> str:
    return f"largest |Δp| {shift:.1e}, {changed:,} {'answer' if changed == 1 else 'answers'} changed"
