"""What the metrics count, and what they cost. Refuses to know the server.

Trap: two registries must not share a series.
"""

from __future__ import annotations

import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from decider.serve.metrics import Metrics, Watched

MAX_MICROSECONDS = 30


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_everything_is_counted_once() -> None:
    metrics, other = Metrics(), Metrics()
    metrics.request("/v1/systemone", 200, 0.003)
    metrics.request("/v1/systemone", 200, 0.3)
    metrics.request("/v1/systemone", 429, 0.0)
    metrics.rejected("overload")
    metrics.packed(3, 700, 0.05)
    metrics.packed(1, 40, 0.01)
    metrics.planned(0.0001)
    metrics.queued(0.02)
    metrics.dropped("deadline", 5)
    found = samples(metrics)
    ok = (("route", "/v1/systemone"), ("status", "200"))
    assert found["decider_requests_total", ok] == 2
    assert found["decider_request_seconds_bucket", (("le", "0.004"), ("route", "/v1/systemone"))] == 2
    assert found["decider_request_seconds_count", (("route", "/v1/systemone"),)] == 3
    assert found["decider_rejected_total", (("reason", "overload"),)] == 1
    assert found["decider_rows_total", ()] == 4
    assert found["decider_tokens_total", ()] == 740
    assert found["decider_run_seconds_sum", ()] == pytest.approx(0.06)
    assert found["decider_pack_tokens_bucket", (("le", "64.0"),)] == 1
    assert found["decider_pack_rows_count", ()] == found["decider_run_seconds_count", ()] == 2
    assert found["decider_plan_seconds_count", ()] == found["decider_queue_seconds_count", ()] == 1
    assert found["decider_dropped_requests_total", (("reason", "deadline"),)] == 1
    assert found["decider_dropped_rows_total", (("reason", "deadline"),)] == 5
    assert metrics.totals() == {"requests": 3, "rejected": 1, "dropped_requests": 1, "rows": 4, "tokens": 740}
    assert ("decider_requests_total", ok) not in samples(other)


def test_what_is_watched_is_asked_for_at_each_scrape() -> None:
    metrics = Metrics()
    numbers = {"queued_tokens": 1.0}
    by_device = {"cuda:0": 1.0, "cuda:1": 0.0}
    metrics.watch(
        Watched(
            lambda: numbers,
            lambda: {"engine_captures": 7.0},
            lambda: {"device_up": by_device},
            lambda: {"device_packs": {"cuda:0": 3.0}},
        )
    )
    assert samples(metrics)["decider_queued_tokens", ()] == 1
    numbers["queued_tokens"] = 5.0
    assert samples(metrics)["decider_queued_tokens", ()] == 5
    found = samples(metrics)
    assert found["decider_engine_captures_total", ()] == 7
    assert found["decider_device_up", (("device", "cuda:0"),)] == 1
    assert found["decider_device_up", (("device", "cuda:1"),)] == 0
    assert found["decider_device_packs_total", (("device", "cuda:0"),)] == 3


def test_a_request_costs_microseconds() -> None:
    metrics = Metrics()
    best = float("inf")
    for _ in range(20):
        started = time.perf_counter()
        for _ in range(200):
            metrics.request("/v1/systemone", 200, 0.01)
            metrics.queued(0.01)
            metrics.planned(0.01)
            metrics.packed(3, 500, 0.01)
        best = min(best, time.perf_counter() - started)
    assert best / 200 * 1e6 <= MAX_MICROSECONDS
