"""Routes, headers and error bodies over a real server.

Trap: `http.client` hides how an answer arrives; `test_app_connections.py` looks at that.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from backports import zstd
from fake_brain import FakeBrain
from serving import Served, served

from decider.errors import EngineError
from decider.questions.answers import NoulAnswer
from decider.serve.admission import Held
from decider.serve.app import FORMS
from decider.serve.config import ServeConfig, key_digest
from decider.serve.exchange import ROUTES

NOUL = {"type": "noul", "instructions": "Is it?"}
CHOICE = {"type": "choice", "instructions": "Which?", "criteria": {"the \U0001f600": None, "é\n\"'": "x", "c": [1]}}
SCORE = {"type": "score", "criteria": ["low", {"a": 1}, ["x"]]}
ALONE = {"type": "choice", "criteria": ["only"]}


def request(**questions: object) -> dict[str, object]:
    return {"state": "s", "model": "jev-latest", "questions": questions or {"q": NOUL}}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    config = ServeConfig(max_body_bytes=200_000, max_decompressed_bytes=300_000, max_questions=50, max_row_tokens=5000)
    with served(config=config) as running:
        yield running
        assert running.idle()


def test_every_field_of_an_answer(server: Served) -> None:
    questions = {"": NOUL, "a b \U0001f600": CHOICE, "s": SCORE, "one": ALONE}
    reply = server.post("/v1/systemone", {"state": {"a": [1, None]}, "model": "decider-fake", "questions": questions})
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-typesafe-request-id"].startswith("req_")
    assert set(reply.json) == {"model", "answers", "usage"}
    assert reply.json["model"] == "decider-fake"
    usage = reply.json["usage"]
    assert usage["output_tokens"] == 0
    assert type(usage["input_tokens"]) is int
    assert usage["input_tokens"] > 0
    answers: dict[str, Any] = reply.json["answers"]
    assert list(answers) == list(questions)
    ours = {"x_p_max", "x_certainty", "x_truncated"}
    noul, choice, score, alone = answers.values()
    assert set(noul) == {"type", "noul"} | ours
    assert set(choice) == {"type", "choice", "confidence", "probabilities"} | ours
    assert set(score) == {"type", "score", "confidence", "legend", "probabilities"} | ours
    assert (noul["type"], choice["type"], score["type"]) == ("noul", "choice", "score")
    assert list(choice["probabilities"]) == ["the \U0001f600", "é\n\"'", "c"]
    p = list(choice["probabilities"].values())
    assert choice["confidence"] == pytest.approx((max(p) - 1 / 3) / (1 - 1 / 3), abs=1e-12)
    assert score["legend"] == {"0": "low", "1": {"a": 1}, "2": ["x"]}
    q = [score["probabilities"][key] for key in ("0", "1", "2")]
    assert score["score"] == pytest.approx(q[1] + 2 * q[2], abs=1e-12)
    top = q.index(max(q))
    spread = sum(share * abs(level - top) for level, share in enumerate(q)) / (2 / 3)
    assert score["confidence"] == pytest.approx(max(0, 1 - spread), abs=1e-12)
    assert (alone["choice"], alone["confidence"], alone["probabilities"]) == ("only", 1.0, {"only": 1.0})


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_packed_bodies(server: Served, pack: Any) -> None:
    value = {**request(), "state": "some words " * 300, "questions": {f"q{n}": NOUL for n in range(3)}}
    plain = server.post("/v1/systemone", value)
    encoding = "gzip" if pack is gzip.compress else "zstd"
    packed = server.post("/v1/systemone", pack(json.dumps(value).encode()), {"content-encoding": encoding})
    assert packed.status == plain.status == 200
    assert packed.json == plain.json
    bomb = server.post("/v1/systemone", pack(bytes(50_000_000)), {"content-encoding": encoding})
    assert bomb.status == 413
    assert "max_decompressed_bytes" in bomb.json["detail"]


def test_large_bodies_are_parsed_like_small_ones(server: Served) -> None:
    value = {**request(), "ignored": "x" * 100_000}
    assert server.post("/v1/systemone", value).json == server.post("/v1/systemone", request()).json
    value["questions"] = {"q": "x"}
    assert server.post("/v1/systemone", value).status == 422


def test_the_plain_form(server: Served) -> None:
    schema = {
        "Which?": {"type": "choice", "options": ["a", "b"]},
        "Is it?": {"type": "bool"},
        "How much?": {"type": "scale", "levels": ["little", "much"]},
    }
    answers = server.post("/decide", {"context": "s", "schema": schema}).json
    assert [answer["type"] for answer in answers.values()] == ["choice", "noul", "score"]
    assert list(answers) == list(schema)
    joint = {
        "Which?": {"type": "choice", "instructions": "Which?", "criteria": ["a", "b"]},
        "Is it?": {"type": "noul", "instructions": "Is it?"},
        "How much?": {"type": "score", "instructions": "How much?", "criteria": ["little", "much"]},
    }
    wire = server.post("/v1/systemone", {**request(**joint), "independent": False}).json
    assert answers == wire["answers"]
    for value, loc in (
        ({"context": "s"}, ["schema"]),
        ({"schema": schema}, ["context"]),
        ({"context": 3, "schema": schema}, ["context"]),
        ({"context": "s", "schema": []}, ["schema"]),
        ({"context": "s", "schema": {"q": {"type": "x"}}}, ["schema", "q", "type"]),
        ([], []),
    ):
        reply = server.post("/decide", value)
        assert (reply.status, reply.json["detail"][0]["loc"]) == (422, ["body", *loc])


@pytest.mark.parametrize(
    ("changes", "status", "loc"),
    [
        ({"model": None}, 422, ["model"]),
        ({"model": 1}, 422, ["model"]),
        ({"questions": None}, 422, ["questions"]),
        ({"questions": {}}, 422, ["questions"]),
        ({"questions": []}, 422, ["questions"]),
        ({"questions": {"q": None}}, 422, ["questions", "q"]),
        ({"questions": {"q": "x"}}, 422, ["questions", "q"]),
        ({"questions": {"q": []}}, 422, ["questions", "q"]),
        ({"questions": {"q": {"type": "box"}}}, 422, ["questions", "q", "type"]),
        ({"questions": {"q": {"type": "choice", "criteria": {}}}}, 422, ["questions", "q", "criteria"]),
        ({"questions": {"q": {"type": "choice", "criteria": ["a", "a"]}}}, 422, ["questions", "q", "criteria", 1]),
        ({"questions": {"q": {"type": "noul"}}}, 400, "nothing to ask"),
        ({"questions": {"q": {"type": "score", "criteria": ["one"]}}}, 400, "2 to 10"),
        ({"questions": {"q": {"type": "score", "criteria": ["x"] * 11}}}, 400, "2 to 10"),
        ({"questions": {"q": {"type": "choice", "criteria": [f"{n}" for n in range(256)]}}}, 400, "options per choice"),
        ({"model": "gpt-4"}, 400, "unknown model"),
        ({"assets": {"a": {"type": "image", "format": "png", "data_base64": "AA=="}}}, 400, "text-only"),
        ({"questions": {f"q{n}": NOUL for n in range(51)}}, 413, "too many tokens"),
        ({"state": "x" * 6000}, 413, "max_row_tokens"),
        ({"error_rate": 2}, 422, ["error_rate"]),
    ],
)
def test_what_cannot_be_answered(
    server: Served, changes: dict[str, object], status: int, loc: str | list[object]
) -> None:
    reply = server.post("/v1/systemone", {**request(), **changes})
    assert reply.status == status, reply.body
    detail = reply.json["detail"]
    if isinstance(loc, str):
        assert loc in detail
    else:
        assert (detail[0]["loc"], set(detail[0])) == (["body", *loc], {"loc", "msg", "type"})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/json; charset=latin-1"}, 415),
        ({"content-encoding": "br"}, 415),
        ({"content-encoding": "gzip, zstd"}, 415),
        ({"content-encoding": "gzip"}, 400),
        ({"content-encoding": "zstd"}, 400),
        ({"content-type": "multipart/form-data; boundary=x"}, 400),
        ({"x-deadline-ms": "soon"}, 400),
        ({"x-deadline-ms": "0"}, 400),
        ({"x-deadline-ms": "-5"}, 400),
    ],
)
def test_headers_that_are_wrong(server: Served, headers: dict[str, str], status: int) -> None:
    reply = server.post("/v1/systemone", request(), headers)
    assert reply.status == status
    assert isinstance(reply.json["detail"], str)


@pytest.mark.parametrize("key", ["state", "model", "questions"])
def test_what_must_be_there(server: Served, key: str) -> None:
    reply = server.post("/v1/systemone", {name: value for name, value in request().items() if name != key})
    assert reply.status == 422
    assert reply.json["detail"][0]["loc"] == ["body", key]


def test_a_body_that_is_too_large(server: Served) -> None:
    reply = server.post("/v1/systemone", {**request(), "state": "x" * 250_000})
    assert reply.status == 413
    for word in ("maximum context length", "200,000", "max_body_bytes"):
        assert word in reply.json["detail"]


def test_paths_and_methods_that_are_not_there(server: Served) -> None:
    for path in ("/nothing", "/v1/systemone/", "/v1", "/../etc/passwd", "/%ff%00"):
        reply = server.get(path)
        assert (reply.status, reply.json) == (404, {"detail": "Not Found"})
        assert "x-typesafe-request-id" in reply.headers
    for method, path, allow in (
        ("GET", "/v1/systemone", "POST"),
        ("PUT", "/health", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
    ):
        reply = server.request(method, path)
        assert (reply.status, reply.headers["allow"]) == (405, allow)
        assert reply.json == {"detail": "Method Not Allowed"}
        options = server.request("OPTIONS", path)
        assert (options.status, options.headers["allow"], options.body) == (204, f"{allow}, OPTIONS", b"")


def test_a_head_is_a_get_without_its_body(server: Served) -> None:
    for path in ("/health", "/v1/models", "/openapi.json", "/metrics"):
        head, full = server.request("HEAD", path), server.get(path)
        assert (head.status, head.body) == (full.status, b"") == (200, b"")
        assert head.headers["content-type"] == full.headers["content-type"]


def test_what_tells_of_the_server(server: Served) -> None:
    assert server.get("/v1/models").json == {
        "models": [{"name": "decider-fake", "description": "a fake", "release_date": "2026-01-01"}]
    }
    assert server.get("/health/live").json == {"status": "alive"}
    assert server.get("/health/ready").json == server.get("/health").json == {"status": "ready"}
    server.post("/v1/systemone", request())
    stats = server.get("/stats").json
    assert stats["model"] == "decider-fake"
    assert stats["health"]["ready"] is True
    assert stats["load"]["answered"] >= 1
    metrics = server.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert b'decider_requests_total{route="/v1/systemone",status="200"}' in metrics.body
    assert b'route="unknown",status="404"' in (server.get("/x").body, server.get("/metrics").body)[1]
    for path in ("/", "/docs"):
        assert server.get(path).headers["content-type"].startswith("text/html")


def test_every_route_is_known_to_the_metrics_and_described(server: Served) -> None:
    described = server.get("/openapi.json").json
    assert described["openapi"] == "3.1.0"
    assert set(described["paths"]) == ROUTES - {"/", "/docs", "/openapi.json"}
    for path in described["paths"]:
        assert server.request("OPTIONS", path).status == 204


def shape(value: object) -> object:
    """Names and kinds of a JSON value; numbers are one kind."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return "number" if type(value) in (int, float) else type(value).__name__


