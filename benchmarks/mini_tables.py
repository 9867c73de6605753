"""The tables of decider-mini's page, out of decisions and their distributions.

It refuses to read decisions, and to lay out pages; `mini_report` does. Trap: a mean of tasks and a figure of all their
decisions together are two things. Aims of accuracy are of means, aims of calibration of both.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from decider.data.families.catalogue import FAMILIES
from decider.data.tasks import TASKS
from decider.data.train_tasks import NEVER, TRAINED
from decider.decisions import KINDS, Decisions, Float64Array, IntArray, distributions, item_and_question
from decider.errors import ConfigError
from decider.evaluate.facts import RunFacts
from decider.evaluate.metrics import answers_of
from decider.evaluate.summary import Figure, Group, by_familiarity, grouped
from decider.evaluate.table import number, spread
from decider.model.mini import MINI

PUBLISHED = Path(__file__).parent / "published.toml"
QUESTIONS = (Path(__file__).parent / "asked.jsonl").read_text(encoding="utf-8")
ASKED = tuple(dict.fromkeys(json.loads(line)["task"] for line in QUESTIONS.splitlines()))
"""The tasks of `asked.jsonl`."""
GROUPS = {
    "trained": "trained sets",
    "never": "never trained",
    "asked": "asked by somebody else",
    "family": "programmatic families",
    "daily": "everyday families",
    "lot": "uncertain by design",
}
"""What somebody else asked (`asked.jsonl`, whose authors saw no training data) is of no set and no family. Everyday
families are asked in sentences and of meanings that none of their trained items has. Of the last group,
gold is drawn by lot: their calibration has a target, and their accuracy has none."""
OPTION_COUNTS = ((2, 2), (3, 4), (5, 10), (11, 26), (27, 64), (65, 255))
TOKENS = ((1, 128), (129, 256), (257, 512), (513, 1024), (1025, 10**9))
UNSEEN = ("tool_choice", "qualitative", "answerable", "prompt_injection", "same_product")
"""The five that the aim names; `NEVER` has more."""
NAMED = "the five named ones"
CANNOT = (
    ("knowledge of facts", ("exams", "radio_licence")),
    ("languages other than English", ("exams",)),
    ("what people do, want and feel", ("social",)),
    ("several steps of reasoning", ("deduction", "light_switch", "likelihood")),
)
"""What a small model is not expected to do, and the tasks that show it."""
RESAMPLES, FEW_OPTIONS = 1_000, 10
FEW, MANY = f"up to {FEW_OPTIONS}", f"more than {FEW_OPTIONS}"
NOT_MEASURED = "not measured"

ORDER = (
    {each.task.name: "trained" for each in TRAINED}
    | {task.name: "never" for task in TASKS if task.name in NEVER}
    | dict.fromkeys(ASKED, "asked")
    | {family.name: "lot" if family.by_lot else "daily" if family.held else "family" for family in FAMILIES}
)
"""Task → which of `GROUPS`."""
MIXED = ("asked", "family", "daily", "lot")
"""Those of `GROUPS` in which one name stands for many questions."""
COLUMNS = ("n", "chance", "accuracy", "95 %", "NLL", "Brier", "ECE", "noise floor")


@dataclass(frozen=True, slots=True)
class Table:
    """One table; cells are plain text, the first column is the row's name."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    words: bool = False
    """Whether cells are words, which a page may break, and not figures."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of every group: what the logits say, and what is served."""

    decisions: Decisions
    before: Mapping[tuple[str, str], Group]
    """By (by, name); so is `after`."""
    after: Mapping[tuple[str, str], Group]
    base: Mapping[str, float]
    """The untrained base's accuracy by task, where it was asked the same."""

    def tasks(self, group: str | None = None) -> list[str]:
        """The tasks at hand in the catalogue's order, of one of `GROUPS` or all."""
        return [name for name, own in ORDER.items() if ("task", name) in self.after and group in (None, own)]

    def mean(self, tasks: Iterable[str]) -> tuple[float | None, tuple[str, ...]]:
        """The mean of the tasks' accuracies, and the tasks that are not at hand; None if one is not."""
        wanted = tuple(tasks)
        missing = tuple(task for task in wanted if ("task", task) not in self.after)
        if missing or not wanted:
            return None, missing
        return fmean(self.after["task", task].accuracy.value for task in wanted), ()


