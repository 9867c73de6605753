"""Five minutes at 60 % of the capacity, with clients that vanish, send garbage and send far too much.

Refuses to use a model: the engine sleeps 2 ms and 5 µs a token. Trap: memory is compared with what it was after the
first minute, because pools and buffers fill then; a leak goes on.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from crowd import NO_ANSWER, Call, Crowd, endless, load_of, percentile, post, run_clients, statuses_of, wire_request
from server_process import ServerProcess, serving_fake

pytestmark = pytest.mark.long

BRAIN = {"delay_s": 0.002, "per_token_s": 5e-6}
PACK_S = BRAIN["delay_s"] + BRAIN["per_token_s"] * 2048
SOAK_S, WARM_S, WINDOW_S = 300.0, 60.0, 10.0
LOAD = 0.6
VANISH, GARBAGE, HUGE, LARGE = 0.10, 0.05, 0.01, 0.01

SMALL = [Call("small", post(wire_request(n))) for n in (1, 2, 3)]
LARGE_CALLS = [Call("large", post(wire_request(16)))]
LEAVERS = [Call("vanish", post(wire_request(n)), share) for n in (3, 40) for share in (0.4, 0.95, 1.0)]
RUBBISH = [
    Call("garbage", wire)
    for wire in (
        b"\x16\x03\x01\x02\x00 no HTTP at all\r\n\r\n",
        post(b"{"),
        post(b"[" * 100_000),
        post(b'{"state": NaN, "questions": {}}'),
        post(b'{"state": "x", "model": "jev-latest", "questions": {"q": null}}'),
        post(b'{"state": "\\ud800", "model": "jev-latest", "questions": {"q": {"type": "noul", "instructions": "x"}}}'),
        post(b"a=b", content_type="text/plain"),
        post(b"{}", path="/v1/nothing"),
        post(wire_request(300).replace(b"noul", b"box")),
    )
]
HUGE_CALLS = [Call("huge", post(wire_request(1, "x" * 5_000_000)))]
ORDERLY = [(1 - LARGE, SMALL), (LARGE, LARGE_CALLS)]
MIX = [
    (1 - VANISH - GARBAGE - HUGE - LARGE, SMALL), (LARGE, LARGE_CALLS), (VANISH, LEAVERS), (GARBAGE, RUBBISH),
    (HUGE, HUGE_CALLS),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Soaked:
    """What was measured."""

    quiet_s: float
    capacity: float
    crowd: Crowd
    rss_bytes: list[float]
    """Medians of the window after `warm_s`, and of the last one."""
    course_mb: list[int]
    """Medians of each half minute, by which a step is told from a leak."""
    load: Mapping[str, int]
    """After the end."""
    server_cpu_s: float
    seconds: float


async def soak(server: ServerProcess, *, seconds: float, warm_s: float, window_s: float) -> Soaked:
    """Measure the quiet latency and the capacity, then soak."""
    port, dice = server.port, random.Random(7)
    quiet = Crowd(port)
    for _ in range(300):
        await quiet.call(SMALL[1])
        await asyncio.sleep(0.005)
    quiet_s = statistics.median(sent.latency_s for sent in quiet.sent[50:])
    orderly = endless(dice, ORDERLY)
    capacity = await quiet.closed_loop(lambda: next(orderly), n_clients=32, seconds=min(10.0, seconds))
    quiet.close()

    crowd, mixed = Crowd(port), endless(dice, MIX)
    samples: list[tuple[float, int]] = []

    async def watch() -> None:
        while True:
            samples.append((time.perf_counter(), server.rss_bytes()))
            await asyncio.sleep(0.5)

    watching = asyncio.create_task(watch())
    started_s, cpu_s = time.perf_counter(), server.cpu_s()
    await crowd.open_loop(lambda: next(mixed), rate=LOAD * capacity, seconds=seconds, seed=11)
    cpu_s = server.cpu_s() - cpu_s
    watching.cancel()
    crowd.close()
    await asyncio.sleep(1.0)
    rss = [
        statistics.median(rss for when, rss in samples if start_s <= when - started_s <= start_s + window_s)
        for start_s in (warm_s, seconds - window_s)
    ]
    halves = [
        [rss for when, rss in samples if n * 30 <= when - started_s < n * 30 + 30] for n in range(int(seconds) // 30)
    ]
    course_mb = [round(statistics.median(half) / 1e6) for half in halves if half]
    return Soaked(quiet_s, capacity, crowd, rss, course_mb, load_of(port), cpu_s, seconds)


def report(soaked: Soaked) -> str:
    """The figures, for the log."""
    small_s = [sent.latency_s for sent in soaked.crowd.sent if sent.kind == "small"]
    return (
        f"\nsoak: {soaked.seconds:.0f} s, {len(soaked.crowd.sent)} requests at {LOAD:.0%} of {soaked.capacity:.0f}/s; "
        f"load average {os.getloadavg()[0]:.1f}, server {soaked.server_cpu_s / soaked.seconds:.0%} of a core\n"
        f"quiet p50 {soaked.quiet_s * 1e3:.2f} ms; small under load p50 {percentile(small_s, 0.5) * 1e3:.2f}, "
        f"p99 {percentile(small_s, 0.99) * 1e3:.2f} ms, limit {limit_s(soaked) * 1e3:.2f}\n"
        f"memory {soaked.rss_bytes[0] / 1e6:.1f} → {soaked.rss_bytes[1] / 1e6:.1f} MB "
        f"({soaked.rss_bytes[1] / soaked.rss_bytes[0] - 1:+.1%}); by half minutes {soaked.course_mb}\n"
        f"statuses { ({kind: dict(counts) for kind, counts in statuses_of(soaked.crowd).items()}) }\nload {soaked.load}"
    )


def limit_s(soaked: Soaked) -> float:
    """What small requests may take."""
    return 3 * soaked.quiet_s + PACK_S


def test_a_soak_leaves_nothing_behind(tmp_path: Path) -> None:
    with serving_fake(tmp_path, brain=BRAIN) as server:
        soaked = run_clients(soak(server, seconds=SOAK_S, warm_s=WARM_S, window_s=WINDOW_S))
        print(report(soaked))
        statuses = statuses_of(soaked.crowd)
        assert set(statuses["small"]) == set(statuses["large"]) == {200}
        assert set(statuses["vanish"]) == {0}
        assert all(400 <= status < 500 for status in statuses["garbage"])
        assert set(statuses["huge"]) == {413}
        assert not [event for event in server.events() if int(str(event.get("status", 0))) >= 500]
        assert not [event for event in server.events() if event["event"] in ("error", "log_lines_lost", "fatal")]
        house = ("requests", "rows", "tokens", "waiting", "running_rows", "running_tokens")
        assert {name: soaked.load[name] for name in house} == dict.fromkeys(house, 0)
        load = soaked.load
        assert load["admitted"] == load["answered"] + load["dropped"] + load["failed"]
        assert soaked.rss_bytes[1] <= 1.05 * soaked.rss_bytes[0]
        small_s = [sent.latency_s for sent in soaked.crowd.sent if sent.kind == "small"]
        assert percentile(small_s, 0.99) <= limit_s(soaked)
        assert NO_ANSWER not in Counter(sent.status for sent in soaked.crowd.sent)
        assert server.stop() == 0
