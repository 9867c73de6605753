"""How long a pack plan takes to make, and how many tokens it saves over a full row a question.

Run `python benchmarks/plan_packs.py`. It refuses to know devices: the prices are those of a line, 1.5 ms a forward and
0.0055 ms a token. Trap: a row turns its ids into bytes when it is made, in some 3 µs for 300. No time here
has that in it.
"""

from __future__ import annotations

import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from decider.plan.pack import Pack
from decider.plan.packs import LADDER, PackCost, PackLimits, plan_packs
from decider.tokens.rows import Row

VOCABULARY = 150_000
EXACT = PackLimits(max_tokens=LADDER[-1], max_sequences=512, max_slots=512)
BUCKETS = PackLimits(max_tokens=LADDER[-1], max_sequences=512, max_slots=512, ladder=LADDER)
COST = PackCost({n_tokens: 1.5 + 0.0055 * n_tokens for n_tokens in LADDER})
N_TAPS = 3
REPEATS = 200
SHAPES = (
    (1, 5, 300, 40),
    (32, 1, 200, 40),
    (32, 3, 60, 30),
    (32, 3, 100, 30),
    (32, 3, 200, 40),
    (32, 3, 300, 40),
    (256, 3, 200, 40),
)
"""Requests, questions of each, tokens of each state and of each question."""


def requests(n_requests: int, n_questions: int, state_tokens: int, question_tokens: int) -> list[Row]:
    """Rows as tokenising makes them, the state first; the same in every run."""
    draw = random.Random(1)
    rows = []
    for _ in range(n_requests):
        state = [draw.randrange(VOCABULARY) for _ in range(state_tokens)]
        for _ in range(n_questions):
            question = [draw.randrange(VOCABULARY) for _ in range(question_tokens)]
            rows.append(Row((*state, *question), (state_tokens + question_tokens - 1,), (4,), state_tokens))
    return rows


def times_ms(work: Callable[[], object]) -> str:
    """Median and 99th percentile of `REPEATS` runs of `work`, as two columns of milliseconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    return f"{statistics.median(times):>8.3f}{times[REPEATS * 99 // 100]:>8.3f}"


def look_back(packs: Sequence[Pack]) -> None:
    """Make the tables that a model with convolutions needs besides."""
    for pack in packs:
        pack.look_back(N_TAPS)


def machine() -> str:
    """Processor, cores and Python of this machine."""
    # `platform` knows the architecture only on Linux; the model's name is in this file.
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = next(iter(names), platform.processor() or platform.machine())
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def main() -> None:
    """Print the table and the machine."""
    columns = f"{'median':>8}{'p99':>8}"
    print(f"{'':26}|{'tokens':^20}|{'exact, ms':^22}|{'buckets, ms':^22}|{'look back, ms':^16}")
    plan = f"{'packs':>6}{columns}"
    print(f"{'requests x (state + n x q)':26}|{'rows':>10}{'packed':>10}|{plan}|{plan}|{columns}")
    for shape in SHAPES:
        rows = requests(*shape)
        exact, packs = plan_packs(rows, EXACT), plan_packs(rows, BUCKETS, COST)
        n_requests, n_questions, state_tokens, question_tokens = shape
        name = f"{n_requests} x ({state_tokens} + {n_questions} x {question_tokens})"
        tokens = f"{sum(len(row.ids) for row in rows):>10,}{sum(pack.n_real_tokens for pack in packs):>10,}"
        plan_exact = f"{len(exact):>6}{times_ms(partial(plan_packs, rows, EXACT))}"
        plan = f"{len(packs):>6}{times_ms(partial(plan_packs, rows, BUCKETS, COST))}"
        print(f"{name:26}|{tokens}|{plan_exact}|{plan}|{times_ms(partial(look_back, packs))}")
    print(machine())


if __name__ == "__main__":
    main()
