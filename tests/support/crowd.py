"""Clients for load tests, over plain sockets: those that behave, those that vanish, and those that send garbage.

Refuses to judge answers beyond their status. Trap: latency counts from the moment a request was due, not from when the
client got round to it; otherwise a slow server would slow its own load down and look fast.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any, TypeVar

import uvloop

VANISHED, NO_ANSWER = 0, -1
TIMEOUT_S = 30.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sent:
    """One request and what came of it."""

    kind: str
    status: int
    """`VANISHED`: the client left by intent; `NO_ANSWER`: the connection broke, or nothing came in `TIMEOUT_S`."""
    latency_s: float
    """Since it was due."""
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class Call:
    """What to send, and how."""

    kind: str
    wire: bytes
    """Head and body."""
    vanish_after: float | None = None
    """The share of `wire` that is sent before the client leaves, without reading anything."""


def post(body: bytes, *, path: str = "/v1/systemone", content_type: str = "application/json") -> bytes:
    """A request's bytes."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def wire_request(n_questions: int, state: str = "The parcel arrived broken, and nobody answers.") -> bytes:
    """A wire request's JSON, of a Noul, a Choice and a Score in turn."""
    kinds: tuple[dict[str, object], ...] = (
        {"type": "noul", "instructions": "Is this a complaint?"},
        {
            "type": "choice",
            "instructions": "Which team?",
            "criteria": {"billing": None, "technical": None, "sales": None},
        },
        {"type": "score", "instructions": "How severe is it?", "criteria": ["not", "somewhat", "very"]},
    )
    questions = {f"q{number}": kinds[number % 3] for number in range(n_questions)}
    return json.dumps({"state": state, "model": "jev-latest", "questions": questions}).encode()


@dataclass(eq=False)
class Crowd:
    """Clients of one server, with kept connections; `sent` is what came of it all."""

    port: int
    sent: list[Sent] = field(default_factory=list)
    _idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def call(self, call: Call, due_s: float | None = None) -> Sent:
        """Send one request, due at `due_s` (`time.perf_counter`) or now, and wait for what comes of it."""
        due_s = time.perf_counter() if due_s is None else due_s
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status, retry_after_s = await self._exchange(call)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            status, retry_after_s = NO_ANSWER, None
        sent = Sent(call.kind, status, time.perf_counter() - due_s, retry_after_s)
        self.sent.append(sent)
        return sent

    async def closed_loop(self, next_call: Callable[[], Call], *, n_clients: int, seconds: float) -> float:
        """Each client sends one request after the other; the answers a second."""
        until_s = time.perf_counter() + seconds
        n_answered = 0

        async def client() -> None:
            nonlocal n_answered
            while time.perf_counter() < until_s:
                sent = await self.call(next_call())
                n_answered += sent.status == 200

        started_s = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(n_clients)))
        return n_answered / (time.perf_counter() - started_s)

    async def open_loop(self, next_call: Callable[[], Call], *, rate: float, seconds: float, seed: int) -> None:
        """Requests at the times of a Poisson process, whatever comes of those before; ends with the last answer."""
        dice = random.Random(seed)
        tasks: set[asyncio.Task[Sent]] = set()
        started_s = due_s = time.perf_counter()
        while (due_s := due_s + dice.expovariate(rate)) < started_s + seconds:
            # Behind the plan, requests are sent at once, and their latency counts from when they were due.
            if (ahead_s := due_s - time.perf_counter()) > 0:
                await asyncio.sleep(ahead_s)
            task = asyncio.create_task(self.call(next_call(), due_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    def close(self) -> None:
        """Close the kept connections."""
        while self._idle:
            self._idle.pop()[1].close()

    async def _exchange(self, call: Call) -> tuple[int, float | None]:
        # A connection that was kept may be closed by the server at any time; one that will vanish is a new one.
        fresh = call.vanish_after is not None or not self._idle
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port) if fresh else self._idle.pop()
        if call.vanish_after is not None:
            writer.write(call.wire[: round(len(call.wire) * call.vanish_after)])
            await writer.drain()
            await asyncio.sleep(0.002)
            writer.transport.abort()
            return VANISHED, None
        keep = False
        try:
            writer.write(call.wire)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            status = int(head.split(b" ", 2)[1])
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            keep = b"connection: close" not in head
        finally:
            if keep:
                self._idle.append((reader, writer))
            else:
                writer.close()
        retry_after = head.partition(b"retry-after: ")[2].partition(b"\r\n")[0]
        return status, float(retry_after) if retry_after else None


def run_clients(clients: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on a loop that takes less of the processor that the server needs, too."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(clients)


def percentile(values: list[float], share: float) -> float:
    """The smallest of `values` that at least `share` of them do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def endless(dice: random.Random, mix: list[tuple[float, list[Call]]]) -> Iterator[Call]:
    """Calls for ever: a list by its share (the shares add up to 1), then one of it."""
    while True:
        (calls,) = dice.choices([calls for _, calls in mix], [share for share, _ in mix])
        yield dice.choice(calls)


def load_of(port: int) -> dict[str, int]:
    """What `/stats` says of the work in the house."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/stats")
    load: dict[str, int] = json.loads(connection.getresponse().read())["load"]
    connection.close()
    return load


def statuses_of(crowd: Crowd) -> dict[str, Counter[int]]:
    """By kind."""
    kinds = sorted({sent.kind for sent in crowd.sent})
    return {kind: Counter(sent.status for sent in crowd.sent if sent.kind == kind) for kind in kinds}
