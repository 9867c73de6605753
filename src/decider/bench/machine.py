"""What figures were made on: the device, the versions, and how fast it multiplies large matrices.

It refuses to know models. Trap: a rate from another run is no floor. Cards change clocks, and processors are shared.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata

import torch

from decider.bench.processor import processor_name
from decider.model.load import DTYPES
from decider.run.device import version_of
from decider.run.measure import milliseconds

# Side of the square matrices: large enough for a card's full rate; on a CPU, 12 MB and hundredths of a second.
CARD_SIDE, CPU_SIDE = 8192, 1024
REPEATS = 10


@dataclass(frozen=True, slots=True)
class Machine:
    """One device, and the versions that run on it."""

    machine: str
    """The card's or the processor's name."""
    device: str
    threads: int
    """Threads of torch on the host."""
    python: str
    torch: str
    transformers: str
    flash_linear_attention: str | None
    """None where it is not installed: Qwen3.5 then runs transformers' own delta rule, many times slower."""

    def __str__(self) -> str:
        """One line."""
        fla = self.flash_linear_attention or "not installed"
        return (
            f"{self.machine} ({self.device}), {self.threads} threads, Python {self.python}, torch {self.torch}, "
            f"transformers {self.transformers}, flash-linear-attention {fla}"
        )


@dataclass(frozen=True, slots=True)
class MatmulRate:
    """The measured rate of one product of two square matrices."""

    tflops: float
    dtype: str
    side: int

    def __str__(self) -> str:
        """One line."""
        return f"{self.tflops:.3g} TFLOP/s ({self.side} × {self.side} × {self.side} in {self.dtype})"


def this_machine(device: str) -> Machine:
    """The machine that `device` belongs to."""
    return Machine(
        machine=_name(torch.device(device)),
        device=device,
        threads=torch.get_num_threads(),
        python=platform.python_version(),
        torch=torch.__version__,
        transformers=metadata.version("transformers"),
        flash_linear_attention=version_of("flash-linear-attention"),
    )


def matmul_rate(device: str, dtype: str) -> MatmulRate:
    """Median of `REPEATS` products, 2 · side³ operations each."""
    where = torch.device(device)
    side = CPU_SIDE if where.type == "cpu" else CARD_SIDE
    # Random, since a card draws less power on constant numbers, and runs faster.
    source = torch.Generator(where).manual_seed(0)
    a, b = (torch.randn(side, side, generator=source, device=where, dtype=DTYPES[dtype]) for _ in range(2))
    for _ in range(2):
        a @ b
    ms = milliseconds(where, lambda: a @ b, repeats=REPEATS)
    return MatmulRate(2 * side**3 / ms / 1e9, dtype, side)


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor_name()
