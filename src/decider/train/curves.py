"""The curves of a run as an SVG file: training loss and held-out NLL by step, accuracy below.

It refuses to know models. Trap: pyplot keeps figures and settings for the whole process, so figures are made without
it and settings hold inside a `with` alone.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SMOOTHED = 25
"""Steps that the loss is averaged over, where there are many times as many."""


def has_matplotlib() -> bool:
    """Whether curves can be drawn here."""
    return importlib.util.find_spec("matplotlib") is not None


def write_curves(path: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """Draw `history` (of a run's outcome) into `path`."""
    from matplotlib import rc_context, rcParamsDefault
    from matplotlib.figure import Figure

    # Whatever a user's own matplotlibrc says.
    settings: dict[Any, Any] = {
        name: value for name, value in rcParamsDefault.items() if not name.startswith("backend")
    }
    settings |= {
        "svg.fonttype": "none",
        "svg.hashsalt": "decider",
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with rc_context({**settings, "font.size": 8}):
        figure = Figure(figsize=(6.4, 5.2), layout="constrained")
        losses, figures = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        steps = [entry for entry in history if "loss" in entry]
        held = [entry["held_out"] for entry in history if "held_out" in entry]
        if steps:
            at, loss = np.array([entry["step"] for entry in steps]), np.array([entry["loss"] for entry in steps])
            width = min(SMOOTHED, max(1, len(loss) // 8))
            smooth = np.convolve(loss, np.full(width, 1 / width), mode="valid")
            losses.plot(at, loss, color="#9bb8d3", linewidth=0.6)
            losses.plot(at[width - 1 :], smooth, color="#2b6cb0", linewidth=1.4, label="training loss")
        if held:
            at = np.array([entry["step"] for entry in held])
            nll, calibrated = ([entry[key] for entry in held] for key in ("nll", "calibrated_nll"))
            losses.plot(at, nll, "o--", color="#e0a37c", markersize=3, label="held-out NLL")
            losses.plot(at, calibrated, "o-", color="#c2571a", markersize=3, label="held-out NLL, calibrated")
            for name in held[0]["tasks"]:
                figures.plot(at, [entry["tasks"][name]["accuracy"] for entry in held], color="#c9d1d9", linewidth=0.8)
            figures.plot(at, [entry["accuracy"] for entry in held], "o-", color="#2b6cb0", markersize=3)
        losses.set_ylabel("nats a decision")
        if steps or held:
            losses.legend(frameon=False)
        figures.set_ylabel("held-out accuracy, mean and each task")
        figures.set_ylim(0, 1.02)
        figures.set_xlabel("step")
        for axes in (losses, figures):
            axes.grid(axis="y", linewidth=0.4, color="#d3d9e0")
        # Or the file would hold the date.
        figure.savefig(path, format="svg", metadata={"Date": None})