def items_of(decisions: Decisions) -> set[str]:
    """The names of the items."""
    return {item_and_question(key)[0] for key in decisions.key}


def figures_of(
    decisions: Decisions, probabilities: Float64Array, base: Decisions, resamples: int = RESAMPLES
) -> Figures:
    """Every group's figures at temperature 1 and by `probabilities`; intervals of the latter."""
    members = list(memberships(decisions))
    raw = grouped(decisions, distributions(decisions, 1.0), members, resamples=0, seed=0)
    after = grouped(decisions, probabilities, members, resamples=resamples, seed=0)
    first, second = ({(group.by, group.name): group for group in each} for each in (raw, after))
    return Figures(decisions, first, second, base_of(decisions, base))


def base_of(decisions: Decisions, base: Decisions) -> dict[str, float]:
    """The accuracy of `base` by task, of tasks whose decisions are the very same."""
    right = answers_of(distributions(base, 1.0)) == base.gold
    keys: dict[str, set[str]] = {}
    for task, key in zip(decisions.task, decisions.key, strict=True):
        keys.setdefault(task, set()).add(key)
    rows: dict[str, list[int]] = {}
    for row, task in enumerate(base.task):
        rows.setdefault(task, []).append(row)
    same = {task: own for task, own in rows.items() if {base.key[row] for row in own} == keys.get(task)}
    return {task: float(right[own].mean()) for task, own in same.items()}


def memberships(decisions: Decisions) -> Iterator[tuple[str, str, IntArray]]:
    """(by, name, rows) of every group that a page shows; the rows may be none."""
    task = np.array(decisions.task)
    group = np.array([ORDER[name] for name in decisions.task])
    for name, words in GROUPS.items():
        yield "group", words, np.flatnonzero(group == name)
    for index, kind in enumerate(KINDS):
        yield "type", kind, np.flatnonzero(decisions.kind == index)
    for name in ORDER:
        yield "task", name, np.flatnonzero(task == name)
    for by_, counts, spans, unit in (
        ("options", decisions.n_options, OPTION_COUNTS, ""),
        ("length", decisions.row_tokens, TOKENS, " tokens"),
    ):
        for low, high in spans:
            name = f"{low}" if low == high else f"{low}–{high}" if high < TOKENS[-1][1] else f"{low} and more"
            yield by_, f"{name}{unit}", np.flatnonzero((counts >= low) & (counts <= high))
    yield from by_familiarity(decisions)
    few = decisions.n_options <= FEW_OPTIONS
    yield "unseen", NAMED, np.flatnonzero(np.isin(task, UNSEEN))
    yield "few or many", FEW, np.flatnonzero(few)
    yield "few or many", MANY, np.flatnonzero(~few)


def run(decisions: Decisions, facts: RunFacts, calibration: str, fitted: str) -> Table:
    """What the figures are of."""
    rows = {
        "model": facts.model,
        "precision, executor, layout": f"{facts.dtype}, {facts.executor}, {facts.layout}",
        "decisions": f"{len(decisions):,} of {len(items_of(decisions)):,} items, {len(set(decisions.task))} tasks",
        "calibration": calibration,
        "fitted on": fitted,
    }
    return Table("What was measured", ("", ""), tuple(rows.items()), words=True)


