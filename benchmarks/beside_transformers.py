"""Whole requests beside transformers' own `pipeline("decision")`, on the embedded model and this machine's CPU.

    python benchmarks/beside_transformers.py [--dtype auto|float32|bfloat16] [--repeats 9]

One state of about 300 tokens with six questions, a Choice, a Score and a Noul twice, as a wire request that both take.
Each side runs in a process of its own, loads the same weights, answers once to warm up, and gives the median of
its calls. `auto` is what each takes by itself. The two write different prompts, so their answers are not compared.

It refuses to look into transformers. Trap: the pipeline is timed as anybody would call it, one request a call; it has
no way to ask for more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

STATE = "The parcel for order 4417 came two days late and the box was open. " * 17
QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": "Which team should handle this?",
        "criteria": {"billing": "charges and refunds", "shipping": "parcels", "sales": "new orders"},
    },
    "severity": {"type": "score", "instructions": "How severe is it?", "criteria": ["none", "annoying", "a real loss"]},
    "refund": {"type": "noul", "instructions": "Does the customer want money back?"},
}
REQUEST = {"state": STATE, "questions": {f"{name} {turn}": q for turn in (1, 2) for name, q in QUESTIONS.items()}}
SIDES = ("decider", "transformers")


def main() -> None:
    """Time both sides, one after the other, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(SETUPS[options.side](options.dtype, options.repeats)))
        return
    environ = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    found = {}
    for side in SIDES:
        command = [
            sys.executable,
            __file__,
            "--dtype",
            options.dtype,
            "--repeats",
            str(options.repeats),
            "--side",
            side,
        ]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{side} failed:\n{done.stderr}")
        found[side] = json.loads(done.stdout.splitlines()[-1])
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors, dtype {options.dtype}")
    for side, facts in found.items():
        print(f"{side:14}{facts['ms']:>9.0f} ms   {facts['what']}")
    print(f"ratio {found['transformers']['ms'] / found['decider']['ms']:.2f}")


def time_decider(dtype: str, repeats: int) -> dict[str, object]:
    """This package, with its own choice of executor."""
    from decider import Decider

    with Decider(device="cpu", dtype=dtype) as decider:
        ms = median_ms(lambda: decider.system_one(REQUEST), repeats)
        tokens = decider.ask(STATE, QUESTIONS).input_tokens
        picks = {pick.name: pick.value for pick in decider.picks}
    return {"ms": ms, "what": f"{picks['executor']}; three of the questions are {tokens} tokens"}


def time_transformers(dtype: str, repeats: int) -> dict[str, object]:
    """Its pipeline, on the folder that this package fetched and converted."""
    import transformers

    from decider.model.cache import cache_dir
    from decider.model.embedded import embedded_folder

    folder = str(embedded_folder(cache_dir(), lambda _: None).path)
    decide = transformers.pipeline("decision", model=folder, device="cpu", dtype=dtype)
    ms = median_ms(lambda: decide(json.loads(json.dumps(REQUEST))), repeats)
    return {"ms": ms, "what": f"transformers {transformers.__version__}, {decide.model.dtype}"}


def median_ms(call: Callable[[], object], repeats: int) -> float:
    """On the host's clock, after one call to warm up."""
    call()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


SETUPS = {"decider": time_decider, "transformers": time_transformers}

if __name__ == "__main__":
    main()
