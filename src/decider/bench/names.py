"""What the command line may ask to measure, by name. It refuses to know what a name stands for.

Trap: it is imported to parse words, so it must never import torch.
"""

from __future__ import annotations

SHAPES = ("qwen3.5-2b", "qwen3-1.7b")
"""Published shapes."""
TINY = "tiny"
"""A shape for checking scripts; its figures mean nothing."""
EXECUTORS = ("reference", "grid", "packed")
