"""What an engine may be asked to do beside running the model as it is.

It refuses to know how any of it is done. Trap: an option belongs to one engine. Nothing here may become a flag of the
process, or two engines in one process could not differ.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GridOptions:
    """Options of one grid executor; all off by default."""

    compile: bool = False
    """Capture forwards that `torch.compile` fused. Eager forwards stay uncompiled."""
    fp8: bool = False
    """Large linear layers in e4m3, on Hopper and later. Probabilities move; calibrate for it."""
