"""A load's figures: percentiles, throughput and failures, as a table for people and as JSON for programs.

It refuses to send anything. Trap: percentiles are those of the answered (2xx) requests; failures are counted beside
them, since a server that refuses quickly would otherwise look fast, and one that times out would not look slow.
"""

from __future__ import annotations

import json
import math
import platform
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from decider.bench.load import Arrivals, Closed, Load, LoadPlan
from decider.bench.processor import processor_name
from decider.decisions import Float64Array

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}
BUSY_SHARE = 0.8
"""Of one core; a generator above it measures itself."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The measured part of one run; the JSON has these names. Null where nothing was answered."""

    url: str
    model: str
    """As the server named it."""
    requests: int
    """Different ones."""
    loop: str
    """`closed` or `open`."""
    clients: int | None
    rate: float | None
    """Requests a second that were due."""
    arrivals: str | None
    """`poisson` or `fixed`."""
    seconds: float
    warmup_s: float
    timeout_s: float
    sent: int
    """Requests due in the measured time."""
    answered: int
    """Of those, with a status of 2xx."""
    failures: dict[str, int]
    """Of those, the others: by status, `timeout` or `connection`."""
    throughput: float
    """Answers with 2xx a second that came within the measured time."""
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    p99_9_ms: float | None
    max_ms: float | None
    late_p99_ms: float | None
    """How late requests were sent: the generator's own delay, and its waiting for a connection. Part of the latency."""
    connections: int
    """The most that were open at once."""
    generator_cpu_share: float
    """Processor time of the generator over time: 1 is one core."""
    generator: str
    """Python and the processor, which the server may share."""


def percentile(ordered: Float64Array, share: float) -> float:
    """The least of `ordered`, ascending and not empty, that at least `share` of them do not exceed (nearest rank)."""
    # 0.999 · 1000 is not quite 999 in floating point.
    rank = math.ceil(round(share * len(ordered), 9))
    return float(ordered[max(rank, 1) - 1])


def answered(load: Load) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which requests were answered with 2xx."""
    return np.array([outcome.startswith("2") for outcome in load.outcomes], np.bool_)


def measured(load: Load, plan: LoadPlan) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which requests were due after the warm-up."""
    return (load.due_s >= plan.warmup_s) & (load.due_s < plan.warmup_s + plan.seconds)


def make_report(load: Load, plan: LoadPlan, model: str) -> LoadReport:
    """Count `load`."""
    good, counted = answered(load), measured(load, plan)
    ordered = np.sort(1e3 * (load.done_s - load.due_s)[good & counted])
    late = np.sort(1e3 * (load.sent_s - load.due_s)[counted & ~np.isnan(load.sent_s)])
    in_time = good & (load.done_s >= plan.warmup_s) & (load.done_s < plan.warmup_s + plan.seconds)
    failures = Counter(load.outcomes[row] for row in np.flatnonzero(counted & ~good))
    some = len(ordered) > 0
    p50, p90, p99, p99_9 = (percentile(ordered, share) if some else None for share in SHARES.values())
    return LoadReport(
        url=f"{plan.address}/v1/systemone",
        model=model,
        requests=len(plan.requests),
        **_arrivals(plan.arrivals),
        seconds=plan.seconds,
        warmup_s=plan.warmup_s,
        timeout_s=plan.timeout_s,
        sent=int(counted.sum()),
        answered=len(ordered),
        failures=dict(sorted(failures.items())),
        throughput=int(in_time.sum()) / plan.seconds,
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
        p99_9_ms=p99_9,
        max_ms=float(ordered[-1]) if some else None,
        late_p99_ms=percentile(late, 0.99) if len(late) else None,
        connections=load.connections,
        generator_cpu_share=load.cpu_share,
        generator=f"Python {platform.python_version()} on {processor_name()}",
    )


def as_json(report: LoadReport) -> str:
    """One object."""
    return json.dumps(asdict(report), indent=1, ensure_ascii=False, allow_nan=False)


def as_text(report: LoadReport) -> str:
    """What was sent, by whom, and a line of figures."""
    if report.loop == "closed":
        load = f"closed loop, {report.clients} {'client' if report.clients == 1 else 'clients'}"
    else:
        load = f"open loop, {report.rate:g} requests/s, {report.arrivals}"
    kinds = "request" if report.requests == 1 else "different requests"
    table = [
        ["sent", "answered", "per second", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"],
        [
            f"{report.sent:,}",
            f"{report.answered:,}",
            f"{report.throughput:,.1f}",
            *map(_ms, (report.p50_ms, report.p90_ms, report.p99_ms, report.p99_9_ms, report.max_ms)),
        ],
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    failed = ", ".join(f"{outcome} × {count:,}" for outcome, count in report.failures.items())
    lines = [
        f"{report.url}, {report.model}, {report.requests:,} {kinds}",
        f"{load}, {report.seconds:g} s after {report.warmup_s:g} s of warm-up, most connections: {report.connections}",
        f"generator: {report.generator}, {report.generator_cpu_share:.2f} of one core, "
        f"99 % sent within {_ms(report.late_p99_ms)} ms",
        "",
        *("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in table),
        f"failures: {failed or 'none'}",
    ]
    if report.generator_cpu_share > BUSY_SHARE:
        lines.append(
            "the generator was busy most of the time: the latencies are partly its own, the server's limit higher"
        )
    return "\n".join(lines)


def _arrivals(arrivals: Arrivals) -> dict[str, Any]:
    if isinstance(arrivals, Closed):
        return {"loop": "closed", "clients": arrivals.clients, "rate": None, "arrivals": None}
    kind = "poisson" if arrivals.poisson else "fixed"
    return {"loop": "open", "clients": None, "rate": arrivals.rate, "arrivals": kind}


def _ms(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.3g}" if ms < 100 else f"{ms:,.0f}"
