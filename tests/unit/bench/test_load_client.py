"""The lean HTTP client: answers in pieces and in chunks, connections that close, URLs.

Refuses to test HTTP beyond what servers of this wire send. Trap: a piece may end anywhere, in the status line too.
"""

from __future__ import annotations

import asyncio

import pytest
from stub_http import Answer, Say, reply, stub

from decider.bench.load import Closed, LoadPlan, run_load
from decider.bench.load_client import ConnectionFault, address_of, connect, post
from decider.errors import ConfigError

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=1\r\nwhol\r\n2\r\ne \r\n1\r\n!\r\n0\r\n\r\n"


def ask(answer: Answer, times: int = 1) -> list[tuple[int, bytes]]:
    """`times` requests on one connection."""
    with stub(answer) as server:

        async def go() -> list[tuple[int, bytes]]:
            address = address_of(server.url)
            connection = await connect(address)
            try:
                return [await connection.ask(post(address, "/x", b"{}", None)) for _ in range(times)]
            finally:
                connection.close()

        return asyncio.run(go())


def test_answers_come_whole_however_they_are_cut() -> None:
    whole = reply(201, b"abc")
    cuts = [(whole[:cut], whole[cut:]) for cut in range(1, len(whole))]
    assert ask(lambda n: Say(cuts[n]), len(cuts)) == [(201, b"abc")] * len(cuts)


def test_chunks_are_joined() -> None:
    bytewise = tuple(CHUNKED[at : at + 1] for at in range(len(CHUNKED)))
    assert ask(lambda n: Say((CHUNKED,) if n == 0 else bytewise), 2) == [(200, b"whole !")] * 2


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((), "closed before an answer"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",), "closed before an answer"),
        ((b"SSH-2.0-x\r\n\r\n",), "no HTTP answer"),
        ((b"HTTP/1.1 200 OK\r\n\r\n",), "it has no length"),
    ],
)
def test_what_is_no_answer_is_a_fault(parts: tuple[bytes, ...], said: str) -> None:
    with pytest.raises(ConnectionFault, match=said) as caught:
        ask(lambda _: Say(parts, closes=True))
    assert not caught.value.stale


def test_a_connection_that_closes_after_answers_is_stale_and_load_asks_again() -> None:
    def answer(number: int) -> Say:
        # Every second request meets a connection that the server has just closed.
        return Say((), closes=True) if number % 2 else Say()

    with pytest.raises(ConnectionFault) as caught:
        ask(answer, 2)
    assert caught.value.stale
    with stub(answer) as server:
        address = address_of(server.url)
        load = run_load(LoadPlan(address, (post(address, "/x", b"{}", None),), Closed(1), 0.2, 0, 5))
    assert set(load.outcomes) == {"200"}
    assert len(load.outcomes) > 3


def test_a_server_that_says_close_is_asked_on_a_new_connection() -> None:
    with stub(lambda _: Say((reply(200, headers="Connection: close\r\n"),), closes=True)) as server:
        address = address_of(server.url)
        load = run_load(LoadPlan(address, (post(address, "/x", b"{}", None),), Closed(1), 0.2, 0, 5))
        assert server.connections == len(server.requests)
    assert set(load.outcomes) == {"200"}


def test_a_request_is_one_head_and_its_body() -> None:
    sent = post(address_of("http://[::1]:81/a/"), "/v1/x", "{é}".encode(), "key")
    assert sent == (
        b"POST /a/v1/x HTTP/1.1\r\nHost: [::1]:81\r\nUser-Agent: decider-bench\r\nContent-Type: application/json\r\n"
        b"Content-Length: 4\r\nAuthorization: Bearer key\r\n\r\n{\xc3\xa9}"
    )
    address = address_of("https://example.org")
    assert (address.port, address.tls, str(address)) == (443, True, "https://example.org:443")


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://x", "http://", "http://x:y", "http://x/?a=1", "http://x/a b", "http://x:99999"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--url"):
        address_of(url)
