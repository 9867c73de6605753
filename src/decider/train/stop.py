"""Being told to end: the first SIGINT or SIGTERM is heard between two steps, so that a run can save before it goes.

It refuses to know runs. Trap: a second one must end a process that no longer comes to the end of a step, so handlers
of before are put back as soon as one was heard.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def told_to_stop() -> Iterator[Callable[[], bool]]:
    """A function that says whether a signal came in this context; never, outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    heard: list[int] = []

    def hear(number: int, _: FrameType | None) -> None:
        heard.append(number)
        put_back()

    before = {each: signal.signal(each, hear) for each in SIGNALS}

    def put_back() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)

    try:
        yield lambda: bool(heard)
    finally:
        put_back()
