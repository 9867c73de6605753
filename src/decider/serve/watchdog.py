"""Looks at the engine's thread from outside: a pack that is overdue, one that came back, a thread that is gone.

It refuses to stop anything, which cannot be done to a thread. Trap: it must not need the event loop or the engine to
notice something, as either may be what hangs; so it is a thread of its own, and `check` is its whole mind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from decider.serve.loop import EngineLoop

PERIOD_S = 0.1
HOPELESS_FACTOR = 10.0
"""A pack that takes this many times its limit does not come back."""


class Watchdog:
    """Calls `stalled`, `moves` or `over` on its thread, at each change once."""

    def __init__(
        self,
        engine: EngineLoop,
        clock: Callable[[], float],
        *,
        stalled: Callable[[str], None],
        moves: Callable[[], None],
        over: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._stalled = stalled
        self._moves = moves
        self._over = over
        self._is_stalled = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="decider-watchdog", daemon=True)

    def start(self) -> None:
        """Look every `PERIOD_S` from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join()

    def check(self) -> bool:
        """Look once; whether it is worth looking again."""
        if not self._engine.is_alive:
            self._over("the engine's thread is gone")
            return False
        running = self._engine.running
        took_s = 0.0 if running is None else self._clock() - running.began_s
        if running is None or took_s <= running.limit_s:
            if self._is_stalled:
                self._is_stalled = False
                self._moves()
            return True
        reason = (
            f"a pack of {running.n_tokens:,} tokens has been running for {took_s:.1f} s, "
            f"over its limit of {running.limit_s:.1f} s"
        )
        if took_s > HOPELESS_FACTOR * running.limit_s:
            self._over(reason)
            return False
        if not self._is_stalled:
            self._is_stalled = True
            self._stalled(reason)
        return True

    def _main(self) -> None:
        while not self._stop.wait(PERIOD_S) and self.check():
            pass
