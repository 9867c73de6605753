"""How long `decider eval` and `decider calibrate` take on many decisions whose logits are there.

    python benchmarks/evaluate_many.py [--decisions 100000]

Random logits of eight tasks of all types, two questions an item; right answers are drawn at temperature 2. Each command
runs in a process of its own, and its whole wall time counts, imports and files included.

It refuses to load a model. Trap: processor time is more than wall time here, as NumPy's products use both cores.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from decider.decisions import CHOICE, NOUL, SCORE, Decisions
from decider.evaluate.facts import RunFacts
from decider.evaluate.saved import save_decisions
from decider.version import VERSION

TASKS = ((CHOICE, 3), (CHOICE, 8), (CHOICE, 20), (SCORE, 5), (SCORE, 4), (NOUL, 2), (NOUL, 2), (CHOICE, 4))
MOST_OPTIONS = max(n for _, n in TASKS)


def main() -> None:
    """Print a line a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=100_000)
    n = parser.parse_args().decisions
    with tempfile.TemporaryDirectory() as folder:
        data, config = f"{folder}/made.npz", f"{folder}/decider_config.json"
        save_decisions(Path(data), made(n), RunFacts("made", "fp32", "none", "plain", 1, 0, "made", "0" * 64, VERSION))
        for command in (
            ["eval", data, "--json", f"{folder}/before.json"],
            ["calibrate", data, "--out", config],
            ["eval", data, "--decider-config", config, "--html", f"{folder}/after.html"],
        ):
            began = time.monotonic()
            subprocess.run([sys.executable, "-m", "decider.cli", *command], check=True, stdout=subprocess.DEVNULL)
            words = " ".join(word.replace(f"{folder}/", "") for word in command)
            print(f"{time.monotonic() - began:6.2f} s  decider {words}", flush=True)


def made(n: int) -> Decisions:
    """`n` decisions, spread over `TASKS` by chance."""
    rng = np.random.default_rng(0)
    task = rng.integers(0, len(TASKS), n)
    kind, n_options = np.array(TASKS)[task].T
    logits = 2 * rng.normal(size=(n, MOST_OPTIONS))
    logits[np.arange(MOST_OPTIONS) >= n_options[:, None]] = -np.inf
    names = [("no", "yes") if kind == NOUL else tuple(map(str, range(n))) for kind, n in TASKS]
    return Decisions(
        key=tuple(f"{row // 2}/{row % 2}" for row in range(n)),
        task=tuple(f"task {which}" for which in task),
        kind=kind,
        n_options=n_options,
        gold=(logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1),
        logits=logits,
        isolated=np.zeros(n, dtype=np.bool_),
        row_tokens=rng.integers(50, 900, n),
        option_lists=tuple(names),
        option_list=task,
    )


if __name__ == "__main__":
    main()
