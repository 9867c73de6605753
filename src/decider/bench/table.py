"""Measured cases as a table for people and as JSON for programs.

It refuses to measure. Trap: a figure that was not measured is null in the JSON and a dash in the table, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from decider.bench.machine import Machine, MatmulRate


@dataclass(frozen=True, slots=True)
class Measured:
    """One case on one executor. Milliseconds are medians; the JSON has these names."""

    state_tokens: int
    questions: int
    """Rows; without a state, plain rows."""
    question_tokens: int | None
    """Tokens of each question without the state; null where they differ."""
    tokens: int
    """Tokens of the call, the state counted once."""
    executor: str
    dtype: str
    bucket: str | None
    """Forwards of the plan: rows × padded tokens of a grid, null where it shares the state; padded tokens and kind of
    packs; null for an executor without plans."""
    padded_share: float | None
    """Part of the tokens that ran and were padding; null for an executor that does not count."""
    replay_ms: float | None
    """The graphs of the plan, timed beside the case; null where not all of it was captured."""
    ms: float
    """The whole call: rows of token ids in, logits on the host out."""
    runs: int
    """How many calls `ms` is the median of."""
    shared: bool
    """Whether the call ran the state once."""
    full_rows_ms: float | None
    """The whole call as full rows; null without a shared state."""
    shared_ms: float | None
    """The whole call with the state run once, whether that pays or not; null where it cannot be."""
    floor_parameters_ms: float | None
    floor_attention_ms: float | None
    """Null where the model has layers of a kind that is not known."""
    share: float | None
    """The floor, both parts, over `ms`."""
    products_ms: float | None
    """The model's matrix products alone, for the forwards of the plan at their padded tokens; null without a plan, and
    for a model that also multiplies in other ways."""
    products_share: float | None
    """`products_ms` over `ms`."""
    compared_ms: float | None
    ratio: float | None
    """`compared_ms` over `ms`: above 1 is faster than the compared executor."""


@dataclass(frozen=True, slots=True)
class Report:
    """One run of the benchmark."""

    model: str
    executor: str
    """The measured executor's name."""
    describe: str
    """What it says of itself."""
    compare: str | None
    """The compared executor's name."""
    compare_describe: str | None
    machine: Machine
    rate: MatmulRate
    warmup_s: float | None
    pool_bytes: int | None
    """Null off CUDA."""
    left_out: tuple[str, ...]
    """Cases the model has no positions for."""
    rows: tuple[Measured, ...]


def as_json(report: Report) -> str:
    """One object; facts of the machine at its top level, cases under `rows`."""
    facts = {
        "model": report.model,
        "executor": report.executor,
        "describe": report.describe,
        "compare": report.compare,
        "compare_describe": report.compare_describe,
        **asdict(report.machine),
        "matmul_tflops": report.rate.tflops,
        "matmul_dtype": report.rate.dtype,
        "matmul_side": report.rate.side,
        "warmup_s": report.warmup_s,
        "pool_bytes": report.pool_bytes,
        "left_out": list(report.left_out),
        "rows": [asdict(row) for row in report.rows],
    }
    return json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False)


def as_text(report: Report) -> str:
    """The machine, the executors, and a line a case."""
    lines = [str(report.machine), f"model: {report.model}", report.describe]
    lines += [] if report.compare_describe is None else [f"compared with {report.compare_describe}"]
    facts = [f"matrix products: {report.rate}"]
    if report.warmup_s is not None:
        facts.append(f"warm-up {report.warmup_s:.1f} s")
    if report.pool_bytes is not None:
        facts.append(f"pool {report.pool_bytes / 1e9:.2f} GB")
    lines += [", ".join(facts), ""]
    header = ["state", "questions", "bucket", "padded", "replay ms", "call ms", "shared", "rows ms", "shared ms",
              "param. floor ms", "att. floor ms", "share", "products ms", "share"]  # fmt: skip
    compare = [] if report.compare is None else [f"{report.compare} ms", "ratio"]
    table = [header + compare, *(_line(row, compared=bool(compare)) for row in report.rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in table]
    lines += [f"left out, as the model has too few positions: {case}" for case in report.left_out]
    return "\n".join(lines)


def _line(row: Measured, *, compared: bool) -> Sequence[str]:
    each = "mixed" if row.question_tokens is None else row.question_tokens
    cells = [
        f"{row.state_tokens}",
        f"{row.questions} × {each}",
        _short(row.bucket),
        "-" if row.padded_share is None else f"{row.padded_share:.1%}",
        _ms(row.replay_ms),
        _ms(row.ms),
        "yes" if row.shared else "no",
        _ms(row.full_rows_ms),
        _ms(row.shared_ms),
        _ms(row.floor_parameters_ms),
        _ms(row.floor_attention_ms),
        "-" if row.share is None else f"{row.share:.1%}",
        _ms(row.products_ms),
        "-" if row.products_share is None else f"{row.products_share:.1%}",
    ]
    return cells + ([_ms(row.compared_ms), "-" if row.ratio is None else f"{row.ratio:.2f}"] if compared else [])


def _ms(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.3g}" if ms < 100 else f"{ms:.0f}"


def _short(bucket: str | None) -> str:
    """A plan of many forwards has no room in a column."""
    if bucket is None:
        return "-"
    forwards = bucket.split(" + ")
    return bucket if len(forwards) <= 2 else f"{forwards[0]} + {len(forwards) - 1} more"
