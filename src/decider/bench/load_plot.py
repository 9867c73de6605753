"""A load's latencies as one SVG: over time, and as a distribution that shows its tail.

It refuses to count, and draws no text from a server. Trap: a figure of every request would be megabytes, and hide its
own extremes; so time is cut into bins, each with its median, its 99th percentile and its worst.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from decider.bench.load import Load, LoadPlan
from decider.bench.load_report import answered, measured, percentile
from decider.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BINS = 120
LEAST_IN_BIN = 100
"""On average; with fewer requests there are fewer bins."""
NINES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
INK, MUTED, RULE, ACCENT, MARK = "#1d2530", "#68727f", "#d3d9e0", "#2b6cb0", "#c2571a"


def require_matplotlib() -> None:
    """Raises MissingDependencyError where it is not installed."""
    _style()


def plot(load: Load, plan: LoadPlan, file: Path) -> None:
    """Write the figure. Raises MissingDependencyError without matplotlib."""
    with _style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.4))
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        figure.subplots_adjust(left=0.07, right=0.985, top=0.9, bottom=0.14, wspace=0.2)
        counted = measured(load, plan)
        good = answered(load) & counted
        due, ms = load.due_s[good] - plan.warmup_s, 1e3 * (load.done_s - load.due_s)[good]
        if len(ms):
            _over_time(left, due, ms, plan.seconds)
            _distribution(right, ms)
        failed = load.due_s[counted & ~good] - plan.warmup_s
        if len(failed):
            left.plot(failed, np.full(len(failed), 0.015), "|", color=MARK, transform=left.get_xaxis_transform())
            left.plot([], [], "|", color=MARK, label="failed")
        left.set(xlim=(0, plan.seconds), xlabel="seconds", ylabel="latency, ms", title="Latency over time")
        right.set(xlabel="share of answers", ylabel="latency, ms", title="Distribution")
        if left.get_legend_handles_labels()[0]:
            left.legend(frameon=False, loc="upper right", ncols=4)
        figure.savefig(file, format="svg", metadata={"Date": None})


def _over_time(axes: Axes, due: Any, ms: Any, seconds: float) -> None:
    n_bins = max(1, min(MOST_BINS, len(ms) // LEAST_IN_BIN))
    place = np.minimum((due / seconds * n_bins).astype(int), n_bins - 1)
    bins = [(number, np.sort(ms[place == number])) for number in range(n_bins)]
    some = [(number, each) for number, each in bins if len(each)]
    middle = [(number + 0.5) * seconds / n_bins for number, _ in some]
    for label, share, colour, width in (("median", 0.5, ACCENT, 1.6), ("p99", 0.99, MUTED, 0.9)):
        axes.plot(middle, [percentile(each, share) for _, each in some], color=colour, linewidth=width, label=label)
    axes.plot(middle, [each[-1] for _, each in some], ".", color=INK, markersize=2.5, label="worst")
    _log_ms(axes)


def _distribution(axes: Axes, ms: Any) -> None:
    ordered = np.sort(ms)
    above = 1 - np.arange(len(ordered)) / len(ordered)
    # The tail point by point, the rest thinned.
    kept = np.unique(np.concatenate([np.linspace(0, len(ordered) - 1, 400), len(ordered) - 1 - np.arange(200)]).clip(0))
    shown = kept.astype(int)
    axes.plot(1 / above[shown], ordered[shown], color=ACCENT, linewidth=1.6, drawstyle="steps-post")
    ticks = [share for share in NINES if 1 / (1 - share) <= 1.5 * len(ordered)]
    axes.set_xscale("log")
    _log_ms(axes)
    axes.set_xticks([1 / (1 - share) for share in ticks], [f"{100 * share:g} %" for share in ticks])
    axes.set_xticks([], minor=True)


def _log_ms(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _style() -> AbstractContextManager[None]:
    try:
        from matplotlib import rc_context, rcParamsDefault
    except ImportError as error:
        raise MissingDependencyError(
            "--plot is drawn by matplotlib, which is not installed; run, in a checkout: pip install '.[eval]'"
        ) from error
    # Whatever a user's own matplotlibrc says.
    defaults = {name: value for name, value in rcParamsDefault.items() if not name.startswith("backend")}
    return rc_context(
        {
            **defaults,
            "svg.fonttype": "none", "svg.hashsalt": "decider", "font.size": 8, "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": MUTED, "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False,
            "axes.grid": True, "grid.color": RULE, "grid.linewidth": 0.5, "axes.axisbelow": True, "xtick.color": MUTED,
            "ytick.color": MUTED, "axes.titlesize": 9, "axes.titlelocation": "left",
        }
    )  # fmt: skip
