"""How long a pack plan takes to make, how many tokens it saves, and what the host adds to the replays of a call.

Run `python benchmarks/plan_packs.py [--device cuda]`. It refuses to know models: the prices are those of a line, 1.5 ms
a forward and 0.0055 ms a token, and the graphs of the packed executor do nothing. What is left of a call is the host's
part: plan, tables, copies up and down, answers. Trap: a row turns its ids into bytes when it is made, in some 3 µs for
300. No time here has that in it.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from decider.bench.cases import CARD_CASES, rows_of
from decider.errors import DeviceError
from decider.plan.pack import Pack
from decider.plan.packs import LADDER, PackCost, PackLimits, card_limits, plan_packs
from decider.plan.tables import capacity_of
from decider.run.device import pick_device
from decider.run.pack_statics import CapturedPack, Lane, PackGraphs, allocate_pack_statics
from decider.run.pack_warmup import N_LANES, shapes_of
from decider.run.packed import PackedExecutor
from decider.tokens.rows import Row

VOCABULARY = 150_000
EXACT = PackLimits(max_tokens=LADDER[-1], max_sequences=512, max_slots=512)
BUCKETS = PackLimits(max_tokens=LADDER[-1], max_sequences=512, max_slots=512, ladder=LADDER)
COST = PackCost({n_tokens: 1.5 + 0.0055 * n_tokens for n_tokens in LADDER})
N_TAPS, N_LABELS = 4, 255
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
        pack.look_back(N_TAPS - 1)


def machine() -> str:
    """Processor, cores and Python of this machine."""
    # `platform` knows the architecture only on Linux; the model's name is in this file.
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = next(iter(names), platform.processor() or platform.machine())
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


@dataclass(slots=True)
class NoWork:
    """A graph that notes when it was replayed."""

    times: list[float] = field(default_factory=list)

    def replay(self) -> None:
        """Nothing."""
        self.times.append(time.perf_counter())


def executor_without_work(device: torch.device, graph: NoWork) -> PackedExecutor:
    """Every shape captured, as `graph`; for a model with linear attention."""
    # All that it asks of a backbone whose packs are all captured.
    backbone: Any = SimpleNamespace(device=device, dtype=torch.bfloat16, spec=SimpleNamespace(family="none"))
    head: Any = None
    limits = card_limits()
    executor = PackedExecutor(backbone, head, limits)
    statics = {
        shape: allocate_pack_statics(
            capacity_of(shape), N_TAPS, labels=N_LABELS, logits_dtype=torch.float32, device=device
        )
        for shape in shapes_of(limits)
    }
    lanes = [Lane(statics, N_TAPS) for _ in range(N_LANES)]
    captured = {shape: CapturedPack(own, graph) for shape, own in statics.items()}
    executor._limits, executor._cost, executor._graphs = limits, COST, PackGraphs(captured, lanes)
    return executor


def host_parts(device: torch.device) -> None:
    """Print what a call adds before its first replay and behind its last; the packs between go on beside replays."""
    graph = NoWork()
    executor = executor_without_work(device, graph)
    print(f"{'the host, ms, least and':26}|{'':>6}|{'before the first':^17}|{'behind the last':^17}|{'whole call':^17}")
    print(f"{'median':26}|{'packs':>6}|{'replay':^17}|{'replay':^17}|{'':^17}")
    for case in CARD_CASES:
        rows = rows_of(case, VOCABULARY)
        found: list[tuple[float, float, float]] = []
        for _ in range(REPEATS):
            graph.times.clear()
            start = time.perf_counter()
            executor.label_logits(rows)
            stop = time.perf_counter()
            found.append((graph.times[0] - start, stop - graph.times[-1], stop - start))
        parts = "|".join(
            f"{1e3 * min(part):>8.3f}{1e3 * statistics.median(part):>8.3f} " for part in zip(*found, strict=True)
        )
        print(f"{case!s:26}|{len(graph.times):>6}|{parts}")


def main() -> None:
    """Print the tables and the machine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", help="where the executor's static tables lie")
    try:
        device = torch.device(pick_device(parser.parse_args().device).value)
    except DeviceError as error:
        parser.error(str(error))
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
    host_parts(device)
    print(machine())


if __name__ == "__main__":
    main()
