"""Around every request: its id, its time, its line in the log and the metrics, and an answer whatever is raised.

Plain ASGI, innermost work first: what a route raises becomes the wire's error body here. It refuses to know what routes
do. Trap: an error after the first byte of an answer cannot become an answer any more; it is raised on, and the server
closes the connection.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from decider.serve.body import Held, Incoming
from decider.serve.config import ServeConfig
from decider.serve.hosts import Hosts
from decider.serve.logs import AccessLog
from decider.serve.metrics import Metrics
from decider.serve.refusal import ClientLeftError, Failure, failure_of, is_expected
from decider.serve.respond import send_bytes

if TYPE_CHECKING:
    from decider.serve.scheduler import Timed

KEY = "decider.exchange"
OPENAI_PATH = "/v1/decisions"
ROUTES = frozenset(
    (
        "/v1/systemone", OPENAI_PATH, "/decide", "/v1/models", "/health", "/health/live", "/health/ready", "/stats",
        "/metrics", "/openapi.json", "/docs", "/",
    )
)  # fmt: skip
"""What the metrics may call a request by; any other path counts as `static` or `unknown`."""
CLIENT_LEFT_STATUS = 499
"""Never sent: how the log and the metrics tell that nobody waited for the answer."""
MAX_ID_CHARACTERS = 64
REASONS = {
    400: "bad_request", 401: "wrong_key", 403: "no_key", 404: "not_found", 405: "wrong_method", 408: "slow_sender",
    413: "too_large", 415: "unsupported_type", 421: "wrong_host", 422: "schema", 429: "overload", 499: "client_left",
    500: "internal_error", 503: "not_ready", 529: "overload",
}  # fmt: skip


@dataclass(slots=True)
class Exchange:
    """One request while it is answered; routes find it in the scope."""

    request_id: str
    started: float
    """On `time.perf_counter`."""
    incoming: Incoming
    status: int = 0
    """0 until the answer has begun."""
    timed: Timed | None = None
    """Where an engine answered."""
    content: dict[str, object] | None = None
    """What the log may write where it was told to write content."""


def exchange_of(scope: Scope) -> Exchange:
    """The exchange that a scope belongs to."""
    exchange: Exchange = scope[KEY]
    return exchange


class Guard:
    """The outermost layer of ours."""

    def __init__(self, app: ASGIApp, *, config: ServeConfig, metrics: Metrics, log: AccessLog, held: Held) -> None:
        self._app = app
        self._config = config
        self._metrics = metrics
        self._log = log
        self._held = held
        self._ids = RequestIds()
        self._hosts = Hosts.of(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        incoming = Incoming(scope, receive, self._held)
        exchange = Exchange(self._ids.take(incoming.headers.get(b"x-request-id")), time.perf_counter(), incoming)
        scope[KEY] = exchange
        own_id = exchange.request_id.encode("ascii")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                ids = ((b"x-typesafe-request-id", own_id), (b"x-request-id", own_id))
                message["headers"] = [*message.get("headers", ()), *ids]
            await send(message)

        try:
            self._hosts.check(scope["http_version"], incoming.all_headers)
            await self._app(scope, receive, sending)
        except ClientLeftError:
            exchange.status = CLIENT_LEFT_STATUS
        except Exception as error:
            if exchange.status:
                raise
            await self._refuse(error, exchange, scope, sending)
        finally:
            incoming.let_go()
            self._record(exchange, scope["path"])

    async def _refuse(self, error: Exception, exchange: Exchange, scope: Scope, send: Send) -> None:
        failure = failure_of(error, exchange.request_id, overload_status=self._config.overload_status)
        if not is_expected(error):
            logging.getLogger("decider.serve").error(
                "request %s: %s", exchange.request_id, error, exc_info=error if failure.status == 500 else None
            )
        await self.fail(failure, exchange, scope, send)

    async def fail(self, failure: Failure, exchange: Exchange, scope: Scope, send: Send) -> None:
        """Answer with `failure`, after what is left of the body."""
        headers = failure.headers
        try:
            # A slow sender has had its time.
            if failure.status == 408 or not await exchange.incoming.discard(self._config.read_timeout_s):
                headers = (*headers, (b"connection", b"close"))
        except ClientLeftError:
            exchange.status = CLIENT_LEFT_STATUS
            return
        await send_bytes(send, failure.status, failure.body(openai=scope["path"] == OPENAI_PATH), headers=headers)

    def _record(self, exchange: Exchange, path: str) -> None:
        seconds = time.perf_counter() - exchange.started
        route = path if path in ROUTES else "static" if path.startswith("/static/") else "unknown"
        # 0: the task was cancelled, as the server stops.
        status = exchange.status or CLIENT_LEFT_STATUS
        reason = REASONS.get(status)
        self._metrics.request(route, status, seconds)
        if reason is not None and status != CLIENT_LEFT_STATUS:
            self._metrics.rejected(reason)
        timed = exchange.timed
        if timed is None:
            self._log.request(
                request_id=exchange.request_id, route=route, status=status, seconds=seconds, reason=reason
            )
            return
        self._log.request(
            request_id=exchange.request_id,
            route=route,
            status=status,
            seconds=seconds,
            n_rows=timed.n_rows,
            n_tokens=timed.n_tokens,
            queue_s=timed.queue_s,
            run_s=timed.run_s,
            reason=reason,
            content=exchange.content,
        )


class RequestIds:
    """A new id a request: one random start a process, then counted. An id is a name and no secret.

    Random bytes for each would be a system call, during which a busy engine takes the interpreter's lock away.
    """

    def __init__(self) -> None:
        self._start = secrets.token_hex(8)
        self._count = itertools.count(1)

    def take(self, given: bytes | None) -> str:
        """The caller's own where it is short and printable, so that both logs tell of one request; else a new one."""
        if given is not None and 0 < len(given) <= MAX_ID_CHARACTERS and all(33 <= byte <= 126 for byte in given):
            return given.decode("ascii")
        return f"req_{self._start}{next(self._count):08x}"
