"""An evaluation as one HTML page that needs nothing beside it: no network, no script, no font, no other file.

It refuses to compute. Trap: names of tasks, questions and options are whatever stood in somebody's data. Every word
that is not ours goes through `escaped`, which serves attributes in double quotes too, and none of them into a figure.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files

from decider.evaluate.plots import reliability_figure, risk_coverage_figure, svg
from decider.evaluate.result import Evaluation
from decider.evaluate.summary import Confusion, Figure, Group
from decider.evaluate.table import number, ranked, sections, spread

CHARTED = ("all", "type", "task")
"""Groups with charts."""
MOST_CHARTED = 40
MOST_MATRICES = 40
MOST_REFUSED = 50
MOST_OF_NAME = 60
"""Characters of an option's name in a confusion matrix."""
HEAVIEST = 0.6
"""How far the colour of a full cell of a confusion matrix covers the page."""
FIGURE_COLUMNS = ("n", "accuracy", "chance", "NLL", "Brier", "ECE", "noise floor", "ECE, equal mass", "AURC")
CHARTS_NOTE = (
    '<p class="note">Left, accuracy by confidence: bars are the accuracy of each bin with its 95 % interval, '
    "orange lines the mean confidence, below them how many decisions. A bar short of its line is overconfidence. "
    "Right, the error when only the most confident share is answered; dashed, the error of all; dotted, a ranking "
    "that knows the errors.</p>"
)
"""Of reliability diagrams and risk-coverage curves, HTML."""
GLOSSARY = (
    ("accuracy", "Share of decisions whose likeliest option is the right one. Chance is the mean of 1 / options."),
    ("NLL", "Mean negative log-probability of the right option, in nats. Lower is better; 0 is perfect."),
    ("Brier", "Mean squared distance of the probabilities from the right answer, summed over options; 0 to 2."),
    (
        "ECE",
        "Expected calibration error: how far the confidence (the likeliest option's probability) is from the accuracy, "
        "averaged over 15 bins, of equal width or of equal count.",
    ),
    (
        "noise floor",
        "95 % of perfectly calibrated models with the same confidences would have an ECE below it, by chance alone. An "
        "ECE under its floor is no evidence of miscalibration.",
    ),
    (
        "AURC",
        "Area under the risk-coverage curve: the error when only the most confident share is answered, averaged over "
        "all shares. Lower is better.",
    ),
    ("AUROC", "Chance that a Noul whose answer is yes is given a higher P(yes) than one whose answer is no."),
    ("MAE, RPS", "Of Scores: how far the expected level is off, in levels; and the ranked probability score, 0 to 1."),
    ("intervals", "95 %, by resampling items; the questions of one item stay together."),
)


def as_html(evaluation: Evaluation) -> str:
    """The page. Raises MissingDependencyError without matplotlib."""
    facts, groups = evaluation.facts, evaluation.summary.groups
    title = f"{escaped(facts.model)} on {escaped(facts.data)}"
    body = (
        f"<h1>{title}</h1>",
        f'<p class="lead">{groups[0].n:,} decisions. Probabilities: {escaped(evaluation.calibration)}.</p>',
        _tiles(groups[0]),
        _list("warnings", evaluation.warnings),
        section("Figures", _figures(groups)),
        section("Nouls and Scores", _special(ranked(groups))),
        section("Reliability and selective answering", _charts(groups)),
        section("Confusion", _matrices(evaluation.summary.confusions)),
        section("Sensitivity", _sensitivity(evaluation)),
        section("Refused", _refused(evaluation.refused)),
        section("How this was made", _facts(evaluation)),
        section("How to read it", glossary()),
    )
    return document(title, body)


def document(title: str, body: Iterable[str]) -> str:
    """A page of its own; `title` and `body` are HTML of ours, and empty parts are left out."""
    style = files("decider.evaluate").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, body))
        + "\n</main>\n</body>\n</html>\n"
    )


def escaped(words: str) -> str:
    """Any text, as HTML shows it; control characters are left out, since no page may hold them."""
    return html.escape("".join(char for char in words if char.isprintable() or char in "\t\n"))


def section(title: str, content: str) -> str:
    """`content` under a heading; nothing where there is none. Both are HTML of ours."""
    return f"<section>\n<h2>{title}</h2>\n{content}\n</section>" if content else ""


