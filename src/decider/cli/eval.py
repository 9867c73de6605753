"""`decider eval`: how often a model is right on labelled decisions, how far its probabilities can be trusted.

It refuses to compute; `decider.evaluate` does. Trap: a run takes minutes or hours, so words, data, packages and the
places of the results are checked before a model is loaded, and decisions are saved before anything is made of them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from decider.cli import MODEL_OPTIONS, add_model_options, check_paths, model_arguments, say, settings_of
from decider.errors import ConfigError, MissingDependencyError
from decider.settings import Settings

if TYPE_CHECKING:
    from decider.decisions import Decisions
    from decider.evaluate.facts import RunFacts
    from decider.evaluate.sensitivity import Sensitivity
    from decider.tokens.calibration import Calibration

SAVED = ".npz"
RESAMPLES, SENSITIVITY_ITEMS = 1_000, 50
FEWEST_RESAMPLES = 100
ASKING = (*(name for name in MODEL_OPTIONS if name not in ("decider_config", "config")), "mapping", "limit",
          "sensitivity", "save")  # fmt: skip
"""Options that mean nothing where decisions are saved and no model runs."""
REPORTING = ("data", *ASKING, "decider_config", "config", "temperature", "bootstrap", "html")
"""Options that mean nothing where two reports are compared."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = commands.add_parser(
        "eval",
        help="measure accuracy and calibration on labelled decisions",
        description="Ask a model labelled decisions and report accuracy, calibration, selective answering and "
        "sensitivity; or compare two such reports.",
    )
    parser.add_argument(
        "data", metavar="DATA", type=Path, nargs="?", help="labelled decisions (JSON lines, CSV, TSV, Parquet), or a "
        ".npz that --save wrote"
    )  # fmt: skip
    parser.add_argument(
        "--compare", type=Path, nargs=2, metavar=("A.json", "B.json"), help="test what two --json files differ in"
    )
    add_model_options(parser)
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="for a table: what its columns mean")
    parser.add_argument(
        "--temperature", type=float, help="override the model's calibration; 1 leaves logits as they are"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="ask the first N items only")
    parser.add_argument(
        "--sensitivity", type=int, metavar="N",
        help=f"ask N items again in other forms (default: {SENSITIVITY_ITEMS}; 0: none)"
    )  # fmt: skip
    parser.add_argument(
        "--bootstrap", type=int, metavar="B", help=f"resamples of each interval (default: {RESAMPLES:,}; 0: none)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of every random draw (default: 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a report as one HTML page")
    parser.add_argument("--save", type=Path, metavar="FILE.npz", help="also write the decisions and their logits")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the report, or the comparison. Raises what reading, loading and answering raise, and ConfigError."""
    _check(parsed)
    if parsed.compare is not None:
        return _compare(parsed)
    # Before torch is imported, so that a fault in the settings costs milliseconds.
    settings = settings_of(parsed, temperature=parsed.temperature)
    _check_places(parsed, settings)

    from decider.calibrate.whole import write_text
    from decider.evaluate.in_force import in_force
    from decider.evaluate.result import Evaluation, as_json
    from decider.evaluate.summary import summarise
    from decider.evaluate.table import as_text

    run = _saved(parsed, settings) if parsed.data.suffix == SAVED else _asked(parsed, settings)
    served = in_force(run.decisions, run.facts, run.calibration, settings.temperature)
    resamples = RESAMPLES if parsed.bootstrap is None else parsed.bootstrap
    summary = summarise(run.decisions, served.probabilities, resamples=resamples, seed=parsed.seed)
    evaluation = Evaluation(
        facts=run.facts,
        calibration=served.said,
        resamples=resamples,
        seed=parsed.seed,
        summary=summary,
        sensitivity=run.sensitivity,
        refused=run.refused,
        warnings=(*run.warnings, *served.warnings, *summary.warnings),
        decisions=run.decisions,
    )
    # Files first: the reader of a pipe may leave before the table ends.
    if parsed.json is not None:
        write_text(parsed.json, as_json(evaluation))
    if parsed.html is not None:
        from decider.evaluate.page import as_html

        write_text(parsed.html, as_html(evaluation))
    print(as_text(evaluation))
    return 0


@dataclass(frozen=True, slots=True)
class _Run:
    """Decisions with their logits, and all that is known of how they came about."""

    decisions: Decisions
    facts: RunFacts
    calibration: Calibration | None
    sensitivity: Sensitivity | None = None
    refused: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def _saved(parsed: argparse.Namespace, settings: Settings) -> _Run:
    from decider.evaluate.saved import load_decisions
    from decider.tokens.config import load_config

    decisions, facts = load_decisions(parsed.data)
    if not len(decisions):
        raise ConfigError(f"{parsed.data.name!r:.60} holds no decisions; give it one at least")
    if settings.decider_config is None:
        return _Run(decisions, facts, None)
    file = Path(settings.decider_config)
    config = load_config(file.parent, file)
    for warning in config.warnings:
        say(warning)
    return _Run(decisions, facts, config.for_dtype(facts.dtype))


def _asked(parsed: argparse.Namespace, settings: Settings) -> _Run:
    from decider.evaluate.tables import read_data

    items = read_data(parsed.data, parsed.mapping)
    warnings = []
    if parsed.limit is not None and parsed.limit < len(items):
        warnings.append(f"the first {parsed.limit:,} of {len(items):,} items were asked, as --limit says")
        items = items[: parsed.limit]
    if settings.permutations > 1:
        warnings.append(f"permutations is {settings.permutations}; every Choice was asked in its own order alone")

    from decider.api import Decider
    from decider.evaluate import ask, sensitivity
    from decider.evaluate.saved import save_decisions

    n_items = SENSITIVITY_ITEMS if parsed.sensitivity is None else parsed.sensitivity
    with Decider(**model_arguments(parsed), temperature=parsed.temperature, say=say) as decider:
        facts = ask.run_facts(decider, items, parsed.data)
        try:
            asked = ask.run(decider, items, say=say)
        except ask.Interrupted as stopped:
            _keep(parsed.save, stopped.asked.decisions, facts, f"{stopped.done:,} of {len(items):,} items")
            raise
        if parsed.save is not None:
            save_decisions(parsed.save, asked.decisions, facts)
        found = None
        if n_items:
            found = sensitivity.measure(decider, items, n_items=n_items, seed=parsed.seed, say=say)
        if asked.refused:
            warnings.append(f"{len(asked.refused):,} of {len(items):,} items could not be asked; no figure counts them")
        return _Run(asked.decisions, facts, decider.calibration, found, asked.refused, tuple(warnings))


def _keep(save: Path | None, decisions: Decisions, facts: RunFacts, asked: str) -> None:
    """What an interrupted run has come to."""
    from decider.evaluate.saved import save_decisions

    if save is None or not len(decisions):
        say(f"{asked} were asked, and nothing is kept{'' if save else '; --save keeps what was asked'}")
        return
    save_decisions(save, decisions, facts)
    say(f"{asked} were asked; their {len(decisions):,} decisions are kept in {save}")


def _compare(parsed: argparse.Namespace) -> int:
    from decider.calibrate.whole import write_text
    from decider.decisions import item_codes
    from decider.evaluate.compare import compare
    from decider.evaluate.result import read_scored
    from decider.evaluate.table import comparison_text

    first, second = map(read_scored, parsed.compare)
    clusters = item_codes(first.keys)
    comparison = compare(first, second, clusters, seed=parsed.seed)
    print(comparison_text(comparison))
    if parsed.json is not None:
        text = json.dumps(comparison.as_json(), indent=1, ensure_ascii=False, allow_nan=False)
        write_text(parsed.json, text)
    return 0


def _check(parsed: argparse.Namespace) -> None:
    """Raises ConfigError, or MissingDependencyError, for all that can be known before anything is read."""
    if parsed.compare is None and parsed.data is None:
        raise ConfigError("there is no DATA; give a file of labelled decisions, or --compare with two reports")
    if parsed.compare is not None:
        _refuse(parsed, REPORTING, "--compare reads two reports")
    elif parsed.data.suffix == SAVED:
        _refuse(parsed, ASKING, f"{parsed.data.name!r:.60} holds decisions, so no model runs")
    for name, least in (("limit", 1), ("sensitivity", 0), ("seed", 0)):
        value = getattr(parsed, name)
        if value is not None and value < least:
            raise ConfigError(f"--{name} is {value}; it must be a whole number from {least} on")
    if parsed.bootstrap is not None and parsed.bootstrap != 0 and parsed.bootstrap < FEWEST_RESAMPLES:
        raise ConfigError(f"--bootstrap is {parsed.bootstrap}; it must be 0 (off), or at least {FEWEST_RESAMPLES}")
    if parsed.compare is not None:
        _check_places(parsed, None)
    if parsed.save is not None and parsed.save.suffix != SAVED:
        raise ConfigError(
            f"--save {str(parsed.save)!r:.120} does not end in {SAVED}; decisions are saved as such a file"
        )
    _check_packages(parsed)


def _refuse(parsed: argparse.Namespace, names: Sequence[str], why: str) -> None:
    for name in names:
        if getattr(parsed, name) is not None:
            option = "DATA" if name == "data" else f"--{name.replace('_', '-')}"
            raise ConfigError(f"{why}; leave out {option}")


def _check_places(parsed: argparse.Namespace, settings: Settings | None) -> None:
    read: dict[str, Path | None] = {"DATA": parsed.data, "--mapping": parsed.mapping}
    if parsed.compare is not None:
        read |= dict(zip(("the first report", "the second report"), parsed.compare, strict=True))
    if settings is not None and settings.decider_config is not None:
        read["--decider-config"] = Path(settings.decider_config)
    if parsed.config is not None:
        read["--config"] = Path(parsed.config)
    check_paths(read, {"--json": parsed.json, "--html": parsed.html, "--save": parsed.save})


def _check_packages(parsed: argparse.Namespace) -> None:
    needed = {"scipy": "intervals and tests are", "matplotlib": "the figures of --html are"}
    if parsed.bootstrap == 0 and (parsed.sensitivity == 0 or parsed.data.suffix == SAVED):
        del needed["scipy"]
    if parsed.html is None:
        del needed["matplotlib"]
    for package, what in needed.items():
        if find_spec(package) is None:
            raise MissingDependencyError(
                f"{what} computed by {package}, which is not installed; run, in a checkout: pip install '.[eval]'"
            )
