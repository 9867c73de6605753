"""Low-rank adapters (Hu et al. 2021): W + scale · B A for the matrices of a model, in one file that names its base.

It refuses to know training and models' forwards. Trap: a pair fits any model of the same shapes, and on another one it
is noise. So the file carries the digest of the weights that it was trained on, and nothing is merged without it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from decider.errors import ModelError, first_line
from decider.model.checkpoint import SINGLE, copy_beside, read_tensors, short_names

ADAPTER_NAME = "adapter.safetensors"
FORMAT = "decider-adapter-1"
_SUFFIXES = (".lora_A.weight", ".lora_B.weight")


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
    """weight + scale · b a, the sum taken in the precision of the pair and rounded to the dtype of `weight`."""
    return torch.addmm(weight.to(pair.b.dtype), pair.b, pair.a, alpha=scale).to(weight.dtype)


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """A digest of names, shapes, dtypes and bytes, whatever files they lie in and in whatever order."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        weight = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}\n".encode())
        digest.update(weight.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def save_adapter(path: Path, adapter: Adapter, dtype: torch.dtype = torch.float32) -> None:
    """Write `adapter` with its pairs in `dtype`."""
    tensors = {
        name.removesuffix(".weight") + suffix: part.detach().to("cpu", dtype).contiguous()
        for name, pair in adapter.pairs.items()
        for suffix, part in zip(_SUFFIXES, pair, strict=True)
    }
    about = {"base": adapter.base, "base_sha256": adapter.base_sha256, "scale": adapter.scale}
    save_file(tensors, path, metadata={"format": FORMAT, "adapter": json.dumps(about)})


def load_adapter(path: Path) -> Adapter:
    """The adapter in `path`, its pairs in float32. Raises ModelError for a file that is none, or damaged."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            about = file.metadata() or {}
            if about.get("format") != FORMAT:
                raise ModelError(f"{path} is no adapter of decider ({FORMAT}); name one that `decider train` wrote")
            facts = json.loads(about["adapter"])
            names = sorted({_base_name(key) for key in file.keys()})  # noqa: SIM118 - a handle is no mapping
            pairs = {
                f"{name}.weight": Pair(*(file.get_tensor(name + suffix).to(torch.float32) for suffix in _SUFFIXES))
                for name in names
            }
            return Adapter(str(facts["base"]), str(facts["base_sha256"]), float(facts["scale"]), pairs)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"cannot read the adapter {path}: {first_line(error)}; copy it again") from error


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
    save_file(tensors | {full: together[short] for full, short in names.items()}, folder / SINGLE, {"format": "pt"})


def _base_name(key: str) -> str:
    for suffix in _SUFFIXES:
        if key.endswith(suffix):
            return key.removesuffix(suffix)
    raise KeyError(key)