def _list(name: str, sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{escaped(sentence)}</li>" for sentence in sentences)
    return f'<ul class="{name}">{items}</ul>' if items else ""


def _tiles(group: Group) -> str:
    ece = group.equal_width
    tiles = (
        ("accuracy", group.accuracy, f"chance {number(group.chance)}"),
        ("NLL, nats", group.nll, ""),
        ("Brier", group.brier, ""),
        ("ECE, equal width", Figure(ece.ece.value, None), f"noise floor {number(ece.floor.high)}"),
        ("AURC", group.aurc, ""),
    )
    cells = []
    for name, figure, beside in tiles:
        below = ", ".join(filter(None, [_spread(figure), beside]))
        cells.append(f'<div class="tile">{name}<b>{number(figure.value)}</b><span class="of">{below}</span></div>')
    return f'<div class="tiles">{"".join(cells)}</div>'


def _figures(groups: Sequence[Group]) -> str:
    bodies = []
    for heading, members in sections(groups):
        rows = (
            [f'<tr><th class="by" scope="rowgroup" colspan="{len(FIGURE_COLUMNS) + 1}">{heading}</th></tr>']
            if heading
            else []
        )
        for group in members:
            width = group.equal_width
            cells = (
                f"{group.n:,}",
                _with_spread(group.accuracy),
                number(group.chance),
                _with_spread(group.nll),
                _with_spread(group.brier),
                number(width.ece.value),
                number(width.floor.high),
                number(group.equal_mass.ece.value),
                _with_spread(group.aurc),
            )
            rows.append(row(group.name, cells))
        bodies.append(f"<tbody>{''.join(rows)}</tbody>")
    return table("groups", FIGURE_COLUMNS, "".join(bodies))


def _special(groups: Sequence[Group]) -> str:
    rows = []
    for group in groups:
        figures = (group.auroc, group.mae, group.rps)
        rows.append(row(group.name, (f"{group.n:,}", *map(_with_spread, figures))))
    return table("", ("n", "AUROC", "MAE, levels", "RPS"), f"<tbody>{''.join(rows)}</tbody>") if rows else ""


def _charts(groups: Sequence[Group]) -> str:
    # One task, or tasks of one type each, would be charted twice.
    shown = [group for _, members in sections(groups) for group in members if group.by in CHARTED]
    cards = [card(f"g{place}", group) for place, group in enumerate(shown[:MOST_CHARTED])]
    left_out = len(shown) - len(cards)
    note = f'<p class="note">{left_out:,} more groups have no charts here; the JSON has their bins.</p>'
    return f"{CHARTS_NOTE}\n<div>{''.join(cards)}</div>\n{note if left_out else ''}"


def card(name: str, group: Group) -> str:
    """A group's reliability diagram and risk-coverage curve; `name`, plain ASCII and unique, leads their ids."""
    ece, floor = group.equal_width.ece.value, group.equal_width.floor
    under = "within" if ece <= floor.high else "above"
    left = svg(reliability_figure(group.equal_width.bins), f"{name}r", f"{escaped(group.name)}: reliability diagram")
    right = svg(
        risk_coverage_figure(group.curve, group.accuracy.value),
        f"{name}c",
        f"{escaped(group.name)}: risk-coverage curve",
    )
    said = (
        f"{group.n:,} decisions",
        f"ECE {number(ece)}, {under} the noise floor of {number(floor.high)} (mean {number(floor.mean)})",
        f"ECE of equal mass {number(group.equal_mass.ece.value)}",
        f"AURC {number(group.aurc.value)}",
    )
    caption = "".join(f"<p>{sentence}</p>" for sentence in said)
    return (
        f'<figure class="chart"><figcaption><h3>{escaped(group.name)}</h3>{caption}</figcaption>{left}{right}</figure>'
    )


def _matrices(confusions: Sequence[Confusion]) -> str:
    if not confusions:
        return ""
    shown = "".join(map(_matrix, confusions[:MOST_MATRICES]))
    left_out = len(confusions) - MOST_MATRICES
    note = f'<p class="note">{left_out:,} more are in the JSON.</p>' if left_out > 0 else ""
    return (
        '<p class="note">Rows: the right answer. Columns: the answer given. Colour: share of the row.</p>'
        f'<div class="matrices">{shown}</div>{note}'
    )


def _matrix(confusion: Confusion) -> str:
    head = "".join(_option("col", option) for option in confusion.options)
    rows = []
    for right, (option, counts) in enumerate(zip(confusion.options, confusion.counts, strict=True)):
        total = max(sum(counts), 1)
        cells = []
        for answered, count in enumerate(counts):
            own = ' class="right"' if answered == right else ""
            cells.append(f'<td{own} style="--share:{HEAVIEST * count / total:.3f}">{count:,}</td>')
        rows.append(f"<tr>{_option('row', option)}{''.join(cells)}</tr>")
    name = confusion.task if confusion.question in ("", confusion.task) else f"{confusion.task}: {confusion.question}"
    return (
        f'<figure><h3>{escaped(name)}</h3><div class="scroll"><table class="confusion"><thead><tr><th></th>{head}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div></figure>"
    )


def _option(scope: str, name: str) -> str:
    """An option's header cell; a long name is cut, and whole in the title."""
    if len(name) <= MOST_OF_NAME:
        return f'<th scope="{scope}">{escaped(name)}</th>'
    return f'<th scope="{scope}" title="{escaped(name)}">{escaped(name[:MOST_OF_NAME])}…</th>'


def _sensitivity(evaluation: Evaluation) -> str:
    found = evaluation.sensitivity
    if found is None:
        return ""
    rows = []
    for rate in found.rates:
        ends = "-" if rate.low is None or rate.high is None else f"{number(rate.low)}–{number(rate.high)}"
        each = f"{rate.changed_askings:,} of {rate.askings:,}"
        counts = (f"{rate.n:,}", f"{rate.changed:,}", f"{number(rate.rate)} {_of(ends)}", each)
        rows.append(row(rate.changed_what, (*counts, number(rate.largest_shift), f"{rate.refused:,}")))
    columns = ("decisions", "changed", "rate", "askings changed", "largest |Δp|", "askings refused")
    return (
        f'<p class="note">{found.items:,} items were asked again, changed in a way that should not matter. A decision '
        "is changed where any asking of it gave another answer.</p>"
        + table("", columns, f"<tbody>{''.join(rows)}</tbody>")
    )


def _refused(refused: Sequence[tuple[str, str]]) -> str:
    if not refused:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escaped(item)}</th><td>{escaped(reason)}</td></tr>'
        for item, reason in refused[:MOST_REFUSED]
    )
    more = f", of which {MOST_REFUSED} are shown" if len(refused) > MOST_REFUSED else ""
    items = "item" if len(refused) == 1 else "items"
    return (
        f'<p class="note">{len(refused):,} {items} could not be asked, so that no figure counts them{more}.</p>'
        f'<table class="facts"><tbody>{rows}</tbody></table>'
    )


