"""The pages for people: the playground at `/`, `/docs`, and the files they load, as Starlette routes.

They need no outside request and run no script but their own files, which `PAGE_HEADERS` has the browser enforce. It
refuses to know engines, schedulers and keys: a page is the same for everyone. Trap: files are kept by browsers for a
year, so the address of each carries a digest of all of them, and addresses are relative, so that a server behind a
prefix (`/decider/`) serves its own.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from decider.serve.docs_page import docs_body

PAGE_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "content-security-policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }
)
"""Of the pages and their files."""
TYPES = MappingProxyType(
    {"css": "text/css", "js": "text/javascript", "json": "application/json", "svg": "image/svg+xml"}
)
"""By a file's ending; every file of `static/` but the pages has one of them."""
DIGEST_LENGTH = 12
FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class StaticFiles:
    """The files of `static/`, read once."""

    by_name: Mapping[str, bytes]
    digest: str
    """Of all of them; a part of their addresses."""


def read_static() -> StaticFiles:
    """Every file that a page may load, by name."""
    found = {}
    for file in files("decider.serve").joinpath("static").iterdir():
        if file.name.rpartition(".")[2] in TYPES:
            found[file.name] = file.read_bytes()
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(name.encode() + b"\0" + hashlib.sha256(found[name]).digest())
    return StaticFiles(MappingProxyType(found), digest.hexdigest()[:DIGEST_LENGTH])


def playground_html(static: StaticFiles) -> str:
    """The playground; everything it shows comes from its script."""
    return _template("playground.html", static)


def docs_html(openapi: Mapping[str, Any], static: StaticFiles) -> str:
    """An OpenAPI 3 document as a page. Raises KeyError where it has no `info` or `paths`."""
    title = html.escape(str(openapi["info"]["title"]))
    page = _template("docs.html", static)
    return page.replace("{{title}}", title).replace("{{body}}", docs_body(openapi))


def page_routes(openapi: Mapping[str, Any]) -> list[Route]:
    """`/`, `/docs` and `/static/…`. Each page is made once, here."""
    static = read_static()
    pages = {"/": playground_html(static), "/docs": docs_html(openapi, static)}

    async def file_of(request: Request) -> Response:
        name, digest = request.path_params["name"], request.path_params["digest"]
        content = static.by_name.get(name)
        # A page of another release asks for another digest; giving it this file would keep the wrong one for a year.
        if content is None or digest != static.digest:
            raise HTTPException(404)
        headers = {**PAGE_HEADERS, "cache-control": FOREVER}
        return Response(content, media_type=TYPES[name.rpartition(".")[2]], headers=headers)

    return [
        *(Route(path, _page(text), methods=["GET"]) for path, text in pages.items()),
        Route("/static/{digest}/{name}", file_of, methods=["GET"]),
    ]


def _page(text: str) -> Callable[[Request], Awaitable[Response]]:
    encoded = text.encode()
    tag = f'"{hashlib.sha256(encoded).hexdigest()[: 2 * DIGEST_LENGTH]}"'
    headers = {**PAGE_HEADERS, "cache-control": "no-cache", "etag": tag}

    async def page(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(encoded, media_type="text/html", headers=headers)

    return page


def _template(name: str, static: StaticFiles) -> str:
    text = files("decider.serve").joinpath("static", name).read_text(encoding="utf-8")
    return text.replace("{{static}}", f"static/{static.digest}")
