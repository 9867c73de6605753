"""HTTP on a plain socket: a request's head as bytes, and the answers of a connection read one by one.

Refuses to correct what a test sends. Trap: heads are read byte by byte, or the start of the next answer would be lost.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket

from serving import Served, until

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


def nothing_is_left(server: Served) -> None:
    """Waits until no task of a request is on the server's loop, which must be idle then."""

    def tasks() -> int:
        return len([one for one in asyncio.all_tasks(server.loop) if "watch" in repr(one) or "run_asgi" in repr(one)])

    until(lambda: server.on_loop(tasks) == 0)
    assert server.idle()
