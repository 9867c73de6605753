"""One JSON line a request, written by a thread of its own.

It refuses to write what a caller sent, unless `log_content` was asked for, and never writes a key. Trap: a reader of
the log that stops reading must not stop the server, so lines wait in a bounded buffer, and those beyond it are counted
and lost.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from typing import TextIO

MAX_WAITING_LINES = 10_000
FLUSH_S = 0.1


class AccessLog:
    """Writes to `stream`. Any thread may call it; `close` writes what waits."""

    def __init__(self, stream: TextIO, *, log_content: bool = False) -> None:
        self.log_content = log_content
        self._stream = stream
        self._lines: list[str] = []
        self._lost = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="decider-log", daemon=True)
        self._thread.start()

    def request(
        self,
        *,
        request_id: str,
        route: str,
        status: int,
        seconds: float,
        n_rows: int = 0,
        n_tokens: int = 0,
        queue_s: float = 0.0,
        run_s: float = 0.0,
        reason: str | None = None,
        content: Mapping[str, object] | None = None,
    ) -> None:
        """One answered request. `reason`: why it was refused, a fixed word. `content` is left out by `log_content`."""
        line: dict[str, object] = {
            "ts": round(time.time(), 3),
            "event": "request",
            "request_id": request_id,
            "route": route,
            "status": status,
            "ms": round(seconds * 1e3, 3),
            "rows": n_rows,
            "tokens": n_tokens,
            "queue_ms": round(queue_s * 1e3, 3),
            "run_ms": round(run_s * 1e3, 3),
        }
        if reason is not None:
            line["reason"] = reason
        if self.log_content and content is not None:
            line["content"] = content
        self._add(line)

    def event(self, event: str, **facts: object) -> None:
        """Something of the process: `started`, `ready`, `draining`, `stopped`, `fatal`."""
        self._add({"ts": round(time.time(), 3), "event": event, **facts})

    def close(self) -> None:
        """Write what waits, for at most a second; nothing is written afterwards."""
        self._closing.set()
        self._thread.join(timeout=1.0)

    def _add(self, line: Mapping[str, object]) -> None:
        with self._lock:
            if len(self._lines) < MAX_WAITING_LINES:
                self._lines.append(json.dumps(line, separators=(",", ":")))
            else:
                self._lost += 1

    def _write_on(self) -> None:
        while not self._closing.wait(FLUSH_S):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, []
            lost, self._lost = self._lost, 0
        n_unwritten = lost + len(lines)
        if lost:
            lines.append(json.dumps({"ts": round(time.time(), 3), "event": "log_lines_lost", "n": lost}))
        if not lines:
            return
        try:
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # The reader has gone, or the disk is full; answers matter more than their log.
            with self._lock:
                self._lost += n_unwritten


class LogHandler(logging.Handler):
    """Makes an `error` event of what libraries and this package say through `logging`."""

    def __init__(self, log: AccessLog) -> None:
        super().__init__(logging.ERROR)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One line, whatever the traceback is."""
        text = record.getMessage().strip()
        if record.exc_info:
            text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
        self._log.event("error", logger=record.name, message=text)
