"""Nothing a caller sends is a 5xx: what a fuzzer makes of the description, and what no description would think of.

Every answer here must be one of the wire's forms. Trap: a fuzzer that only ever sends nonsense proves little, so it is
counted how much of what it sent was answered.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fake_brain import FakeBrain
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import load_all_checks
from schemathesis.generation import GenerationMode
from serving import Reply, Served, served

from decider.serve.config import ServeConfig
from decider.serve.openapi import openapi

NOUL = '{"type": "noul", "instructions": "Is it?"}'
ASKING = ("/v1/systemone", "/v1/decisions", "/decide")
BOUNDED = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
CONFIG = ServeConfig(max_body_bytes=400_000, read_timeout_s=1.0)


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(FakeBrain(records=False), CONFIG) as running:
        yield running
        assert running.idle()
        assert running.post("/v1/systemone", body("noul")).status == 200


load_all_checks()
DESCRIBED: Any = schemathesis.openapi.from_dict(openapi(CONFIG, "decider-fake"))
OPERATIONS = {operation.label: operation for operation in (found.ok() for found in DESCRIBED.get_all_operations())}
CHECKS = [
    check
    for check in schemathesis.checks.CHECKS.get_all()
    if check.__name__
    in ("response_schema_conformance", "content_type_conformance", "status_code_conformance", "negative_data_rejection")
]


# There is nothing to forbid where nothing is sent.
FUZZED = [
    (label, mode)
    for label in OPERATIONS
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    if mode == GenerationMode.POSITIVE or label.startswith("POST")
]


@pytest.mark.parametrize(("label", "mode"), FUZZED)
def test_what_the_description_allows_and_forbids(server: Served, label: str, mode: GenerationMode) -> None:
    statuses: Counter[int] = Counter()

    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    @BOUNDED
    def fuzz(case: Any) -> None:
        response = case.call(base_url=server.url)
        statuses[response.status_code] += 1
        assert response.status_code < 500, response.text
        check_form(Reply(response.status_code, dict.fromkeys(response.headers, ""), response.content))
        case.validate_response(response, checks=CHECKS)

    fuzz()
    assert len(CHECKS) == 4
    if label.startswith("POST"):
        least = 5 if mode == GenerationMode.POSITIVE else 0
        assert statuses[200] >= least, statuses
        assert statuses[422] >= 5 - least, statuses


def check_form(reply: Reply) -> None:
    """An error is of the wire's form, and whatever is said is strict JSON."""
    assert "x-typesafe-request-id" in reply.headers
    if reply.status < 400:
        return
    detail = json.loads(reply.body, parse_constant=lambda name: pytest.fail(name))["detail"]
    if reply.status == 422:
        assert detail
        for fault in detail:
            assert set(fault) == {"loc", "msg", "type"}
            assert fault["loc"][0] == "body"
            assert fault["msg"]
    elif reply.status in (401, 403, 429):
        assert set(detail) == {"error_type", "message"}
    else:
        assert isinstance(detail, str)
        assert detail


def body(question: str, state: str = '"s"', more: str = "") -> bytes:
    made = NOUL if question == "noul" else question
    return f'{{"state": {state}, "model": "jev-latest", "questions": {{"q": {made}}}{more}}}'.encode(
        "utf-8", "surrogatepass"
    )


