"""`decider calibrate`: labelled decisions to the temperatures, maps and thresholds of a `decider_config.json`.

It refuses to know how anything is fitted. Trap: the words, the data and the place of the result are checked before a
model is loaded: a run takes minutes or hours, and must not end at a typing error.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from decider.cli import add_model_options, check_paths, model_arguments, say, settings_of
from decider.errors import ConfigError, printable
from decider.questions.request import LAYOUT_NAMES

if TYPE_CHECKING:
    from decider.calibrate.write import ConfigFile
    from decider.decisions import Decisions
    from decider.evaluate.facts import RunFacts
    from decider.evaluate.labelled import LabelledItem
    from decider.settings import Settings

SAVED = ".npz"
MOST_REFUSED_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Answered:
    """Answered questions and what answered them."""

    decisions: Decisions
    facts: RunFacts


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = commands.add_parser(
        "calibrate",
        help="fit probabilities to labelled decisions",
        description="Fit temperatures, a map of P(yes) and thresholds for error rates to labelled decisions, and write "
        "them into a decider_config.json, under x_calibration and the precision they were made in.",
    )
    parser.add_argument(
        "data", metavar="DATA", type=Path, help="labelled decisions, or a .npz that `decider eval --save` wrote"
    )
    add_model_options(parser)
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="for a table: what its columns mean")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="what to write (default: decider_config.json in the model's folder)"
    )
    parser.add_argument(
        "--class-conditional", action="store_true", help="thresholds for each option by name: they hold for each class"
    )
    parser.add_argument(
        "--no-noul-map",
        action="store_true",
        help="temperatures alone: a map of P(yes) does harm where other kinds of questions are asked than in DATA",
    )
    parser.add_argument(
        "--risk-confidence",
        type=float,
        default=0.9,
        metavar="P",
        help="how sure it must be that answers which do not abstain keep an error rate (default: 0.9)",
    )
    parser.add_argument("--folds", type=int, default=5, metavar="K", help="folds of the cross-validation (default: 5)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of folds and halves (default: 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the comparison as JSON")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Write, then print the comparison. Raises what reading, loading and answering raise, and ConfigError."""
    _check(parsed)
    settings = settings_of(parsed)
    out = _out(parsed, settings)
    _check_places(parsed, settings, out)

    from decider.calibrate.noul import isotonic_regression
    from decider.calibrate.run import calibrate
    from decider.calibrate.table import as_json, as_text
    from decider.calibrate.whole import write_text
    from decider.calibrate.write import write_calibration
    from decider.tokens.layout import Layout

    # Raises where the extra is missing.
    isotonic_regression()
    data = _read(parsed)
    file = _config_file(parsed, settings, out)
    if isinstance(data, Answered):
        answered = data
    else:
        answered = _ask(parsed, data)
        # Hours later: what is calibrated now may be something else.
        file = _config_file(parsed, settings, out)
    decisions, facts = answered.decisions, answered.facts
    dtype, layout = _dtype(parsed, facts), _layout(parsed, facts)
    calibrated = calibrate(
        decisions,
        file.config.for_dtype(dtype),
        layout=layout,
        schema_first=Layout.parse(layout).schema_first,
        permutations=facts.permutations,
        joint_items=facts.joint_items,
        class_conditional=parsed.class_conditional,
        noul_map=not parsed.no_noul_map,
        risk_confidence=parsed.risk_confidence,
        folds=parsed.folds,
        seed=parsed.seed,
    )
    # Files first: the reader of a pipe may leave before the table ends.
    write_calibration(file, dtype, calibrated.calibration)
    if parsed.json is not None:
        text = json.dumps(as_json(calibrated, facts.to_json(), dtype), indent=1, ensure_ascii=False, allow_nan=False)
        write_text(parsed.json, text)
    print(printable(f"{facts.data}: {len(decisions):,} decisions by {facts.model}, {dtype}, {layout}"))
    print(as_text(calibrated))
    for line in _written(parsed, settings, file, dtype):
        print(printable(line))
    return 0


def _check(parsed: argparse.Namespace) -> None:
    if parsed.folds < 2:
        raise ConfigError(f"--folds is {parsed.folds}; it must be at least 2")
    if parsed.seed < 0:
        raise ConfigError(f"--seed is {parsed.seed}; it must be a whole number from 0 on")
    if not 0 < parsed.risk_confidence < 1:
        raise ConfigError(f"--risk-confidence is {parsed.risk_confidence}; it must be above 0 and below 1")
    if parsed.mapping is not None and parsed.data.suffix == SAVED:
        raise ConfigError(f"--mapping is for tables, and {parsed.data.name!r:.60} holds decisions; leave it out")


def _check_places(parsed: argparse.Namespace, settings: Settings, out: Path) -> None:
    begun = None if settings.decider_config is None else Path(settings.decider_config)
    # One file may be both: what is there is kept, and the new entry put in.
    if begun is not None and os.path.realpath(begun) == os.path.realpath(out):
        begun = None
    config = None if parsed.config is None else Path(parsed.config)
    read = {"DATA": parsed.data, "--mapping": parsed.mapping, "--decider-config": begun, "--config": config}
    check_paths(read, {"--out": out, "--json": parsed.json})


def _local_folder(settings: Settings) -> Path | None:
    """The folder that the model is, where it is one of the user's own."""
    from decider.model.source import SHIPPED

    if settings.model is None or settings.model in SHIPPED:
        return None
    folder = Path(settings.model).expanduser()
    return folder if folder.is_dir() else None


