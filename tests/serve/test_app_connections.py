"""Connections as they are: kept alive, slow, cut off in the middle, left early, too many.

Plain sockets, because no client would do most of it. Trap: what a closed socket does to the work of its request is seen
a moment later, so the tests wait for it, and then for the queue to be empty.
"""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fake_brain import FakeBrain
from raw_http import BODY, answers, head, nothing_is_left
from serving import Served, served, until
from starlette.routing import Route

from decider.serve.asking import Asking
from decider.serve.config import ServeConfig


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(config=ServeConfig(read_timeout_s=0.5, max_body_bytes=100_000)) as running:
        yield running
        nothing_is_left(running)


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
