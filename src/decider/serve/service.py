"""The life of the server: bind, load and warm up, serve, drain, and the exit status a supervisor goes by.

It refuses to know requests and models. Trap: the port answers from the first moment, so that a supervisor sees life
while a model warms up for minutes; until then everything but `/health/live` is a 503.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from decider.errors import ConfigError, printable
from decider.serve.app import create_app
from decider.serve.brain import Brain
from decider.serve.config import ServeConfig
from decider.serve.connections import SWEEP_S, ASGIApp, Server, bind, enough_files, make_server, url_of
from decider.serve.logs import AccessLog, LogHandler
from decider.serve.metrics import Metrics
from decider.serve.notify import ALIVE, READY, STOPPING, Notifier
from decider.serve.refusal import Failure
from decider.serve.respond import send_bytes
from decider.serve.scheduler import QueueLimits, Scheduler
from decider.serve.turns import short_turns

EXIT_DRAINED = 0
EXIT_FATAL = 3
WATCH_S = 0.2
FATAL_GRACE_S = 1.0
"""How long callers are still told of an engine that is dead, before the process ends."""
REST_S = 1.0
"""How long work whose callers are gone may take to end."""
RETRY_AFTER_S = 2
READY_PATHS = ("/health", "/health/ready")
Say = Callable[[str], None]
Load = Callable[[Say], Brain]
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class Gate:
    """An ASGI application that answers for another one until that is there, and says so when it is about to go."""

    app: ASGIApp | None = None
    is_draining: bool = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on, or say that the model is not there yet, or that the process is about to end."""
        if self.is_draining and scope["path"] in READY_PATHS:
            await _unavailable(send, "not ready: the server is shutting down")
        elif self.app is not None:
            await self.app(scope, receive, send)
        elif scope["path"] == "/health/live":
            await send_bytes(send, 200, b'{"status":"alive"}', headers=_own_id())
        else:
            await _unavailable(send, "the model is being loaded and warmed up; try again in a while")


def serve(load: Load, config: ServeConfig, *, say: Say) -> int:
    """Serve what `load` makes until a signal or the engine's death, with the log on standard output.

    Returns the exit status, or ends the process with it where a thread of a model still runs: an orderly exit could
    wait for that for ever. For the main thread alone. Raises ConfigError for an address, and what `load` raises.
    """
    log = AccessLog(sys.stdout, log_content=config.log_content)
    try:
        with _logged(log):
            return Service(load, config, say=say, log=log).run()
    finally:
        log.close()


