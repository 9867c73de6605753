"""Connections as they are: kept alive, pipelined, slow, cut off in the middle, left early.

Plain sockets, because no client would do most of it. Trap: what a closed socket does to the work of its request is seen
a moment later, so the tests wait for it, and then for the queue to be empty.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fake_brain import FakeBrain
from serving import Served, served, until
from starlette.routing import Route

from decider.serve.asking import Asking
from decider.serve.config import ServeConfig

BODY = json.dumps(
    {"state": "s", "model": "jev-latest", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}
).encode()


def head(length: int | None = len(BODY), *more: str) -> bytes:
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    lines = ("POST /v1/systemone HTTP/1.1", "host: localhost", "content-type: application/json", size, *more)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answers(connection: socket.socket, count: int = 1) -> list[tuple[int, dict[str, str], bytes]]:
    """The next `count` answers of a connection: status, headers, body."""
    found = []
    for _ in range(count):
        # One response object an answer would read ahead; the file is shared instead.
        response = http.client.HTTPResponse(connection)
        response.fp.close()
        response.fp = _Unbuffered(connection)  # type: ignore[assignment]
        response.begin()
        body = response.read()
        found.append((response.status, {name.lower(): value for name, value in response.getheaders()}, body))
    return found


class _Unbuffered:
    """As much of a file as `HTTPResponse` needs, reading not a byte too many."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def readline(self, limit: int = -1) -> bytes:
        line = b""
        while not line.endswith(b"\n") and len(line) != limit:
            byte = self._connection.recv(1)
            if not byte:
                break
            line += byte
        return line

    def read(self, size: int = -1) -> bytes:
        body = b""
        while size < 0 or len(body) < size:
            part = self._connection.recv(65_536 if size < 0 else size - len(body))
            if not part:
                break
            body += part
        return body

    def flush(self) -> None: ...
    def close(self) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    config = ServeConfig(read_timeout_s=0.5, max_body_bytes=100_000)
    with served(config=config) as running:
        yield running
        assert running.idle()


def test_keep_alive_calls_show_no_step(server: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.connect()
    took = []
    for _ in range(30):
        start = time.perf_counter()
        connection.request("POST", "/v1/systemone", BODY, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        took.append(time.perf_counter() - start)
        assert response.status == 200
    connection.close()
    assert statistics.median(took) < 0.02, took


def test_an_answer_comes_in_one_piece(server: Served) -> None:
    whole = 0
    with server.connect() as connection:
        for _ in range(20):
            connection.sendall(head() + BODY)
            first = connection.recv(65_536)
            at = first.find(b"\r\n\r\n") + 4
            length = int(first[first.index(b"content-length: ") + 16 :].split(b"\r\n", 1)[0])
            rest = length - (len(first) - at)
            whole += rest == 0
            while rest > 0:
                rest -= len(connection.recv(rest))
    assert whole >= 15


def test_pipelined_requests_are_answered_in_order(server: Served) -> None:
    with server.connect() as connection:
        connection.sendall(b"".join(head(len(BODY), f"x-request-id: n{n}") + BODY for n in range(8)))
        got = answers(connection, 8)
    assert [(status, headers["x-request-id"]) for status, headers, _ in got] == [(200, f"n{n}") for n in range(8)]


def test_an_error_keeps_the_connection_where_the_body_was_read(server: Served) -> None:
    with server.connect() as connection:
        for n, (body, status) in enumerate([(b"{", 422), (BODY, 200), (b"\xff", 422), (b"", 422), (BODY, 200)]):
            connection.sendall(head(len(body)) + body)
            ((got, headers, _),) = answers(connection)
            assert got == status, n
            assert headers.get("connection") != "close"


def test_a_chunked_body(server: Served) -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:10], BODY[10:])) + b"0\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head(None) + chunks)
        assert answers(connection)[0][0] == 200


def test_a_client_that_asks_first_is_told_to_go_on_or_refused_unread(server: Served) -> None:
    with server.connect() as connection:
        connection.sendall(head(len(BODY), "expect: 100-continue"))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(BODY)
        assert answers(connection)[0][0] == 200
        connection.sendall(head(10**9, "expect: 100-continue"))
        ((status, headers, _),) = answers(connection)
        assert (status, headers["connection"]) == (413, "close")
        assert connection.recv(1) == b""


def test_a_body_declared_too_large_is_refused_before_it_is_sent(server: Served) -> None:
    with server.connect() as connection:
        connection.sendall(head(10**12))
        ((status, headers, body),) = answers(connection)
    assert (status, headers["connection"]) == (413, "close")
    assert "max_body_bytes" in json.loads(body)["detail"]


