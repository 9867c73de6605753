"""What a request that gets no answer gets instead: status, headers and the wire's error body.

    400 404 405 408 413 415   {"detail": "<sentence>"}
    422                       {"detail": [{"loc": ["body", …], "msg", "type"}]}
    401 403 429 529 500 503   {"detail": {"error_type": …, "message": …}}

It refuses to know routes and how bytes are sent. Trap: a message may quote the caller, so whatever is written here is
escaped to ASCII; a lone surrogate that could not be encoded would turn a 422 into a 500.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from decider.errors import DeciderError, EngineError, InputError, OverloadError, SchemaError

Headers = tuple[tuple[bytes, bytes], ...]

ERROR_TYPES = {
    401: "authentication_error",
    403: "authentication_error",
    429: "rate_limit_error",
    529: "overloaded_error",
    500: "internal_error",
    503: "engine_error",
}
"""The statuses whose detail is an object."""
SCHEMA_STATUS = 422


class Refusal(Exception):
    """A status and its sentence, raised where a fault of HTTP itself is found."""

    def __init__(self, status: int, message: str, *, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers


class ClientLeftError(Exception):
    """Nobody waits for this answer any more."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it goes out."""

    status: int
    message: str
    loc: tuple[str | int, ...] = ()
    headers: Headers = ()

    def body(self, *, openai: bool = False) -> bytes:
        """The wire's error body; with `openai`, beside it what clients of that shape look for."""
        written: dict[str, object] = {"detail": self._detail()}
        if openai:
            param = ".".join(map(str, self.loc)) or None
            written["error"] = {"message": self.message, "type": self._openai_type(), "param": param, "code": None}
        return json.dumps(written).encode("ascii")

    def _detail(self) -> object:
        if self.status == SCHEMA_STATUS:
            return [{"loc": ["body", *self.loc], "msg": self.message, "type": "value_error"}]
        if self.status in ERROR_TYPES:
            return {"error_type": ERROR_TYPES[self.status], "message": self.message}
        return self.message

    def _openai_type(self) -> str:
        return ERROR_TYPES.get(self.status, "invalid_request_error")


def failure_of(error: Exception, request_id: str, *, overload_status: int) -> Failure:
    """How `error` is told to the caller. One that is not expected here says its request id and nothing else."""
    if isinstance(error, Refusal):
        return Failure(error.status, error.message, headers=error.headers)
    if isinstance(error, SchemaError):
        return Failure(error.status, error.message, error.loc)
    if isinstance(error, InputError):
        return Failure(error.status, str(error), error.loc)
    if isinstance(error, OverloadError):
        return Failure(overload_status, str(error), headers=_retry_after(error.retry_after_s))
    if isinstance(error, EngineError):
        return Failure(error.status, str(error))
    return Failure(500, f"an error of this server, not of the request; its log has it under request id {request_id}")


def is_expected(error: Exception) -> bool:
    """Whether `error` is an answer in itself; any other is our bug or our operator's, and belongs into the log."""
    return isinstance(error, (Refusal, InputError, OverloadError)) or (
        isinstance(error, DeciderError) and error.status < 500
    )


def _retry_after(seconds: float) -> Headers:
    """Whole seconds, at least one, for everyone; milliseconds for the clients that read them."""
    whole, fine = max(1, math.ceil(seconds)), max(1, math.ceil(seconds * 1000))
    return ((b"retry-after", b"%d" % whole), (b"retry-after-ms", b"%d" % fine))
