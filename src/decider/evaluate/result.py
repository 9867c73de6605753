"""One evaluation whole, its JSON, and what a comparison reads back from that.

The JSON is one object, a key a line:

- `format` "decider evaluation", `version` 1.
- `facts`: what produced the logits (`RunFacts`: model, dtype, executor, layout, permutations, data, data_sha256, …).
- `calibration`: what made probabilities of logits, a sentence.
- `resamples`, `seed`, `level`: of every interval; 0 resamples are no intervals.
- `groups`: the fields of `Group`. A figure is {"value", "interval": {"low", "high", "resamples", "units"} or null}.
- `confusions`: the fields of `Confusion`. `sensitivity`: those of `Sensitivity`, or null.
- `refused`: {"item", "reason"} of each that could not be asked. `warnings`: sentences.
- `decisions`: columns of one length: `key`, `task`, `kind`, `n_options`, `gold` and `predicted` (counted from 0),
  `correct`, `nll`, `brier`, `p_max`.

A null is what is undefined there; for an NLL, and the ends of its interval, what is infinite, as the right option had
probability 0. Confidence is the likeliest option's probability. An ECE's interval holds the noise of a second sampling,
so near the floor it lies too high (`bootstrap`).

It refuses to compute. Trap: JSON has neither NaN nor infinity, and who reads a null as 0 makes the worst NLL the best.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from decider.decisions import KINDS, Decisions
from decider.errors import ConfigError, SchemaError, first_line
from decider.evaluate.bootstrap import LEVEL
from decider.evaluate.compare import Scored
from decider.evaluate.facts import RunFacts, facts_from_json
from decider.evaluate.summary import Summary
from decider.questions.faults import show

if TYPE_CHECKING:
    # It imports torch, which reports of saved decisions do without.
    from decider.evaluate.sensitivity import Sensitivity

FORMAT, VERSION = "decider evaluation", 1
MOST_OPTIONS = 2**31
SLACK = 1e-9
"""How far rounding may lift a figure over its range."""
REMEDY = "give what `decider eval --json` wrote"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All that a report says."""

    facts: RunFacts
    calibration: str
    resamples: int
    seed: int
    summary: Summary
    sensitivity: Sensitivity | None
    """None where no items were asked again."""
    refused: tuple[tuple[str, str], ...]
    """(item's id, reason) of each that could not be asked."""
    warnings: tuple[str, ...]
    decisions: Decisions


def as_json(evaluation: Evaluation) -> str:
    """The JSON of the module's docstring."""
    summary, decisions = evaluation.summary, evaluation.decisions
    columns: dict[str, object] = {
        "key": decisions.key,
        "task": decisions.task,
        "kind": [KINDS[kind] for kind in decisions.kind.tolist()],
        "n_options": decisions.n_options,
        "gold": decisions.gold,
        "predicted": summary.answers,
        "correct": summary.answers == decisions.gold,
        "nll": summary.nll,
        "brier": summary.brier,
        "p_max": summary.confidence,
    }
    parts = {
        "format": FORMAT,
        "version": VERSION,
        "facts": evaluation.facts.to_json(),
        "calibration": evaluation.calibration,
        "resamples": evaluation.resamples,
        "seed": evaluation.seed,
        "level": LEVEL,
        "groups": _plain(summary.groups),
        "confusions": _plain(summary.confusions),
        "sensitivity": _plain(evaluation.sensitivity),
        "refused": [{"item": item, "reason": reason} for item, reason in evaluation.refused],
        "warnings": evaluation.warnings,
        # Text needs no walk through it, and there is much of it.
        "decisions": {
            name: _plain(column) if isinstance(column, np.ndarray) else column for name, column in columns.items()
        },
    }
    # Compact parts are written by the C encoder, many times faster than an indented whole.
    lines = (f'"{name}": {json.dumps(part, ensure_ascii=False, allow_nan=False)}' for name, part in parts.items())
    return "{" + ",\n ".join(lines) + "}"


def read_scored(path: Path) -> Scored:
    """What `as_json` wrote, as far as a comparison needs it. Raises ConfigError naming the file and its fault."""
    try:
        whole = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r:.120}: {error.strerror}; {REMEDY}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name} is no JSON ({first_line(error)}); {REMEDY}") from error
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise ConfigError(f"{path.name} is no evaluation; {REMEDY}")
    if whole.get("version") != VERSION:
        raise ConfigError(f"{path.name} is of version {whole.get('version')!r:.20}, not {VERSION}; evaluate again")
    try:
        columns = whole["decisions"]
        scored = Scored(
            name=path.name,
            data_sha256=facts_from_json(whole["facts"]).data_sha256,
            keys=tuple(_column(columns, "key", str)),
            gold=np.array(_column(columns, "gold", int, 0, MOST_OPTIONS - 1), dtype=np.int64),
            n_options=np.array(_column(columns, "n_options", int, 1, MOST_OPTIONS), dtype=np.int64),
            correct=np.array(_column(columns, "correct", bool), dtype=np.bool_),
            confidence=np.array(_column(columns, "p_max", float, 0, 1 + SLACK), dtype=np.float64),
            nll=np.array(_column(columns, "nll", float, -SLACK, sys.float_info.max, null=math.inf), dtype=np.float64),
            brier=np.array(_column(columns, "brier", float, 0, 2 + SLACK), dtype=np.float64),
        )
        arrays = (scored.gold, scored.n_options, scored.correct, scored.confidence, scored.nll, scored.brier)
        if any(array.shape != (len(scored.keys),) for array in arrays):
            raise ValueError("columns of different lengths")
        if (scored.gold >= scored.n_options).any():
            raise ValueError("a right answer that is no option")
    except (KeyError, TypeError, ValueError, OverflowError, SchemaError) as error:
        fault = f"no {error.args[0]!r:.40}" if isinstance(error, KeyError) else first_line(error)
        raise ConfigError(f"{path.name} is damaged ({fault}); evaluate again") from error
    return scored


def _column(
    columns: Mapping[str, object],
    name: str,
    kind: type[str] | type[bool] | type[int] | type[float],
    least: float = 0,
    most: float = 0,
    null: float | None = None,
) -> list[Any]:
    """The values of a column, all of `kind` and numbers from `least` to `most`; `null` is what a null stands for.

    Raises ValueError for any other. Taken for a number, one of them would be a figure that nobody measured.
    """
    column = columns[name]
    if not isinstance(column, list):
        raise ValueError(f"{name} is {show(column)}")
    # JSON writes a float without a fraction as an integer too; a bool of Python is one.
    kinds = (int, float) if kind is float else (kind,)
    for place, value in enumerate(column):
        if value is None and null is not None:
            continue
        # A comparison with NaN is false.
        if type(value) not in kinds or (kind in (int, float) and not least <= value <= most):
            raise ValueError(f"{name} {place} is {show(value)}")
    return column if null is None else [null if value is None else value for value in column]


def _plain(part: object) -> object:
    """`part` as what `json` writes, null for what is not finite."""
    if isinstance(part, np.ndarray):
        if part.dtype.kind == "f" and not np.isfinite(part).all():
            return [_plain(value) for value in part.tolist()]
        return part.tolist()
    if isinstance(part, float):
        return part if math.isfinite(part) else None
    if is_dataclass(part):
        return {field.name: _plain(getattr(part, field.name)) for field in fields(part)}
    if isinstance(part, Mapping):
        return {name: _plain(value) for name, value in part.items()}
    if isinstance(part, Sequence) and not isinstance(part, str):
        return [_plain(value) for value in part]
    return part
