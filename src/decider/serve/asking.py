"""The routes that ask the engine: body → request → scheduler → answer.

It refuses to know the forms of requests and how work is scheduled. Trap: a large body is parsed by a thread, since the
loop that parses it answers nobody else meanwhile; a small one is parsed at once, since a thread costs more than it.
"""

from __future__ import annotations

import asyncio
import functools
import time
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from starlette.types import Receive, Scope, Send

from decider.errors import OverloadError, TooLargeError
from decider.serve.auth import Keys
from decider.serve.body import Incoming
from decider.serve.config import ServeConfig
from decider.serve.encoding import inflate
from decider.serve.exchange import Exchange, exchange_of
from decider.serve.forms import Form, Parsed
from decider.serve.refusal import Refusal
from decider.serve.respond import dumps, send_bytes
from decider.serve.scheduler import Scheduler

AT_ONCE_BYTES = 16 * 2**10
"""Bodies up to this size are inflated and parsed in the event loop, in about a millisecond."""
RETRY_LATE_S = 0.5
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asking:
    """One route, an ASGI application."""

    form: Form
    scheduler: Scheduler
    config: ServeConfig
    keys: Keys
    threads: Executor

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answers, or raises what `exchange.Guard` turns into an error body."""
        exchange = exchange_of(scope)
        incoming = exchange.incoming
        self.keys.check(incoming.headers.get(b"authorization"))
        encoding = incoming.check_json()
        deadline_s = self._deadline_s(incoming)
        body = await incoming.read(self.config.max_body_bytes, self.config.read_timeout_s)
        written = await incoming.unless_gone(self._answered(body, encoding, exchange, exchange.started + deadline_s))
        await send_bytes(send, 200, dumps(written))

    async def _answered(self, body: bytes, encoding: str, exchange: Exchange, end: float) -> object:
        """What is sent for `body`. `end`: when its deadline is, on `time.perf_counter`."""
        if encoding == "identity":
            inflate(body, encoding, self.config.max_decompressed_bytes)
        else:
            body = await self._inflated(body, encoding, end)
            exchange.incoming.hold(len(body))
        parsed = await self._parsed(body, end)
        exchange.timed = await self.scheduler.answer(parsed.request, deadline_s=_left_s(end))
        written = parsed.write(exchange.timed.answers)
        if self.config.log_content:
            exchange.content = {"request": body.decode("utf-8", "replace"), "answers": written}
        return written

    def _deadline_s(self, incoming: Incoming) -> float:
        """The operator's, or the caller's where it is shorter."""
        asked = incoming.headers.get(b"x-deadline-ms")
        if asked is None:
            return self.config.deadline_s
        if not asked.isdigit() or not 1 <= len(asked) <= 9 or not int(asked):
            raise Refusal(400, "x-deadline-ms is no whole number of milliseconds above 0; give one, or leave it out")
        return min(self.config.deadline_s, int(asked) / 1000)

    async def _inflated(self, body: bytes, encoding: str, end: float) -> bytes:
        limit = self.config.max_decompressed_bytes
        if len(body) <= AT_ONCE_BYTES:
            try:
                return inflate(body, encoding, min(limit, AT_ONCE_BYTES))
            except TooLargeError:
                if limit <= AT_ONCE_BYTES:
                    raise
        return await self._in_thread(functools.partial(inflate, body, encoding, limit), end)

    async def _parsed(self, body: bytes, end: float) -> Parsed:
        if len(body) <= AT_ONCE_BYTES:
            return self.form(body, self.config.limits)
        return await self._in_thread(functools.partial(self.form, body, self.config.limits), end)

    async def _in_thread(self, work: functools.partial[T], end: float) -> T:
        """A large body may wait for others; where it is given up before its turn, it is not begun."""
        future = asyncio.get_running_loop().run_in_executor(self.threads, work)
        try:
            async with asyncio.timeout(_left_s(end)):
                return await future
        except TimeoutError:
            raise _late() from None


def _left_s(end: float) -> float:
    left_s = end - time.perf_counter()
    if left_s <= 0:
        raise _late()
    return left_s


def _late() -> OverloadError:
    return OverloadError(
        "the deadline passed before the body was read; send it again later", retry_after_s=RETRY_LATE_S
    )