def _out(parsed: argparse.Namespace, settings: Settings) -> Path:
    from decider.tokens.config import CONFIG_NAME

    if parsed.out is not None:
        return Path(parsed.out)
    folder = _local_folder(settings)
    if folder is None:
        raise ConfigError(f"--out is missing, and the model is no folder to put {CONFIG_NAME} into; name a file")
    if settings.decider_config is not None:
        raise ConfigError(
            f"--out is missing, and {settings.decider_config!r:.120} stands in for the model's own file; name one"
        )
    return folder / CONFIG_NAME


def _config_file(parsed: argparse.Namespace, settings: Settings, out: Path) -> ConfigFile:
    """What will be written, with what it begins as: itself, or a copy of the config that the model has now."""
    from decider.calibrate.write import open_config
    from decider.tokens.config import CONFIG_NAME

    if settings.decider_config is not None:
        return open_config(out, Path(settings.decider_config))
    if parsed.data.suffix == SAVED and settings.sources["model"] == "default":
        return open_config(out, None)

    from decider.model.cache import cache_dir
    from decider.model.source import resolve

    folder = resolve(settings.model, gguf_file=settings.gguf_file, cache=cache_dir(), say=say)
    own = folder.path / CONFIG_NAME
    return open_config(out, own if own.exists() else None)


def _read(parsed: argparse.Namespace) -> Answered | tuple[LabelledItem, ...]:
    """DATA, before any model is loaded."""
    if parsed.data.suffix == SAVED:
        from decider.evaluate.saved import load_decisions

        return Answered(*load_decisions(parsed.data))

    from decider.evaluate.tables import read_data

    return read_data(parsed.data, parsed.mapping)


def _ask(parsed: argparse.Namespace, items: tuple[LabelledItem, ...]) -> Answered:
    """What the model makes of `items`; items it cannot take are named, and left out."""
    from decider.api import Decider
    from decider.evaluate import ask

    with Decider(**model_arguments(parsed), say=say) as decider:
        facts = ask.run_facts(decider, items, parsed.data)
        # Raises for several layouts, which is known before anything runs.
        _layout(parsed, facts)
        asked = ask.run(decider, items, say=say)
    for item, reason in asked.refused[:MOST_REFUSED_SHOWN]:
        say(f"left out: item {item!r:.60}: {reason}")
    if len(asked.refused) > MOST_REFUSED_SHOWN:
        say(f"left out: {len(asked.refused) - MOST_REFUSED_SHOWN:,} more items")
    return Answered(asked.decisions, facts)


def _dtype(parsed: argparse.Namespace, facts: RunFacts) -> str:
    """The entry of `x_calibration` that `facts` belong to; --dtype or --fp8 says it where they do not."""
    from decider.evaluate.facts import NOT_SAID
    from decider.tokens.calibration import DTYPES

    said = _said_dtype(parsed)
    if facts.dtype == NOT_SAID:
        if said is None:
            raise ConfigError(f"{facts.data} does not say in which precision it was made; give --dtype (or --fp8)")
        return said
    if facts.dtype not in DTYPES:
        raise ConfigError(
            f"{facts.data} was made in {facts.dtype!r:.60}, which is no precision; known are {', '.join(DTYPES)}"
        )
    if said not in (None, facts.dtype):
        raise ConfigError(f"{facts.data} was made in {facts.dtype}, not {said}; leave --dtype and --fp8 out")
    return facts.dtype


def _said_dtype(parsed: argparse.Namespace) -> str | None:
    if parsed.fp8 or parsed.dtype in (None, "auto"):
        return "fp8" if parsed.fp8 else None

    # Not the assembly's, which imports torch.
    from decider.tokens.calibration import DTYPE_KEYS

    return DTYPE_KEYS[parsed.dtype]


def _layout(parsed: argparse.Namespace, facts: RunFacts) -> str:
    """The layout that `facts` belong to; --layout says it where they do not."""
    from decider.evaluate.facts import NOT_SAID

    if facts.layout == NOT_SAID:
        if parsed.layout is None:
            raise ConfigError(f"{facts.data} does not say in which layout it was read; give --layout")
        return str(parsed.layout)
    if facts.layout not in LAYOUT_NAMES:
        raise ConfigError(
            f"the layout of {facts.data} is {facts.layout!r:.60}, and a calibration is of one layout; make a file of "
            f"decisions for each, of {', '.join(LAYOUT_NAMES)}"
        )
    if parsed.layout not in (None, facts.layout) and parsed.data.suffix == SAVED:
        raise ConfigError(
            f"{facts.data} was read in the layout {facts.layout}, not {parsed.layout}; leave --layout out"
        )
    return facts.layout


def _written(parsed: argparse.Namespace, settings: Settings, file: ConfigFile, dtype: str) -> list[str]:
    """What was written, and how it comes into force, line by line."""
    begun = "" if file.origin in (None, file.path) else f", on a copy of {file.origin}"
    line = f"written: x_calibration.{dtype} in {file.path}{begun}"
    folder = _local_folder(settings)
    if folder is not None and file.path.resolve() == (folder / file.path.name).resolve():
        return [f"{line}; this model uses it from now on"]
    lines = [f"{line}; use it with --decider-config {file.path}"]
    if file.origin is None and parsed.data.suffix == SAVED and settings.sources["model"] == "default":
        lines.append(
            "note: it stands in for a decider_config.json of the model's own, and has none of its keys; with --model "
            "it begins as a copy"
        )
    return lines
