"""Milliseconds and bytes of work on a device, as the device tells them.

It refuses to know what the work is. Trap: a CUDA call returns before its work is done. Time it with events, and never
with the host's clock alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

Work = Callable[[], object]

# A clock may say 0 for work it is too coarse for; a price of 0 would make padding free.
LEAST_MS = 1e-6


# Once the runs of one work have taken this long together, their noise is small beside them.
ENOUGH_MS = 30.0


def milliseconds(device: torch.device, work: Work, *, repeats: int = 3, enough_ms: float = ENOUGH_MS) -> float:
    """Median time of `work` over `repeats` runs, or fewer if they take `enough_ms` together; above 0."""
    times: list[float] = []
    while len(times) < repeats and sum(times) < enough_ms:
        times.append(_one(device, work))
    return max(LEAST_MS, statistics.median(times))


def _one(device: torch.device, work: Work) -> float:
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))
    began = time.perf_counter()
    work()
    if device.type == "mps":
        torch.mps.synchronize()
    return 1e3 * (time.perf_counter() - began)


def free_bytes(device: torch.device) -> int | None:
    """Memory that could still be allocated; None where that is not known (off CUDA)."""
    if device.type != "cuda":
        return None
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def peak_bytes(device: torch.device, work: Work) -> int:
    """Bytes that `work` holds at its peak beyond what is held now. CUDA only. Its first run of two is not counted."""
    work()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    work()
    return torch.cuda.max_memory_allocated(device) - before


def reserved_bytes(device: torch.device) -> int | None:
    """Device memory that torch holds; None off CUDA."""
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else None


def release_cache(device: torch.device) -> None:
    """Give memory that torch holds and nothing uses back to the driver; nothing to do off CUDA."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def reserved_line(device: torch.device) -> str:
    """For progress lines: ", 5.9 GiB reserved" on CUDA, else nothing."""
    return f", {torch.cuda.memory_reserved(device) / 2**30:.1f} GiB reserved" if device.type == "cuda" else ""
