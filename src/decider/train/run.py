"""A whole training: what is given is checked and read, the run is run, and everything is written.

It refuses to know words of commands. Trap: what can be wrong with data, model and place is found before the first step;
a run takes minutes or hours.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from decider.errors import ConfigError
from decider.evaluate.facts import file_sha256
from decider.evaluate.labelled import LabelledItem
from decider.evaluate.tables import LINES, read_data
from decider.model.load import DTYPES
from decider.model.wheel import Say
from decider.plan.packs import PackLimits
from decider.run.device import pick_device
from decider.settings import Settings
from decider.tokens.wordings import save_wordings, wordings_of
from decider.train import checkpoint as checkpoints
from decider.train.base import Base, check_forward, open_base
from decider.train.card import write_card
from decider.train.compiled import compiled_layers, why_not_compiled
from decider.train.curves import has_matplotlib, write_curves
from decider.train.examples import reading_of
from decider.train.export import export
from decider.train.feed import Kitchen, items_per_step
from decider.train.gradients import Gradients, PlainGradients
from decider.train.graphed import GraphedGradients
from decider.train.held import HeldOut, held_out
from decider.train.lines import Lines
from decider.train.loop import Outcome, Run, duration
from decider.train.model import Model
from decider.train.recipe import Recipe
from decider.train.sight import BLOCK
from decider.train.weights import trainee

TRAIN, HELD_OUT, MANIFEST = "train.jsonl", "heldout.jsonl", "manifest.json"
TRAINING = "training.json"
CURVES = "curves.svg"
LEAST_SLOTS, TOKENS_A_SLOT = 256, 16
"""Slots of a pack of the compiled forward, which costs what its most slots cost."""
MOST_SEQUENCES, MOST_SLOTS = 4096, 16_384
"""Of one pack; more than a pack of short rows has."""


@dataclass(frozen=True, slots=True)
class Data:
    """The files of a run."""

    train: Path
    held_out: Path | None
    manifest: Path | None
    """What `decider data build` wrote beside them: tasks and licences."""


def find_data(data: Path, held_out: Path | None) -> Data:
    """A file of labelled decisions, or a folder of `TRAIN` and `HELD_OUT`. Raises ConfigError for what is not there."""
    train = data / TRAIN if data.is_dir() else data
    beside = train.parent / HELD_OUT
    held = held_out if held_out is not None else beside if data.is_dir() and beside.is_file() else None
    for path in (train, held):
        if path is not None and not path.is_file():
            raise ConfigError(
                f"there is no file {str(path)!r:.120}; give labelled decisions, or a folder with {TRAIN}, as `decider "
                "data build train --out DIR` writes it"
            )
    manifest = train.parent / MANIFEST
    return Data(train, held, manifest if manifest.is_file() else None)


@dataclass(frozen=True, slots=True)
class Station:
    """What a worker makes its kitchen from: paths and numbers, no model."""

    data: Path
    folder: Path
    config: Path | None
    layout: str | None
    max_positions: int
    n_taps: int
    items_per_step: int
    """0 before it is known."""
    recipe: Recipe

    def __call__(self) -> Kitchen:
        lines = self.data.suffix.lower() in LINES
        return self.kitchen(Lines(self.data) if lines else read_data(self.data, None))

    def kitchen(self, items: Sequence[LabelledItem]) -> Kitchen:
        """With the items of the file, read before."""
        recipe = self.recipe
        reading = reading_of(
            self.folder,
            config=self.config,
            layout=self.layout,
            max_positions=self.max_positions,
            max_state_tokens=recipe.max_state_tokens,
            schema_first=recipe.schema_first,
        )
        return Kitchen(
            items,
            reading,
            # Two orders at once are asked to be compared.
            recipe.augmentation if recipe.loss.consistency else replace(recipe.augmentation, twin=0.0),
            recipe.seed,
            self.items_per_step,
            limits_of(recipe),
            self.n_taps,
            by_blocks=recipe.forward == "compiled",
            balance=recipe.balance,
        )


def limits_of(recipe: Recipe) -> PackLimits:
    """What a pack of the run may hold; for the compiled forward all have one size, of whole blocks."""
    if recipe.forward != "compiled":
        return PackLimits(recipe.pack_tokens, MOST_SEQUENCES, MOST_SLOTS)
    size = max(1, recipe.pack_tokens // BLOCK) * BLOCK
    return PackLimits(size, MOST_SEQUENCES, max(LEAST_SLOTS, size // TOKENS_A_SLOT), (size,))


def train(
    data: Data,
    settings: Settings,
    recipe: Recipe,
    out: Path,
    *,
    resume: bool,
    workers: int,
    say: Say,
    name: str,
    adapter_dtype: str | None = None,
) -> Outcome:
    """Train, and write into `out` a model folder, its card and curves; `adapter_dtype` is as in `export`. Raises
    SetupError's, InputError's and EngineError's subclasses.
    """
    device = torch.device(pick_device(settings.device).value)
    recipe = replace(recipe, dtype=_dtype(settings.dtype, device))
    _check_out(out, resume=resume)
    items = read_data(data.train, None)
    held_items = () if data.held_out is None else read_data(data.held_out, None)
    base = open_base(settings, max_state_tokens=recipe.max_state_tokens, schema_first=recipe.schema_first, say=say)
    check_forward(base)
    recipe = replace(recipe, forward=_forward(recipe, base, device, say))
    station = Station(
        data=data.train.resolve(),
        folder=base.folder.path.resolve(),
        config=None if settings.decider_config is None else Path(settings.decider_config).resolve(),
        layout=settings.layout,
        max_positions=base.spec.max_positions,
        n_taps=base.spec.taps,
        items_per_step=0,
        recipe=recipe,
    )
    station = replace(station, items_per_step=items_per_step(station.kitchen(items), recipe.tokens_per_step))
    kitchen = station.kitchen(items)
    held = held_out(held_items, kitchen) if held_items else None
    facts = facts_of(base, data, recipe, kitchen.items_per_step)
    model = model_of(base, recipe, device)
    _introduce(base, model, kitchen, held, recipe, say)
    run = Run(model, gradients_of(model, recipe), kitchen, held, recipe, out=out, facts=facts, say=say)
    if resume:
        say("resumed" if run.resume() else "there is no checkpoint yet; the run begins anew")
    outcome = run.train(station, workers=workers)
    say(f"trained {outcome.step:,} steps in {duration(outcome.elapsed_s)}; writing {out}")
    export(base, model.trainee, out, version=name, adapter_dtype=adapter_dtype)
    save_wordings(out, wordings_of(question for item in items for question in item.request.questions.values()))
    _write(out, base, data, items, recipe, facts, outcome, say)
    return outcome


def model_of(base: Base, recipe: Recipe, device: torch.device) -> Model:
    """The base, ready to be trained on `device`."""
    own = trainee(
        base.weights,
        method=recipe.method,
        device=device,
        dtype=DTYPES[recipe.dtype],
        rank=recipe.rank,
        scale=recipe.scale,
        seed=recipe.seed,
    )
    layers = compiled_layers(base.spec) if recipe.forward == "compiled" else None
    return Model(own, base.spec, torch.tensor(base.label_ids, device=device), layers)


def gradients_of(model: Model, recipe: Recipe) -> Gradients:
    """How the run's gradients come about."""
    if recipe.forward != "compiled":
        return PlainGradients(model, recipe.loss)
    limits = limits_of(recipe)
    return GraphedGradients(model, recipe.loss, n_tokens=limits.max_tokens, n_slots=limits.max_slots)