def test_the_examples_that_are_described_are_what_is_answered(server: Served) -> None:
    described = server.get("/openapi.json").json
    page = server.get("/docs").body.decode()
    assert page.count("<summary>Example</summary>") >= len(FORMS)
    assert page.count("<summary>Example of 200</summary>") == len(FORMS)
    for path in FORMS:
        operation = described["paths"][path]["post"]
        asked = operation["requestBody"]["content"]["application/json"]
        answered = operation["responses"]["200"]["content"]["application/json"]
        reply = server.post(path, asked["example"])
        assert reply.status == 200
        assert shape(reply.json) == shape(answered["example"])


def test_a_request_id_of_the_callers_is_kept(server: Served) -> None:
    for given in ("abc-123", "x" * 64):
        reply = server.get("/health", **{"x-request-id": given})
        assert reply.headers["x-request-id"] == reply.headers["x-typesafe-request-id"] == given
    for given in ("x" * 65, "a b", ""):
        assert server.get("/health", **{"x-request-id": given}).headers["x-typesafe-request-id"].startswith("req_")
    ids = {server.get("/health").headers["x-typesafe-request-id"] for _ in range(20)}
    assert len(ids) == 20


KEYS = frozenset(map(key_digest, ("first-key-1", "other-key-22")))


def test_keys() -> None:
    with served(config=ServeConfig(api_keys=KEYS)) as server:
        for path in ("/", "/docs", "/openapi.json", "/health", "/health/live", "/health/ready"):
            assert server.get(path).status == 200, path
        closed = [("GET", path) for path in ("/v1/models", "/stats", "/metrics")]
        closed += [("POST", path) for path in ("/v1/systemone", "/v1/decisions", "/decide")]
        for method, path in closed:
            missing = server.request(method, path)
            wrong = server.request(method, path, headers={"authorization": "Bearer nobodys-key"})
            right = server.request(method, path, headers={"authorization": "Bearer other-key-22"})
            assert (missing.status, wrong.status) == (403, 401), path
            assert right.status == (200 if method == "GET" else 415)
            assert wrong.headers["www-authenticate"] == "Bearer"
            assert wrong.json["detail"]["error_type"] == missing.json["detail"]["error_type"] == "authentication_error"
            assert wrong.json["detail"]["message"]
        reply = server.post("/v1/systemone", request(), {"authorization": "Bearer first-key-1"})
        assert reply.status == 200
        described = server.get("/openapi.json").json
        assert described["paths"]["/stats"]["get"]["security"] == [{"key": []}]
        assert "security" not in described["paths"]["/health"]["get"]
    assert "first-key-1" not in server.lines.getvalue()


