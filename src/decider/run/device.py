"""Device facts and the choices made from them, each with its reason in words.

It refuses to know models. Trap: a choice nobody can see is a surprise later; whatever is picked here must reach
`decider doctor` through its `Pick`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

import torch

from decider.errors import DeviceError

ALL_CARDS = "cuda:all"


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
    """`wanted` is `auto` or a device name. Raises DeviceError if this machine has no such device, or it is several."""
    picked = pick_devices(wanted, available)
    if len(names := picked.value.split(",")) > 1:
        raise DeviceError(f"device {wanted!r} is {len(names)} devices and this runs on one; name one, as {names[0]}")
    return picked


def pick_devices(wanted: str, available: tuple[str, ...] | None = None) -> Pick:
    """As `pick_device`, or several devices: names with commas between, in `wanted` as in the value that is picked.

    `cuda:all` stands for every card. A name that is there twice is two engines. Raises DeviceError as well for devices
    of several kinds: a request goes to the one that is free, so they must run the same kernels.
    """
    found = available_devices() if available is None else available
    cards = [name for name in found if name.startswith("cuda")]
    if wanted == "auto":
        more = f"; {ALL_CARDS} is an engine on each card" if len(cards) > 1 else ""
        return Pick("device", found[0], f"auto: the first of {', '.join(found)}{more}")
    names: list[str] = []
    for part in map(str.strip, wanted.split(",")):
        own = cards if part == ALL_CARDS else ["cuda:0" if part == "cuda" else part]
        if not own or own[0] not in found:
            raise DeviceError(f"device {part!r:.60} is not available; this machine has {', '.join(found)}")
        names += own
    kinds = {name: _kind(name) for name in names} if len(names) > 1 else {}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise DeviceError(f"devices must be of one kind, as any of them may answer, and these are not: {listed}")
    if len(names) > 1 and "mps" in names:
        raise DeviceError("mps is one device, for one engine; name it once")
    return Pick("device", ",".join(names), "asked for")


def engine_names(devices: str) -> tuple[str, ...]:
    """A name for the engine on each of the devices that `pick_devices` gave: its own, with #2 where it comes again."""
    names: list[str] = []
    for device in devices.split(","):
        count = sum(name.partition("#")[0] == device for name in names) + 1
        names.append(device if count == 1 else f"{device}#{count}")
    return tuple(names)


def _kind(device: str) -> str:
    """Cards of one name have the same kernels; whether there is room on each, its own warm-up finds out."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


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
