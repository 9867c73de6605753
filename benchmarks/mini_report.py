"""The page of decider-mini: figures out of saved decisions, into docs/decider-mini.md and one HTML page.

    python benchmarks/mini_report.py test.npz heldout.npz --calibration src/decider/mini/decider_config.json \
        --fitted-on calibrate.npz --sensitivity eval.json --other bf16.npz --training training.json

Decisions are what `decider eval --save` wrote, of one model in one precision; several files are taken as one. What
they were calibrated on (`--fitted-on`) must be other items, and what is in `asked_calibrate.jsonl` is for that alone.
`--sensitivity` is a file of `decider eval --json`,
`--other` the same decisions in another precision, `--training` the run's `training.json`. In the Markdown page the
part between `<!-- figures: NAME -->` and `<!-- end -->` is replaced; what stands outside is written by hand.

Which tasks were trained, which never, and which are programmatic comes from `decider.data`; figures of other models
come from `published.toml`. It refuses to choose: every task that the files hold is shown. Trap: the held-out items that
ended the training early flatter the model; give the evaluation's test files and `heldout.TASK.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import mini_tables as made
import mini_targets
import numpy as np
from mini_tables import ORDER, Figures, Table

from decider.calibrate.whole import write_text
from decider.data.train_tasks import NEVER
from decider.decisions import Decisions, item_and_question
from decider.errors import ConfigError
from decider.evaluate import page
from decider.evaluate.facts import RunFacts
from decider.evaluate.in_force import in_force
from decider.evaluate.saved import load_decisions
from decider.model.mini import MINI
from decider.tokens.config import load_config

ROOT = Path(__file__).parents[1]
END = "<!-- end -->"
BASE = ROOT / "tests" / "data" / "embedded-decisions.npz"
"""The base's decisions on the evaluation tasks, untrained."""
TO_CALIBRATE = ROOT / "benchmarks" / "asked_calibrate.jsonl"
"""Asked freely, to fit calibrations on. `asked.jsonl` has tasks of the same names as two of its, so ids tell them."""


