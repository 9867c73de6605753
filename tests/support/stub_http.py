"""A tiny HTTP server in a thread, for clients of ours: it answers each request as a function says, after a delay.

It refuses to know what is asked. Trap: its loop is one thread, so a function that sleeps stalls every connection, which
is what some tests want.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

OK = b'{"model":"stub","answers":{}}'


def reply(status: int = 200, body: bytes = OK, headers: str = "") -> bytes:
    """A whole response of a given length."""
    return f"HTTP/1.1 {status} X\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass(frozen=True, slots=True)
class Say:
    """What follows one request. Each part is a write of its own; `closes` ends the connection afterwards."""

    parts: tuple[bytes, ...] = (reply(),)
    delay_s: float = 0.0
    closes: bool = False


Answer: TypeAlias = Callable[[int], Say]


@dataclass(slots=True)
class Stub:
    """A running server, and what it was sent."""

    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    """Whole, in order."""
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def stub(answer: Answer = lambda _: Say()) -> Iterator[Stub]:
    """A server whose n-th request, from 0, is answered by `answer(n)`."""
    found = Stub()
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                found.requests.append(head + await reader.readexactly(length))
                said = answer(len(found.requests) - 1)
                if said.delay_s:
                    await asyncio.sleep(said.delay_s)
                for part in said.parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
                if said.closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def live() -> None:
        server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
        found.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.01)

    thread = threading.Thread(target=loop.run_until_complete, args=(live(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        assert not thread.is_alive()
        loop.close()
