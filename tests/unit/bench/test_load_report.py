"""Figures of made loads, checked by hand; requests from files; the plot.

Refuses to send anything. Trap: throughput counts answers by when they came, latencies by when requests were due.
"""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from decider.bench.load import Arrivals, Closed, Load, LoadPlan, Open
from decider.bench.load_client import Address
from decider.bench.load_plot import plot
from decider.bench.load_report import LoadReport, as_json, as_text, make_report, percentile
from decider.bench.load_requests import bodies, built_in, read_requests
from decider.errors import ConfigError
from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.wire import parse_request


def plan_of(arrivals: Arrivals, *, seconds: float = 10.0, warmup_s: float = 1.0) -> LoadPlan:
    return LoadPlan(Address("h", 80, False, "/p"), (b"a", b"b"), arrivals, seconds, warmup_s, 10.0)


def load_of(rows: list[tuple[float, float, str]], *, cpu_share: float = 0.25) -> Load:
    """(due, latency, outcome) a request; sent 1 ms late."""
    due = np.array([row[0] for row in rows])
    done = due + np.array([row[1] for row in rows])
    return Load(due, due + 1e-3, done, tuple(row[2] for row in rows), cpu_share, 7)


def made() -> LoadReport:
    # 1,000 requests of 1 to 1,000 ms, none slow near the end, two refused, one given up; and a warm-up of slow ones.
    rows = [(0.5, 9.0, "200")] * 3
    rows += [(1 + n / 200, 1e-3 * (n + 1), "200") for n in range(1000)]
    rows += [(9.0, 0.001, "429"), (9.1, 0.001, "429"), (9.2, 10.0, "timeout"), (10.9, 0.5, "200")]
    return make_report(load_of(rows), plan_of(Open(100, poisson=True)), "decider-x")


@pytest.mark.parametrize(("share", "expected"), [(0.5, 500), (0.9, 900), (0.99, 990), (0.999, 999), (1.0, 1000)])
def test_percentiles_are_by_nearest_rank(share: float, expected: float) -> None:
    assert percentile(np.arange(1.0, 1001.0), share) == expected
    assert percentile(np.array([3.0]), share) == 3


def test_percentiles_of_few_values_are_values() -> None:
    assert [percentile(np.array([1.0, 2.0, 3.0]), share) for share in (0.01, 0.34, 0.5, 0.67, 0.999)] == [1, 2, 2, 3, 3]


def test_the_figures() -> None:
    report = made()
    assert (report.sent, report.answered) == (1004, 1001)
    assert report.failures == {"429": 2, "timeout": 1}
    assert report.p50_ms == pytest.approx(500)
    assert report.p99_ms == pytest.approx(990, abs=1.5)
    assert report.max_ms == pytest.approx(1000)
    # The warm-up's answers came within the measured time; the last request's did not.
    assert report.throughput == pytest.approx((1000 + 3) / 10)
    assert report.late_p99_ms == pytest.approx(1)
    assert (report.loop, report.rate, report.arrivals, report.clients) == ("open", 100, "poisson", None)


def test_the_table_and_the_json_say_the_same() -> None:
    report = made()
    facts = json.loads(as_json(report))
    assert facts["url"] == "http://h:80/p/v1/systemone"
    assert facts["failures"] == {"429": 2, "timeout": 1}
    assert isinstance(facts["p99_9_ms"], float)
    lines = as_text(report).splitlines()
    assert "open loop, 100 requests/s, poisson, 10 s after 1 s of warm-up" in lines[1]
    assert "0.25 of one core" in lines[2]
    assert lines[5].split() == ["1,004", "1,001", "100.3", "500", "900", "990", "999", "1,000"]
    assert lines[6] == "failures: 429 × 2, timeout × 1"
    assert len(lines) == 7


def test_a_generator_at_its_limit_is_told_of() -> None:
    report = make_report(load_of([(2, 0.01, "200")], cpu_share=0.93), plan_of(Closed(1)), "m")
    assert "closed loop, 1 client," in as_text(report)
    assert as_text(report).splitlines()[-1].startswith("the generator was busy")


def test_nothing_answered_is_dashes_and_nulls(tmp_path: Path) -> None:
    load, plan = load_of([(2, 0.01, "429")]), plan_of(Closed(1))
    report = make_report(load, plan, "m")
    assert json.loads(as_json(report))["p50_ms"] is None
    assert as_text(report).splitlines()[5].split() == ["1", "0", "0.0", "-", "-", "-", "-", "-"]
    plot(load, plan, tmp_path / "plot.svg")
    assert ElementTree.parse(tmp_path / "plot.svg").getroot().tag.endswith("svg")


def test_the_plot_is_small_and_names_what_it_shows(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    rows = [(11 * n / 60_000, float(ms), "200") for n, ms in enumerate(draw.lognormal(-6, 0.5, 60_000))]
    plot(load_of([*rows, (9.0, 1.0, "timeout")]), plan_of(Open(5454, poisson=False)), tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert len(text) < 300_000
    for words in ("median", "p99", "worst", "failed", "99.99 %", "latency, ms"):
        assert f">{words}<" in text


def test_the_built_in_requests_can_be_asked() -> None:
    assert len(built_in()) == 4
    for body in bodies(built_in()):
        assert len(parse_request(body, DEFAULT_LIMITS).questions) == 3


def test_a_labelled_file_is_replayed_with_a_model(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text('{"state": "é", "questions": {}, "gold": 1}\n\n{"model": "m", "state": "", "questions": {}}')
    first, second = read_requests(file)
    assert (first["model"], second["model"]) == ("jev-latest", "m")
    assert bodies([first]) == ('{"model":"jev-latest","state":"é","questions":{},"gold":1}'.encode(),)


@pytest.mark.parametrize(
    ("text", "said"),
    [("\n\n", "holds no request"), ('{"a": 1}\n[1]\n', "line 2 is no object"), ('{}\n{"a": NaN}', "line 2: ")],
)
def test_a_file_that_holds_no_requests_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_requests(tmp_path / "x.jsonl")
