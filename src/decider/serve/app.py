"""Every route of the server, as one Starlette application: what is asked of the engine, and what tells of it.

Open without a key, where the server has keys: `/`, `/docs`, their files, `/openapi.json` and the health routes. It
refuses to know sockets, signals and how work is scheduled. Trap: Starlette answers a wrong path or method in plain text
and redirects a path with a slash too many; clients of the wire read JSON, so both are told in its form here.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from decider.serve.asking import Asking
from decider.serve.auth import OPEN, Keys
from decider.serve.body import Held
from decider.serve.config import ServeConfig
from decider.serve.exchange import OPENAI_PATH, Guard, exchange_of
from decider.serve.forms import Form, plain_form, wire_form
from decider.serve.logs import AccessLog
from decider.serve.metrics import Metrics
from decider.serve.openai_shape import openai_form
from decider.serve.openapi import openapi
from decider.serve.pages import page_routes
from decider.serve.refusal import Failure, Refusal
from decider.serve.respond import UNSTORED, dumps, send_bytes
from decider.serve.scheduler import Scheduler
from decider.serve.stats import Stats

PARSE_THREADS = 1
"""For large bodies. More would take turns at the interpreter all the same."""
FORMS: dict[str, Form] = {"/v1/systemone": wire_form, OPENAI_PATH: openai_form, "/decide": plain_form}


def create_app(scheduler: Scheduler, config: ServeConfig, *, metrics: Metrics, log: AccessLog) -> Starlette:
    """The application in front of a scheduler that was started. It starts no thread before the first large body."""
    brain = scheduler.brain
    keys = Keys.of(config.api_keys)
    threads = ThreadPoolExecutor(PARSE_THREADS, thread_name_prefix="decider-parse")
    stats = Stats(brain, scheduler, metrics)
    described = openapi(config, brain.name)
    listed = dumps({"models": [asdict(model) for model in brain.models]})
    written = dumps(described)
    told = [
        Telling("/v1/models", lambda: (200, listed), keys),
        Telling("/openapi.json", lambda: (200, written)),
        Telling("/health/live", lambda: (200, b'{"status":"alive"}')),
        Telling("/health/ready", lambda: _ready(scheduler)),
        Telling("/health", lambda: _ready(scheduler)),
        Telling("/stats", lambda: (200, dumps(stats.report())), keys),
        Telling("/metrics", lambda: (200, metrics.text()), keys, metrics.content_type.encode("ascii")),
    ]
    app = Starlette(
        routes=[
            *(
                Route(path, Asking(form, scheduler, config, keys, threads), methods=["POST"])
                for path, form in FORMS.items()
            ),
            *(Route(one.path, one, methods=["GET"]) for one in told),
            *page_routes(described),
        ],
        middleware=[Middleware(Guard, config=config, metrics=metrics, log=log, held=Held(config.max_held_bytes))],
        exception_handlers={HTTPException: _refuse},
    )
    app.router.redirect_slashes = False
    return app


@dataclass(frozen=True, slots=True)
class Telling:
    """A route that only tells something, an ASGI application."""

    path: str
    tell: Callable[[], tuple[int, bytes]]
    keys: Keys = OPEN
    """Those that may be told; none: everyone."""
    kind: bytes | None = None
    """The content type, if it is not JSON."""

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answers, or raises Refusal."""
        self.keys.check(exchange_of(scope).incoming.headers.get(b"authorization"))
        status, body = self.tell()
        await send_bytes(send, status, body, kind=self.kind, headers=UNSTORED)


def _ready(scheduler: Scheduler) -> tuple[int, bytes]:
    health = scheduler.health
    if health.ready:
        return 200, b'{"status":"ready"}'
    return 503, Failure(503, f"not ready: {health.reason}").body()


async def _refuse(request: Request, error: Exception) -> Response:
    """Starlette's own errors, 404 and 405. An OPTIONS request is told the methods that there are."""
    assert isinstance(error, HTTPException)
    allowed = sorted((error.headers or {}).get("Allow", "").split(", "))
    if error.status_code != 405:
        raise Refusal(error.status_code, error.detail)
    if request.method == "OPTIONS":
        return Response(status_code=204, headers={"allow": ", ".join((*allowed, "OPTIONS"))})
    raise Refusal(405, error.detail, headers=((b"allow", ", ".join(allowed).encode("ascii")),))
