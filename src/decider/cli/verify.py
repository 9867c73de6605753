"""`decider verify`: compare an executor with the oracle, on the user's own model and device.

It refuses to know how rows are compared. Trap: a fault of the engine is exit status 1, and being unable to run is 2; a
script must be able to tell them apart. The last line of standard output sums up.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from decider.cli import add_model_options, check_json_file, say, settings_with_executor
from decider.errors import ConfigError

if TYPE_CHECKING:
    from decider.verify.compare import Verdict

EXECUTORS = ("grid", "packed")
EXIT_DIFFERS = 1


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = commands.add_parser(
        "verify",
        help="compare an executor with the oracle",
        description="Compare an executor (the grid, unless --executor says otherwise) with plain eager forwards in "
        "float32, on the model and device at hand. Exit status 0: no fault, 1: a fault, 2: it could not run.",
    )
    add_model_options(parser, executors=EXECUTORS, executor="grid", several_devices=False)
    parser.add_argument(
        "--budget", type=float, metavar="SECONDS", help="about how long the checks may take (default: 90)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the verdicts as JSON")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print each verdict as it is found, then the sum. Raises what loading, warm-up and the oracle raise."""
    _check(parsed)
    settings = settings_with_executor(parsed, executors=EXECUTORS, executor="grid")

    from decider.verify.report import as_json, setup_text, summary, verdict_text
    from decider.verify.run import BUDGET_S, Setup, verify

    setups: list[Setup] = []

    def begin(setup: Setup) -> None:
        setups.append(setup)
        print(setup_text(setup), flush=True)

    def show(verdict: Verdict) -> None:
        print(verdict_text(verdict), flush=True)

    budget_s = BUDGET_S if parsed.budget is None else parsed.budget
    verdicts = verify(settings, budget_s=budget_s, say=say, begin=begin, show=show)
    print(summary(verdicts), flush=True)
    if parsed.json is not None:
        parsed.json.write_text(as_json(setups[0], verdicts) + "\n", encoding="utf-8")
    return status_of(verdicts)


def status_of(verdicts: Sequence[Verdict]) -> int:
    """The exit status: `EXIT_DIFFERS` if any check found a fault."""
    return 0 if all(verdict.passed for verdict in verdicts) else EXIT_DIFFERS


def _check(parsed: argparse.Namespace) -> None:
    if parsed.budget is not None and not (math.isfinite(parsed.budget) and parsed.budget > 0):
        raise ConfigError(f"--budget is {parsed.budget}; it must be a finite number of seconds above 0")
    check_json_file(parsed.json)
