"""Checkpoints that a kill cannot damage: one file, written beside and moved into place; the best weights in another.

It refuses to know how a step is made. Trap: what a checkpoint names must be there for as long as it may be read. So
the best weights have their step in their name, and older ones go only after a checkpoint names the newer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from decider.calibrate.whole import whole_place
from decider.errors import ConfigError, first_line

FOLDER = "checkpoint"
STATE = "state.safetensors"
_FORMAT = "decider-train-2"
_TRAINED, _OPTIMIZER = "trained/", "optimizer/"


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """All that a run goes on from. The order of data and the askings follow from the recipe and the step."""

    step: int
    elapsed_s: float
    facts: Mapping[str, Any]
    """Recipe, data and base: what must be the same again. JSON."""
    history: tuple[Mapping[str, Any], ...]
    """What was said of each step and evaluation. JSON."""
    watch: Mapping[str, Any]
    trained: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]


def save(out: Path, checkpoint: Checkpoint) -> None:
    """Write `checkpoint` in the place of the one before. Raises ConfigError if it cannot be written; the one before
    stays.
    """
    tensors = {_TRAINED + name: tensor for name, tensor in checkpoint.trained.items()}
    tensors |= {_OPTIMIZER + name: tensor for name, tensor in checkpoint.optimizer.items()}
    about = {
        "step": checkpoint.step,
        "elapsed_s": checkpoint.elapsed_s,
        "facts": checkpoint.facts,
        "history": checkpoint.history,
        "watch": checkpoint.watch,
    }
    write_tensors(out / FOLDER / STATE, tensors, {"format": _FORMAT, "about": json.dumps(about)})
    kept = best_name(int(checkpoint.watch["best_step"]))
    # Hidden ones are drafts of a run that was killed.
    for file in (*(out / FOLDER).glob("best-*.safetensors"), *(out / FOLDER).glob(".*")):
        if file.name != kept:
            file.unlink()


def load(out: Path) -> Checkpoint | None:
    """The checkpoint in `out`, on the CPU; None if there is none. Raises ConfigError for one that cannot be read."""
    path = out / FOLDER / STATE
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise ConfigError(f"{path} is no checkpoint of `decider train` ({_FORMAT}); name another folder")
            about = json.loads(metadata["about"])
            tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118 - a handle is no mapping
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise ConfigError(f"cannot read the checkpoint {path}: {first_line(error)}; begin in a new folder") from error
    return Checkpoint(
        step=about["step"],
        elapsed_s=about["elapsed_s"],
        facts=about["facts"],
        history=tuple(about["history"]),
        watch=about["watch"],
        trained=_under(tensors, _TRAINED),
        optimizer=_under(tensors, _OPTIMIZER),
    )


def save_best(out: Path, step: int, trained: Mapping[str, Tensor]) -> None:
    """Write what was trained up to `step`, as the best so far."""
    write_tensors(out / FOLDER / best_name(step), trained, {"format": _FORMAT})


def load_best(out: Path, step: int) -> dict[str, Tensor]:
    """What `save_best` wrote. Raises ConfigError if it cannot be read."""
    path = out / FOLDER / best_name(step)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118 - a handle is no mapping
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"cannot read the best weights {path}: {first_line(error)}; begin in a new folder") from error


def best_name(step: int) -> str:
    """The file of the best weights of `step`."""
    return f"best-{step}.safetensors"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file whole, or leave what was there. Raises ConfigError if it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    there = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with whole_place(path) as draft:
        try:
            save_file(there, draft, metadata=metadata)
        except SafetensorError as error:
            raise ConfigError(f"cannot write {str(path)!r:.120}: {first_line(error)}; free some space") from error


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