def main() -> None:
    """Write both pages, print the targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("decisions", type=Path, nargs="+", metavar="FILE.npz")
    parser.add_argument("--calibration", type=Path, metavar="decider_config.json")
    parser.add_argument("--fitted-on", type=Path, nargs="+", default=[], metavar="FILE.npz")
    parser.add_argument("--other", type=Path, nargs="+", default=[], metavar="FILE.npz")
    parser.add_argument("--sensitivity", type=Path, metavar="FILE.json")
    parser.add_argument("--training", type=Path, metavar="training.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "decider-mini.md")
    parser.add_argument("--html", type=Path, default=ROOT / "docs" / "reports" / "decider-mini.html")
    given = parser.parse_args()
    decisions, facts = load(given.decisions)
    config = load_config(given.calibration.parent, given.calibration) if given.calibration else None
    served = in_force(decisions, facts, config.for_dtype(facts.dtype) if config else None, None)
    figures = made.figures_of(decisions, served.probabilities, load([BASE])[0])
    rates = json.loads(given.sensitivity.read_bytes())["sensitivity"]["rates"] if given.sensitivity else []
    minutes = longest_run_s(json.loads(given.training.read_bytes())) / 60 if given.training else None
    tables = {
        "run": made.run(decisions, facts, served.said, fitted_on(decisions, given.fitted_on)),
        "targets": mini_targets.targets(figures, rates, minutes),
        "groups": made.groups(figures),
        **{f"tasks_{group}": made.tasks(figures, group) for group in made.GROUPS},
        "options": made.by(figures, "options", "options", "By number of options"),
        "types": made.by(figures, "type", "type", "By type"),
        "familiarity": made.by(figures, "familiarity", "runs of three words that training had", "By familiarity"),
        "limits": made.limits(figures),
        "lengths": made.by(figures, "length", "longest row", "By length"),
        "rotations": made.rotations(rates),
        "precision": made.precision(decisions, facts, load(given.other) if given.other else None),
        "published": made.published(figures),
    }
    text = given.page.read_text(encoding="utf-8")
    write_text(given.page, filled(text, {name: as_markdown(each) for name, each in tables.items()}).rstrip("\n"))
    write_text(given.html, as_html(tables.values(), figures).rstrip("\n"))
    print(as_markdown(tables["targets"]))


def longest_run_s(training: Mapping[str, Any]) -> float:
    """Of a training that was resumed, how long its longest part took."""
    ends = [entry["elapsed_s"] for entry in training["history"] if "resumed" in entry]
    times = [0.0, *ends, training["elapsed_s"]]
    return max(after - before for before, after in pairwise(times))


def load(paths: Sequence[Path]) -> tuple[Decisions, RunFacts]:
    """All decisions of the files as one. Raises ConfigError for two models, precisions or layouts, a decision that is
    there twice, a task that neither `decider.data` nor `asked.jsonl` has, or an item of `asked_calibrate.jsonl`.
    """
    parts = [load_decisions(path) for path in paths]
    facts = parts[0][1]
    for path, (_, own) in zip(paths, parts, strict=True):
        for name in ("model", "dtype", "layout"):
            if getattr(own, name) != getattr(facts, name):
                raise ConfigError(f"{path.name} is of {name} {getattr(own, name)!r}, not {getattr(facts, name)!r}")
    decisions = joined([part for part, _ in parts])
    if len(set(decisions.key)) < len(decisions):
        raise ConfigError("the files share decisions; give each decision once")
    if unknown := sorted(set(decisions.task) - set(ORDER)):
        raise ConfigError(f"{unknown[0]!r} is no task of `decider data` or `asked.jsonl`; they have {', '.join(ORDER)}")
    if fitted := made.items_of(decisions) & to_calibrate():
        raise ConfigError(f"{len(fitted):,} items are of `{TO_CALIBRATE.name}`, as {min(fitted)!r}; give no such item")
    return decisions, facts


def to_calibrate() -> set[str]:
    """The names of the items of `asked_calibrate.jsonl`."""
    return {json.loads(line)["id"] for line in TO_CALIBRATE.read_text(encoding="utf-8").splitlines()}


def joined(parts: Sequence[Decisions]) -> Decisions:
    """The decisions of all parts, in order."""
    width = max(part.logits.shape[1] for part in parts)
    starts = np.cumsum([0, *(len(part.option_lists) for part in parts)])
    pads = [((0, 0), (0, width - part.logits.shape[1])) for part in parts]
    wide = [np.pad(part.logits, pad, constant_values=-np.inf) for part, pad in zip(parts, pads, strict=True)]
    lists = [part.option_list + start for part, start in zip(parts, starts, strict=False)]
    known = [part.familiarity for part in parts if part.familiarity is not None]
    return Decisions(
        key=tuple(key for part in parts for key in part.key),
        task=tuple(task for part in parts for task in part.task),
        logits=np.concatenate(wide),
        option_lists=tuple(names for part in parts for names in part.option_lists),
        option_list=np.concatenate(lists),
        familiarity=np.concatenate(known) if len(known) == len(parts) else None,
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("kind", "n_options", "gold", "isolated", "row_tokens")
        },
    )


def fitted_on(decisions: Decisions, paths: Sequence[Path]) -> str:
    """What the calibration was fitted on, in words. Raises ConfigError if an item of it is evaluated."""
    if not paths:
        return "not said"
    fitted = joined([load_decisions(path)[0] for path in paths])
    both = made.items_of(fitted) & made.items_of(decisions)
    if both:
        raise ConfigError(f"{len(both):,} items were calibrated on and are evaluated, as {min(both)!r}; take others")
    never = sorted(set(fitted.task) & set(NEVER))
    said = f"none of them of a task never trained ({len(NEVER)})" if not never else f"also of {', '.join(never)}"
    names = to_calibrate()
    if freely := sum(item_and_question(key)[0] in names for key in fitted.key):
        said = f"{freely:,} asked freely (`{TO_CALIBRATE.name}`), {said}"
    return f"{len(fitted):,} other decisions of {len(set(fitted.task))} tasks, {said}"


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """`text` with every marked part replaced. Raises ConfigError if the page does not have each of `blocks` once."""
    marked = re.findall(r"^<!-- figures: (\w+) -->$", text, re.M)
    if sorted(marked) != sorted(blocks):
        raise ConfigError(f"the page marks {', '.join(marked)}; there are figures for {', '.join(blocks)}")
    for name, block in blocks.items():
        head = f"<!-- figures: {name} -->\n"
        before, _, rest = text.partition(head)
        text = f"{before}{head}{block}{rest[rest.index(END) :]}"
    return text


def as_markdown(table: Table) -> str:
    """The table, and its note above it."""
    lines = [table.note, ""] if table.note else []
    if table.rows:
        lines += [line(table.columns), line(["---"] * len(table.columns)), *map(line, table.rows), ""]
    return "\n".join(lines)


def line(cells_: Iterable[str]) -> str:
    """One row in Markdown."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells_)} |"


def as_html(tables: Iterable[Table], figures: Figures) -> str:
    """One page that needs nothing beside it; with reliability diagrams of groups and types."""
    parts = [f"<h1>{MINI}</h1>", '<p class="lead">What it can do and what it cannot, by task and by group.</p>']
    for table in tables:
        head, *columns = map(page.escaped, table.columns)
        body = "".join(page.row(row[0], map(page.escaped, row[1:])) for row in table.rows)
        drawn = page.table("facts" if table.words else "", columns, f"<tbody>{body}</tbody>") if table.rows else ""
        # The first column is nameless there.
        drawn = drawn.replace("<th></th>", f"<th>{head}</th>", 1)
        note = f'<p class="note">{page.escaped(table.note)}</p>' if table.note else ""
        parts.append(page.section(page.escaped(table.title), note + drawn))
    charted = [group for (kind, _), group in figures.after.items() if kind in ("group", "type")]
    cards = "".join(page.card(f"m{place}", group) for place, group in enumerate(charted))
    parts.append(page.section("Reliability, after calibration", page.CHARTS_NOTE + cards))
    parts.append(page.section("How to read it", page.glossary()))
    return page.document(MINI, parts)


if __name__ == "__main__":
    main()