def facts_of(base: Base, data: Data, recipe: Recipe, per_step: int) -> dict[str, Any]:
    """What a resumed run must have the same; JSON."""
    held = None if data.held_out is None else file_sha256(data.held_out)
    facts = {
        "recipe": recipe.to_json(),
        "items_per_step": per_step,
        "layout": base.reading.layout.name,
        "base_sha256": base.sha256(),
        "data_sha256": file_sha256(data.train),
        "held_out_sha256": held,
    }
    # As a checkpoint gives it back.
    plain: dict[str, Any] = json.loads(json.dumps(facts))
    return plain


def _dtype(wanted: str, device: torch.device) -> str:
    if wanted == "auto":
        return "bfloat16" if device.type == "cuda" else "float32"
    if wanted == "float16":
        raise ConfigError("dtype is 'float16', in which small gradients vanish; train in bfloat16 or float32")
    return wanted


def _forward(recipe: Recipe, base: Base, device: torch.device, say: Say) -> str:
    """Of a recipe that says `auto`, with the reason; else what it says, which must be able to run."""
    fault = why_not_compiled(base.spec, device)
    if recipe.forward == "auto":
        chosen = "compiled" if fault is None else "plain"
        say(f"forward: {chosen} ({fault or 'a card, and attention in every layer'})")
        return chosen
    if recipe.forward == "compiled" and fault is not None:
        raise ConfigError(f"forward is 'compiled', which cannot run here: {fault}; use --forward plain")
    return recipe.forward


