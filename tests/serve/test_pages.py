"""The pages as they are served: headers, files, digests, and the documentation made from an OpenAPI document.

Refuses to run scripts; tests/long/test_playground.py does, in a browser. Trap: a page that names a file with another
digest is a page without scripts and styles.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.wire import parse_request
from decider.serve.config import ServeConfig
from decider.serve.docs_page import docs_body
from decider.serve.openapi import openapi
from decider.serve.pages import PAGE_HEADERS, page_routes, read_static

MARKUP = '<img src=x onerror="alert(1)">'
DOCUMENT: dict[str, Any] = {
    "info": {"title": f"a {MARKUP}", "version": "1", "description": f"One `code {MARKUP}`.\n\nTwo."},
    "paths": {
        f"/x/{MARKUP}": {
            "post": {
                "summary": MARKUP,
                "parameters": [{"name": MARKUP, "in": "header", "schema": {"type": "integer", "minimum": 1}}],
                "requestBody": {"$ref": "#/components/requestBodies/Body"},
                "responses": {
                    "200": {"description": MARKUP, "content": {"application/json": {"example": {MARKUP: 1}}}},
                    "4XX": {"$ref": "#/components/responses/Bad"},
                },
            }
        }
    },
    "components": {
        "requestBodies": {
            "Body": {
                "content": {
                    "application/json": {
                        "schema": {"$ref": "#/components/schemas/Thing"},
                        "examples": {"small": {"summary": "A small one", "value": {"a": 1}}},
                    }
                }
            }
        },
        "responses": {"Bad": {"description": "It was bad."}},
        "schemas": {
            "Thing": {
                "description": MARKUP,
                "type": "object",
                "required": ["a"],
                "properties": {
                    "a": {"type": ["string", "null"], "maxLength": 9, "description": "First."},
                    "b": {"type": "array", "items": {"type": "object", "properties": {"c": {"enum": [1, MARKUP]}}}},
                    "d": {"oneOf": [{"const": True}, {"$ref": "#/components/schemas/Other"}], "default": None},
                    "e": {"type": "object", "additionalProperties": {"type": "number"}},
                },
            },
            "Other": {"type": "string", "examples": ["like this"]},
        },
    },
}


class Tags(HTMLParser):
    """(tag, attributes) of every element, and whether all that is opened is closed."""

    VOID = ("meta", "link", "img", "br", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(Starlette(routes=page_routes(openapi(ServeConfig(), "decider-x"))))


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_loads_its_own_files_alone_and_runs_nothing_inline(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert {name: page.headers[name] for name in PAGE_HEADERS} == dict(PAGE_HEADERS)
    assert page.headers["cache-control"] == "no-cache"
    tags = Tags(page.text).found
    loaded = [of["href"] for tag, of in tags if tag == "link"] + [of["src"] for tag, of in tags if tag == "script"]
    assert len(loaded) >= 3
    for address in loaded:
        assert address is not None
        assert client.get(f"/{address}").status_code == 200, address
    assert not any(name.startswith("on") or name == "style" for _, of in tags for name in of)
    assert not any(tag == "style" or (tag == "script" and "src" not in of) for tag, of in tags)
    # Ids are what labels, tabs and links refer to.
    ids = [of["id"] for _, of in tags if "id" in of]
    assert len(ids) == len(set(ids))
    referred = [of[name] for _, of in tags for name in ("for", "aria-controls", "aria-labelledby") if name in of]
    referred += [of["href"][1:] for tag, of in tags if tag == "a" and (of["href"] or "").startswith("#") and of["href"]]
    assert set(referred) <= set(ids)
    assert "{{" not in page.text


def test_every_control_of_the_playground_has_a_name(client: TestClient) -> None:
    tags = Tags(client.get("/").text).found
    labelled = {of["for"] for tag, of in tags if tag == "label" and "for" in of}
    controls = [of for tag, of in tags if tag in ("select", "textarea", "input")]
    # Radio buttons and the check box stand inside their labels.
    named = [of for of in controls if of.get("id") in labelled or of.get("type") in ("radio", "checkbox")]
    assert named == controls
    assert len(controls) == 10


def test_no_page_and_no_file_names_another_server() -> None:
    for file in files("decider.serve").joinpath("static").iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.|innerHTML|insertAdjacentHTML|document\.write|eval\(", text), file.name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("playground.js", "text/javascript; charset=utf-8"),
        ("page.css", "text/css; charset=utf-8"),
        ("examples.json", "application/json"),
        ("icon.svg", "image/svg+xml"),
    ],
)
def test_files_are_kept_for_good_under_their_digest(client: TestClient, name: str, kind: str) -> None:
    static = read_static()
    found = client.get(f"/static/{static.digest}/{name}")
    assert (found.status_code, found.headers["content-type"]) == (200, kind)
    assert found.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.content == static.by_name[name]


@pytest.mark.parametrize("path", ["0/page.css", "{}/playground.html", "{}/..%2fpages.py", "{}/", "{}/a/b"])
def test_other_files_and_other_digests_are_not_found(client: TestClient, path: str) -> None:
    assert client.get(f"/static/{path.format(read_static().digest)}").status_code == 404


def test_an_unchanged_page_is_not_sent_again(client: TestClient) -> None:
    tag = client.get("/").headers["etag"]
    again = client.get("/", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/docs", headers={"if-none-match": tag}).status_code == 200
    assert client.head("/").status_code == 200


def test_the_examples_can_be_asked() -> None:
    examples = json.loads(read_static().by_name["examples.json"])
    assert list(examples) == ["Ticket routing", "Guard", "Score", "Tool choice", "Many questions"]
    for example in examples.values():
        assert parse_request(example, DEFAULT_LIMITS).model == "jev-latest"


def test_the_documentation_shows_routes_fields_examples_and_errors() -> None:
    page = docs_body(DOCUMENT)
    text = re.sub(r"<[^>]+>", " ", page)
    for words in ("POST", "required", "First.", "(at most 9 characters)", "string or null", "array of object", "b[].c",
                  "object: name → number", "(default null)", "4XX", "It was bad.", "A small one", "like this",
                  "header, integer"):  # fmt: skip
        assert words in text, words
    assert '<a href="#schema-Thing">Thing</a>' in page
    assert '<article class="schema" id="schema-Thing">' in page


def test_text_of_the_document_stays_text() -> None:
    tags = Tags(docs_body(DOCUMENT)).found
    assert not any(tag in ("img", "script") for tag, _ in tags)
    assert not any(name.startswith("on") for _, of in tags for name in of)
    page = TestClient(Starlette(routes=page_routes(DOCUMENT))).get("/docs")
    assert "<title>a &lt;img src=x" in page.text
    assert not any(tag == "img" for tag, _ in Tags(page.text).found)


def test_our_own_document_is_documented_whole(client: TestClient) -> None:
    page = client.get("/docs").text
    described = openapi(ServeConfig(), "decider-x")
    paths, components = described["paths"], described["components"]
    assert isinstance(paths, dict)
    assert isinstance(components, dict)
    for path in paths:
        assert f"</span>{path}</h3>" in page
    for name in components["schemas"]:
        assert f'id="schema-{name}"' in page
    assert 'href="openapi.json"' in page
