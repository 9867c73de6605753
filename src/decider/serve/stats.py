"""What `/stats` says, and what `/metrics` asks for at each scrape.

It refuses to count: the scheduler, the executor and `Metrics` do. Trap: it is read while the engine runs, so it only
looks at values that are replaced whole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from decider.serve.brain import Brain
from decider.serve.metrics import Metrics, Watched
from decider.serve.scheduler import Scheduler
from decider.version import VERSION


class Stats:
    """A server's numbers since it was made."""

    def __init__(self, brain: Brain, scheduler: Scheduler, metrics: Metrics) -> None:
        self._brain = brain
        self._scheduler = scheduler
        self._metrics = metrics
        self._started_s = time.monotonic()
        metrics.watch(Watched(self.gauges, self.counters, self.device_gauges, self.device_counters))

    def report(self) -> dict[str, object]:
        """What `/stats` answers with: JSON values only."""
        return {
            "model": self._brain.name,
            "version": VERSION,
            "uptime_s": round(self._uptime_s(), 3),
            "health": asdict(self._scheduler.health),
            "load": asdict(self._scheduler.load),
            "counters": self._metrics.totals(),
            "engine": dict(self._brain.describe()),
        }

    def gauges(self) -> dict[str, float]:
        """What stands now: readiness, and the work in the house."""
        load = self._scheduler.load
        return {
            "ready": float(self._scheduler.health.ready),
            "uptime_seconds": self._uptime_s(),
            "admitted_requests": load.requests,
            "admitted_rows": load.rows,
            "admitted_tokens": load.tokens,
            "waiting_requests": load.waiting,
            "running_rows": load.running_rows,
            "running_tokens": load.running_tokens,
        }

    def counters(self) -> dict[str, float]:
        """How admitted requests ended, and the executor's counts: captures, eager forwards, tokens real and padded."""
        load = self._scheduler.load
        ended = {name: float(getattr(load, name)) for name in ("admitted", "answered", "dropped", "failed", "refused")}
        counts = self._brain.describe().get("stats", {})
        assert isinstance(counts, Mapping), counts
        engine = {f"engine_{name}": float(value) for name, value in counts.items()}
        return {f"scheduler_{name}": value for name, value in ended.items()} | engine

    def device_gauges(self) -> dict[str, dict[str, float]]:
        """Whether each device works now, and what it runs."""
        engines = self._scheduler.load.engines
        return {
            "device_up": {each.name: float(each.works) for each in engines},
            "device_running_tokens": {each.name: float(each.running_tokens) for each in engines},
        }

    def device_counters(self) -> dict[str, dict[str, float]]:
        """What each device's loop ran, and its executor's counts."""
        engines = self._scheduler.load.engines
        counts: dict[str, dict[str, float]] = {
            "device_packs": {each.name: each.packs for each in engines},
            "device_rows": {each.name: each.rows for each in engines},
            "device_tokens": {each.name: each.tokens for each in engines},
            "device_busy_seconds": {each.name: each.busy_s for each in engines},
        }
        described = self._brain.describe().get("engines", ())
        assert isinstance(described, Sequence), described
        for each in described:
            for name, value in each["stats"].items():
                counts.setdefault(f"device_engine_{name}", {})[each["name"]] = float(value)
        return counts

    def _uptime_s(self) -> float:
        return time.monotonic() - self._started_s
