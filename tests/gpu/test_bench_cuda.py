"""The engine benchmark on a card: replays, buckets and memory are measured there and nowhere else.

Refuses to judge speed. Trap: the full ladder takes minutes to capture, so a short one stands in for it.
"""

from __future__ import annotations

import json

import pytest

from decider.bench.cases import same
from decider.bench.run import bench
from decider.bench.table import as_json
from decider.plan.buckets import Grid
from decider.plan.packs import card_limits
from decider.settings import Settings

pytestmark = pytest.mark.gpu


def test_replays_buckets_and_memory_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decider.assembly.Grid", lambda: Grid((64, 256, 512), (1, 2, 8)))
    settings = Settings(device="cuda:0", executor="grid")
    cases = [same(0, 1, 256), same(0, 8, 200), same(200, 5, 40), same(0, 1, 600)]
    report = bench(settings, cases, shape="tiny", compare="reference", repeats=3, say=print)
    facts = json.loads(as_json(report))
    assert facts["device"] == "cuda:0"
    assert facts["matmul_dtype"] == "bfloat16"
    assert facts["matmul_tflops"] > 1
    assert facts["warmup_s"] > 0
    assert facts["pool_bytes"] > 0
    assert [row["dtype"] for row in facts["rows"]] == ["bfloat16"] * 4
    one, eight, state, long = facts["rows"]
    # Which bucket is the fastest is close among launch-bound ones, so only that there is one.
    for row in (one, eight):
        assert row["bucket"] is not None
        assert row["padded_share"] >= 0
        assert row["replay_ms"] > 0
    assert state["full_rows_ms"] > 0
    assert state["shared_ms"] > 0
    # Above the ladder nothing is captured.
    assert (long["bucket"], long["replay_ms"]) == ("1 × 1024", None)
    assert all(row["ratio"] > 0 for row in facts["rows"])


def test_packs_are_measured_beside_their_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decider.assembly.card_limits", lambda: card_limits((64, 256, 1024)))
    settings = Settings(device="cuda:0", executor="packed")
    cases = [same(0, 1, 256), same(0, 8, 200), same(200, 5, 40), same(0, 1, 1100)]
    report = bench(settings, cases, shape="tiny", compare="grid", repeats=3, say=print)
    facts = json.loads(as_json(report))
    assert facts["warmup_s"] > 0
    assert facts["pool_bytes"] > 0
    assert "sealed" in facts["describe"]
    *captured, long = facts["rows"]
    for row in captured:
        assert row["replay_ms"] > 0
        assert "eager" not in row["bucket"]
    assert (long["bucket"], long["replay_ms"]) == ("1100 eager", None)
    assert all(0 < row["products_share"] < 1 for row in facts["rows"])
