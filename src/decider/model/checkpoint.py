"""The tensors of a model folder's safetensors files, as they lie there, and their names without prefix.

It refuses to know models. Trap: what safetensors gives on a CPU is the file itself, mapped; so every tensor is copied,
and what is kept does not change with the file.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from safetensors import SafetensorError, safe_open
from torch import Tensor

from decider.errors import ModelError, first_line

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_COPIED = (".json", ".txt", ".model", ".jinja")
# Of these weights alone: where they lie, and what was fitted to their answers.
_LEFT = (INDEX, "decider_config.json", "adapter_config.json")
# Text models of multimodal checkpoints, causal language models, decoders saved without a head.
PREFIXES = ("model.language_model.", "model.", "")


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor by its full name, on the CPU, in its own dtype. Raises ModelError for files that cannot be read."""
    try:
        tensors: dict[str, Tensor] = {}
        for file in weight_files(folder):
            with safe_open(folder / file, framework="pt", device="cpu") as handle:
                tensors.update({key: handle.get_tensor(key).clone() for key in handle.keys()})  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"cannot read the weights in {str(folder)!r}: {first_line(error)} ({type(error).__name__}); it needs "
            f"{SINGLE}, or {INDEX} and what that names"
        ) from error
    return tensors


def weight_files(folder: Path) -> tuple[str, ...]:
    """The names of the folder's safetensors files. Raises what a missing or damaged index raises."""
    if (folder / SINGLE).is_file():
        return (SINGLE,)
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    return tuple(sorted(set(index["weight_map"].values())))


def copy_beside(folder: Path, target: Path) -> None:
    """Copy what belongs to the model whatever its weights are: configuration, tokenizer, template."""
    for file in folder.iterdir():
        if file.is_file() and file.suffix in _COPIED and file.name not in _LEFT:
            shutil.copyfile(file, target / file.name)


def short_names(names: Iterable[str], folder: Path) -> Mapping[str, str]:
    """Full name → name without prefix, of the text model's tensors. Raises ModelError if there is no text model."""
    every = tuple(names)
    for prefix in PREFIXES:
        if f"{prefix}embed_tokens.weight" in every:
            short = {name: name.removeprefix(prefix) for name in every if name.startswith(prefix)}
            return MappingProxyType(short | {name: name for name in every if name == "lm_head.weight"})
    raise ModelError(f"{str(folder)!r} has no tensor embed_tokens.weight; it must be a causal language model")
