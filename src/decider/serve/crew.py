"""The engines of a server, one a device, behind one queue: which of them work, what they run, and what one's end takes.

It refuses to know requests and how a pack runs. Each engine takes the next pack when it is free, so a device that is
slow for a moment gets fewer of them, and nobody chooses. Trap: an engine that was given up may come back from its
forward all the same; it must take no more, and what it had taken was told to callers as lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from functools import partial

from decider.serve.brain import Brain
from decider.serve.job import Job
from decider.serve.loop import EngineLoop, Finished, Running
from decider.serve.observer import EngineLoad
from decider.serve.pace import Pace
from decider.serve.rowqueue import RowQueue
from decider.serve.watchdog import Watchdog


class Crew:
    """A loop and a watchdog an engine. `finished` and `lost` are called on their threads, and must not block.

    `lost` gets a message and the requests that it concerns: those with rows in the hands of the engine that stopped,
    or None for every request, where no other engine works.
    """

    def __init__(
        self,
        brain: Brain,
        queue: RowQueue,
        pace: Pace,
        clock: Callable[[], float],
        *,
        pack_tokens: int,
        packed: Callable[[int, int, float], None],
        finished: Callable[[Finished], None],
        lost: Callable[[str, Collection[Job] | None], None],
    ) -> None:
        self._pace = pace
        self._clock = clock
        self._lost = lost
        self._lock = threading.Lock()
        self._stalls: dict[str, str] = {}
        self._ends: dict[str, str] = {}
        self._loops = {
            name: EngineLoop(
                score,
                queue,
                pace,
                clock,
                pack_tokens=pack_tokens,
                packed=packed,
                finished=finished,
                over=partial(self._over, name),
            )
            for name, score in brain.engines.items()
        }
        self._watchdogs = [
            Watchdog(
                loop,
                clock,
                stalled=partial(self._stalled, name),
                moves=partial(self._moves, name),
                over=partial(self._over, name),
            )
            for name, loop in self._loops.items()
        ]
        self._is_stopped = False
        self.end: str | None = None
        """Why no engine works any more, for good; None while one may."""
        pace.n_engines = len(self._loops)

    def start(self) -> None:
        """Run packs from now on."""
        for loop in self._loops.values():
            loop.start()
        for watchdog in self._watchdogs:
            watchdog.start()

    def stop(self) -> None:
        """Look no more; the ends of engines are no news from now on. The queue is to be stopped, too."""
        self._is_stopped = True
        for watchdog in self._watchdogs:
            watchdog.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for the threads, which end once the queue is stopped and their packs have run, so long at most."""
        until_s = self._clock() + timeout_s
        for loop in self._loops.values():
            loop.join(max(0.0, until_s - self._clock()))

    @property
    def is_alive(self) -> bool:
        """Whether an engine's thread runs."""
        return any(loop.is_alive for loop in self._loops.values())

    @property
    def running(self) -> list[Running | None]:
        """What each engine that is not over runs now; None for one that is free."""
        return [loop.running for name, loop in self._loops.items() if name not in self._ends]

    @property
    def loads(self) -> tuple[EngineLoad, ...]:
        """What each engine does and did."""
        loads = []
        for name, loop in self._loops.items():
            running, reason = loop.running, self._why_not(name)
            loads.append(
                EngineLoad(
                    name,
                    reason is None,
                    reason or "",
                    0 if running is None else running.n_rows,
                    0 if running is None else running.n_tokens,
                    *loop.ran,
                )
            )
        return tuple(loads)

    @property
    def ends(self) -> dict[str, str]:
        """Why engines do not work any more, by name."""
        return self._ends.copy()

    def why_not_ready(self) -> str | None:
        """Why no pack would run now; None if an engine works."""
        # The last one's end and that of all are noted in two steps.
        with self._lock:
            end, ends = self.end, self._ends.copy()
        if end is not None:
            return f"the engine is down: {end}"
        reasons = [self._why_not(name) for name in self._loops if name not in ends]
        return None if None in reasons else reasons[0]

    def _why_not(self, name: str) -> str | None:
        if (reason := self._ends.get(name) or self._stalls.get(name)) is not None:
            return reason
        running = self._loops[name].running
        if running is not None and self._clock() - running.began_s > running.limit_s:
            return f"a pack of {running.n_tokens:,} tokens is over its limit of {running.limit_s:.1f} s"
        return None if self._loops[name].is_alive else "the engine's thread is gone"

    # The threads of loops and watchdogs.

    def _stalled(self, name: str, reason: str) -> None:
        self._stalls[name] = reason
        self._lost(f"the engine does not move: {reason}; try again", self._hit_by(name))

    def _moves(self, name: str) -> None:
        self._stalls.pop(name, None)

    def _over(self, name: str, reason: str) -> None:
        if self._is_stopped:
            return
        with self._lock:
            self._ends.setdefault(name, reason)
            n_left = len(self._loops) - len(self._ends)
            if n_left:
                self._pace.n_engines = n_left
            is_news = not n_left and self.end is None
            if is_news:
                self.end = (
                    reason if len(self._ends) == 1 else "; ".join(f"{on}: {why}" for on, why in self._ends.items())
                )
        self._loops[name].give_up()
        if n_left:
            self._lost(f"the engine on {name} is down: {reason}; try again", self._hit_by(name))
        elif is_news:
            self._lost(f"the engine is down: {self.end}", None)

    def _hit_by(self, name: str) -> Collection[Job] | None:
        others = [other for other in self._loops if other != name]
        return self._loops[name].held if any(self._why_not(other) is None for other in others) else None
