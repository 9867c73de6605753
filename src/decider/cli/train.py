"""`decider train`: labelled decisions and a model to a model that answers them, in a folder that `decider ask` serves.

It refuses to know how anything is trained. Trap: every word is checked before torch is imported, and everything else
before the first step.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from decider.cli import say, settings_of
from decider.errors import ConfigError
from decider.questions.request import LAYOUT_NAMES

METHODS = ("lora", "full")
FORWARDS = ("auto", "plain", "compiled")
PRESETS = ("mini", "tiny")
DTYPES = ("auto", "float32", "bfloat16")
ADAPTER_DTYPES = ("float32", "bfloat16", "int8")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = commands.add_parser(
        "train",
        help="train a model on labelled decisions",
        description="Train a model, whole or by a low-rank adapter, on labelled decisions in the token layout that it "
        "is served in, and write a model folder with its card and curves.",
    )
    parser.add_argument("data", metavar="DATA", type=Path, help="labelled decisions, or a folder with train.jsonl")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the model folder to write")
    parser.add_argument(
        "--heldout", type=Path, metavar="FILE", help="decisions that tell when to stop (default: heldout.jsonl in DATA)"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in DIR, if there is one")
    parser.add_argument("--preset", choices=PRESETS, help="mini: as decider-mini was made, on one card; tiny: a trial")
    parser.add_argument("--name", help="what answers call the model, after decider- (default: DIR's name)")

    how = parser.add_argument_group("how")
    how.add_argument("--method", choices=METHODS, help="a low-rank adapter, or all weights (default: lora)")
    how.add_argument("--rank", type=int, metavar="R", help="of the adapter (default: 16)")
    how.add_argument(
        "--adapter-dtype", choices=ADAPTER_DTYPES, help="what the adapter is stored in (default: as the forward)"
    )
    how.add_argument("--minutes", type=float, metavar="M", help="how long")
    how.add_argument("--epochs", type=float, metavar="E", help="how often over the data (default: 1)")
    how.add_argument("--learning-rate", type=float, metavar="RATE", help="the highest (default: 5e-4, full: 1e-4)")
    how.add_argument(
        "--tokens-per-step", type=int, metavar="N", help="about how many tokens a step has (default: 32768)"
    )
    how.add_argument("--pack-tokens", type=int, metavar="N", help="the most tokens of one forward (default: 16384)")
    how.add_argument("--max-state-tokens", type=int, metavar="N", help="longer states are cut (default: 2048)")
    how.add_argument("--smoothing", type=float, metavar="S", help="label smoothing (default: 0)")
    how.add_argument("--brier", type=float, metavar="B", help="share of the Brier score in the loss (default: 0)")
    how.add_argument(
        "--consistency", type=float, metavar="C", help="what two orders of a question may not differ by (default: 0)"
    )
    how.add_argument("--evaluations", type=int, metavar="N", help="of the held-out decisions (default: 20)")
    how.add_argument(
        "--patience", type=int, metavar="N", help="evaluations without a gain that end the run (default: 6)"
    )
    how.add_argument("--balance", type=float, metavar="B", help="1: tasks as the data are; 0: all alike (default: 1)")
    how.add_argument("--forward", choices=FORWARDS, help="compiled layers on a card, or plain ones (default: auto)")
    how.add_argument("--schema-first", action="store_true", default=None, help="train the questions-first layout, too")
    how.add_argument("--no-augmentation", action="store_true", help="every question as it stands")
    how.add_argument("--seed", type=int, metavar="N", help="of order, augmentation and adapter (default: 0)")
    how.add_argument("--workers", type=int, metavar="N", help="processes that make steps ahead (default: by the cores)")

    which = parser.add_argument_group("which model, and where")
    which.add_argument("--model", help="a Hub id, a folder or a .gguf file (default: smollm2-135m-instruct)")
    which.add_argument("--gguf-file", metavar="NAME", help="the GGUF file inside the folder given as --model")
    which.add_argument("--device", help="auto, cpu, cuda, cuda:N or mps")
    which.add_argument("--dtype", choices=DTYPES, help="precision of the forward (default: bfloat16 on a card)")
    which.add_argument("--layout", choices=LAYOUT_NAMES, help="how the prompt is laid out")
    which.add_argument("--decider-config", metavar="FILE", help="read in place of the model's own decider_config.json")
    which.add_argument("--config", metavar="FILE", help="a TOML file of settings")
    parser.set_defaults(run=run, executor=None, compile=None, fp8=None)


GIVEN = (
    "method", "rank", "minutes", "epochs", "learning_rate", "tokens_per_step", "pack_tokens", "max_state_tokens",
    "smoothing", "brier", "consistency", "evaluations", "patience", "balance", "forward", "schema_first", "seed",
)  # fmt: skip


def run(parsed: argparse.Namespace) -> int:
    """Train, and print the folder. Raises what reading, loading and training raise, and ConfigError."""
    settings = settings_of(parsed)
    if parsed.workers is not None and parsed.workers < 0:
        raise ConfigError(f"--workers is {parsed.workers}; it must be at least 0 (none: in this process)")

    from decider.model.embedded import NAME
    from decider.train.augment import OFF
    from decider.train.recipe import recipe_of
    from decider.train.run import find_data, train

    given = {name: getattr(parsed, name) for name in GIVEN}
    if parsed.preset is None and parsed.minutes is None and parsed.epochs is None:
        given["epochs"] = 1.0
    if parsed.no_augmentation:
        given["augmentation"] = OFF
    recipe = recipe_of(parsed.preset, given)
    if parsed.adapter_dtype is not None and recipe.method != "lora":
        raise ConfigError(f"--adapter-dtype is of adapters, and the method is {recipe.method}; leave one of them out")
    if settings.model is None:
        # Not decider-mini, which is another model in each release: an adapter of it would fit only one.
        settings = replace(settings, model=NAME)
    train(
        find_data(parsed.data, parsed.heldout),
        settings,
        recipe,
        parsed.out,
        resume=parsed.resume,
        workers=_workers(parsed.workers),
        say=say,
        name=parsed.name or parsed.out.resolve().name,
        adapter_dtype=parsed.adapter_dtype,
    )
    print(parsed.out)
    return 0


def _workers(given: int | None) -> int:
    import os

    cores = os.cpu_count() or 1
    # On two cores, a worker would only take one from the forward.
    return given if given is not None else 0 if cores <= 2 else min(12, cores - 2)
