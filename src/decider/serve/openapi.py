"""The OpenAPI 3.1 description of the server, at `/openapi.json` and `/docs`.

Written by hand, from the wire format: `openapi_schemas` has the bodies. It refuses to know how requests are answered.
Trap: tests send what this says and what it forbids, so a limit that is written here must be the one in force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from decider.serve.config import ServeConfig
from decider.serve.openapi_examples import Example, examples
from decider.serve.openapi_schemas import schemas
from decider.version import VERSION

Json = dict[str, object]

_ABOUT = """Typed decisions with calibrated probabilities, each from one forward pass of a language model.

Bodies are JSON in UTF-8, plain or as `Content-Encoding: gzip` or `zstd`. Every answer carries `x-typesafe-request-id`;
a caller's own `x-request-id` of up to 64 visible ASCII characters is taken over. `x-deadline-ms` shortens the time
after which work is dropped and 429 is answered. Fields that begin with `x_` are this server's own."""
_ERRORS: Mapping[str, tuple[str, str]] = {
    "400": (
        "The request is well-formed, but it cannot be answered, or its body is not what its headers say.",
        "Detail",
    ),
    "401": ("The API key is wrong.", "TypedDetail"),
    "403": ("The API key is missing.", "TypedDetail"),
    "408": ("The body came too slowly.", "Detail"),
    "413": (
        "The body, the state, a question or the whole is too large; the sentence names limit and setting.",
        "Detail",
    ),
    "415": ("The content type, charset or encoding is not supported.", "Detail"),
    "422": ("The request does not have the described shape.", "SchemaDetail"),
    "429": ("There is no room or no time now; see `Retry-After`.", "TypedDetail"),
    "503": ("The engine failed, or the server is not ready.", "TypedDetail"),
    "529": ("As 429, where the server is configured so; see `Retry-After`.", "TypedDetail"),
}
_OF_ASKING = ("400", "408", "413", "415", "422", "429", "503", "529")
_OF_KEYS = ("401", "403")


def openapi(config: ServeConfig, name: str) -> Json:
    """The description, for the limits of `config` and the served model `name`."""
    keyed = bool(config.api_keys)
    shown = examples(name)
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": "decider", "version": VERSION, "summary": f"Serves {name}.", "description": _ABOUT},
        "paths": {
            "/v1/systemone": {
                "post": _asks(
                    "systemOne",
                    "Answer typed questions about a state",
                    ("SystemOneRequest", "SystemOneResponse"),
                    shown["/v1/systemone"],
                    keyed,
                )
            },
            "/v1/decisions": {
                "post": _asks(
                    "decisions",
                    "The same in the OpenAI Decisions shape",
                    ("DecisionsRequest", "Decision"),
                    shown["/v1/decisions"],
                    keyed,
                )
            },
            "/decide": {
                "post": _asks(
                    "decide",
                    "The same in a plain form: all questions in one row",
                    ("PlainRequest", "Answers"),
                    shown["/decide"],
                    keyed,
                )
            },
            "/v1/models": {"get": _tells("models", "List the models served", "Models", keyed)},
            "/health/live": {"get": _tells("live", "Whether the process lives", "Status", False)},
            "/health/ready": {"get": _tells("ready", "Whether requests are answered now", "Status", False, "503")},
            "/health": {"get": _tells("health", "As `/health/ready`", "Status", False, "503")},
            "/stats": {"get": _tells("stats", "Load, counts, the engine and its choices", "Stats", keyed)},
            "/metrics": {"get": _metrics(keyed)},
        },
        "components": {"schemas": schemas(config.limits, name)},
    }
    if keyed:
        components = document["components"]
        assert isinstance(components, dict)
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return document


def _asks(operation: str, summary: str, bodies: tuple[str, str], example: Example, keyed: bool) -> Json:
    """`bodies` are the schemas of request and answer."""
    request, response = bodies
    return {
        "operationId": operation,
        "summary": summary,
        "tags": ["decisions"],
        "parameters": [
            {
                "name": "x-deadline-ms",
                "in": "header",
                "required": False,
                "description": "Milliseconds after which the work is dropped, where that is sooner than the server's.",
                "schema": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
            }
        ],
        "requestBody": {"required": True, "content": _json(request, example.request)},
        "responses": _responses(response, _OF_ASKING, keyed, example.response),
        **_security(keyed),
    }


def _tells(operation: str, summary: str, response: str, keyed: bool, *errors: str) -> Json:
    return {
        "operationId": operation,
        "summary": summary,
        "tags": ["server"],
        "responses": _responses(response, errors, keyed),
        **_security(keyed),
    }


def _metrics(keyed: bool) -> Json:
    described = _tells("metrics", "Counts and times in Prometheus' text format", "Status", keyed)
    responses = described["responses"]
    assert isinstance(responses, dict)
    responses["200"] = {"description": "The exposition.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    return described


def _responses(response: str, errors: Sequence[str], keyed: bool, example: object = None) -> Json:
    statuses = sorted((*errors, *(_OF_KEYS if keyed else ())))
    headers = {"x-typesafe-request-id": {"schema": {"type": "string"}}}
    found: Json = {"200": {"description": "The answer.", "headers": headers, "content": _json(response, example)}}
    for status in statuses:
        text, schema = _ERRORS[status]
        found[status] = {"description": text, "headers": headers, "content": _json(schema)}
    return found


def _security(keyed: bool) -> Json:
    return {"security": [{"key": []}]} if keyed else {}


def _json(schema: str, example: object = None) -> Json:
    shown = {} if example is None else {"example": example}
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}, **shown}}
