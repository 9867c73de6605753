"""A body as it was before its `Content-Encoding`: identity, gzip or zstd, never more than a limit of it.

It refuses to know HTTP messages and JSON. Trap: a few kilobytes may stand for gigabytes, may ask for a window of two
gigabytes, or be a million empty members, each of which costs a copy of the rest; all three are bounded here.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Protocol

from decider.errors import TooLargeError
from decider.serve.refusal import Refusal

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ENCODINGS = ("identity", "gzip", "zstd")
MAX_MEMBERS = 64
"""Members of a gzip body, frames of a zstd body."""
_GZIP_WINDOW = 31
"""zlib's code for a gzip header and trailer around the largest window, 32 KiB."""
_LEAST_WINDOW_LOG, _MOST_WINDOW_LOG = 23, 27
"""Every decoder is to take windows of 8 MiB (RFC 8878, 3.1.1.1.2)."""
_FRAME_HEADER_BYTES = 18


class _Member(Protocol):
    """One member on its way out."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def encoding_of(values: list[str]) -> str:
    """One of `ENCODINGS` from the `Content-Encoding` headers of a request. Raises Refusal 415 for another, or several.

    `x-gzip` is gzip (RFC 9110, 8.4.1.3).
    """
    named = [part.strip().lower() for value in values for part in value.split(",") if part.strip()]
    if len(named) > 1:
        raise Refusal(415, f"the body has {len(named)} content encodings; use one of {', '.join(ENCODINGS)}")
    encoding = named[0] if named else "identity"
    encoding = "gzip" if encoding == "x-gzip" else encoding
    if encoding not in ENCODINGS:
        raise Refusal(415, f"the content encoding {encoding[:40]!r} is not supported; use {', '.join(ENCODINGS)}")
    return encoding


def inflate(body: bytes, encoding: str, limit: int) -> bytes:
    """`body` without its encoding.

    Raises TooLargeError as soon as more than `limit` bytes (max_decompressed_bytes) come out, Refusal 400 for a body
    that is broken or cut off.
    """
    if encoding == "identity":
        if len(body) > limit:
            raise _too_large(limit, encoding)
        return body
    make: Callable[[], _Member] = _gzip if encoding == "gzip" else lambda: _zstd(limit)
    try:
        if encoding == "zstd" and (zstd.get_frame_info(body[:_FRAME_HEADER_BYTES]).decompressed_size or 0) > limit:
            raise _too_large(limit, encoding)
        return _members(body, make, limit, encoding)
    except (zlib.error, zstd.ZstdError) as error:
        # What follows its first sentence is advice to a programmer of ours.
        reason = str(error).partition(". ")[0].rstrip(".")
        raise Refusal(400, f"the body is no valid {encoding}: {reason}; compress it again, or send it plain") from None


def _members(body: bytes, make: Callable[[], _Member], limit: int, encoding: str) -> bytes:
    out = bytearray()
    rest = body
    for _ in range(MAX_MEMBERS):
        member = make()
        out += member.decompress(rest, limit - len(out) + 1)
        if len(out) > limit:
            raise _too_large(limit, encoding)
        if not member.eof:
            raise Refusal(400, f"the {encoding} body ends too early; send all of it")
        rest = member.unused_data
        if not rest:
            return bytes(out)
    raise Refusal(400, f"the {encoding} body has more than {MAX_MEMBERS} members; compress it in one")


def _gzip() -> _Member:
    return zlib.decompressobj(_GZIP_WINDOW)


def _zstd(limit: int) -> _Member:
    # A window beyond the limit has no use, and its memory would be taken before a byte comes out.
    log = min(max(limit.bit_length(), _LEAST_WINDOW_LOG), _MOST_WINDOW_LOG)
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: log})


def _too_large(limit: int, encoding: str) -> TooLargeError:
    said = "" if encoding == "identity" else f" without its {encoding} encoding"
    return TooLargeError(
        f"the body has more than {limit:,} bytes{said}, the limit (max_decompressed_bytes), "
        "which no model's maximum context length can use; shorten the state or ask fewer questions"
    )