def groups(figures: Figures) -> Table:
    """Each of `GROUPS`: means of tasks beside figures of all decisions together."""
    rows = []
    for group, words in GROUPS.items():
        if own := figures.tasks(group):
            rows.append((words, f"{len(own)}", number(figures.mean(own)[0]), *cells(figures, "group", words)))
    note = "Where columns say before → after, that is before and after calibration."
    return Table("By group", ("", "tasks", "mean of tasks", *COLUMNS), tuple(rows), note)


def tasks(figures: Figures, group: str) -> Table:
    """Every task of one of `GROUPS`; columns of which no task has anything are left out."""
    columns = ("", "type, options", *COLUMNS, "commonest", "base", "AUROC")
    rows = [
        (name, kinds(figures, name), *cells(figures, "task", name), number(commonest(figures.decisions, name)),
         number(figures.base.get(name)), auroc(figures, name))
        for name in figures.tasks(group)
    ]  # fmt: skip
    kept = [place for place in range(len(columns)) if place == 0 or any(row[place] != "-" for row in rows)]
    note = (
        "Chance is the mean of 1 / options. Commonest: the accuracy of always giving the commonest answer, where a "
        "question's options are the same in every item. Base: the accuracy of the model before its training."
    )
    made = [tuple(row[place] for place in kept) for row in rows]
    heads = tuple(columns[place] for place in kept)
    return Table(f"By task: {GROUPS[group]}", heads, tuple(made), "" if group in MIXED else note)


def by(figures: Figures, which: str, heading: str, title: str, note: str = "") -> Table:
    """The groups of one division."""
    names = [name for kind, name in figures.after if kind == which]
    return Table(title, (heading, *COLUMNS), tuple((name, *cells(figures, which, name)) for name in names), note)


def cells(figures: Figures, by_: str, name: str) -> tuple[str, ...]:
    """`COLUMNS` of a group."""
    raw, own = figures.before[by_, name], figures.after[by_, name]
    return (
        f"{own.n:,}",
        number(own.chance),
        number(own.accuracy.value),
        spread(own.accuracy),
        change(raw.nll, own.nll),
        change(raw.brier, own.brier),
        change(raw.equal_width.ece, own.equal_width.ece),
        number(own.equal_width.floor.high),
    )


def change(before: Figure, after: Figure) -> str:
    """A figure before and after calibration."""
    return f"{number(before.value)} → {number(after.value)}"


def kinds(figures: Figures, task: str) -> str:
    """The types and option counts that a task's decisions have."""
    rows = np.array(figures.decisions.task) == task
    counts = figures.decisions.n_options[rows]
    low, high = int(counts.min()), int(counts.max())
    names = ", ".join(KINDS[kind] for kind in np.unique(figures.decisions.kind[rows]).tolist())
    return f"{names}; {low}" if low == high else f"{names}; {low} to {high}"


def commonest(decisions: Decisions, task: str) -> float | None:
    """The accuracy of always giving each question's commonest answer; None where its options differ between items."""
    golds: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for row in np.flatnonzero(np.array(decisions.task) == task).tolist():
        options = decisions.option_lists[int(decisions.option_list[row])]
        golds.setdefault(item_and_question(decisions.key[row])[1], []).append((options, int(decisions.gold[row])))
    if ORDER[task] in MIXED or any(len({options for options, _ in each}) > 1 for each in golds.values()):
        return None
    right = sum(int(np.bincount([gold for _, gold in each]).max()) for each in golds.values())
    return right / sum(map(len, golds.values()))


def auroc(figures: Figures, task: str) -> str:
    """Of Nouls alone."""
    found = figures.after["task", task].auroc
    return "-" if found is None else number(found.value)


def limits(figures: Figures) -> Table:
    """What the model cannot do, with the tasks that show it."""
    rows = []
    for what, names in CANNOT:
        for name in names:
            if ("task", name) in figures.after:
                own, usual = figures.after["task", name], commonest(figures.decisions, name)
                rows.append((what, name, f"{own.n:,}", number(own.chance), number(usual), number(own.accuracy.value),
                             spread(own.accuracy), over_guessing(own, usual)))  # fmt: skip
    columns = ("", "task", "n", "chance", "commonest", "accuracy", "95 %", "in words")
    return Table("What it cannot do", columns, tuple(rows))


