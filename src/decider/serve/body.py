"""A request's body on its way in: its type, its declared and its real size, and whether its sender is still there.

It refuses to know what a body says. Trap: a server that answers and closes while a client still sends makes the
client's system throw the answer away (the connection is reset), so what is left of a body is read and dropped first,
as far as that is cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive, Scope

from decider.errors import OverloadError, TooLargeError
from decider.serve.encoding import encoding_of
from decider.serve.refusal import ClientLeftError, Refusal

MAX_DISCARDED_BYTES = 64 * 2**20
"""The most of a refused body that is read and dropped; a sender of more is cut off."""
RETRY_HELD_S = 0.5
MAX_DECLARED_DIGITS = 18
JSON_TYPE = "application/json"
T = TypeVar("T")


class Held:
    """Bytes of bodies in memory, of all connections, at most `limit`; taken as they come in, given back together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.n_bytes = 0

    def take(self, n_bytes: int) -> None:
        """Raises OverloadError where that would be more than the limit."""
        if self.n_bytes + n_bytes > self._limit:
            raise OverloadError(
                f"requests in flight hold {self.n_bytes:,} of {self._limit:,} bytes (max_held_bytes); send this one "
                "again later",
                retry_after_s=RETRY_HELD_S,
            )
        self.n_bytes += n_bytes

    def give(self, n_bytes: int) -> None:
        """What `take` took."""
        self.n_bytes -= n_bytes
        assert self.n_bytes >= 0, self.n_bytes


class Incoming:
    """One request's headers and body."""

    def __init__(self, scope: Scope, receive: Receive, held: Held) -> None:
        self._receive = receive
        self._held = held
        self._own = 0
        self.all_headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.headers = dict(self.all_headers)
        """By lower-case name; the last one where a name is repeated."""
        self._complete = b"content-length" not in self.headers and b"transfer-encoding" not in self.headers

    def check_json(self) -> str:
        """The body's content encoding, from headers alone.

        Raises Refusal 415 for another type or charset than JSON in UTF-8, or another encoding; 400 for multipart, which
        carries images.
        """
        kind, _, parameters = self.headers.get(b"content-type", b"").decode("latin-1").lower().partition(";")
        kind = kind.strip()
        if kind == "multipart/form-data":
            raise Refusal(400, "this model is text-only; send the request as application/json, without assets")
        if kind != JSON_TYPE:
            said = f"content type {kind[:60]!r}" if kind else "request has no content type, which"
            raise Refusal(415, f"the {said} is not supported; send {JSON_TYPE}")
        for parameter in parameters.split(";"):
            name, _, value = parameter.partition("=")
            if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8", "us-ascii"):
                raise Refusal(415, f"the charset {value.strip()[:40]!r} is not supported; send UTF-8")
        named = [value.decode("latin-1") for name, value in self.all_headers if name == b"content-encoding"]
        return encoding_of(named) if named else "identity"

    async def read(self, limit: int, timeout_s: float) -> bytes:
        """The whole body, as it was sent.

        Raises TooLargeError, from its declared length before any of it is read; Refusal 408 where it is not complete
        after `timeout_s`; ClientLeftError; OverloadError.
        """
        declared = self._declared()
        if declared is not None and declared > limit:
            raise _too_large(declared, limit)
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(timeout_s):
                while not self._complete:
                    chunk = await self._next()
                    self.hold(len(chunk))
                    if self._own > limit:
                        raise _too_large(self._own, limit)
                    chunks.append(chunk)
        except TimeoutError:
            raise Refusal(
                408, f"the body was not complete {timeout_s:g} s after its headers (read_timeout_s); send it faster"
            ) from None
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def hold(self, n_bytes: int) -> None:
        """Count `n_bytes` more as in memory until `let_go`. Raises OverloadError."""
        self._held.take(n_bytes)
        self._own += n_bytes

    def let_go(self) -> None:
        """The request is over."""
        self._held.give(self._own)
        self._own = 0

    async def discard(self, timeout_s: float) -> bool:
        """Read and drop what is left of the body. False where that would take too much, so the connection must go."""
        if self._complete:
            return True
        # Such a client waits for leave to send, and has not sent yet.
        if b"expect" in self.headers or (self._declared() or 0) > MAX_DISCARDED_BYTES:
            return False
        n_bytes = 0
        try:
            async with asyncio.timeout(timeout_s):
                while not self._complete and n_bytes <= MAX_DISCARDED_BYTES:
                    n_bytes += len(await self._next())
        except TimeoutError:
            return False
        return self._complete

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; it is cancelled, and ClientLeftError raised, when the client leaves first."""
        own = asyncio.current_task()
        assert own is not None
        assert self._complete
        gone = False

        async def watch() -> None:
            nonlocal gone
            while (await self._receive())["type"] != "http.disconnect":
                pass
            gone = True
            own.cancel()

        watcher = asyncio.create_task(watch())
        try:
            return await work
        except asyncio.CancelledError:
            if gone and not own.uncancel():
                raise ClientLeftError from None
            raise
        finally:
            watcher.cancel()

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        self._complete = not message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        return chunk

    def _declared(self) -> int | None:
        """None for a body in chunks. The server's parser has refused what is no number, or is repeated."""
        written = self.headers.get(b"content-length")
        if written is None:
            return None
        if not written.isdigit() or len(written) > MAX_DECLARED_DIGITS:
            raise Refusal(400, "the Content-Length is no number; send the body's length in bytes")
        return int(written)


def _too_large(n_bytes: int, limit: int) -> TooLargeError:
    return TooLargeError(
        f"the body has at least {n_bytes:,} bytes, over the limit of {limit:,} (max_body_bytes), which no model's "
        "maximum context length can use; shorten the state or ask fewer questions"
    )
