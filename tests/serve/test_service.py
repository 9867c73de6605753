"""The life of a server process: warm-up, drain, death, and connections that bring no request.

Refuses to look at answers. Trap: every wait here has a limit, and a server that outlives its test is killed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest
from plain_http import ask, body, get, told
from server_process import ServerProcess, serving_fake

from decider.serve.connections import OTHER_FILES, enough_files
from decider.serve.scheduler import STOP_S
from decider.serve.service import EXIT_DRAINED, EXIT_FATAL, WATCH_S, frozen

PROMPT_S = 3.0
"""What happens at once happens within this, on a machine that does other things, too."""


@contextlib.contextmanager
def asking(port: int, state: str = "x") -> Iterator[list[tuple[int, dict[str, str], str]]]:
    """A request in another thread; its answer is in the list at the end."""
    answers: list[tuple[int, dict[str, str], str]] = []
    thread = threading.Thread(target=lambda: answers.append(ask(port, state)))
    thread.start()
    yield answers
    thread.join(20)
    assert len(answers) == 1


def wait_until_admitted(port: int) -> None:
    for _ in range(300):
        if json.loads(get(port, "/stats")[2])["load"]["requests"]:
            return
        time.sleep(0.01)
    raise AssertionError("the request was not admitted")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with little patience, for connections that bring no request."""
    config = {"read_timeout_s": 0.5, "keep_alive_s": 1.0, "max_connections": 20}
    with serving_fake(tmp_path_factory.mktemp("quick"), config=config) as server:
        assert server.port
        yield server


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        yield peer


def received(peer: socket.socket) -> bytes:
    """All that comes until the server closes."""
    chunks = []
    with contextlib.suppress(ConnectionResetError):
        while chunk := peer.recv(65_536):
            chunks.append(chunk)
    return b"".join(chunks)


def test_the_port_answers_while_the_model_warms_up(tmp_path: Path) -> None:
    with serving_fake(tmp_path, load_s=1.0) as server:
        server.wait_for("warming up")
        while not server.events():
            time.sleep(0.05)
        port = int(str(server.events()[0]["url"]).rpartition(":")[2])
        assert get(port, "/health/live")[0] == 200
        for status, headers, text in (get(port, "/health/ready"), ask(port)):
            assert status == 503
            assert int(headers["retry-after"]) > 0
            assert headers["connection"] == "close"
            assert headers["x-typesafe-request-id"]
            assert "warmed up" in json.loads(text)["detail"]["message"]
        assert server.port == port
        assert get(port, "/health/ready")[0] == 200
        assert ask(port)[0] == 200
        assert server.stop() == EXIT_DRAINED
    assert [event["event"] for event in server.events() if event["event"] != "request"] == [
        "started", "ready", "draining", "stopped",
    ]  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(tmp_path: Path, number: int) -> None:
    with serving_fake(tmp_path, brain={"delay_s": 1.0}) as server:
        port = server.port
        with asking(port) as answers:
            wait_until_admitted(port)
            server.process.send_signal(number)
            time.sleep(0.4)
            with pytest.raises(ConnectionError):
                get(port, "/health/ready")
        assert answers[0][0] == 200
        assert server.process.wait(PROMPT_S) == EXIT_DRAINED
    assert not any("Traceback" in line for line in server.lines)
    assert not [event for event in server.events() if event["event"] == "error"]


