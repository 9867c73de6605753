"""How long a Python thread may keep the interpreter while another waits for it: shorter, for as long as a block runs.

It refuses to know which threads there are. Trap: the interval is process-wide, so it is put back as it was found, and
only the process that is a server changes it.

The engine's thread gives the interpreter away at every operation of a forward, some hundreds of times, and waits for up
to an interval to get it back from a busy event loop. A forward of 600 tokens through the embedded model took 0.31 s on
two cores; beside a thread that never pauses 11.8 s at Python's 5 ms, 3.5 s at 1 ms, 1.06 s at 0.5 ms and 0.94 s at
0.1 ms. An engine that answers at once loses nothing down to 0.5 ms, and a fifth of its requests a second at 0.1 ms.
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
