"""An evaluation and a comparison as text for a terminal of 100 columns, a dash where a figure is undefined.

It refuses to compute. Trap: names are somebody's data, of any script and length: control characters are
escaped, and a cell of the terminal is not a character.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from decider.errors import printable
from decider.evaluate.compare import Comparison
from decider.evaluate.result import Evaluation
from decider.evaluate.summary import BY, Figure, Group

if TYPE_CHECKING:
    from decider.evaluate.sensitivity import Sensitivity

WIDTH = 100
MOST_REFUSED = 5
LEGEND = (
    "95 %: interval of the accuracy. ECE: 15 bins of equal width; floor: chance alone keeps a perfectly calibrated "
    "model's ECE under it 95 % of the time; mass: ECE of bins of equal count. AURC: lower is better."
)
HEADINGS = {
    "all": "",
    "type": "by type",
    "task": "by task",
    "task and type": "by task and type",
    "options": "by number of options",
    "length": "by length of the longest row",
    "familiarity": "by familiarity of the wording",
}


def number(value: float | None, digits: int = 3) -> str:
    """A figure in `digits` decimals; "-" where it is undefined."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if math.isfinite(value) else "∞"


def spread(figure: Figure | None) -> str:
    """A figure's interval; "-" where there is none."""
    if figure is None or figure.interval is None:
        return "-"
    return f"{number(figure.interval.low)}–{number(figure.interval.high)}"


def sections(groups: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    """The groups under the heading of each `by`; a division into one group is left out, and so is a task and type
    that is all of its task, or of its type.
    """
    said = {(group.n, group.nll) for group in groups if group.by in ("type", "task")}
    found = []
    for by in BY:
        members = [
            group for group in groups if group.by == by and (by != "task and type" or (group.n, group.nll) not in said)
        ]
        if by == "all" or len(members) > 1:
            found.append((HEADINGS[by], members))
    return found


def ranked(groups: Sequence[Group]) -> list[Group]:
    """The groups with figures that Nouls or Scores alone have, each set of decisions once."""
    found: dict[tuple[int, float, Figure | None, Figure | None], Group] = {}
    for group in groups:
        if group.auroc is not None or group.mae is not None:
            found.setdefault((group.n, group.nll.value, group.auroc, group.mae), group)
    return list(found.values())


def as_text(evaluation: Evaluation) -> str:
    """Facts, figures group by group, sensitivity, what was refused, warnings."""
    facts, groups = evaluation.facts, evaluation.summary.groups
    lines = [
        f"model        {facts.model}  ({facts.dtype}, {facts.executor}, layout {facts.layout})",
        f"data         {facts.data}, {groups[0].n:,} decisions",
        f"calibration  {evaluation.calibration}",
        "",
        *_lines(_figures(groups)),
        "",
        *wrap(LEGEND, WIDTH),
    ]
    if special := ranked(groups):
        lines += ["", *_lines(_special(special))]
    if evaluation.sensitivity is not None:
        lines += ["", *_lines(_sensitivity(evaluation.sensitivity))]
    said = [f"refused {item}: {reason}" for item, reason in evaluation.refused[:MOST_REFUSED]]
    if len(evaluation.refused) > MOST_REFUSED:
        said.append(f"refused {len(evaluation.refused) - MOST_REFUSED:,} more")
    said += [f"note: {warning}" for warning in evaluation.warnings]
    wrapped = (wrap(printable(sentence), WIDTH, subsequent_indent="  ") for sentence in said)
    return "\n".join((*map(printable, lines), "", *chain.from_iterable(wrapped))).rstrip()


def comparison_text(comparison: Comparison) -> str:
    """A line a figure, and what was compared."""
    table = [["", "first", "second", "difference", "95 %", "p", "p (Holm)", "test"]]
    for row in comparison.figures:
        ends = "-" if row.low is None or row.high is None else f"{row.low:+.4f} to {row.high:+.4f}"
        change = "-" if row.difference is None else f"{row.difference:+.4f}"
        figures = [number(row.first, 4), number(row.second, 4), change, ends, _p(row.p), _p(row.p_holm)]
        table.append([row.figure, *figures, row.test])
    lines = [
        f"first        {comparison.first}",
        f"second       {comparison.second}",
        f"data         {comparison.decisions:,} decisions of {comparison.items:,} items",
        f"right alone  the first {comparison.first_alone_right:,}, the second {comparison.second_alone_right:,}",
        "",
        *_lines([row[:-1] for row in table]),
        "",
        *(f"{row[0]}: {row[-1]}" for row in table[1:]),
    ]
    return "\n".join(map(printable, lines))


def _figures(groups: Sequence[Group]) -> list[list[str]]:
    table = [["", "n", "accuracy", "95 %", "chance", "NLL", "Brier", "ECE", "floor", "mass", "AURC"]]
    for heading, members in sections(groups):
        table += [[heading]] if heading else []
        for group in members:
            table.append(
                [
                    f"  {group.name}" if heading else group.name,
                    f"{group.n:,}",
                    number(group.accuracy.value),
                    spread(group.accuracy),
                    number(group.chance),
                    number(group.nll.value),
                    number(group.brier.value),
                    number(group.equal_width.ece.value),
                    number(group.equal_width.floor.high),
                    number(group.equal_mass.ece.value),
                    number(group.aurc.value),
                ]
            )
    return table


def _special(groups: Sequence[Group]) -> list[list[str]]:
    table = [["", "n", "AUROC", "95 %", "MAE", "95 %", "RPS", "95 %"]]
    for group in groups:
        figures = (group.auroc, group.mae, group.rps)
        cells = [cell for one in figures for cell in (number(None if one is None else one.value), spread(one))]
        table.append([group.name, f"{group.n:,}", *cells])
    return table


def _sensitivity(sensitivity: Sensitivity) -> list[list[str]]:
    table = [["asked again", "n", "changed", "rate", "95 %", "largest |Δp|", "refused"]]
    for rate in sensitivity.rates:
        ends = "-" if rate.low is None or rate.high is None else f"{number(rate.low)}–{number(rate.high)}"
        counts = [f"{rate.n:,}", f"{rate.changed:,}", number(rate.rate), ends]
        table.append([rate.changed_what, *counts, number(rate.largest_shift), f"{rate.refused:,}"])
    return table


def _p(p: float | None) -> str:
    return "-" if p is None else f"{p:.4f}" if p >= 0.001 else f"{p:.1e}"


def _lines(table: Sequence[Sequence[str]]) -> list[str]:
    """Columns two apart, names left and figures right; names are cut so that a line has `WIDTH` cells."""
    n_columns = len(table[0])
    rows = [[printable(row[0]), *row[1:]] for row in table]
    widths = [max(len(row[column]) for row in rows if len(row) == n_columns) for column in range(1, n_columns)]
    room = WIDTH - sum(widths) - 2 * len(widths)
    longest = max(cell_len(row[0]) for row in rows if len(row) == n_columns)
    lines = []
    for row in rows:
        if len(row) < n_columns:
            lines.append(row[0])
            continue
        name = row[0] if cell_len(row[0]) <= room else set_cell_size(row[0], room - 1) + "…"
        cells = [set_cell_size(name, min(longest, room))]
        cells += [figure.rjust(width) for figure, width in zip(row[1:], widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
