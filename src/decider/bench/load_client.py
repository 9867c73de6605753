"""A lean HTTP/1.1 client for load: keep-alive connections, one request at a time each, sent in one write.

It refuses to know what is asked and to keep times. Trap: a connection whose request was given up holds an answer that
is still to come, so it must be closed, never used again.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from decider.errors import ConfigError

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)")
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked")
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close")


class ConnectionFault(Exception):
    """The connection failed or was closed before an answer. `stale`: it had answered before, and not begun to now."""

    def __init__(self, message: str, *, stale: bool = False) -> None:
        super().__init__(message)
        self.stale = stale


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and what its paths begin with."""

    host: str
    port: int
    tls: bool
    prefix: str
    """`` or `/decider`: without a slash at its end."""

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"


def address_of(url: str) -> Address:
    """The parts of `http://host:port/prefix` or https. Raises ConfigError for another kind of URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"--url {url!r:.120} is no URL; give one such as http://127.0.0.1:8000") from None
    plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or not plain:
        raise ConfigError(f"--url is {url!r:.120}; give the server's address, such as http://127.0.0.1:8000")
    tls = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if tls else 80), tls, parts.path.rstrip("/"))


class Connection(asyncio.Protocol):
    """One connection. `connect` makes it; `ask` sends one whole request and gives (status, body)."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._buffer = bytearray()
        self._answered = 0
        self.usable = False
        """Whether another request may be sent on it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.usable = transport, True

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._answer is not None and not self._answer.done():
            stale = self._answered > 0 and not self._buffer
            self._answer.set_exception(ConnectionFault(str(exc or "closed before an answer"), stale=stale))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._answer is None or self._answer.done():
            # Nothing was asked: the server is out of step, or what was asked was given up.
            self.close()
            return
        try:
            found = _response(self._buffer)
        except ValueError as error:
            self._answer.set_exception(ConnectionFault(f"no HTTP answer: {error}"))
            self.close()
            return
        if found is not None:
            status, body, keeps = found
            self._buffer.clear()
            self._answered += 1
            self._answer.set_result((status, body))
            if not keeps:
                self.close()

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """(status, body). Raises ConnectionFault. Cancelled, it leaves a connection that must be closed."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """At once; what is on its way is lost."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()


async def connect(address: Address) -> Connection:
    """Raises ConnectionFault, which says why."""
    context = ssl.create_default_context() if address.tls else None
    try:
        _, made = await asyncio.get_running_loop().create_connection(
            Connection, address.host, address.port, ssl=context
        )
    except OSError as error:
        raise ConnectionFault(error.strerror or str(error)) from error
    return made


def post(address: Address, path: str, body: bytes, api_key: str | None) -> bytes:
    """One whole request with a JSON body."""
    lines = [
        f"POST {address.prefix}{path} HTTP/1.1",
        f"Host: {address.authority}",
        "User-Agent: decider-bench",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *([] if api_key is None else [f"Authorization: Bearer {api_key}"]),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _response(buffer: bytearray) -> tuple[int, bytes, bool] | None:
    """(status, body, whether the connection stays open); None while it is not whole. Raises ValueError."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    if not buffer.startswith(b"HTTP/1."):
        raise ValueError(f"it begins with {bytes(buffer[:20])!r}")
    head = bytes(buffer[:end]).lower()
    status, keeps = int(head[9:12]), _CLOSE.search(head) is None
    length = _LENGTH.search(head)
    if length is not None:
        whole = end + 4 + int(length[1])
        return None if len(buffer) < whole else (status, bytes(buffer[end + 4 : whole]), keeps)
    if _CHUNKED.search(head) is None:
        raise ValueError("it has no length")
    body = _unchunked(buffer, end + 4)
    return None if body is None else (status, body, keeps)


def _unchunked(buffer: bytearray, at: int) -> bytes | None:
    """The body in chunks from `at` on (RFC 9112, section 7.1); None while it is not whole. Trailers are not read."""
    body = b""
    while True:
        line = buffer.find(b"\r\n", at)
        if line < 0:
            return None
        size = int(bytes(buffer[at:line]).partition(b";")[0], 16)
        at = line + 2
        if len(buffer) < at + size + 2:
            return None
        if size == 0:
            return body
        body += buffer[at : at + size]
        at += size + 2