def _facts(evaluation: Evaluation) -> str:
    facts = {name.replace("_", " "): str(value) for name, value in evaluation.facts.to_json().items()}
    facts["calibration"] = evaluation.calibration
    facts["intervals"] = (
        f"{evaluation.resamples:,} resamples, seed {evaluation.seed}" if evaluation.resamples else "none"
    )
    rows = "".join(f'<tr><th scope="row">{name}</th><td>{escaped(value)}</td></tr>' for name, value in facts.items())
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def glossary() -> str:
    """What the figures mean, as a list."""
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{meaning}</dd>' for name, meaning in GLOSSARY)}</dl>"


def table(name: str, columns: Sequence[str], bodies: str) -> str:
    """A table of class `name`, its first column without a heading; `bodies` are `<tbody>` elements."""
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    name = f' class="{name}"' if name else ""
    return f'<div class="scroll"><table{name}><thead><tr><th></th>{head}</tr></thead>{bodies}</table></div>'


def row(name: str, cells: Iterable[str]) -> str:
    """`cells` are HTML of ours."""
    return f'<tr><th scope="row">{escaped(name)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _with_spread(figure: Figure | None) -> str:
    return "-" if figure is None else f"{number(figure.value)} {_of(_spread(figure))}".rstrip()


def _spread(figure: Figure) -> str:
    return "" if figure.interval is None else spread(figure)


def _of(words: str) -> str:
    return f'<span class="of">{words}</span>' if words else ""
