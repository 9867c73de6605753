"""One request over a connection of its own: status, headers in lower case, and text.

Refuses to know servers; `raw_http` sends what a client library would not. Trap: a connection that is kept would hold up
a drain, so each is closed.
"""

from __future__ import annotations

import contextlib
import json
from http.client import HTTPConnection, HTTPResponse


def body(state: str = "x") -> bytes:
    question = {"type": "noul", "instructions": "Is it?"}
    return json.dumps({"state": state, "model": "jev-latest", "questions": {"q": question}}).encode()


def ask(port: int, state: str = "x", path: str = "/v1/systemone") -> tuple[int, dict[str, str], str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("POST", path, body(state), {"content-type": "application/json"})
        return told(connection.getresponse())


def get(port: int, path: str) -> tuple[int, dict[str, str], str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return told(connection.getresponse())


def told(response: HTTPResponse) -> tuple[int, dict[str, str], str]:
    return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read().decode()