@pytest.mark.parametrize("length", [3_000_000, None])
def test_who_sends_too_much_still_reads_why(server: Served, length: int | None) -> None:
    chunk = b"x" * 100_000
    with server.connect() as connection:
        connection.sendall(head(length))
        for _ in range(30):
            connection.sendall(chunk if length else b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if not length:
            connection.sendall(b"0\r\n\r\n")
        assert answers(connection)[0][0] == 413
        connection.sendall(head() + BODY)
        assert answers(connection)[0][0] == 200


def test_a_wrong_type_with_its_body_still_coming_reads_why(server: Served) -> None:
    with server.connect() as connection:
        connection.sendall(head(len(BODY), "content-encoding: br") + BODY[:5])
        time.sleep(0.05)
        connection.sendall(BODY[5:] + head() + BODY)
        assert [status for status, _, _ in answers(connection, 2)] == [415, 200]


@pytest.mark.parametrize("sent", [b"", BODY[:7]])
def test_a_slow_sender_is_a_408_and_is_let_go(server: Served, sent: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(head() + sent)
        start = time.monotonic()
        ((status, headers, body),) = answers(connection)
        assert (status, headers["connection"]) == (408, "close")
        assert "read_timeout_s" in json.loads(body)["detail"]
        assert 0.3 < time.monotonic() - start < 0.9
        assert connection.recv(1) == b""


def test_a_sender_of_a_byte_now_and_then_gets_no_longer(server: Served) -> None:
    with server.connect() as connection:
        connection.sendall(head())
        for byte in BODY[:20]:
            time.sleep(0.04)
            try:
                connection.sendall(bytes([byte]))
            except OSError:
                break
        assert answers(connection)[0][0] == 408


@pytest.mark.parametrize(
    "sent", [head(), head() + BODY[:9], head(None) + b"5\r\nab", head(None) + b"zz\r\n", head()[:30]]
)
def test_half_sent_requests_leave_nothing(server: Served, sent: bytes) -> None:
    for _ in range(5):
        with server.connect() as connection:
            connection.sendall(sent)
    until(lambda: server.idle() and server.held_bytes == 0)
    assert server.post("/v1/systemone", BODY).status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\xff garbage\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/systemone HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"POST /v1/systemone HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/systemone HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_400(server: Served, sent: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(sent)
        ((status, headers, body),) = answers(connection)
    assert 400 <= status < 500, body
    assert "x-typesafe-request-id" in headers
    assert json.loads(body)["detail"]


@pytest.mark.parametrize("cut", [0, 1, 90, 150, 10_000])
@pytest.mark.parametrize("length", [len(BODY), None])
def test_an_upgrade_that_is_not_spoken_changes_nothing(server: Served, cut: int, length: int | None) -> None:
    """Not for the body, wherever the segments end, and not for the next request."""
    asks = head(length, "connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__")
    body = BODY if length else b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    sent = (asks + body) * 2 + head() + BODY
    at = min(cut, len(asks))
    with server.connect() as connection:
        connection.sendall(sent[:at])
        time.sleep(0.02)
        connection.sendall(sent[at:])
        assert [status for status, _, _ in answers(connection, 3)] == [200] * 3


def test_the_body_of_an_upgrade_is_no_request(server: Served) -> None:
    hidden = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head(len(hidden), "connection: upgrade", "upgrade: h2c"))
        time.sleep(0.05)
        connection.sendall(hidden + b"GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n")
        connection.sendall(b"upgrade: websocket\r\n\r\n" + head() + BODY)
        got = answers(connection, 3)
    assert [(status, b"alive" in body) for status, _, body in got] == [(422, False), (200, True), (200, False)]


BROKEN = [
    b"zz\r\nab\r\n0\r\n\r\n",
    b"-5\r\nab\r\n0\r\n\r\n",
    b"fffffffffffffffff\r\nab\r\n0\r\n\r\n",
    b"1\r\nabcd\r\n0\r\n\r\n",
]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("chunks", BROKEN)
def test_a_fault_in_the_framing_of_a_body_is_a_400(server: Served, chunks: bytes, apart: bool) -> None:
    with server.connect() as connection:
        connection.sendall(head(None) if apart else head(None) + chunks)
        if apart:
            time.sleep(0.05)
            connection.sendall(chunks)
        ((status, headers, _),) = answers(connection)
        assert (status, headers["connection"]) == (400, "close")
        assert connection.recv(1) == b""
    until(lambda: server.idle() and server.held_bytes == 0)


@pytest.mark.parametrize("coding", ["gzip", "xchunked", "identity"])
def test_a_transfer_coding_that_is_not_known_is_a_400(server: Served, coding: str) -> None:
    sent = head(None).replace(b"chunked", coding.encode()) + BODY
    with server.connect() as connection:
        connection.sendall(sent)
        assert answers(connection)[0][0] == 400


@pytest.mark.parametrize("last", [b"\x00garbage\r\n\r\n", head(None) + b"zz\r\nab", b"GET http://[ HTTP/1.1\r\n\r\n"])
def test_requests_before_a_fault_are_answered_before_it_is(server: Served, last: bytes) -> None:
    with server.connect() as connection:
        connection.sendall((head() + BODY) * 10 + last)
        assert [status for status, _, _ in answers(connection, 11)] == [200] * 10 + [400]
        assert connection.recv(1) == b""
    until(lambda: server.idle() and server.held_bytes == 0)


def test_who_goes_on_sending_after_a_refusal_still_reads_it(server: Served) -> None:
    with server.connect() as connection:
        connection.sendall(head(None) + b"zz\r\n")
        for _ in range(20):
            time.sleep(0.01)
            connection.sendall(b"x" * 50_000)
        assert answers(connection)[0][0] == 400
        assert connection.recv(1) == b""


@pytest.mark.parametrize("n_headers", [1, 50])
@pytest.mark.parametrize("apart", [False, True])
def test_the_limit_of_a_head_is_the_same_however_it_comes(server: Served, n_headers: int, apart: bool) -> None:
    for n_bytes, status in ((60_000, 200), (70_000, 431)):
        lines = [f"x-{n}: " + "v" * (n_bytes // n_headers) for n in range(n_headers)]
        sent = head(len(BODY), *lines) + BODY
        with server.connect() as connection:
            if apart:
                connection.sendall(sent[:1000])
                time.sleep(0.02)
                connection.sendall(sent[1000:])
            else:
                connection.sendall(sent)
            assert answers(connection)[0][0] == status


def test_one_connection_too_many_is_told_so_after_its_request() -> None:
    with served(config=ServeConfig(max_connections=2, read_timeout_s=0.5)) as server:
        with server.connect(), server.connect():
            for _ in range(5):
                with server.connect() as connection:
                    connection.settimeout(0.05)
                    with pytest.raises(TimeoutError):
                        connection.recv(1)
                    connection.settimeout(10)
                    connection.sendall(head(200_000))
                    time.sleep(0.02)
                    connection.sendall(b" " * 200_000)
                    ((status, headers, body),) = answers(connection)
                    assert (status, headers["retry-after"], headers["connection"]) == (429, "1", "close")
                    assert "max_connections" in json.loads(body)["detail"]["message"]
                    assert connection.recv(1) == b""
            # Who asks nothing is told as well, and let go.
            with server.connect() as silent:
                assert answers(silent)[0][0] == 429
        until(lambda: server.get("/health/live").status == 200)


@pytest.mark.parametrize("n_sent", [1, 3])
def test_work_is_dropped_when_its_client_leaves(n_sent: int) -> None:
    """While it runs, while it waits, and both at once."""
    hold = threading.Event()
    brain = FakeBrain(hold=hold)
    try:
        with served(brain) as server:
            connections = [server.connect() for _ in range(n_sent)]
            for connection in connections:
                connection.sendall(head() + BODY)
            until(lambda: server.on_loop(lambda: server.scheduler.load).requests == n_sent)
            until(lambda: len(brain.packs) == 1)
            for connection in connections:
                connection.close()
            until(lambda: server.on_loop(lambda: server.scheduler.load).requests == 0)
            assert server.held_bytes == 0
            hold.set()
            until(server.idle)
            load = server.on_loop(lambda: server.scheduler.load)
            assert (load.answered, load.dropped) == (0, n_sent)
            # What waited has never run.
            assert len(brain.packs) == 1
            assert server.post("/v1/systemone", BODY).status == 200
        assert server.lines.getvalue().count('"reason":"client_left"') == n_sent
    finally:
        hold.set()


def test_work_of_pipelined_requests_is_dropped_when_their_client_leaves(caplog: pytest.LogCaptureFixture) -> None:
    hold = threading.Event()
    brain = FakeBrain(hold=hold)
    try:
        with served(brain) as server:
            with server.connect() as connection:
                connection.sendall((head() + BODY) * 3)
                until(lambda: len(brain.packs) == 1)
            until(lambda: server.on_loop(lambda: server.scheduler.load).requests == 0)
            hold.set()
            until(server.idle)
            assert server.on_loop(lambda: server.scheduler.load).dropped == 1
    finally:
        hold.set()
    assert caplog.text == ""


def test_a_deadline_that_passes_is_a_429_and_drops_the_work() -> None:
    hold = threading.Event()
    try:
        with served(FakeBrain(hold=hold), ServeConfig(deadline_s=0.3)) as server:
            with ThreadPoolExecutor(2) as threads:
                short = threads.submit(server.post, "/v1/systemone", BODY, {"x-deadline-ms": "50"})
                long = threads.submit(server.post, "/v1/systemone", BODY, {"x-deadline-ms": "60000"})
                for reply in (short.result(), long.result()):
                    assert reply.status == 429
                    assert int(reply.headers["retry-after"]) >= 1
            until(lambda: server.on_loop(lambda: server.scheduler.load).requests == 0)
            hold.set()
    finally:
        hold.set()


def test_a_large_body_holds_up_nobody(server: Served) -> None:
    """While one is parsed, others are answered."""
    entered, leave = threading.Event(), threading.Event()

    def slow(body: bytes, limits: Any) -> Any:
        if len(body) > 50_000:
            entered.set()
            assert leave.wait(10)
        return parse(body, limits)

    asking = next(
        route.app for route in server.app.routes if isinstance(route, Route) and route.path == "/v1/systemone"
    )
    assert isinstance(asking, Asking)
    parse = asking.form
    object.__setattr__(asking, "form", slow)
    try:
        with ThreadPoolExecutor(1) as threads:
            large = threads.submit(server.post, "/v1/systemone", {**json.loads(BODY), "more": "x" * 60_000})
            assert entered.wait(5)
            assert server.post("/v1/systemone", BODY).status == 200
            # Another large one waits for its turn, and is given up when its deadline passes.
            more = {**json.loads(BODY), "more": "x" * 70_000}
            late = server.post("/v1/systemone", more, {"x-deadline-ms": "100"})
            assert (late.status, late.json["detail"]["error_type"]) == (429, "rate_limit_error")
            with server.connect() as left:
                left.sendall(head(70_000) + b" " * 70_000)
                until(lambda: server.held_bytes > 120_000)
            until(lambda: server.held_bytes < 70_000)
            assert not large.done()
            leave.set()
            assert large.result().status == 200
    finally:
        leave.set()
        object.__setattr__(asking, "form", parse)


def test_many_at_once(server: Served) -> None:
    """Sixteen connections, each its own answers, however they are put together for the engine."""
    bodies = [json.dumps({**json.loads(BODY), "state": f"state {n}"}).encode() for n in range(16)]
    alone = [server.post("/v1/systemone", body).json for body in bodies]

    def ask(body: bytes) -> list[Any]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        found = []
        for _ in range(5):
            connection.request("POST", "/v1/systemone", body, {"content-type": "application/json"})
            found.append(json.loads(connection.getresponse().read()))
        connection.close()
        return found

    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(ask, bodies))
    assert together == [[one] * 5 for one in alone]


def test_keep_alive_bounds_idle_connections_and_not_requests_that_run() -> None:
    hold = threading.Event()
    try:
        with served(FakeBrain(hold=hold), ServeConfig(keep_alive_s=0.2)) as server, server.connect() as connection:
            connection.sendall(head() + BODY)
            time.sleep(2.2)
            hold.set()
            assert answers(connection)[0][0] == 200
    finally:
        hold.set()


def test_who_waits_for_leave_to_send_is_refused_at_once(server: Served) -> None:
    start = time.monotonic()
    with server.connect() as connection:
        connection.sendall(head(200_000, "expect: 100-continue"))
        ((status, headers, _),) = answers(connection)
    assert (status, headers["connection"]) == (413, "close")
    assert time.monotonic() - start < 0.3


def test_a_request_says_once_whom_it_is_for(server: Served) -> None:
    for lines, version, status in [
        ((), "1.1", 400),
        ((), "1.0", 200),
        (("host: localhost", "host: localhost"), "1.1", 400),
        (("host: 127.0.0.1:8000",), "1.1", 200),
        (("host: evil.example",), "1.1", 421),
        (("host: localhost", "authorization: Bearer a", "authorization: Bearer b"), "1.1", 400),
        (("host: localhost", "authorization: Bearer a"), "1.1", 200),
        (("host: localhost",), "0.9", 400),
        (("host: localhost",), "2.0", 400),
    ]:
        with server.connect() as connection:
            connection.sendall("\r\n".join((f"GET /v1/models HTTP/{version}", *lines, "", "")).encode())
            got, _, body = answers(connection)[0]
        assert got == status, (lines, version, body)
    with server.connect() as connection:
        connection.sendall(b"GET /\r\n\r\n")
        assert answers(connection)[0][0] == 400


def test_nothing_is_left_on_the_loop(server: Served) -> None:
    def tasks() -> int:
        return len([one for one in asyncio.all_tasks(server.loop) if "watch" in repr(one) or "run_asgi" in repr(one)])

    until(lambda: server.on_loop(tasks) == 0)
