"""Load on a server: a closed loop of clients that wait for their answers, or an open loop that does not wait.

It refuses to judge and to print. Trap: a client that waits for a slow answer sends nothing meanwhile, and so never sees
what others would have waited (coordinated omission). The open loop's latencies are therefore counted from when a
request should have been sent, whatever kept it.
"""

from __future__ import annotations

import asyncio
import json
import random
import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from decider.bench.load_client import Address, Connection, ConnectionFault, connect
from decider.decisions import Float64Array
from decider.errors import ConfigError, printable

MOST_CONNECTIONS = 512
"""Of an open loop, well below what `select` and most limits of open files take; requests beyond them wait, and their
waiting counts."""
PAUSE_S = 0.05
"""Before a closed loop's client connects again."""
MOST_SAID = 300
"""Bytes of a refusal that are shown."""
TIMEOUT, CONNECTION = "timeout", "connection"
"""Outcomes of requests without an answer; the others are HTTP statuses."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Each of `clients` sends its next request when its last is answered."""

    clients: int


@dataclass(frozen=True, slots=True)
class Open:
    """`rate` requests a second, whatever has been answered."""

    rate: float
    poisson: bool
    """Whether the times between requests are exponential (seeded, the same in every run), or all alike."""


Arrivals: TypeAlias = Closed | Open


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What is sent where, when and for how long."""

    address: Address
    requests: Sequence[bytes]
    """Whole HTTP requests, sent in turn."""
    arrivals: Arrivals
    seconds: float
    """Measured, after the warm-up."""
    warmup_s: float
    timeout_s: float
    """After which a request is given up, counted as its latency is."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """One run, a row a request, ordered by when it was due. Times are in seconds from the start of the run."""

    due_s: Float64Array
    """When it should have been sent; for a closed loop, when it was."""
    sent_s: Float64Array
    """NaN where it never was."""
    done_s: Float64Array
    """When it was answered, or given up."""
    outcomes: tuple[str, ...]
    """An HTTP status, `timeout` or `connection`."""
    cpu_share: float
    """Processor time of this process over time, while measuring: 1 is one core."""
    connections: int
    """The most that were open at once."""


def run_load(plan: LoadPlan, clock: Callable[[], float] = time.perf_counter) -> Load:
    """Send `plan`'s load and wait for what was sent. Raises nothing for failed requests; they are outcomes."""

    def loop() -> asyncio.AbstractEventLoop:
        # epoll sleeps whole milliseconds, which would be added to every latency of an open loop.
        opened = isinstance(plan.arrivals, Open)
        return asyncio.SelectorEventLoop(selectors.SelectSelector() if opened else None)

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(_Run(plan, clock).go())


def probe(plan: LoadPlan) -> str:
    """Send the first request alone; gives the model that answered. Raises ConfigError for any answer but 200."""

    async def once() -> tuple[int, bytes]:
        async with asyncio.timeout(plan.timeout_s):
            connection = await connect(plan.address)
            try:
                return await connection.ask(plan.requests[0])
            finally:
                connection.close()

    try:
        status, body = asyncio.run(once())
    except TimeoutError:
        raise ConfigError(f"{plan.address} gave no answer within {plan.timeout_s:g} s; raise --timeout") from None
    except ConnectionFault as fault:
        raise ConfigError(f"{plan.address} cannot be asked: {fault}; start `decider serve`, or name --url") from fault
    said = printable(body[:MOST_SAID].decode("utf-8", "replace"))
    if status != 200:
        raise ConfigError(f"{plan.address} answered the first request with {status}: {said}")
    try:
        return str(json.loads(body)["model"])
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"{plan.address} answered with no JSON that names a model: {said}; is it decider?") from None


def due_times(arrivals: Open, until_s: float) -> Iterator[float]:
    """Seconds from the start at which requests are due, below `until_s`."""
    draw = random.Random(1)
    at, count = 0.0, 0
    while at < until_s:
        yield at
        count += 1
        # Fixed times are multiplied, not summed, so that they do not drift.
        at = at + draw.expovariate(arrivals.rate) if arrivals.poisson else count / arrivals.rate


@dataclass(slots=True)
class _Run:
    plan: LoadPlan
    clock: Callable[[], float]
    rows: list[tuple[float, float, float, str]] = field(default_factory=list)
    idle: list[Connection] = field(default_factory=list)
    room: asyncio.Semaphore = field(init=False)
    start: float = field(init=False)
    open: int = 0
    most: int = 0

    async def go(self) -> Load:
        plan = self.plan
        closed = plan.arrivals if isinstance(plan.arrivals, Closed) else None
        self.room = asyncio.Semaphore(closed.clients if closed else MOST_CONNECTIONS)
        self.start = self.clock()
        until = plan.warmup_s + plan.seconds
        measured = asyncio.create_task(self._cpu())
        if closed:
            await asyncio.gather(*(self._client(number, until) for number in range(closed.clients)))
        else:
            await self._send_all(until)
        for connection in self.idle:
            connection.close()
        share = await measured
        columns = sorted(self.rows)
        due, sent, done = (np.array([row[place] for row in columns], np.float64) for place in range(3))
        return Load(due, sent, done, tuple(row[3] for row in columns), share, self.most)

    async def _cpu(self) -> float:
        await asyncio.sleep(self.plan.warmup_s)
        began, used = self.clock(), time.process_time()
        await asyncio.sleep(self.plan.seconds)
        return (time.process_time() - used) / (self.clock() - began)

    async def _client(self, number: int, until: float) -> None:
        while (due := self.clock() - self.start) < until:
            outcome = await self._one(due, number)
            number += 1
            if outcome == CONNECTION:
                await asyncio.sleep(PAUSE_S)

    async def _send_all(self, until: float) -> None:
        assert isinstance(self.plan.arrivals, Open)
        tasks: set[asyncio.Task[str]] = set()
        for number, due in enumerate(due_times(self.plan.arrivals, until)):
            delay = self.start + due - self.clock()
            # Behind time, a turn of the loop is still given up, or answers would never be read.
            await asyncio.sleep(max(0.0, delay))
            task = asyncio.create_task(self._one(due, number))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    async def _one(self, due: float, number: int) -> str:
        """One request and its outcome, which is noted."""
        request = self.plan.requests[number % len(self.plan.requests)]
        left = self.start + due + self.plan.timeout_s - self.clock()
        sent = [float("nan")]
        try:
            async with asyncio.timeout(left):
                outcome = str(await self._ask(request, sent))
        except TimeoutError:
            outcome = TIMEOUT
        except ConnectionFault:
            outcome = CONNECTION
        self.rows.append((due, sent[0], self.clock() - self.start, outcome))
        return outcome

    async def _ask(self, request: bytes, sent: list[float]) -> int:
        async with self.room:
            while True:
                connection = await self._connection()
                kept = False
                try:
                    sent[0] = self.clock() - self.start
                    status, _ = await connection.ask(request)
                    kept = connection.usable
                    return status
                except ConnectionFault as fault:
                    # A server may close an idle connection just as it is used again; clients try again then.
                    if not fault.stale:
                        raise
                finally:
                    if kept:
                        self.idle.append(connection)
                    else:
                        connection.close()
                        self.open -= 1

    async def _connection(self) -> Connection:
        while self.idle:
            connection = self.idle.pop()
            if connection.usable:
                return connection
            self.open -= 1
        made = await connect(self.plan.address)
        self.open += 1
        self.most = max(self.most, self.open)
        return made
