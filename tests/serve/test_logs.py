"""The log: one JSON line a request, nothing of a caller in it, and no way for its reader to stop the server.

Refuses to know the server. Trap: a blocked pipe is the usual way for a reader to fail, not a closed one.
"""

from __future__ import annotations

import io
import json
import logging
import os
import threading
import time

import pytest

from decider.serve import logs
from decider.serve.logs import AccessLog, LogHandler


def lines_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def write_one(log: AccessLog, request_id: str = "r1") -> None:
    log.request(
        request_id=request_id, route="/v1/systemone", status=200, seconds=0.0123, n_rows=3, n_tokens=99, queue_s=0.001,
        run_s=0.01, content={"state": "secret\nstate"},
    )  # fmt: skip


def test_a_request_is_one_line_without_its_content() -> None:
    stream = io.StringIO()
    log = AccessLog(stream)
    write_one(log)
    log.event("draining")
    log.close()
    request, event = lines_of(stream.getvalue())
    assert abs(float(str(request.pop("ts"))) - time.time()) < 60
    assert request == {
        "event": "request", "request_id": "r1", "route": "/v1/systemone", "status": 200, "ms": 12.3, "rows": 3,
        "tokens": 99, "queue_ms": 1.0, "run_ms": 10.0,
    }  # fmt: skip
    assert event["event"] == "draining"


def test_content_is_written_where_it_was_asked_for() -> None:
    stream = io.StringIO()
    log = AccessLog(stream, log_content=True)
    write_one(log)
    log.close()
    (line,) = lines_of(stream.getvalue())
    assert line["content"] == {"state": "secret\nstate"}


def test_lines_come_out_without_being_waited_for() -> None:
    stream = io.StringIO()
    log = AccessLog(stream)
    write_one(log)
    for _ in range(100):
        if stream.getvalue():
            break
        time.sleep(0.02)
    assert len(lines_of(stream.getvalue())) == 1
    log.close()


def test_a_reader_that_stops_reading_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING_LINES", 50)
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe:
        log = AccessLog(pipe)
        filled = threading.Event()
        # More than the pipe and the buffer hold together.
        for _ in range(3):
            for number in range(1000):
                write_one(log, f"r{number}" * 20)
            time.sleep(0.2)
        started = time.monotonic()
        write_one(log)
        assert time.monotonic() - started < 0.1
        assert not filled.is_set()

        received: list[bytes] = []

        def read() -> None:
            while data := os.read(reading, 65_536):
                received.append(data)

        reader = threading.Thread(target=read)
        reader.start()
        time.sleep(0.3)
        log.close()
    reader.join()
    os.close(reading)
    written = lines_of(b"".join(received).decode())
    lost = sum(int(str(line["n"])) for line in written if line["event"] == "log_lines_lost")
    assert lost > 0
    assert lost + sum(line["event"] == "request" for line in written) == 3001


def test_a_reader_that_has_gone_stops_nobody() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    pipe = os.fdopen(writing, "w")
    log = AccessLog(pipe)
    write_one(log)
    time.sleep(0.3)
    write_one(log)
    log.close()
    with pytest.raises(BrokenPipeError):
        pipe.close()


def test_lines_of_a_write_that_failed_are_counted_as_lost() -> None:
    class Full(io.StringIO):
        n_faults = 2

        def write(self, text: str) -> int:
            if self.n_faults:
                self.n_faults -= 1
                raise OSError(28, "No space left on device")
            return super().write(text)

    stream = Full()
    log = AccessLog(stream)
    for _ in range(3):
        write_one(log)
    end = time.monotonic() + 5
    while "log_lines_lost" not in stream.getvalue() and time.monotonic() < end:
        time.sleep(0.01)
    log.close()
    lost = [line["n"] for line in lines_of(stream.getvalue()) if line["event"] == "log_lines_lost"]
    # The line that said so was lost once itself, and is none of them.
    assert lost == [3]


def test_what_libraries_say_is_one_line_too() -> None:
    stream = io.StringIO()
    log = AccessLog(stream)
    logger = logging.Logger("uvicorn.error")
    logger.addHandler(LogHandler(log))
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.exception("a fault")
    logger.warning("nothing to act on")
    log.close()
    (line,) = lines_of(stream.getvalue())
    assert line["event"] == "error"
    assert "a fault\nTraceback" in str(line["message"])


def test_a_line_costs_microseconds() -> None:
    log = AccessLog(io.StringIO())
    best = float("inf")
    for _ in range(20):
        started = time.perf_counter()
        for _ in range(200):
            write_one(log)
        best = min(best, time.perf_counter() - started)
    log.close()
    assert best / 200 * 1e6 <= 40
