"""How long a Python thread may keep the interpreter while another waits for it: shorter, for as long as a block runs.

It refuses to know which threads there are. Trap: the interval is process-wide, so it is put back as it was found, and
only the process that is a server changes it.

The engine's thread gives the interpreter away at every operation of a forward, some hundreds of times, and waits for up
to an interval to get it back from a busy event loop. A question about 480 tokens took the embedded model, on two cores
that two other processes used as well (load average 3.7), 0.73 s alone, and beside a thread that never pauses 2.21 s at
Python's 5 ms, 1.43 s at 1 ms, 1.29 s at 0.5 ms and 1.21 s at 0.1 ms (`python benchmarks/short_turns.py`). An engine
that answers at once pays for it in requests a second: at 64 clients and three questions, 1,808 at 5 ms, 1,754 at 1 ms
and 1,690 at 0.5 ms (means of four runs of four seconds, at the same load).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH_S = 0.0005


@contextmanager
def short_turns() -> Iterator[None]:
    """Threads take turns every `SWITCH_S`."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