def test_a_key_is_ignored_where_there_are_none(server: Served) -> None:
    assert server.post("/v1/systemone", request(), {"authorization": "Bearer anything"}).status == 200


def test_the_engines_faults_are_503_and_ours_500_without_a_word_of_them(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    brain = FakeBrain(fault=lambda _: EngineError("the engine is out of memory"))
    with served(brain) as server:
        reply = server.post("/v1/systemone", request())
        assert reply.status == 503
        assert reply.json["detail"]["error_type"] == "engine_error"
        assert "out of memory" in reply.json["detail"]["message"]
        brain.fault = None
        assert server.post("/v1/systemone", request()).status == 200
        monkeypatch.setattr(brain, "prepare", lambda _: 1 / 0)
        broken = server.post("/v1/systemone", request())
        assert broken.status == 500
        assert set(broken.json["detail"]) == {"error_type", "message"}
        assert broken.headers["x-typesafe-request-id"] in broken.json["detail"]["message"]
        assert b"division" not in broken.body
        assert "division" in caplog.text
        assert server.idle()


def test_an_answer_that_is_no_json_is_our_bug(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served() as server:
        monkeypatch.setattr(NoulAnswer, "to_wire", lambda _: {"noul": float("nan")})
        assert server.post("/v1/systemone", request()).status == 500
    assert "not JSON compliant" in caplog.text


def test_an_engine_that_is_gone_fails_health_and_requests_at_once() -> None:
    def die(_: object) -> BaseException:
        return SystemExit("gone")

    with served(FakeBrain(fault=die)) as server:
        assert server.post("/v1/systemone", request()).status == 503
        for path in ("/health", "/health/ready"):
            reply = server.get(path)
            assert reply.status == 503
            assert reply.json["detail"]["message"].startswith("not ready: ")
        assert server.get("/health/live").status == 200
        assert server.post("/v1/systemone", request()).status == 503


@pytest.mark.parametrize("status", [429, 529])
def test_a_full_queue_says_when_to_come_back(status: int) -> None:
    config = ServeConfig(max_queued_tokens=1000, max_request_tokens=1000, max_row_tokens=1000, overload_status=status)
    with served(config=config) as server:
        server.on_loop(lambda: server.scheduler._admission.change(Held(0, 0, 0), Held(0, 0, 1000)))
        reply = server.post("/v1/systemone", request())
        server.on_loop(lambda: server.scheduler._admission.change(Held(0, 0, 1000), Held(0, 0, 0)))
        assert reply.status == status
        assert int(reply.headers["retry-after"]) >= 1
        assert int(reply.headers["retry-after-ms"]) >= 1
        assert set(reply.json["detail"]) == {"error_type", "message"}
        assert server.post("/v1/systemone", request()).status == 200


def test_messages_name_the_setting_that_an_operator_would_change() -> None:
    config = ServeConfig(max_body_bytes=3000, max_decompressed_bytes=400, max_json_depth=5, max_queued_rows=2)
    many = {
        "state": "s",
        "model": "jev-latest",
        "questions": {f"q{n}": {"type": "noul", "instructions": "?"} for n in "abc"},
    }
    with served(config=config) as server:
        for value, status, words in [
            ({**many, "more": "x" * 400}, 413, "max_decompressed_bytes"),
            ({**many, "more": "x" * 3000}, 413, "max_body_bytes"),
            ({**many, "state": [[[[[["deep"]]]]]]}, 422, "max_json_depth"),
            (many, 413, "3 rows, over the limit of 2 that wait at once (max_queued_rows)"),
        ]:
            reply = server.post("/v1/systemone", value)
            assert (reply.status, words in reply.body.decode()) == (status, True), reply.body


def test_content_is_logged_only_where_that_was_asked_for() -> None:
    value = {**request(), "state": "a secret state"}
    with served() as quiet:
        quiet.post("/v1/systemone", value)
    with served(config=ServeConfig(log_content=True), log_content=True) as told:
        told.post("/v1/systemone", value)
    assert "secret" not in quiet.lines.getvalue()
    (line,) = [json.loads(one) for one in told.lines.getvalue().splitlines()]
    assert "a secret state" in line["content"]["request"]
    assert line["content"]["answers"]["answers"]["q"]["type"] == "noul"
    assert (line["status"], line["route"], line["rows"]) == (200, "/v1/systemone", 1)
    assert line["tokens"] > 0