def over_guessing(group: Group, usual: float | None) -> str:
    """In words, how far a group's accuracy lies over chance, or over the commonest answer where that is more."""
    least, what = (group.chance, "chance") if usual is None or usual <= group.chance else (usual, "the commonest")
    if group.accuracy.interval is None:
        return "no interval"
    if group.accuracy.interval.high < least:
        return f"worse than {what}"
    if group.accuracy.interval.low <= least:
        return f"no better than {what}, as far as can be told"
    return f"{100 * (group.accuracy.value - least) / (1 - least):.0f} % of the way from {what} to all right"


def rotations(rates: Sequence[Mapping[str, Any]]) -> Table:
    """How often an answer depends on what should not matter."""
    rows = []
    for rate in rates:
        low, high = number(rate["low"]), number(rate["high"])
        askings = f"{rate['changed_askings']:,} of {rate['askings']:,}"
        share = number(rate["changed_askings"] / rate["askings"]) if rate["askings"] else "-"
        rows.append((rate["changed_what"], f"{rate['n']:,}", f"{number(rate['rate'])} ({low}–{high})", askings, share,
                     number(rate["largest_shift"])))  # fmt: skip
    columns = (
        "asked again with",
        "decisions",
        "changed in any asking, 95 %",
        "askings changed",
        "share",
        "largest |Δp|",
    )
    note = "" if rates else "Not measured: give a file of `decider eval --json` that was asked with `--sensitivity`."
    return Table("Order, names, neighbours", columns, tuple(rows), note)


def precision(first: Decisions, facts: RunFacts, other: tuple[Decisions, RunFacts] | None) -> Table:
    """The same decisions, or some of them, in another precision, as their logits are. Raises ConfigError for others."""
    columns = ("", "n", "accuracy", "NLL", "answers that differ")
    if other is None:
        return Table("Precision", columns, (), "Not measured: one precision alone was given.")
    place = {key: row for row, key in enumerate(other[0].key)}
    if not place.keys() <= set(first.key):
        raise ConfigError(f"the decisions in {other[1].dtype} are others than those in {facts.dtype}; give the same")
    first = first.take(np.array([row for row, key in enumerate(first.key) if key in place]))
    second = other[0].take(np.array([place[key] for key in first.key]))
    own = answers_of(distributions(first, 1.0))
    rows = []
    for name, decisions in ((facts.dtype, first), (other[1].dtype, second)):
        probabilities = distributions(decisions, 1.0)
        whole = grouped(decisions, probabilities, [("all", "all", np.arange(len(first)))], resamples=0, seed=0)[0]
        differ = int((answers_of(probabilities) != own).sum())
        said = "" if decisions is first else f"{differ:,} ({100 * differ / len(first):.1f} %)"
        rows.append((name, f"{len(first):,}", number(whole.accuracy.value), number(whole.nll.value), said))
    return Table("Precision", columns, tuple(rows), "Before calibration.")


def published(figures: Figures) -> Table:
    """Larger models on the same sets, as far as their sources print figures."""
    rows = []
    for own in tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))["figure"]:
        group = figures.after.get(("task", own["task"]))
        # As the other tables round it.
        ours = f"{own['task']}: {100 * float(number(group.accuracy.value)):.1f} %" if group else own["task"]
        rows.append((own["set"], own["model"], own["value"], own["measure"], ours, own["source"], own["differs"]))
    columns = ("set", "model", "figure", "what it is", f"{MINI}, accuracy", "source", "what differs")
    note = "Other prompts, other splits, often other questions: read them as what a task allows, and no ranking."
    return Table("Larger models", columns, tuple(rows), note, words=True)
