"""What HTTP costs: requests a second at 64 clients, and the time that it adds at one.

Refuses to count the engine, which answers at once. Trap: a load generator takes processor time from the server that it
measures, so a compiled one is used, and its share is stated.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crowd import post, wire_request
from fake_brain import FakeBrain
from server_process import ServerProcess, serving_fake

from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.wire import parse_request

pytestmark = pytest.mark.long

LEAST_RATE = 1500.0
"""Requests a second."""
N_CLIENTS, RATE_S = 64, 10
MOST_OVERHEAD_S = 1.5e-3
STEP_S = 0.030
"""A delayed acknowledgement takes 40 ms."""
BODY = wire_request(3)
N_CALLS = 2000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving_fake(tmp_path) as server:
        assert server.port
        yield server


@pytest.fixture(scope="module")
def wrk() -> str:
    """The load generator, installed where that is possible."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "--yes", "--quiet", "wrk"], check=True, capture_output=True)
    found = shutil.which("wrk")
    assert found, "wrk is missing, which makes the load; run: sudo apt-get install wrk"
    return found


@pytest.mark.parametrize("n_questions", [1, 3])
def test_the_rate_at_64_clients(server: ServerProcess, wrk: str, tmp_path: Path, n_questions: int) -> None:
    script = tmp_path / "post.lua"
    request = wire_request(n_questions).decode()
    script.write_text(
        f'wrk.method = "POST"\nwrk.body = [=[{request}]=]\nwrk.headers["Content-Type"] = "application/json"\n'
    )

    def run(seconds: int) -> str:
        url = f"http://127.0.0.1:{server.port}/v1/systemone"
        command = [wrk, "-t1", f"-c{N_CLIENTS}", f"-d{seconds}s", "--latency", "-s", str(script), url]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    run(2)
    before, server_cpu_s = resource.getrusage(resource.RUSAGE_CHILDREN), server.cpu_s()
    told = run(RATE_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    server_cpu_s = server.cpu_s() - server_cpu_s
    wrk_cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rate = float(found[1]) if (found := re.search(r"Requests/sec:\s+([\d.]+)", told)) else 0.0
    print(
        f"\nrate: {rate:.0f}/s at {N_CLIENTS} clients, {n_questions} questions; of one core wrk took "
        f"{wrk_cpu_s / RATE_S:.0%}, the server {server_cpu_s / RATE_S:.0%} "
        f"({server_cpu_s / RATE_S / max(rate, 1) * 1e6:.0f} µs a request); load average "
        f"{os.getloadavg()[0]:.1f}\n{told}"
    )
    assert "Non-2xx" not in told
    assert "Socket errors" not in told
    assert rate >= LEAST_RATE
    assert server.stop() == 0


def test_the_overhead_at_one_client(server: ServerProcess) -> None:
    brain = FakeBrain(records=False)
    prepared = brain.prepare(parse_request(BODY, DEFAULT_LIMITS))

    def call_engine() -> None:
        brain.score(prepared.rows, prepared.temperatures)

    engine_s = statistics.median(timed(call_engine, N_CALLS))
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        whole = post(BODY)
        calls_s = timed(lambda: exchange(connection, whole), N_CALLS)
        head, _, _ = whole.partition(b"\r\n\r\n")
        # As http.client and its like send: the head and the body apart.
        apart_s = timed(lambda: exchange(connection, head + b"\r\n\r\n", BODY), N_CALLS // 4)
    http_s = statistics.median(calls_s)
    print(
        f"\noverhead: HTTP p50 {http_s * 1e3:.3f} ms, in two writes {statistics.median(apart_s) * 1e3:.3f} ms, engine "
        f"{engine_s * 1e3:.3f} ms; load average {os.getloadavg()[0]:.1f}"
    )
    assert http_s - engine_s <= MOST_OVERHEAD_S
    for name, measured_s in (("one write", calls_s), ("two writes", apart_s)):
        assert sum(call_s > STEP_S for call_s in measured_s) <= 0.02 * len(measured_s), name
    assert server.stop() == 0


def timed(call: Callable[[], None], repeats: int) -> list[float]:
    """Seconds of each call, the first tenth left out."""
    taken = []
    for _ in range(repeats):
        started_s = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started_s)
    return taken[repeats // 10 :]


def exchange(connection: socket.socket, *writes: bytes) -> None:
    """Send, and read one whole answer."""
    for write in writes:
        connection.sendall(write)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65_536)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(content) < length:
        content += connection.recv(65_536)
