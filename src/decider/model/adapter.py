"""Low-rank adapters (Hu et al. 2021): W + scale · B A for the matrices of a model, in one file that names its base.

It refuses to know training and models' forwards. Trap: a pair fits any model of the same shapes, and on another one it
is noise. So the file carries the digest of the weights that it was trained on, and nothing is merged without it.

A file's tensors, for the matrix called NAME: `NAME.lora_A.weight` [rank, in] and `NAME.lora_B.weight` [out, rank], in
float32, bfloat16 or int8. In int8 each has a `.scale` beside it, float32 [rows, 1], by which its rows are multiplied.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from decider.errors import ModelError, first_line
from decider.model.checkpoint import SINGLE, copy_beside, read_tensors, short_names
from decider.tokens.config import BESIDE

ADAPTER_NAME = "adapter.safetensors"
FORMAT = "decider-adapter-2"
_READ = ("decider-adapter-1", FORMAT)
# The first had no int8.
STORED: Mapping[str, torch.dtype] = MappingProxyType(
    {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}
)
"""What pairs may be stored in."""
_PARTS = (".lora_A", ".lora_B")
_WEIGHT, _SCALE = ".weight", ".scale"
_MOST_INT8 = 127


class Pair(NamedTuple):
    """One matrix's addition, before the scale: b [out, rank] times a [rank, in]."""

    a: Tensor
    b: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """What `adapter.safetensors` holds."""

    base: str
    """What its base is called: a Hub id or the embedded model's name, by which it is found again; else for messages."""
    base_sha256: str
    """`weights_sha256` of the weights that pairs are added to."""
    scale: float
    pairs: Mapping[str, Pair]
    """By the names of the weights they are added to, without the prefix that a checkpoint has."""


def is_adapted(name: str) -> bool:
    """Whether a weight of this name (without prefix) has a pair: the projections of attention, delta rule and MLP."""
    return name.startswith("layers.") and name.endswith(".weight") and "_proj" in name


def added(weight: Tensor, pair: Pair, scale: float) -> Tensor:
    """weight + scale · b a, the sum taken in the precision of the pair and rounded to the dtype of `weight`.

    Of one matrix, [out, in], or of a stack of like ones, [n, out, in], with the pairs stacked likewise.
    """
    sum_of = torch.addmm if weight.dim() == 2 else torch.baddbmm
    return sum_of(weight.to(pair.b.dtype), pair.b, pair.a, alpha=scale).to(weight.dtype)


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """A digest of names, shapes, dtypes and bytes, whatever files they lie in and in whatever order."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        weight = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}\n".encode())
        digest.update(weight.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def save_adapter(path: Path, adapter: Adapter, dtype: torch.dtype = torch.float32) -> None:
    """Write `adapter` with its pairs in `dtype`, one of `STORED`."""
    assert dtype in STORED.values(), dtype
    tensors: dict[str, Tensor] = {}
    for name, pair in adapter.pairs.items():
        for part, values in zip(_PARTS, pair, strict=True):
            tensors.update(_stored(name.removesuffix(".weight") + part, values.detach().cpu(), dtype))
    about = {"format": FORMAT, "base": adapter.base, "base_sha256": adapter.base_sha256, "scale": adapter.scale}
    # One key, for several come in any order, and equal adapters are to be equal files.
    save_file(tensors, path, metadata={"adapter": json.dumps(about)})


def load_adapter(path: Path) -> Adapter:
    """The adapter in `path`, its pairs in float32. Raises ModelError for a file that is none, or damaged."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            about = file.metadata() or {}
            facts = json.loads(about.get("adapter", "{}"))
            written = about.get("format") or (facts.get("format") if isinstance(facts, dict) else None)
            if written not in _READ:
                raise ModelError(
                    f"{path} is no adapter of decider ({' or '.join(_READ)}); name one that `decider train` wrote"
                )
            stored = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - a handle is no mapping
        pairs = {f"{name}.weight": Pair(*(_read(stored, name + part) for part in _PARTS)) for name in _names(stored)}
        return Adapter(str(facts["base"]), str(facts["base_sha256"]), float(facts["scale"]), pairs)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"cannot read the adapter {path}: {first_line(error)}; copy it again") from error


