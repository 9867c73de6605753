"""The HTML page: well-formed, sufficient to itself, and safe from what stands in the data; and its figures.

Refuses to judge looks. Trap: a browser mends bad HTML in silence, so tags are counted here by a parser that does not.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
from made_decisions import SCRIPT, made_evaluation

from decider.errors import MissingDependencyError
from decider.evaluate import plots
from decider.evaluate.page import as_html
from decider.evaluate.result import Evaluation
from decider.evaluate.sensitivity import Rate, Sensitivity

VOID = {"meta", "br", "hr", "img", "link", "input"}
RATES = (
    Rate("order", f"options {SCRIPT} rotated", 9, 2, 2 / 9, 0.03, 0.6, 20, 3, 0.25, 0),
    Rate("ids", "question ids renamed", 0, 0, None, None, None, 0, 0, 0.0, 4),
)


class Page(HTMLParser):
    """Tags, attributes and text of a page. Raises AssertionError where a tag is not closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, own, value in self.attributes if own == name]


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return replace(made_evaluation(), sensitivity=Sensitivity(3, 0, RATES))


@pytest.fixture(scope="module")
def text(evaluation: Evaluation) -> str:
    return as_html(evaluation)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_the_page_needs_nothing_beside_it(text: str, page: Page) -> None:
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    assert not {"script", "link", "img", "iframe", "object", "embed", "image"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on") or name == "src"]
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    hrefs = page.values("href")
    assert hrefs
    assert {href.removeprefix("#") for href in hrefs} <= set(ids)
    urls = [part.split(")")[0] for part in text.split("url(")[1:]]
    assert urls
    assert {url.removeprefix("#") for url in urls} <= set(ids)


def test_what_stands_in_the_data_is_text(page: Page) -> None:
    words = "".join(page.text)
    # Task, option, refused item, warning and sensitivity.
    assert words.count(SCRIPT) >= 5
    for shown in (f"reviews {SCRIPT}", f"17 {SCRIPT}", f"read {SCRIPT} with care", f"options {SCRIPT} rotated"):
        assert shown in words
    # What attributes say of it is said to people alone.
    marked = {name for _, name, value in page.attributes if "script" in value or "alert" in value}
    assert marked == {"aria-label"}


def test_figures_and_headers_say_what_they_are_of(evaluation: Evaluation, page: Page) -> None:
    labels = page.values("aria-label")
    assert len(labels) == len(set(labels)) == 14
    assert f"{evaluation.summary.groups[0].name}: reliability diagram" in labels
    assert f"reviews {SCRIPT}: risk-coverage curve" in labels
    headers = page.tags.count("th")
    scopes = page.values("scope")
    # The corner of each table is empty.
    assert headers - len(scopes) == page.tags.count("thead")
    assert set(scopes) == {"col", "row", "rowgroup"}


def test_long_names_of_options_are_cut_and_kept_in_titles(evaluation: Evaluation) -> None:
    confusion = evaluation.summary.confusions[0]
    long, whole = f'{SCRIPT}" onload="{"x" * 60}', "y" * 60
    changed = replace(confusion, options=(long, whole, *confusion.options[2:]))
    page = Page(as_html(replace(evaluation, summary=replace(evaluation.summary, confusions=(changed,)))))
    assert page.values("title") == [long, long]
    assert page.text.count(f"{long[:60]}…") == page.text.count(whole) == 2
    assert not page.values("onload")


def test_every_section_is_there(evaluation: Evaluation, page: Page) -> None:
    words = "".join(page.text)
    group = evaluation.summary.groups[0]
    assert group.accuracy.interval is not None
    for shown in (
        f"{group.n:,} decisions",
        f"{group.accuracy.value:.3f}",
        f"{group.accuracy.interval.low:.3f}–{group.accuracy.interval.high:.3f}",
        f"ECE {group.equal_width.ece.value:.3f}, within the noise floor of {group.equal_width.floor.high:.3f}",
        "3 items were asked again",
        "1 item could not be asked",
        evaluation.facts.data_sha256,
        "100 resamples, seed 0",
    ):
        assert shown in words, shown
    # All, three types and three tasks, a pair each.
    assert page.tags.count("svg") == 14
    assert page.tags.count("h2") == 8
    confusion = evaluation.summary.confusions[0]
    assert words.count("neither") == 2
    assert f"{confusion.counts[0][0]}" in page.text


def test_what_is_not_there_has_no_section_and_control_characters_have_no_place(evaluation: Evaluation) -> None:
    text = as_html(replace(evaluation, sensitivity=None, refused=(), warnings=("a\x00b\x1b",)))
    assert "<li>ab</li>" in text
    assert Page(text).tags.count("h2") == 6


@pytest.fixture
def other_settings() -> Iterator[None]:
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "#ff0000", "svg.fonttype": "path"}):
        yield


@pytest.mark.usefixtures("other_settings")
def test_the_page_is_the_same_whatever_a_users_settings_are_and_they_are_left(
    evaluation: Evaluation, text: str
) -> None:
    before = dict(matplotlib.rcParams)
    assert as_html(evaluation) == text
    assert dict(matplotlib.rcParams) == before


def test_pyplot_is_not_imported() -> None:
    """In a process of its own."""
    code = (
        "import sys; from decider.evaluate.plots import *; from decider.evaluate.bins import *; import numpy as np;"
        "c = np.array([0.2, 0.9]); h = c > 0.5; b = equal_width(c);"
        "svg(reliability_figure(reliability(b, c, h)), 'a', 'b'); print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "False\n", done.stderr


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, evaluation: Evaluation) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"pip install '\.\[eval\]'$"):
        as_html(evaluation)


def test_colours_are_the_pages(text: str) -> None:
    figures = "".join(part.split("</svg>")[0] for part in text.split("<svg")[1:])
    assert "var(--accent)" in figures
    assert not [colour for colour in plots.COLOURS.values() if colour in figures]
    # Black is matplotlib's own, which a dark page would swallow.
    assert "#000000" not in figures


def test_bars_are_as_high_as_the_accuracies(evaluation: Evaluation) -> None:
    bins = evaluation.summary.groups[0].equal_width.bins
    figure = plots.reliability_figure(bins)
    upper, lower = figure.axes
    filled = bins.n > 0
    bars = [patch.get_height() for patch in upper.containers[0]]
    assert bars == pytest.approx(bins.frequency[filled].tolist())
    assert [patch.get_height() for patch in lower.containers[0]] == bins.n[filled].tolist()
    assert [text.get_text() for text in lower.texts] == [plots.short(int(n)) for n in bins.n[filled]]


def test_perfect_answers_can_be_drawn(evaluation: Evaluation) -> None:
    curve = replace(evaluation.summary.groups[0].curve, coverage=np.array([1.0]), risk=np.array([0.0]))
    assert plots.svg(plots.risk_coverage_figure(curve, 1.0), "a", "b").startswith("<svg role")


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (9949, "9.9k"), (9950, "10k"), (12_345, "12k"), (999_499, "999k"),
     (999_500, "1.0M"), (1_250_000, "1.2M")],
)  # fmt: skip
def test_counts_are_short(count: int, shown: str) -> None:
    assert plots.short(count) == shown


def test_the_wilson_interval_of_a_half() -> None:
    low, high = plots.wilson(np.array([0.5, 0.0]), np.array([100, 10]))
    # Newcombe (1998): 50 of 100 and 0 of 10.
    assert low.tolist() == pytest.approx([0.4038, 0.0], abs=1e-4)
    assert high.tolist() == pytest.approx([0.5962, 0.2775], abs=1e-4)
