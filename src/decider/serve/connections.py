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
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from decider.serve.config import ServeConfig
from decider.serve.refusal import Failure

MAX_HEAD_BYTES = 64 * 2**10
HEADER_SIGNS = 4
"""Colon, space and line end of a header, which the parser does not hand over."""
FRAMING = (b"content-length", b"transfer-encoding")
LINGER_S = 2.0
"""How long a peer may go on sending after its last answer: a system that gets bytes for a closed socket resets it, and
the peer's throws away an answer that was not read yet."""
MAX_LINGER_BYTES = 16 * 2**20
MAX_SURPLUS = 64
"""Connections beyond `max_connections` whose request is waited for, to be refused; more are closed at once."""
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


class HeadTooLargeError(Exception):
    """Raised through the parser, which then stops."""


class UnknownVersionError(Exception):
    """Raised through the parser, which stops: HTTP/0.9 knows no status to answer with, and 2 is no text."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `bounds` and `surplus` are set on a subclass by `make_server`."""

    bounds: Bounds
    surplus: set[BoundedProtocol]
    """Connections over `max_connections`, which wait for the end of a head to be refused."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._since_s = time.monotonic()
        self._head_since_s: float | None = None
        self._unread_since_s: float | None = None
        self._head_bytes = 0
        """Of this head, as far as it was parsed."""
        self._read_bytes = 0
        """Of this head, as it came in, without its first read."""
        self._running: Any = None
        self._asked = False
        self._is_resumed = False
        """A parser is being told where a body goes on; nothing of that is a request."""
        self._last_answer: bytes | None = None
        """To be sent after the answers that are still due, and then no more."""
        self._is_over = False
        """The last answer was sent; what still comes is dropped."""
        self._dropped_bytes = 0
        self._tail = b""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) - len(self.surplus) > self.bounds.max_connections:
            if len(self.surplus) < MAX_SURPLUS:
                self.surplus.add(self)
            else:
                self._refuse_surplus()
                self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._last_answer is not None:
            return
        if self._is_over:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > MAX_LINGER_BYTES:
                self.transport.abort()
            return
        if self in self.surplus:
            # No answer before there is a question: a client that is not done sending may take it for a fault.
            self._head_bytes += len(data)
            seen = self._tail + data
            self._tail = seen[-3:]
            if b"\r\n\r\n" in seen or self._head_bytes > MAX_HEAD_BYTES:
                self._refuse_surplus()
            return
        in_head = self._head_since_s is not None
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except HttpParserError as error:
            if isinstance(error.__context__, HeadTooLargeError):
                self._refuse_head()
            else:
                self.send_400_response("invalid HTTP request")
            return
        # A header that has no end yet is not seen by `on_header`. A head that began inside `data` is not counted before
        # the next read: the rest may be a body's.
        if in_head and self._head_since_s is not None:
            self._read_bytes += len(data)
            if self._read_bytes > MAX_HEAD_BYTES:
                self._refuse_head()
                return
        if self._is_waiting and QUICK_ACK is not None and not self.transport.is_closing():
            # A client that writes head and body apart may hold the second until the first is acknowledged, which a
            # kernel that hopes for an answer to send along puts off for 40 ms.
            self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)

    def _feed(self, data: bytes) -> None:
        """No other protocol is spoken here, so a request to change to one is a request as any other (RFC 9110, 7.8).

        The parser ends such a message with its head; another one takes the body up, told how it is framed.
        """
        while True:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as stop:
                framing = [b"%s: %s\r\n" % header for header in self.headers if header[0] in FRAMING]
                self.parser = HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self._is_resumed = True
                self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(framing))
                data = data[stop.args[0] :]
            else:
                return

    def on_message_begin(self) -> None:
        if self._is_resumed:
            return
        super().on_message_begin()
        self._head_since_s = time.monotonic()
        self._head_bytes = self._read_bytes = 0

    def on_url(self, url: bytes) -> None:
        if not self._is_resumed:
            self._count_head(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers have no reader, and no bound either.
        if self._head_since_s is not None:
            self._count_head(len(name) + len(value) + HEADER_SIGNS)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_resumed:
            self._is_resumed = False
            return
        self._head_since_s = None
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            raise UnknownVersionError
        # Raises for a target that is no URL; then there is no cycle to look at.
        super().on_headers_complete()
        self._asked = True

    def on_message_complete(self) -> None:
        # Of one that asks for another protocol, the parser knows no body.
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _count_head(self, n_bytes: int) -> None:
        self._head_bytes += n_bytes
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLargeError

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        self.surplus.discard(self)
        # uvicorn tells the request that came last, which behind a pipelined one is not the one that runs.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._since_s = time.monotonic()
        super().on_response_complete()
        # `_running` is the next one by now, where there is one.
        if self._last_answer is not None and self._running.response_complete and not self.transport.is_closing():
            self._say_last(self._last_answer)

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
        elif self._is_over:
            if now_s - self._since_s > LINGER_S:
                self.transport.abort()
        elif self in self.surplus:
            if now_s - self._since_s > min(LINGER_S, self.bounds.read_timeout_s):
                self._refuse_surplus()
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

    def _refuse_head(self) -> None:
        self._refuse(431, f"the headers are over the limit of {MAX_HEAD_BYTES:,} bytes; send fewer")

    def _refuse_surplus(self) -> None:
        self.surplus.discard(self)
        self._refuse(
            self.bounds.overload_status,
            f"too many connections, over {self.bounds.max_connections:,} (max_connections); try again in a second",
            "retry-after: 1\r\n",
        )

    def _refuse(self, status: int, message: str, headers: str = "") -> None:
        """Answer what came last without the application, after the answers that are due before it, and hear no more."""
        body = Failure(status, message).body()
        head = (
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
            f"x-typesafe-request-id: req_{secrets.token_hex(12)}\r\n{headers}\r\n"
        )
        answer = STATUS_LINE[status] + head.encode() + body
        in_body = self._asked and self._head_since_s is None and self.cycle.more_body
        self._head_since_s = None
        if not self._asked or self._running.response_complete:
            self._say_last(answer)
        elif not in_body or self._running is not self.cycle:
            if in_body:
                # It waits for its turn, and will not get its body.
                self.pipeline.popleft()
            self._last_answer = answer
        elif self.cycle.response_started:
            # Bytes of an answer that was begun cannot be followed by another one's.
            self.transport.close()
        else:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._say_last(answer)

    def _say_last(self, answer: bytes) -> None:
        """Send it, and then hear and drop what the peer still sends, until it ends too."""
        self._last_answer = None
        self._is_over = True
        self._since_s = time.monotonic()
        self._unset_keepalive_if_required()
        self.transport.write(answer)
        self.transport.write_eof()
        self.flow.resume_reading()


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
            http=type("Protocol", (BoundedProtocol,), {"bounds": bounds, "surplus": set()}),
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
