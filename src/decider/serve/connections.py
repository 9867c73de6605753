"""Connections: uvicorn's HTTP/1.1 protocol, with bounds on what a peer may hold without sending a request.

It refuses to know routes and bodies. Trap: uvicorn bounds neither the bytes nor the time of a request's head, nor how
long a peer may leave an answer unread, so a few peers could hold memory and file descriptors for ever; `sweep` ends
them.
"""

from __future__ import annotations

import contextlib
import resource
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from decider.serve.config import ServeConfig
from decider.serve.refusal import Failure

MAX_HEAD_BYTES = 64 * 2**10
SWEEP_S = 1.0
BACKLOG = 2048
OTHER_FILES = 256
"""Descriptors that are no connection: the model's files, libraries, the log."""
QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Linux alone has it."""
ASGIApp = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a connection is held to."""

    max_connections: int
    read_timeout_s: float
    keep_alive_s: float
    overload_status: int


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `bounds` is set on a subclass by `make_server`."""

    bounds: Bounds

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._since_s = time.monotonic()
        self._head_since_s: float | None = None
        self._unread_since_s: float | None = None
        self._head_bytes = 0
        self._running: Any = None
        self._asked = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.bounds.max_connections:
            self._refuse(
                self.bounds.overload_status,
                f"too many connections, over {self.bounds.max_connections:,} (max_connections); try again in a second",
                "retry-after: 1\r\n",
            )

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        in_head = self._head_since_s is not None
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade:
            # No other protocol is spoken here; the request is answered as it stands.
            return
        except HttpParserError:
            self.send_400_response("invalid HTTP request")
            return
        # A head that began inside `data` is not counted before the next read: the rest may be a body's.
        if in_head and self._head_since_s is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._refuse(431, f"the headers are over the limit of {MAX_HEAD_BYTES:,} bytes; send fewer")
        if self._is_waiting and QUICK_ACK is not None and not self.transport.is_closing():
            # A client that writes head and body apart may hold the second until the first is acknowledged, which a
            # kernel that hopes for an answer to send along puts off for 40 ms.
            self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_since_s = time.monotonic()
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers have no reader, and no bound either.
        if self._head_since_s is not None:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_since_s = None
        # Raises for a target that is no URL; then there is no cycle to look at.
        super().on_headers_complete()
        self._asked = True

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        # uvicorn tells the request that came last, which behind a pipelined one is not the one that runs.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._since_s = time.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._unread_since_s = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since_s = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, f"{msg}; send HTTP/1.1")

    def sweep(self, now_s: float) -> None:
        """End the connection if its peer has kept it too long without a request or with an answer unread."""
        if self.transport.is_closing():
            # Closed after an answer that the peer does not read.
            if now_s - self._since_s > self.bounds.read_timeout_s:
                self.transport.abort()
        elif self._unread_since_s is not None:
            if now_s - self._unread_since_s > self.bounds.read_timeout_s:
                self.transport.abort()
        elif self._head_since_s is not None:
            if now_s - self._head_since_s > self.bounds.read_timeout_s:
                self._refuse(408, f"the headers took over {self.bounds.read_timeout_s:g} seconds; send them faster")
        elif not self._asked:
            if now_s - self._since_s > self.bounds.read_timeout_s:
                self.transport.abort()
        elif self.cycle.response_complete and now_s - self._since_s > self.bounds.keep_alive_s:
            self.transport.abort()

    @property
    def _is_waiting(self) -> bool:
        """Whether a request has begun to come in and is not there yet."""
        return self._head_since_s is not None or (self._asked and self.cycle.more_body)

    def _refuse(self, status: int, message: str, headers: str = "") -> None:
        """Answer without the application, and close."""
        body = Failure(status, message).body()
        head = (
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
            f"x-typesafe-request-id: req_{secrets.token_hex(12)}\r\n{headers}\r\n"
        )
        # Bytes of an answer that was begun cannot be followed by another one's.
        if not self._asked or self.cycle.response_complete:
            self.transport.write(STATUS_LINE[status] + head.encode() + body)
        self._since_s = time.monotonic()
        self.transport.close()


class Server(uvicorn.Server):
    """uvicorn's server, without its handling of signals, which is the service's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield

    def sweep(self) -> None:
        """Every `SWEEP_S`: `BoundedProtocol.sweep` of each connection."""
        now_s = time.monotonic()
        for connection in tuple(self.server_state.connections):
            if isinstance(connection, BoundedProtocol):
                connection.sweep(now_s)


def make_server(app: ASGIApp, config: ServeConfig) -> Server:
    """A server for `app`, to be given a socket of `bind`."""
    bounds = Bounds(config.max_connections, config.read_timeout_s, config.keep_alive_s, config.overload_status)
    return Server(
        uvicorn.Config(
            app,
            http=type("Protocol", (BoundedProtocol,), {"bounds": bounds}),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=max(1, round(config.keep_alive_s)),
            backlog=BACKLOG,
            # After the drain.
            timeout_graceful_shutdown=round(config.drain_s) + 5,
        )
    )


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens, though nothing accepts yet. Raises OSError, `socket.gaierror` for an unknown host."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        # Two sockets may be bound to one port as long as neither listens.
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


@contextlib.contextmanager
def enough_files(max_connections: int, say: Callable[[str], None]) -> Iterator[None]:
    """Let this process have a descriptor for each connection, as far as the system allows; say where it does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max_connections + OTHER_FILES
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if allowed < needed:
        say(f"WARNING: {allowed:,} files may be open, too few for {max_connections:,} connections; raise `ulimit -Hn`")
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def url_of(bound: socket.socket) -> str:
    """`http://…` of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
