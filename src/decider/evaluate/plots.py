"""Reliability diagrams and risk-coverage curves as SVG, for a page that carries them inside itself.

It refuses to draw text from data, so nothing in a figure needs escaping. Every colour is a variable of the page's
style, which is how the same figure is readable on light and on dark. Trap: pyplot keeps figures and settings for the
whole process, so figures are made without it and settings hold inside a `with` alone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np

from decider.decisions import Float64Array, IntArray
from decider.errors import MissingDependencyError
from decider.evaluate.bins import Reliability
from decider.evaluate.selection import RiskCoverage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Sentinels that the page's style replaces; as they stand, the light palette.
COLOURS: Mapping[str, str] = {
    "ink": "#1d2530",
    "muted": "#68727f",
    "rule": "#d3d9e0",
    "accent": "#2b6cb0",
    "mark": "#c2571a",
}
WIDTH_IN, HEIGHT_IN = 3.9, 3.5
POINTS_PER_INCH = 72
LEAST_WIDTH = 0.004
"""Of a bar, so that a bin of one confidence is seen."""
SETTLED = 0.1
"""The coverage from which on a curve sets the scale."""
Z95 = 1.959963984540054
"""The normal distribution's 97.5 % point."""


def reliability_figure(bins: Reliability) -> Figure:
    """Accuracy by confidence, a bar a bin with its 95 % Wilson interval; the bins' counts below.

    Raises MissingDependencyError without matplotlib.
    """
    with _style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN))
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        figure.subplots_adjust(left=0.13, right=0.97, top=0.975, bottom=0.125, hspace=0.09)
        upper.plot([0, 1], [0, 1], color=COLOURS["muted"], linewidth=0.8, linestyle=(0, (3, 3)))
        some = bins.n > 0
        low, high, n, accuracy = bins.low[some], bins.high[some], bins.n[some], bins.frequency[some]
        middle, width = (low + high) / 2, np.maximum((high - low) * 0.88, LEAST_WIDTH)
        upper.bar(middle, accuracy, width, color=COLOURS["accent"], alpha=0.55, linewidth=0)
        upper.vlines(middle, *wilson(accuracy, n), color=COLOURS["ink"], linewidth=0.7)
        confidence = bins.confidence[some]
        upper.hlines(confidence, middle - width / 2, middle + width / 2, color=COLOURS["mark"], linewidth=1.6)
        _frame(upper, "accuracy")
        upper.tick_params(labelbottom=False)
        lower.bar(middle, n, width, color=COLOURS["muted"], alpha=0.5, linewidth=0)
        for at, count in zip(middle, n, strict=True):
            lower.annotate(short(count), (at, count), (0, 1.5), textcoords="offset points", ha="center", size=5.8)
        lower.set_ylim(0, n.max(initial=1) * 1.45)
        lower.set_yticks([])
        lower.set_xlabel("confidence", labelpad=2)
        lower.spines["left"].set_visible(False)
        return figure


def risk_coverage_figure(curve: RiskCoverage, accuracy: float) -> Figure:
    """The error among the most confident share of decisions, as that share grows; beside it the two ends.

    The line at the error of all is what no ranking gives, the lower curve what knowing the errors would give. Raises
    MissingDependencyError without matplotlib.
    """
    with _style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN))
        axes = figure.subplots()
        figure.subplots_adjust(left=0.14, right=0.97, top=0.975, bottom=0.125)
        error = 1 - accuracy
        axes.plot([0, 1], [error, error], color=COLOURS["muted"], linewidth=0.8, linestyle=(0, (3, 3)))
        shares = np.linspace(0.005, 1, 200)
        best = np.maximum(0.0, shares - accuracy) / shares
        axes.plot(shares, best, color=COLOURS["muted"], linewidth=0.8, linestyle=(0, (1, 2)))
        axes.plot(curve.coverage, curve.risk, color=COLOURS["accent"], linewidth=1.6)
        _frame(axes, "error among the answered")
        # The first few decisions of the ranking say 0 or 1, and would set the scale for all.
        settled = curve.risk[curve.coverage >= SETTLED]
        axes.set_ylim(0, min(1.02, max(1.2 * max(error, settled.max()), 0.02)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
        axes.set_xlabel("coverage: share answered, most confident first", labelpad=2)
        return figure


def svg(figure: Figure, name: str, label: str) -> str:
    """`figure` as one `<svg>` element, its ids led by `name`, which is unique on the page and plain ASCII.

    `label` is said by screen readers; it must be escaped for an attribute.
    """
    buffer = io.StringIO()
    with _style():
        # Without these there would be a block of metadata with the date in it.
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = text.replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    for colour, value in COLOURS.items():
        text = text.replace(value, f"var(--{colour})")
    text = re.sub(r"\n\s*", "\n", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()


def short(count: int) -> str:
    """A count in at most four characters: 999, 1.2k, 12k, 1.2M."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= 0.9995 * size if unit == "M" else count >= size:
            value = count / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(count)


def wilson(share: Float64Array, n: IntArray) -> tuple[Float64Array, Float64Array]:
    """The 95 % intervals of shares of `n` each (Wilson 1927)."""
    middle = (share + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * np.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2))
    return middle - half, middle + half


def _frame(axes: Axes, label: str) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.set_ylabel(label, labelpad=3)
    axes.grid(axis="y", linewidth=0.5)
    axes.set_axisbelow(True)


def _style() -> AbstractContextManager[None]:
    """matplotlib's settings of these figures, undone on leaving."""
    try:
        from matplotlib import rc_context, rcParamsDefault
    except ImportError as error:
        raise MissingDependencyError(
            "the page's figures are drawn by matplotlib, which is not installed; run, in a checkout: "
            "pip install '.[eval]'"
        ) from error
    ink, muted, rule = COLOURS["ink"], COLOURS["muted"], COLOURS["rule"]
    # Whatever a user's own matplotlibrc says.
    defaults = {name: value for name, value in rcParamsDefault.items() if not name.startswith("backend")}
    return rc_context(
        {
            **defaults,
            "svg.fonttype": "none",
            "svg.hashsalt": "decider",
            "savefig.transparent": True,
            "figure.dpi": POINTS_PER_INCH,
            "font.family": ["DejaVu Sans"],
            "font.size": 7.5,
            "text.color": ink,
            "axes.edgecolor": muted,
            "axes.labelcolor": ink,
            "axes.linewidth": 0.6,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "grid.color": rule,
            "xtick.color": muted,
            "ytick.color": muted,
            "xtick.labelcolor": ink,
            "ytick.labelcolor": ink,
            "xtick.major.size": 2.5,
            "ytick.major.size": 2.5,
            "xtick.major.width": 0.6,
            "ytick.major.width": 0.6,
        }
    )