def quantised(values: Tensor) -> tuple[Tensor, Tensor]:
    """int8 [rows, columns] and float32 [rows, 1] whose product is `values` to within half a step of each row.

    A row's step is its largest magnitude / 127, so that 0 stays 0 and both signs reach as far.
    """
    values = values.to(torch.float32)
    # What is not finite would be read back as some number.
    assert bool(torch.isfinite(values).all())
    steps = values.abs().amax(1, keepdim=True) / _MOST_INT8
    # A row of nothing has no step.
    steps = torch.where(steps > 0, steps, torch.ones_like(steps))
    return (values / steps).round().clamp(-_MOST_INT8, _MOST_INT8).to(torch.int8), steps


def merged(weights: Mapping[str, Tensor], adapter: Adapter) -> dict[str, Tensor]:
    """`weights`, named without prefix, with every pair added, in the weights' own dtypes.

    Raises ModelError if they are not those that the adapter was trained on.
    """
    found = weights_sha256({name: weights[name] for name in adapter.pairs if name in weights})
    if found != adapter.base_sha256:
        raise ModelError(
            f"the adapter belongs to other weights ({adapter.base}, {adapter.base_sha256[:12]}…) than these "
            f"({found[:12]}…); name the model that it was trained on"
        )
    return {
        name: added(weight, adapter.pairs[name], adapter.scale) if name in adapter.pairs else weight
        for name, weight in weights.items()
    }


def write_merged(base: Path, adapter: Adapter, folder: Path) -> None:
    """Write into `folder` a copy of the model folder `base` with `adapter` merged, in the base's own dtypes.

    Raises ModelError as `merged` does.
    """
    tensors = read_tensors(base)
    names = short_names(tensors, base)
    together = merged({short: tensors[full] for full, short in names.items()}, adapter)
    copy_beside(base, folder)
    weights = tensors | {full: together[short] for full, short in names.items()}
    try:
        save_file(weights, folder / SINGLE, {"format": "pt"})
    except SafetensorError as error:
        raise ModelError(f"cannot write {folder / SINGLE}: {first_line(error)}; free some space") from error


def write_served(folder: Path, base: Path, target: Path) -> None:
    """Write into `target` the model that is served of `folder`: its adapter merged into the model folder `base`, with
    the `decider_config.json` and the wordings of `folder`, where it has them. Raises ModelError as `load_adapter` and
    `merged` do.
    """
    write_merged(base, load_adapter(folder / ADAPTER_NAME), target)
    for name in BESIDE:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, target / name)


def _stored(name: str, values: Tensor, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """The entries of a file that hold `values`."""
    if dtype != torch.int8:
        yield name + _WEIGHT, values.to(dtype).contiguous()
        return
    whole, steps = quantised(values)
    yield name + _WEIGHT, whole.contiguous()
    yield name + _SCALE, steps.contiguous()


def _read(stored: Mapping[str, Tensor], name: str) -> Tensor:
    """The values of one part in float32. Raises KeyError or ValueError for what no adapter has."""
    values = stored[name + _WEIGHT]
    if values.dtype not in STORED.values() or values.dim() != 2:
        raise ValueError(f"{name} is {values.dtype} of {values.dim()} dimensions")
    if values.dtype != torch.int8:
        return values.to(torch.float32)
    steps = stored[name + _SCALE]
    # Any other shape might be spread over columns.
    if steps.dtype != torch.float32 or steps.shape != (len(values), 1):
        raise ValueError(f"the scale of {name} is {steps.dtype} of shape {tuple(steps.shape)}")
    return values.to(torch.float32) * steps


def _names(stored: Mapping[str, Tensor]) -> list[str]:
    """Matrices that have a part. Raises KeyError for what is none."""
    found = set()
    for key in stored:
        part = key.removesuffix(_WEIGHT).removesuffix(_SCALE)
        suffix = next((suffix for suffix in _PARTS if part.endswith(suffix)), None)
        if suffix is None or part == key:
            raise KeyError(key)
        found.add(part.removesuffix(suffix))
    return sorted(found)
