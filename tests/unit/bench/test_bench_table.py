"""Reports as text and JSON: what was not measured is a dash or null.

Refuses to measure. Trap: a table is read by people, so its columns must line up.
"""

from __future__ import annotations

import json
from dataclasses import replace

from decider.bench.machine import Machine, MatmulRate
from decider.bench.table import Measured, Report, as_json, as_text

ROW = Measured(
    state_tokens=300, questions=5, question_tokens=40, tokens=500, executor="grid", dtype="float32",
    bucket="2 of 4 × 384 + 1 × 64 + 1 × 128", padded_share=0.25, replay_ms=None, ms=250.0, runs=3, shared=False,
    full_rows_ms=260.0, shared_ms=None, floor_parameters_ms=50.0, floor_attention_ms=12.5, share=0.25,
    products_ms=60.0, products_share=0.24, compared_ms=None, ratio=None,
)  # fmt: skip
REPORT = Report(
    model="tiny",
    executor="grid",
    describe="grid: a line",
    compare=None,
    compare_describe=None,
    machine=Machine("a card", "cuda:0", 4, "3.11", "2.11", "5.17", None),
    rate=MatmulRate(787.1, "bfloat16", 8192),
    warmup_s=None,
    pool_bytes=None,
    left_out=("6000 + 16 × 40",),
    rows=(ROW, replace(ROW, state_tokens=0, question_tokens=None, ms=1.234, shared=True, bucket=None)),
)


def test_the_json_has_facts_at_its_top_and_null_for_what_is_not_known() -> None:
    facts = json.loads(as_json(REPORT))
    assert facts["machine"] == "a card"
    assert facts["matmul_tflops"] == 787.1
    assert facts["warmup_s"] is None
    assert facts["pool_bytes"] is None
    assert facts["left_out"] == ["6000 + 16 × 40"]
    first, second = facts["rows"]
    assert (first["ratio"], first["replay_ms"], second["question_tokens"]) == (None, None, None)
    assert (first["products_ms"], first["products_share"]) == (60.0, 0.24)
    assert (second["shared"], second["bucket"]) == (True, None)


def test_the_table_lines_up() -> None:
    text = as_text(REPORT)
    header, first, second = text.splitlines()[5:8]
    assert header.split()[:3] == ["state", "questions", "bucket"]
    assert len(header) == len(first) == len(second)
    assert " ".join(first.split()) == "300 5 × 40 2 of 4 × 384 + 2 more 25.0% - 250 no 260 - 50 12.5 25.0% 60 24.0%"
    assert " ".join(second.split()) == "0 5 × mixed - 25.0% - 1.23 yes 260 - 50 12.5 25.0% 60 24.0%"
    assert "ratio" not in header
    assert text.splitlines()[-1].endswith("6000 + 16 × 40")


def test_a_comparison_adds_two_columns() -> None:
    row = replace(ROW, compared_ms=500.0, ratio=2.0)
    text = as_text(replace(REPORT, compare="reference", compare_describe="reference: a line", rows=(row,)))
    assert "compared with reference: a line" in text
    header, line = text.splitlines()[6:8]
    assert header.endswith("reference ms  ratio")
    assert line.endswith("500   2.00")


def test_facts_of_the_run_are_said() -> None:
    text = as_text(replace(REPORT, warmup_s=30.04, pool_bytes=4_850_000_000))
    assert "787 TFLOP/s (8192 × 8192 × 8192 in bfloat16), warm-up 30.0 s, pool 4.85 GB" in text
