"""Answers as bytes, and the two ASGI messages that send them.

It refuses to know what is answered. Trap: `json` writes NaN unless it is told not to, and clients of the wire parse
strictly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from starlette.types import Send

JSON = (b"content-type", b"application/json")
UNSTORED = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""For what a browser may ask for."""
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def dumps(value: object) -> bytes:
    """Strict JSON in UTF-8, floats with all their digits. Raises ValueError for NaN and infinities."""
    return _encode(value).encode()


async def send_bytes(
    send: Send, status: int, body: bytes, *, kind: bytes | None = None, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """One whole answer: JSON, or content of type `kind`."""
    start = [JSON if kind is None else (b"content-type", kind), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
