"""The processor's name. It refuses to know devices; trap: it must not import torch, which takes seconds."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def processor_name() -> str:
    """Name and count of this machine's processors."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, platform.processor() or platform.machine())}, {os.cpu_count()} processors"