DEEP = 100_000
BAD: dict[str, bytes] = {
    "nothing": b"",
    "white": b"  \n",
    "null": b"null",
    "a list": b"[]",
    "a number": b"1",
    "a string": b'"x"',
    "no JSON": b"{state: 's'}",
    "cut": body("noul")[:-1],
    "more after it": body("noul") + b"{}",
    "byte order mark": b"\xef\xbb\xbf" + body("noul"),
    "utf-16": body("noul").decode().encode("utf-16"),
    "not utf-8": body("noul", '"\udcff"').replace(b"\xed\xb3\xbf", b"\xff"),
    "an encoded surrogate": body("noul", '"\ud800"'),
    "a lone surrogate": body("noul", '"\\ud800"'),
    "a surrogate as id": b'{"state": "s", "model": "jev-latest", "questions": {"\\ud800": %s}}' % NOUL.encode(),
    "a surrogate as option": body('{"type": "choice", "criteria": {"\\udfff": null}}'),
    "a surrogate as model": b'{"state": "s", "model": "\\ud800", "questions": {"q": %s}}' % NOUL.encode(),
    "a surrogate as layout": body("noul", more=', "layout": "\\ud800"'),
    "a surrogate as type": body('{"type": "\\ud800"}'),
    "NaN": body("noul", '{"a": NaN}'),
    "Infinity": body("noul", '{"a": [-Infinity]}'),
    "a number beyond doubles": body("noul", '{"a": 1e999}'),
    "a number of 5,000 digits": body("noul", f'{{"a": {"9" * 5000}}}'),
    "error rate of 5,000 digits": body("noul", more=f', "error_rate": {"9" * 5000}'),
    "error rate NaN": body("noul", more=', "error_rate": NaN'),
    "error rate null": body("noul", more=', "error_rate": null'),
    "error rate true": body("noul", more=', "error_rate": true'),
    "error rate uncalibrated beyond": body("noul", more=', "error_rate": 1'),
    "deep lists": body("noul", "[" * DEEP + "]" * DEEP),
    "deep objects": body("noul", '{"a":' * 30_000 + "1" + "}" * 30_000),
    "deep instructions": body('{"type": "noul", "instructions": %s}' % ("[" * 70 + "]" * 70)),
    "deep and cut": b'{"a":' * 50_000,
    "a key twice": b'{"state": "a", "state": "b", "model": "jev-latest", "questions": {"q": %s}}' % NOUL.encode(),
    "an id twice": body('1, "q": 2'),
    "an option twice": body('{"type": "choice", "criteria": {"a": 1, "a": 2}}'),
    "state null": body("noul", "null"),
    "state a number": body("noul", "1"),
    "state true": body("noul", "true"),
    "question a string": body('"x"'),
    "question null": body("null"),
    "question a list": body("[]"),
    "question empty": body("{}"),
    "type a list": body('{"type": []}'),
    "type box": body('{"type": "box"}'),
    "an unknown field": body('{"type": "noul", "instructions": "x", "critera": {}}'),
    "a noul without a question": body('{"type": "noul", "instructions": null, "criteria": {"true": ""}}'),
    "criteria of a noul": body('{"type": "noul", "instructions": "x", "criteria": {"yes": 1}}'),
    "no options": body('{"type": "choice", "criteria": {}}'),
    "options null": body('{"type": "choice", "criteria": null}'),
    "options of numbers": body('{"type": "choice", "criteria": [1, 2]}'),
    "256 options": body(json.dumps({"type": "choice", "criteria": [str(n) for n in range(256)]})),
    "100,000 options": body(json.dumps({"type": "choice", "criteria": [0] * 100_000})),
    "no levels": body('{"type": "score", "criteria": []}'),
    "a level null": body('{"type": "score", "criteria": ["a", null]}'),
    "levels under NaN": body('{"type": "score", "criteria": {"nan": "a", "1": "b"}}'),
    "isolated a string": body('{"type": "score", "criteria": ["a", "b"], "isolated": "yes"}'),
    "independent null": body("noul", more=', "independent": null'),
    "layout unknown": body("noul", more=', "layout": "x"'),
    "assets": body("noul", more=', "assets": {"a": {}}'),
    "assets of another type": body("noul", more=', "assets": "x"'),
    "a long number as a key": body("noul", more=', "%s": 1' % ("9" * 10_000)) + b"x",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_no_client_would_send(server: Served, name: str) -> None:
    for path in ASKING:
        reply = server.post(path, BAD[name])
        assert reply.status in (400, 413, 422), (path, reply.status, reply.body)
        check_form(reply)


OPENAI_BAD: dict[str, object] = {
    "input of images": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
    "questions a string": {"questions": "x"},
    "a question null": {"questions": [None]},
    "choices a map": {"questions": [{"type": "choice", "instructions": "x", "choices": {}}]},
    "values a list": {"questions": [{"type": "choice", "instructions": "x", "choices": [{"value": []}]}]},
    "levels of strings": {"questions": [{"type": "score", "instructions": "x", "levels": ["a", "b"]}]},
    "a name of a list": {"questions": [{"type": "predicate", "instructions": "x", "name": []}]},
    "roles a list": {"input": [{"role": [], "content": "x"}]},
    "model a list": {"model": []},
}


@pytest.mark.parametrize("name", OPENAI_BAD)
def test_what_no_openai_client_would_send(server: Served, name: str) -> None:
    sound = {"model": "jev-latest", "input": "x", "questions": [{"type": "predicate", "instructions": "x"}]}
    assert server.post("/v1/decisions", sound).status == 200
    changed = OPENAI_BAD[name]
    assert isinstance(changed, dict)
    reply = server.post("/v1/decisions", {**sound, **changed})
    assert reply.status in (400, 422), reply.body
    check_form(reply)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(["type", "criteria", "instructions", "q", "value", "label"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(
    path=st.sampled_from(ASKING),
    keys=st.sets(
        st.sampled_from(["state", "model", "questions", "input", "context", "schema", "error_rate", "layout"])
    ),
    value=json_values,
)
@settings(BOUNDED, max_examples=200)
def test_any_json_anywhere(server: Served, path: str, keys: set[str], value: Any) -> None:
    sound: dict[str, object] = {
        "state": "s", "input": "s", "context": "s", "model": "jev-latest", "schema": {"q": {"type": "bool"}},
        "questions": {"q": {"type": "noul", "instructions": "x"}},
    }  # fmt: skip
    reply = server.post(path, json.dumps({**sound, **dict.fromkeys(keys, value)}).encode())
    assert reply.status in (200, 400, 413, 422), reply.body
    check_form(reply)


@given(junk=st.binary(max_size=200), at=st.integers(0, 100), path=st.sampled_from(ASKING))
@settings(BOUNDED, max_examples=100)
def test_any_bytes_anywhere(server: Served, junk: bytes, at: int, path: str) -> None:
    sound = body("noul")
    for encoding in ("identity", "gzip", "zstd"):
        reply = server.post(path, sound[:at] + junk + sound[at:], {"content-encoding": encoding})
        assert reply.status in (200, 400, 422), reply.body
        check_form(reply)


@given(
    name=st.sampled_from(
        [
            "content-type",
            "content-encoding",
            "authorization",
            "x-request-id",
            "x-deadline-ms",
            "expect",
            "accept",
            "host",
        ]
    ),
    value=st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=60),
    path=st.sampled_from((*ASKING, "/health", "/v1/models")),
)
@settings(BOUNDED, max_examples=150)
def test_any_header(server: Served, name: str, value: str, path: str) -> None:
    method = "POST" if path in ASKING else "GET"
    headers = {"content-type": "application/json", name: value.strip()}
    reply = server.request(method, path, body("noul") if method == "POST" else None, headers)
    assert reply.status < 500, (reply.status, reply.body)
    check_form(reply)