def test_nobody_is_turned_away_while_it_drains(tmp_path: Path) -> None:
    with serving_fake(tmp_path, brain={"delay_s": 0.01}) as server:
        port = server.port
        statuses: list[int] = []

        def hammer() -> None:
            connection = HTTPConnection("127.0.0.1", port, timeout=20)
            # Until the server closes the connection; http.client would open a new one, which is refused.
            with contextlib.closing(connection), contextlib.suppress(OSError, HTTPException):
                while True:
                    connection.request("POST", "/v1/systemone", body(), {"content-type": "application/json"})
                    statuses.append(told(connection.getresponse())[0])

        threads = [threading.Thread(target=hammer) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        assert server.stop(timeout_s=PROMPT_S) == EXIT_DRAINED
        for thread in threads:
            thread.join(10)
    assert set(statuses) == {200}
    assert len(statuses) > len(threads)


def test_an_idle_connection_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with serving_fake(tmp_path) as server, connected(server.port) as peer:
        peer.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert peer.recv(1000).startswith(b"HTTP/1.1 200")
        assert server.stop(timeout_s=PROMPT_S) == EXIT_DRAINED


def test_who_is_not_answered_in_time_is_told(tmp_path: Path) -> None:
    with serving_fake(tmp_path, brain={"delay_s": 8.0}, config={"drain_s": 0.3}) as server:
        port = server.port
        with asking(port) as answers:
            wait_until_admitted(port)
            server.process.send_signal(signal.SIGTERM)
        assert answers[0][0] == 503
        assert server.process.wait(10) == EXIT_DRAINED
    assert any("drain_s" in line for line in server.lines)


def test_a_forward_that_nobody_waits_for_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with serving_fake(tmp_path, brain={"delay_s": 30.0, "devices": ["one", "two"]}) as server:
        connection = HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/v1/systemone", body(), {"content-type": "application/json"})
        wait_until_admitted(server.port)
        connection.close()
        assert server.stop(timeout_s=STOP_S + PROMPT_S) == EXIT_DRAINED


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serving_fake(tmp_path, brain={"delay_s": 20.0}) as server:
        port = server.port
        connection = HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/v1/systemone", body(), {"content-type": "application/json"})
        wait_until_admitted(port)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert server.process.poll() is None
        assert server.stop(timeout_s=PROMPT_S) == 128 + signal.SIGTERM
        connection.close()


def test_a_signal_does_not_wait_for_a_model_that_loads(tmp_path: Path) -> None:
    with serving_fake(tmp_path, load_s=60.0) as server:
        server.wait_for("warming up")
        assert server.stop(timeout_s=PROMPT_S) == EXIT_DRAINED


def test_a_dead_engine_ends_the_process(tmp_path: Path) -> None:
    with serving_fake(tmp_path, dies_on="die now") as server:
        port = server.port
        assert ask(port)[0] == 200
        started = time.monotonic()
        assert ask(port, "die now")[0] == 503
        status, _, text = get(port, "/health/ready")
        assert (status, "not ready" in text) == (503, True)
        assert ask(port)[0] == 503
        assert server.process.wait(PROMPT_S) == EXIT_FATAL
        assert time.monotonic() - started < PROMPT_S
    assert any("the engine is dead" in line for line in server.lines)
    assert "fatal" in [event["event"] for event in server.events()]


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_dead_engine_beside_another_is_said_and_the_process_goes_on(tmp_path: Path, all_of_them: bool) -> None:
    with serving_fake(tmp_path, dies_on="die now", brain={"devices": ["one", "two"]}) as server:
        port = server.port
        assert ask(port, "die now")[0] == 503
        name = server.wait_for(r"WARNING: (one|two) is down", PROMPT_S)[1]
        assert get(port, "/health/ready")[0] == 200
        assert [ask(port)[0] for _ in range(3)] == [200] * 3
        assert [*json.loads(get(port, "/stats")[2])["health"]["lost"]] == [name]
        metrics = get(port, "/metrics")[2].splitlines()
        assert f'decider_device_up{{device="{name}"}} 0.0' in metrics
        assert "decider_ready 1.0" in metrics
        if all_of_them:
            assert ask(port, "die now")[0] == 503
            assert server.process.wait(PROMPT_S) == EXIT_FATAL
        else:
            # Said once, however often it is looked at.
            time.sleep(2 * WATCH_S)
            assert server.stop(timeout_s=PROMPT_S) == EXIT_DRAINED
    assert [event["device"] for event in server.events() if event["event"] == "device_lost"] == [name]


def test_a_supervisor_is_told(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
        inbox.bind(str(path))
        inbox.settimeout(10)
        with serving_fake(tmp_path, environ={"NOTIFY_SOCKET": str(path)}) as server:
            assert server.port
            assert inbox.recv(100) == b"READY=1"
            assert inbox.recv(100) == b"WATCHDOG=1"
            server.stop()
            inbox.settimeout(1)
            last = b""
            with contextlib.suppress(TimeoutError):
                while True:
                    last = inbox.recv(100)
            assert last == b"STOPPING=1"


def test_an_open_server_without_keys_is_warned_of(tmp_path: Path) -> None:
    with serving_fake(tmp_path, config={"host": "0.0.0.0"}) as server:
        assert re.search(
            r"WARNING: http://0\.0\.0\.0:\d+ is open to other machines", server.lines[0] if server.port else ""
        )


def test_what_is_loaded_is_left_out_of_garbage_collection() -> None:
    # What conftest.py froze must not be counted.
    gc.unfreeze()
    kept: list[list[int]] = [[] for _ in range(10)]
    with frozen():
        assert gc.get_freeze_count() > len(kept)
        assert not any(each is kept for each in gc.get_objects())
    assert gc.get_freeze_count() == 0
    gc.collect()
    gc.freeze()


def test_there_is_a_file_descriptor_for_each_connection() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    said: list[str] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        with enough_files(100, said.append):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 100 + OTHER_FILES
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (200, hard)
        assert said == []
        with enough_files(hard, said.append):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (warning,) = said
    assert "ulimit" in warning


def test_bytes_that_are_no_http_get_a_400(quick: ServerProcess) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n"):
        with connected(quick.port) as peer:
            peer.sendall(garbage)
            head, _, content = received(peer).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        assert b"x-typesafe-request-id" in head
        assert json.loads(content)["detail"]


def test_endless_headers_get_a_431(quick: ServerProcess) -> None:
    with connected(quick.port) as peer:
        with contextlib.suppress(ConnectionError):
            peer.sendall(b"GET / HTTP/1.1\r\n")
            for _ in range(2000):
                peer.sendall(b"x-filler: " + b"y" * 1000 + b"\r\n")
        # The server may have closed before all was sent, and then the system drops what it said.
        assert received(peer)[:12] in (b"HTTP/1.1 431", b"")
    assert quick.rss_bytes() < 400e6


def test_figures_are_told_to_both_readers(quick: ServerProcess) -> None:
    before = json.loads(get(quick.port, "/stats")[2])
    assert ask(quick.port)[0] == 200
    stats = json.loads(get(quick.port, "/stats")[2])
    assert stats["load"]["answered"] == before["load"]["answered"] + 1
    assert stats["counters"]["rows"] == before["counters"]["rows"] + 1
    assert stats["uptime_s"] > before["uptime_s"]
    assert (stats["model"], stats["health"]["ready"]) == ("decider-fake", True)
    metrics = get(quick.port, "/metrics")[2].splitlines()
    for line in ("decider_ready 1.0", "decider_admitted_requests 0.0", "decider_running_rows 0.0"):
        assert line in metrics
    assert f"decider_scheduler_answered_total {stats['load']['answered']}.0" in metrics
    assert any(line.startswith("process_resident_memory_bytes") for line in metrics)


def test_a_slow_head_gets_a_408(quick: ServerProcess) -> None:
    with connected(quick.port) as peer:
        peer.sendall(b"GET /health/live HTTP/1.1\r\nhost: ")
        started = time.monotonic()
        assert received(peer).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - started < PROMPT_S


@pytest.mark.parametrize(
    "first", [b"", b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"], ids=["silent", "idle"]
)
def test_a_connection_without_a_request_is_closed(quick: ServerProcess, first: bytes) -> None:
    with connected(quick.port) as peer:
        peer.sendall(first)
        started = time.monotonic()
        assert received(peer).count(b"HTTP/1.1 200") == bool(first)
        assert time.monotonic() - started < PROMPT_S + 1.0


def test_a_peer_that_reads_nothing_is_cut_off(quick: ServerProcess) -> None:
    with connected(quick.port) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        was_cut_off = False
        for _ in range(100):
            try:
                peer.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 50)
            except (ConnectionError, TimeoutError) as error:
                was_cut_off = isinstance(error, ConnectionError)
                break
            time.sleep(0.05)
        assert was_cut_off
    assert get(quick.port, "/health/live")[0] == 200


def test_trailers_and_upgrades_change_nothing(quick: ServerProcess) -> None:
    content = body()
    head = b"POST /v1/systemone HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
    with connected(quick.port) as peer:
        peer.sendall(
            head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\nx-trailer: 1\r\n\r\n" % (len(content), content)
        )
        assert received(peer).startswith(b"HTTP/1.1 200")
    with connected(quick.port) as peer:
        peer.sendall(
            b"GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        )
        assert peer.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_body_sent_after_its_head_is_not_put_off(quick: ServerProcess) -> None:
    content = body()
    head = b"POST /v1/systemone HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += b"content-length: %d\r\n\r\n"
    taken_s = []
    # Without TCP_NODELAY: the system holds the body back until the head is acknowledged.
    with connected(quick.port) as peer:
        for _ in range(15):
            started = time.perf_counter()
            peer.sendall(head % len(content))
            peer.sendall(content)
            answer = b""
            while b"usage" not in answer:
                answer += peer.recv(65_536)
            taken_s.append(time.perf_counter() - started)
            assert answer.startswith(b"HTTP/1.1 200")
    assert sorted(taken_s)[5] < 0.03


def test_too_many_connections_are_refused_with_a_time_to_come_back(quick: ServerProcess) -> None:
    with contextlib.ExitStack() as stack:
        refused = b""
        for _ in range(25):
            peer = stack.enter_context(connected(quick.port))
            peer.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            answer = peer.recv(4096)
            if not answer.startswith(b"HTTP/1.1 200"):
                refused = answer
                break
        assert refused.startswith(b"HTTP/1.1 429")
        assert b"retry-after: 1" in refused
    time.sleep(0.1)
    assert get(quick.port, "/health/live")[0] == 200
