"""How long a batch plan takes to make, and what it saves over padding each length on its own.

Run `python benchmarks/plan_batches.py`. It refuses to know devices: the prices are round figures of a model of two
billion parameters on one large GPU, 4 ms a forward and 0.01 ms a padded token, so the milliseconds of the plans are
an estimate. Trap: only the planning times are measured here.
"""

from __future__ import annotations

import os
import platform
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from decider.plan.batches import plan_batches
from decider.plan.buckets import Grid, Shape
from decider.plan.cost import CostModel

GRID = Grid()
COST = CostModel(launch_ms=4.0, token_ms=0.01)
REPEATS = 200


def mixed(n_rows: int) -> list[int]:
    """Log-normal lengths of 40 to 1,500 tokens, the same in every run."""
    draw = random.Random(1)
    return [min(1500, max(40, int(draw.lognormvariate(5.3, 0.7)))) for _ in range(n_rows)]


def per_length(lengths: Sequence[int]) -> list[Shape]:
    """The plan to beat: at each length the smallest captured batch that fits, else the widest until the rest does."""
    shapes = []
    for length, n_rows in Counter(map(GRID.pad_len, lengths)).items():
        batches = GRID.batches_at(length)
        n_left = n_rows
        while n_left > 0:
            shapes.append((min((batch for batch in batches if batch >= n_left), default=batches[-1]), length))
            n_left -= shapes[-1][0]
    return shapes


def planning_ms(lengths: Sequence[int]) -> list[float]:
    """Milliseconds of each of `REPEATS` plans, rising."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        plan_batches(lengths, GRID, COST)
        times.append((time.perf_counter() - start) * 1e3)
    return sorted(times)


def machine() -> str:
    """Processor, cores and Python of this machine."""
    # `platform` knows the architecture only on Linux; the model's name is in this file.
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = next(iter(names), platform.processor() or platform.machine())
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def summary(shapes: Sequence[Shape]) -> str:
    """Forwards, padded tokens and price of a plan, as three columns."""
    padded = sum(batch * length for batch, length in shapes)
    return f"{len(shapes):>8}{padded:>11,}{sum(COST.price(*shape) for shape in shapes):>8.0f}"


def main() -> None:
    """Print the table and the machine."""
    print(f"{'':16}{'':>11}|{'per length':^27}|{'planned':^27}|{'planning ms':^16}")
    columns = f"{'forwards':>8}{'padded':>11}{'ms':>8}"
    print(f"{'rows':16}{'tokens':>11}|{columns}|{columns}|{'median':>8}{'p99':>8}")
    cases = {"17 x 256": [256] * 17, **{f"{n_rows} mixed": mixed(n_rows) for n_rows in (32, 256, 4096)}}
    for name, lengths in cases.items():
        planned = [(batch.width, batch.length) for batch in plan_batches(lengths, GRID, COST)]
        times = planning_ms(lengths)
        took = f"{statistics.median(times):>8.3f}{times[REPEATS * 99 // 100]:>8.3f}"
        print(f"{name:16}{sum(lengths):>11,}|{summary(per_length(lengths))}|{summary(planned)}|{took}")
    print(machine())


if __name__ == "__main__":
    main()
