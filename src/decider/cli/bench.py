"""`decider bench engine`: how fast an executor is on this machine, and how far from the least time there could be.

It refuses to measure; `decider.bench` does. Trap: words are checked, and the place for the JSON, before a model is
loaded: a run takes minutes, and must not lose its figures to a typing error.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from decider.bench.names import EXECUTORS, SHAPES
from decider.cli import add_model_options, check_json_file, say, settings_with_executor
from decider.errors import ConfigError, DeviceError


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("bench", help="measure speed on this machine")
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    engine = subjects.add_parser(
        "engine",
        help="time an executor",
        description="Time an executor (the grid, unless --executor says otherwise) on fixed cases.",
    )
    add_model_options(engine, executors=EXECUTORS, executor="grid")
    engine.add_argument("--shape", choices=SHAPES, help="random weights of a published shape, on CUDA")
    engine.add_argument("--compare", choices=EXECUTORS, help="time this executor too, and print the ratio")
    engine.add_argument(
        "--repeats", type=int, metavar="N", help="calls a median is made of (default: 20, fewer where they are slow)"
    )
    engine.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    engine.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the table. Raises what loading and warm-up raise, and ConfigError for words that do not fit."""
    _check(parsed)
    # Before torch is imported, so that a fault in the settings costs milliseconds.
    settings = settings_with_executor(parsed, executors=EXECUTORS, executor="grid")

    from decider.bench.cases import CARD_CASES, SMALL_CASES
    from decider.bench.run import bench
    from decider.bench.table import as_json, as_text
    from decider.run.device import pick_device

    if parsed.shape is None:
        if settings.sources["model"] == settings.sources["device"] == "default":
            settings = replace(settings, device="cpu")
            say("the embedded model is measured on the CPU; name a --device for another")
    elif settings.sources["model"] != "default":
        raise ConfigError(
            f"--shape {parsed.shape} excludes the model {settings.model!r:.60} ({settings.sources['model']}); unset one"
        )
    elif not (device := pick_device(settings.device).value).startswith("cuda"):
        raise DeviceError(f"--shape {parsed.shape} is work for a CUDA card and the device is {device}; use --model")
    report = bench(
        settings,
        SMALL_CASES if parsed.shape is None else CARD_CASES,
        shape=parsed.shape,
        compare=parsed.compare,
        repeats=parsed.repeats,
        say=say,
    )
    print(as_text(report))
    if parsed.json is not None:
        parsed.json.write_text(as_json(report) + "\n", encoding="utf-8")
    return 0


def _check(parsed: argparse.Namespace) -> None:
    if parsed.shape is not None and parsed.model is not None:
        raise ConfigError(f"--shape {parsed.shape} and --model {parsed.model!r:.60} exclude each other; give one")
    if parsed.repeats is not None and parsed.repeats < 1:
        raise ConfigError(f"--repeats is {parsed.repeats}; it must be at least 1")
    check_json_file(parsed.json)
