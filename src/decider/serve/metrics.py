"""What the server counts and times, as Prometheus text; it is the scheduler's `Observer`, too.

It refuses to know requests and engines beyond their numbers. Trap: labels come from fixed lists (routes, statuses,
reasons), never from a caller, who could otherwise make a series a request until memory runs out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
POWERS = tuple(float(2**n) for n in range(14))
CONTENT_TYPE = CONTENT_TYPE_LATEST
Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Watched:
    """What is asked for at each scrape: names to numbers that stand now, and to numbers that only grow.

    Those of devices have a number for each, by its name.
    """

    gauges: Callable[[], Numbers]
    counters: Callable[[], Numbers]
    device_gauges: Callable[[], Mapping[str, Numbers]]
    device_counters: Callable[[], Mapping[str, Numbers]]


class Metrics:
    """A registry of its own, so that two servers of a process never meet. Any thread may call it."""

    content_type = CONTENT_TYPE

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests answered, by route and status.", "route", "status")
        self._seconds = self._histogram(
            "request_seconds", "Seconds from a request's first byte to its answer.", "route"
        )
        self._rejected = self._counter("rejected", "Requests refused, by reason.", "reason")
        self._dropped = self._counter("dropped_requests", "Requests whose work was dropped, by reason.", "reason")
        self._dropped_rows = self._counter("dropped_rows", "Rows of requests whose work was dropped.", "reason")
        self._queue_s = self._histogram("queue_seconds", "Seconds that a request waited for the engine.")
        self._plan_s = self._histogram("plan_seconds", "Seconds that planning a pack took.")
        self._run_s = self._histogram("run_seconds", "Seconds that a pack ran.")
        self._pack_rows = self._histogram("pack_rows", "Rows of a pack.", buckets=POWERS)
        self._pack_tokens = self._histogram("pack_tokens", "Tokens of a pack.", buckets=POWERS)
        self._rows = self._counter("rows", "Rows that ran.")
        self._tokens = self._counter("tokens", "Tokens that ran, states that questions share counted once.")
        self._status: dict[tuple[str, int], Counter] = {}
        self._route: dict[str, Histogram] = {}
        ProcessCollector(registry=self._registry)

    def watch(self, watched: Watched) -> None:
        """From now on ask `watched` at each scrape."""
        self._registry.register(_Watcher(watched))

    def request(self, route: str, status: int, seconds: float) -> None:
        """One answered request. `route` is a route's own pattern, never a caller's path."""
        key = (route, status)
        counter = self._status.get(key)
        if counter is None:
            # `labels` takes a lock and makes text of its values; once for each pair is enough.
            counter = self._status[key] = self._requests.labels(route, status)
            self._route[route] = self._seconds.labels(route)
        counter.inc()
        self._route[route].observe(seconds)

    def rejected(self, reason: str) -> None:
        """One request refused before it was admitted."""
        self._rejected.labels(reason).inc()

    def packed(self, n_rows: int, n_tokens: int, run_s: float) -> None:
        """One pack that ran."""
        self._rows.inc(n_rows)
        self._tokens.inc(n_tokens)
        self._pack_rows.observe(n_rows)
        self._pack_tokens.observe(n_tokens)
        self._run_s.observe(run_s)

    def planned(self, plan_s: float) -> None:
        """One pack that was planned."""
        self._plan_s.observe(plan_s)

    def queued(self, queue_s: float) -> None:
        """One request that reached the engine after `queue_s`."""
        self._queue_s.observe(queue_s)

    def dropped(self, reason: str, n_rows: int) -> None:
        """One request of `n_rows` whose work was dropped."""
        self._dropped.labels(reason).inc()
        self._dropped_rows.labels(reason).inc(n_rows)

    def text(self) -> bytes:
        """The exposition, of `content_type`."""
        return generate_latest(self._registry)

    def totals(self) -> dict[str, float]:
        """Counters by name, without their labels, for `/stats`."""
        found: dict[str, float] = {}
        for family in (self._requests, self._rejected, self._dropped, self._rows, self._tokens):
            for metric in family.collect():
                total = sum(sample.value for sample in metric.samples if sample.name.endswith("_total"))
                found[metric.name.removeprefix(PREFIX)] = total
        return found

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = SECONDS) -> Histogram:
        return Histogram(PREFIX + name, text, labels, registry=self._registry, buckets=buckets)


PREFIX = "decider_"


class _Watcher(Collector):
    """Makes families of what `Watched` says."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def collect(self) -> Iterator[Metric]:
        for name, value in self._watched.gauges().items():
            yield GaugeMetricFamily(PREFIX + name, _text(name), value=value)
        for name, value in self._watched.counters().items():
            yield CounterMetricFamily(PREFIX + name, _text(name), value=value)
        for kind, families in (
            (GaugeMetricFamily, self._watched.device_gauges()),
            (CounterMetricFamily, self._watched.device_counters()),
        ):
            for name, values in families.items():
                family = kind(PREFIX + name, _text(name), labels=["device"])
                for device, value in values.items():
                    family.add_metric([device], value)
                yield family

    def describe(self) -> Iterator[Metric]:
        # What there is to say is known at a scrape only; without this, registering would scrape.
        return iter(())


def _text(name: str) -> str:
    return name.replace("_", " ").capitalize() + "."
