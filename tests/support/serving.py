"""A real server on a free port, in a thread, for the tests of everything that speaks HTTP.

It starts what `decider serve` starts, but for the process: uvicorn on uvloop with the server's own protocol, a
scheduler, the application. Trap: the loop is the server's; a test reads `scheduler.load` and the like, and changes
nothing there but through `on_loop`.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fake_brain import FakeBrain
from starlette.applications import Starlette

from decider.serve.app import create_app
from decider.serve.body import Held
from decider.serve.brain import Brain
from decider.serve.config import ServeConfig
from decider.serve.connections import SWEEP_S, bind, make_server
from decider.serve.logs import AccessLog
from decider.serve.metrics import Metrics
from decider.serve.scheduler import Scheduler
from decider.serve.service import queue_limits

START_S = 20.0


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, whole."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Served:
    """A running server."""

    port: int
    brain: Brain
    scheduler: Scheduler
    config: ServeConfig
    metrics: Metrics
    lines: io.StringIO
    """Its log; read it after the server has stopped."""
    loop: asyncio.AbstractEventLoop
    app: Starlette

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        """A plain connection, for what no client would send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, value: object, headers: Mapping[str, str] | None = None) -> Reply:
        """`value` as JSON; bytes go as they are."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.request("POST", path, body, {"content-type": "application/json", **(headers or {})})

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """What `work` returns on the server's loop."""

        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies that the application counts as in memory."""
        (guard,) = self.app.user_middleware
        held = guard.kwargs["held"]
        assert isinstance(held, Held)
        return held.n_bytes

    def idle(self) -> bool:
        """Whether nothing waits or runs, and every admission was returned."""
        load = self.on_loop(lambda: self.scheduler.load)
        return not any((load.requests, load.rows, load.tokens, load.waiting, load.running_rows))


@contextlib.contextmanager
def served(
    brain: Brain | None = None, config: ServeConfig | None = None, *, log_content: bool = False
) -> Iterator[Served]:
    """A server for `brain` (a fake one that answers at once), stopped at the end; it must be idle by then."""
    own = FakeBrain() if brain is None else brain
    settings = ServeConfig(port=0) if config is None else config
    lines = io.StringIO()
    log = AccessLog(lines, log_content=log_content)
    metrics = Metrics()
    bound = bind("127.0.0.1", 0)
    started: list[Served | BaseException] = []
    ready = threading.Event()
    stop: list[Callable[[], object]] = []

    async def live() -> None:
        scheduler = Scheduler(own, queue_limits(settings), observer=metrics)
        scheduler.start()
        app = create_app(scheduler, settings, metrics=metrics, log=log)
        server = make_server(app, settings)
        loop = asyncio.get_running_loop()
        serving = loop.create_task(server.serve(sockets=[bound]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        told = asyncio.Event()
        stop.append(lambda: loop.call_soon_threadsafe(told.set))
        started.append(Served(bound.getsockname()[1], own, scheduler, settings, metrics, lines, loop, app))
        ready.set()
        while not told.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), SWEEP_S)
            server.sweep()
        server.should_exit = True
        server.force_exit = True
        await serving
        scheduler.stop()

    def run() -> None:
        try:
            factory = make_server(lambda: None, settings).config.get_loop_factory()
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(live())
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            started.append(error)
            ready.set()

    thread = threading.Thread(target=run, name="served", daemon=True)
    thread.start()
    try:
        assert ready.wait(START_S), "the server did not start"
        first = started[0]
        if isinstance(first, BaseException):
            raise first
        yield first
    finally:
        for end in stop:
            end()
        thread.join(START_S)
        log.close()
        bound.close()
        own.close()
    assert not thread.is_alive(), "the server did not stop"
    if isinstance(started[-1], BaseException):
        raise started[-1]


def until(condition: Callable[[], bool], *, timeout_s: float = 5.0) -> None:
    """Wait for `condition`; an AssertionError if it does not come."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)
