"""A forward beside a busy thread, at several switch intervals of the interpreter: what `serve/turns.py` chose by.

    python benchmarks/short_turns.py

Refuses to use a server: a thread that counts stands for an event loop that never pauses. Trap: how long a wait for the
interpreter costs depends on how many operations a forward has, so the figures are the embedded model's.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time

from decider import Decider, Noul

INTERVALS_S = (0.005, 0.001, 0.0005, 0.0001)
STATE = "The parcel arrived broken, and nobody answers the phone. " * 40
REPEATS = 5


def main() -> None:
    """Print a line an interval."""
    decider = Decider()

    def ask_s() -> float:
        began = time.perf_counter()
        tokens = decider.ask(STATE, {"complaint": Noul("Is this a complaint?")}).input_tokens
        assert tokens > 400, tokens
        return time.perf_counter() - began

    ask_s()
    print(f"alone: {statistics.median(ask_s() for _ in range(REPEATS)):.2f} s; load average {os.getloadavg()[0]:.1f}")
    stop = threading.Event()

    def count() -> None:
        n = 0
        while not stop.is_set():
            n += 1

    before = sys.getswitchinterval()
    busy = threading.Thread(target=count)
    busy.start()
    try:
        for interval_s in INTERVALS_S:
            sys.setswitchinterval(interval_s)
            took_s = statistics.median(ask_s() for _ in range(REPEATS))
            print(f"beside a busy thread, turns of {interval_s * 1e3:g} ms: {took_s:.2f} s")
    finally:
        sys.setswitchinterval(before)
        stop.set()
        busy.join()


if __name__ == "__main__":
    main()
