"""What an engine may be asked to do beside running the model as it is.

It refuses to know how any of it is done. Trap: an option belongs to one engine. Nothing here may become a flag of the
process, or two engines in one process could not differ.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GridOptions:
    """Options of one grid executor. What may move an answer is off by default; what may not is on."""

    compile: bool = False
    """Capture forwards that `torch.compile` fused. Eager forwards stay uncompiled."""
    fp8: bool = False
    """Large linear layers in e4m3, on Hopper and later. Probabilities move; calibrate for it."""
    share_prefixes: bool = True
    """Run a common prefix once where that promises to be faster."""
    pin_kernels: bool = True
    """On CUDA, a kernel of ours in place of one that is tuned for every size of a hybrid's rows."""
