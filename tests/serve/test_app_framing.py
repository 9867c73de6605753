"""What stands on a connection, byte by byte: pipelined, chunked, upgraded, broken, and no HTTP at all.

Refuses to know what is answered beyond the status. Trap: where a segment ends must change nothing, so what comes in two
parts has to come in two, with a pause between them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from raw_http import BODY, answers, head, nothing_is_left
from serving import Served, served, until

from decider.serve.config import ServeConfig


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(config=ServeConfig(read_timeout_s=0.5, max_body_bytes=100_000)) as running:
        yield running
        nothing_is_left(running)


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
