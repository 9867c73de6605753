"""The model card of a run: what it was made from and how, and what it does on the held-out items.

It refuses to compute. Trap: a card is read by itself, so it says what a figure is of and what was not measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from decider.evaluate.labelled import LabelledItem
from decider.train.early import Evaluation
from decider.train.loop import Outcome, duration
from decider.train.recipe import Recipe
from decider.version import VERSION


def write_card(
    path: Path,
    *,
    base: str,
    recipe: Recipe,
    facts: Mapping[str, Any],
    items: Sequence[LabelledItem],
    outcome: Outcome,
    manifest: Mapping[str, Any] | None,
    curves: str | None,
) -> None:
    """Write the card in Markdown. `manifest` is that of the data's folder, where there is one."""
    name = Path(base).name if Path(base).is_absolute() else base
    parts = [
        f"# A decider trained from {name}",
        "",
        f"Trained by `decider train` {VERSION} to answer typed questions with probabilities, in one forward pass.",
        "",
        *_results(outcome, {item.task for item in items}),
        *((f"![Curves]({curves})", "") if curves is not None else ()),
        *_data(items, facts, manifest),
        *_recipe(recipe, facts, outcome),
        "## Use",
        "",
        "```",
        "decider ask --model FOLDER request.json",
        "```",
        "",
        "Probabilities are as trained. Fit them to your own data with `decider calibrate DATA --model FOLDER`.",
        "",
    ]
    path.write_text("\n".join(parts), encoding="utf-8")


def _results(outcome: Outcome, trained: set[str]) -> Iterator[str]:
    yield from ("## Held-out decisions", "")
    best, before = outcome.best, outcome.before
    if best is None:
        yield from ("Nothing was held out, so nothing was measured.", "")
        return
    yield f"After step {best.step:,} of {outcome.step:,}, the one of the lowest NLL. Figures: before → after training."
    yield ""
    yield "| task | decisions | chance | accuracy | NLL | ECE | |"
    yield "|---|---|---|---|---|---|---|"
    for task, own in best.tasks.items():
        first = before.tasks.get(task) if before is not None else None
        cells = [
            f"{getattr(first, field):.3f} → {getattr(own, field):.3f}" if first else f"{getattr(own, field):.3f}"
            for field in ("accuracy", "nll", "ece")
        ]
        note = "" if task in trained else "never trained"
        yield f"| {_cell(task)} | {own.n:,} | {own.chance:.3f} | {' | '.join(cells)} | {note} |"
    yield f"| mean of tasks | | | {_mean(before, best, 'accuracy')} | {_mean(before, best, 'nll')} | | |"
    yield ""
    yield "The held-out items also chose the step, so these figures flatter a little; measure on data of your own."
    yield ""


def _mean(before: Evaluation | None, best: Evaluation, field: str) -> str:
    after = f"{getattr(best, field):.3f}"
    return after if before is None else f"{getattr(before, field):.3f} → {after}"


def _data(items: Sequence[LabelledItem], facts: Mapping[str, Any], manifest: Mapping[str, Any] | None) -> Iterator[str]:
    n_items, n_decisions = Counter[str](), Counter[str]()
    for item in items:
        n_items[item.task] += 1
        n_decisions[item.task] += len(item.gold)
    told = manifest.get("tasks", {}) if manifest is not None else {}
    yield from ("## Training data", "")
    yield f"{len(items):,} items, {sum(n_decisions.values()):,} decisions; SHA-256 `{facts['data_sha256']}`."
    yield ""
    yield "| task | items | decisions | licence |"
    yield "|---|---|---|---|"
    for task in sorted(n_items):
        own = told.get(task, {}) if isinstance(told, Mapping) else {}
        licence = own.get("licence", "not said") if isinstance(own, Mapping) else "not said"
        yield f"| {_cell(task)} | {n_items[task]:,} | {n_decisions[task]:,} | {_cell(str(licence))} |"
    yield ""


def _recipe(recipe: Recipe, facts: Mapping[str, Any], outcome: Outcome) -> Iterator[str]:
    seen = [entry for entry in outcome.history if "loss" in entry]
    tokens = sum(entry["tokens"] for entry in seen)
    decisions = sum(entry["decisions"] for entry in seen)
    ended = "ended early, as the held-out NLL no longer fell" if outcome.stopped_early else "went to its end"
    yield from ("## Training", "")
    yield (
        f"{outcome.step:,} steps in {duration(outcome.elapsed_s)}: {tokens:,} tokens, {decisions:,.0f} decisions. The "
        f"run {ended}."
    )
    yield ""
    yield from ("| setting | value |", "|---|---|")
    entries = recipe.to_json()
    changes = {f"share of askings: {name}": share for name, share in entries.pop("augmentation").items()}
    for key, value in {**entries, **entries.pop("loss"), **changes}.items():
        if value is not None and key != "loss" and not (recipe.method == "full" and key in ("rank", "scale")):
            yield f"| {key.replace('_', ' ')} | {value} |"
    yield f"| items per step | {facts['items_per_step']} |"
    yield f"| layout | {facts['layout']} |"
    yield f"| weights of the base, SHA-256 | `{facts['base_sha256']}` |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
