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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from decider.decisions import KINDS, Decisions
from decider.errors import ConfigError, SchemaError, first_line
from decider.evaluate.bootstrap import LEVEL
from decider.evaluate.compare import Scored
from decider.evaluate.facts import RunFacts, facts_from_json
from decider.evaluate.summary import Summary

if TYPE_CHECKING:
    # It imports torch, which reports of saved decisions do without.
    from decider.evaluate.sensitivity import Sensitivity

FORMAT, VERSION = "decider evaluation", 1
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
            keys=tuple(map(str, columns["key"])),
            gold=np.array(columns["gold"], dtype=np.int64),
            n_options=np.array(columns["n_options"], dtype=np.int64),
            correct=np.array(columns["correct"], dtype=np.bool_),
            confidence=np.array(columns["p_max"], dtype=np.float64),
            nll=np.array([math.inf if value is None else value for value in columns["nll"]], dtype=np.float64),
            brier=np.array(columns["brier"], dtype=np.float64),
        )
        arrays = (scored.gold, scored.n_options, scored.correct, scored.confidence, scored.nll, scored.brier)
        if any(array.shape != (len(scored.keys),) for array in arrays):
            raise ValueError("columns of different lengths")
    except (KeyError, TypeError, ValueError, OverflowError, SchemaError) as error:
        fault = f"no {error.args[0]!r:.40}" if isinstance(error, KeyError) else first_line(error)
        raise ConfigError(f"{path.name} is damaged ({fault}); evaluate again") from error
    return scored


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
