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

ATTRIBUTION = "CC BY"
"""How licences begin that ask for the authors to be named."""
SHARE_ALIKE = "-SA"
NEAR_CHANCE = 0.05
"""A task whose accuracy is less than this above chance is named among the limits."""


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
        f"Trained by `decider train` {VERSION} to answer typed questions with probabilities, in one forward pass. The "
        f"base's weights have the SHA-256 `{facts['base_sha256']}`.",
        "",
        *_results(outcome, {item.task for item in items}),
        *((f"![Curves]({curves})", "") if curves is not None else ()),
        *_data(items, facts, manifest or {}),
        *_limits(recipe, outcome),
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
    yield (
        f"After step {best.step:,} of {outcome.step:,}, the one of the lowest NLL at its best temperature "
        f"({best.calibrated_nll:.3f} at {best.temperature:.2f}). Figures, at temperature 1: before → after training."
    )
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


def _data(items: Sequence[LabelledItem], facts: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[str]:
    n_items, n_decisions = Counter[str](), Counter[str]()
    for item in items:
        n_items[item.task] += 1
        n_decisions[item.task] += len(item.gold)
    licences = {task: _licence(_part(_part(manifest, "tasks"), task)) for task in sorted(n_items)}
    yield from ("## Training data", "")
    yield f"{len(items):,} items, {sum(n_decisions.values()):,} decisions; SHA-256 `{facts['data_sha256']}`."
    yield ""
    yield "| task | items | decisions | licence |"
    yield "|---|---|---|---|"
    for task, licence in licences.items():
        yield f"| {_cell(task)} | {n_items[task]:,} | {n_decisions[task]:,} | {_cell(licence)} |"
    yield ""
    if credited := [f"{task} ({licence})" for task, licence in licences.items() if licence.startswith(ATTRIBUTION)]:
        yield f"Whoever passes this model on names the authors of {', '.join(credited)}."
        if any(SHARE_ALIKE in entry for entry in credited):
            yield "Share-alike would apply to weights if they were an adaptation of the texts: that is yours to judge."
        yield ""
    if sources := manifest.get("sources"):
        packages = [f"`{source['requirement']}` ({source['licence']})" for source in sources]
        yield from (f"Out of the packages {', '.join(packages)}.", "")
    held = {task: why for task, why in _part(manifest, "never_trained").items() if task not in n_items}
    if held:
        yield from ("## Never trained", "", "| task | why |", "|---|---|")
        yield from (f"| {_cell(task)} | {_cell(str(why))} |" for task, why in held.items())
        yield ""


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object called `name`; an empty one where a manifest of another maker has none."""
    part = whole.get(name)
    return part if isinstance(part, Mapping) else {}


def _licence(about: Mapping[str, Any]) -> str:
    return "made by program" if about.get("programmatic") else str(about.get("licence", "not said"))


def _limits(recipe: Recipe, outcome: Outcome) -> Iterator[str]:
    yield from ("## Limits", "")
    if outcome.best is None:
        yield "- Nothing was measured: not how often it is right, and not how far its probabilities can be trusted."
    else:
        yield (
            "- Figures are of held-out items of the tasks above, worded as those are. Of other tasks, wordings and "
            "languages nothing was measured."
        )
        guessed = [task for task, own in outcome.best.tasks.items() if own.accuracy - own.chance < NEAR_CHANCE]
        if guessed:
            yield f"- Within {NEAR_CHANCE:.2f} of chance, or below it: {', '.join(map(_cell, guessed))}."
    yield (
        f"- States were cut at {recipe.max_state_tokens:,} tokens in training; longer ones are read, and nothing is "
        "known of the answers."
    )
    yield "- It answers from the state and what its base knows; it looks nothing up, and every answer is an option."
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
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