def _check_out(out: Path, *, resume: bool) -> None:
    """Raises ConfigError for a place that is taken, or cannot be written; leaves nothing there."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{str(out)!r:.120} is a file; name a new or empty folder")
    begun = (out / checkpoints.FOLDER).exists()
    if not resume and begun:
        raise ConfigError(
            f"{str(out)!r:.120} holds the checkpoint of a run; go on with --resume, or name another folder"
        )
    if not out.exists() and not out.resolve().parent.is_dir():
        raise ConfigError(f"the folder of {str(out)!r:.120} is not there; make it first")
    # Whoever may list a folder need not be allowed to write in it, and a disk may be full.
    try:
        if out.is_dir() and not begun and any(out.iterdir()):
            what = "a model" if (out / "config.json").exists() else "other files"
            raise ConfigError(f"{str(out)!r:.120} holds {what}; name a new or empty folder")
        with tempfile.TemporaryFile(dir=out if out.is_dir() else out.resolve().parent) as probe:
            probe.write(b"x")
    except OSError as error:
        raise ConfigError(f"cannot write in {str(out)!r:.120}: {error.strerror}; name another folder") from error


def _introduce(base: Base, model: Model, kitchen: Kitchen, held: HeldOut | None, recipe: Recipe, say: Say) -> None:
    n_all = sum(weight.numel() for weight in base.weights.values())
    say(
        f"{recipe.method} of {base.folder.name} on {model.device}, {recipe.dtype}: {model.trainee.n_trained:,} of "
        f"{n_all:,} numbers are trained; {len(kitchen.items):,} items, {kitchen.items_per_step} a step"
    )
    if held is None:
        say("nothing is held out, so the run goes to its end and keeps its last weights (--heldout FILE)")
    elif held.n_refused:
        say(f"{held.n_refused:,} held-out items are left out, which the model cannot take")
    if not has_matplotlib():
        say("matplotlib is not installed, so no curves are drawn; in a checkout: pip install '.[eval]'")


def _write(
    out: Path,
    base: Base,
    data: Data,
    items: tuple[LabelledItem, ...],
    recipe: Recipe,
    facts: Mapping[str, Any],
    outcome: Outcome,
    say: Say,
) -> None:
    entries = {"facts": facts, "step": outcome.step, "elapsed_s": outcome.elapsed_s, "history": outcome.history}
    text = json.dumps(entries, indent=1, ensure_ascii=False)
    (out / TRAINING).write_text(text + "\n", encoding="utf-8")
    drawn = has_matplotlib()
    if drawn:
        write_curves(out / CURVES, outcome.history)
    manifest = None if data.manifest is None else json.loads(data.manifest.read_text(encoding="utf-8"))
    write_card(
        out / "README.md",
        base=base.folder.name,
        recipe=recipe,
        facts=facts,
        items=items,
        outcome=outcome,
        manifest=manifest,
        curves=CURVES if drawn else None,
    )
    say(f"written: {out}; serve it with --model {out}")
