"""Device facts and the choices made from them, each with its reason in words.

It refuses to know models. Trap: a choice nobody can see is a surprise later; whatever is picked here must reach
`decider doctor` through its `Pick`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

import torch

from decider.errors import DeviceError


@dataclass(frozen=True, slots=True)
class Pick:
    """One choice: what was chosen for `name`, and why."""

    name: str
    value: str
    reason: str


def available_devices() -> tuple[str, ...]:
    """Names of the devices torch can use here, best first: every CUDA card, then MPS, then the CPU."""
    cards = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count())) if torch.cuda.is_available() else ()
    return (*cards, *(("mps",) if torch.backends.mps.is_available() else ()), "cpu")


def pick_device(wanted: str, available: tuple[str, ...] | None = None) -> Pick:
    """`wanted` is `auto` or a device name. Raises DeviceError if this machine has no such device."""
    found = available_devices() if available is None else available
    if wanted == "auto":
        return Pick("device", found[0], f"auto: the first of {', '.join(found)}")
    name = "cuda:0" if wanted == "cuda" else wanted
    if name not in found:
        raise DeviceError(f"device {wanted!r} is not available; this machine has {', '.join(found)}")
    return Pick("device", name, "asked for")


def pick_dtype(executor: str, device: str, wanted: str = "auto") -> Pick:
    """Precision of the weights for `executor` on `device`: `wanted`, unless that is `auto`."""
    if wanted != "auto":
        return Pick("dtype", wanted, "asked for")
    if executor == "reference":
        return Pick("dtype", "float32", "the reference executor is the oracle that others are compared with")
    if device.startswith("cuda"):
        return Pick("dtype", "bfloat16", "the precision checkpoints are published in, on the card's matrix units")
    if device == "mps":
        return Pick("dtype", "float16", "the fast precision on Apple GPUs; not measured by us")
    return Pick("dtype", "float32", "on a CPU, bfloat16 is fast on some processors only")


def pick_attention(executor: str) -> Pick:
    """Attention implementation for `executor`."""
    if executor == "reference":
        return Pick("attention", "eager", "explicit masks, and the one implementation every model family has")
    return Pick("attention", "sdpa", "causal without a mask tensor, and it can be captured")


def version_of(package: str) -> str | None:
    """The installed version of a distribution; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def torch_facts() -> tuple[tuple[str, str], ...]:
    """What torch says of this machine: threads, processor features, each CUDA card's name and memory."""
    facts = [("threads", str(torch.get_num_threads())), ("cpu", torch.backends.cpu.get_cpu_capability())]
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            card = torch.cuda.get_device_properties(index)
            facts.append((f"cuda:{index}", f"{card.name}, {card.total_memory / 2**30:.0f} GiB"))
    return tuple(facts)