class Service:
    """One server, from its socket to its end; `run` once, in the main thread."""

    def __init__(
        self, load: Load, config: ServeConfig, *, say: Say, log: AccessLog, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._load = load
        self._config = config
        self._say = say
        self._log = log
        self._notifier = Notifier(environ)
        self._metrics = Metrics()
        self._gate = Gate()
        self._stop = asyncio.Event()
        self._signals = 0

    def run(self) -> int:
        """See `serve`."""
        bound = self._bind()
        server = make_server(self._gate, self._config)
        files = enough_files(self._config.max_connections, self._say)
        with bound, files, asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            return runner.run(self._live(server, bound))

    def _bind(self) -> socket.socket:
        host, port = self._config.host, self._config.port
        try:
            bound = bind(host, port)
        except socket.gaierror as error:
            raise ConfigError(
                f"host {host!r:.80} is no address ({error.strerror}); name one of this machine's"
            ) from error
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"cannot listen on {host!r:.80}, port {port}: {reason}; name another --port or --host"
            ) from error
        if not self._config.is_loopback and not self._config.api_keys:
            self._say(
                f"WARNING: {url_of(bound)} is open to other machines, and no API key is asked for; name --api-keys "
                "FILE, or listen on 127.0.0.1"
            )
        for warning in self._config.warnings:
            self._say(f"WARNING: {warning}")
        return bound

    async def _live(self, server: Server, bound: socket.socket) -> int:
        loop = asyncio.get_running_loop()
        url = url_of(bound)
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        serving = loop.create_task(server.serve(sockets=[bound]))
        serving.add_done_callback(lambda _: self._stop.set())
        sweeping = loop.create_task(_sweep(server))
        try:
            self._log.event("started", url=url)
            brain = await self._loaded(loop)
            if brain is None:
                self._leave(EXIT_DRAINED)
            with frozen(), short_turns():
                await self._serve(brain, server, serving, url)
        finally:
            sweeping.cancel()
            server.should_exit = True
            await serving
        brain.close()
        self._log.event("stopped")
        return EXIT_DRAINED

    async def _loaded(self, loop: asyncio.AbstractEventLoop) -> Brain | None:
        """The brain, made in a thread of its own; None if the service was told to stop before."""
        result: asyncio.Future[Brain] = loop.create_future()

        def load() -> None:
            try:
                brain = self._load(self._say)
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                _tell(loop, result, error)
            else:
                _tell(loop, result, brain)

        # No pool's thread: the interpreter would wait for it at its end.
        threading.Thread(target=load, name="decider-load", daemon=True).start()
        stop = loop.create_task(self._stop.wait())
        await asyncio.wait((result, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        return await result if result.done() else None

    async def _serve(self, brain: Brain, server: Server, serving: asyncio.Task[None], url: str) -> None:
        """Until it is told to stop and has drained; the process ends here where it cannot."""
        scheduler = Scheduler(brain, queue_limits(self._config), observer=self._metrics)
        scheduler.start()
        self._gate.app = create_app(scheduler, self._config, metrics=self._metrics, log=self._log)
        self._say(f"serving {printable(brain.name)} on {url}")
        self._log.event("ready", url=url, model=brain.name)
        self._notifier.send(READY)
        known: set[str] = set()
        while not self._stop.is_set() and not (health := scheduler.health).fatal:
            if health.ready:
                self._notifier.send(ALIVE)
            for device in health.lost.keys() - known:
                known.add(device)
                reason = health.lost[device]
                self._say(
                    f"WARNING: {device} is down ({reason}); the others go on, and a new process would have it again"
                )
                self._log.event("device_lost", device=device, reason=reason)
            await _wait(self._stop, WATCH_S)
        self._notifier.send(STOPPING)
        if not self._stop.is_set():
            reason = scheduler.health.reason
            self._say(f"the engine is dead ({reason}); this process ends, and its supervisor must start a new one")
            self._log.event("fatal", reason=reason)
            await _wait(self._stop, FATAL_GRACE_S)
            self._leave(EXIT_FATAL)
        self._log.event("draining")
        # Connections first: a request that comes in on one of them at this moment is answered as any other.
        self._gate.is_draining = True
        server.should_exit = True
        await asyncio.wait((serving,), timeout=self._config.drain_s)
        drained = serving.done() and await scheduler.drain(REST_S)
        # Whoever still waits gets a 503, which no cancelled task would send.
        stopping = asyncio.create_task(asyncio.to_thread(scheduler.stop))
        if not drained:
            self._say(f"not every request was answered within drain_s, {self._config.drain_s:g} seconds")
            await asyncio.wait((stopping,), timeout=FATAL_GRACE_S)
            self._leave(EXIT_DRAINED)
        await stopping
        if scheduler.health.lost or scheduler.health.alive:
            # An engine may be in a forward still that hangs, or whose callers left, and closing would wait for that.
            self._leave(EXIT_DRAINED)

    def _leave(self, status: int) -> NoReturn:
        """End the process, whatever its threads do."""
        self._log.event("stopped", status=status)
        self._log.close()
        sys.stderr.flush()
        os._exit(status)

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        self._stop.set()
        if self._signals > 1:
            self._leave(128 + number)


def queue_limits(config: ServeConfig) -> QueueLimits:
    """What the scheduler admits."""
    return QueueLimits(
        max_requests=config.max_queued_requests,
        max_rows=config.max_queued_rows,
        max_tokens=config.max_queued_tokens,
        max_row_tokens=config.max_row_tokens,
        max_request_tokens=config.max_request_tokens,
        pack_tokens=config.pack_tokens,
        prepare_threads=config.prepare_threads,
    )


@contextlib.contextmanager
def _logged(log: AccessLog) -> Iterator[None]:
    """Errors that are said through `logging` go to the log, as lines of its form."""
    handler = LogHandler(log)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "decider.serve", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


@contextlib.contextmanager
def frozen() -> Iterator[None]:
    """What is there now is left out of garbage collection: torch and a model's modules are 400,000 objects, and looking
    through them stops every request for 0.1 s, again and again."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _sweep(server: Server) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        server.sweep()


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return


def _tell(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Brain], outcome: Brain | BaseException) -> None:
    def settle() -> None:
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        # The loop has ended: nobody waits for the model any more.
        return


async def _unavailable(send: Any, reason: str) -> None:
    headers = (*_own_id(), (b"retry-after", str(RETRY_AFTER_S).encode()), (b"connection", b"close"))
    await send_bytes(send, 503, Failure(503, reason).body(), headers=headers)


def _own_id() -> tuple[tuple[bytes, bytes]]:
    return ((b"x-typesafe-request-id", b"req_" + secrets.token_hex(12).encode()),)
