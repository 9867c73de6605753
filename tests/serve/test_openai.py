"""The OpenAI Decisions shape: what its client sends and reads, and what no client should.

The client is the published one, over a real server. Trap: its models read almost anything, so what it is sent is
checked as JSON, too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from fake_brain import FakeBrain
from serving import Served, served

from decider.errors import InputError, QuestionError, SchemaError, TooLargeError
from decider.questions.answered import Answers
from decider.questions.answers import read_answer
from decider.questions.limits import Limits
from decider.questions.types import Choice, Noul, Score
from decider.serve.openai_shape import openai_form

LIMITS = Limits()
PREDICATE = {"type": "predicate", "name": "billing", "instructions": "It is about billing."}
CHOICE = {
    "type": "choice",
    "instructions": "Which?",
    "choices": [{"value": "a", "description": "the first"}, {"value": True}, {"value": "false"}],
}
SCORE = {
    "type": "score",
    "name": "anger",
    "instructions": "How angry?",
    "levels": [{"label": "calm"}, {"label": "angry", "description": "shouts"}],
}


def body(**changes: Any) -> bytes:
    return json.dumps({"model": "m", "input": "x", "questions": [PREDICATE], **changes}).encode()


def test_questions_become_ours_in_order() -> None:
    request = openai_form(
        body(questions=[PREDICATE, CHOICE, SCORE], error_rate=0.1, safety_identifier="u"), LIMITS
    ).request
    assert list(request.questions.values()) == [
        Noul("It is about billing."),
        Choice("Which?", {"a": "the first", "true": None, "false": None}),
        Score("How angry?", ["calm", "angry: shouts"]),
    ]
    assert (request.state, request.model, request.independent, request.error_rate) == ("x", "m", True, 0.1)


def test_answers_come_back_in_the_shape_with_every_digit() -> None:
    parsed = openai_form(body(questions=[PREDICATE, CHOICE, SCORE]), LIMITS)
    shares = ((1 / 3, 2 / 3), (0.2, 0.7, 0.1), (0.25, 0.75))
    answers = {
        name: read_answer(question, p, truncated=False)
        for (name, question), p in zip(parsed.request.questions.items(), shares, strict=True)
    }
    written: Any = parsed.write(Answers(answers, "decider-1", 42))
    ours = {"x_p_max", "x_certainty", "x_truncated"}
    plain = [{key: value for key, value in one.items() if key not in ours} for one in written["answers"]]
    assert plain == [
        {"type": "predicate", "name": "billing", "probability": 2 / 3},
        {
            "type": "choice",
            "name": None,
            "choice": True,
            "confidence": (0.7 - 1 / 3) / (1 - 1 / 3),
            "probabilities": [
                {"value": "a", "probability": 0.2},
                {"value": True, "probability": 0.7},
                {"value": "false", "probability": 0.1},
            ],
        },
        {
            "type": "score",
            "name": "anger",
            "score": 0.75,
            "confidence": 0.5,
            "probabilities": [
                {"value": 0, "label": "calm", "probability": 0.25},
                {"value": 1, "label": "angry", "probability": 0.75},
            ],
        },
    ]
    assert all(set(one) >= ours for one in written["answers"])
    assert written["usage"] == {
        "input_tokens": 42,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 42,
    }


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ("text", "text"),
        ([{"role": "user", "content": "text"}], "text"),
        (
            [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}],
            "a\nb",
        ),
        ([{"role": "user", "content": [{"type": "input_json", "data": {"a": [1]}}]}], '{"a": [1]}'),
        ([{"role": "system", "content": "text"}], '[{"role": "system", "content": "text"}]'),
        (
            [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "a"}, {"type": "input_json", "data": {}}],
                },
                {
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "b"}, {"type": "refusal", "refusal": "c"}],
                },
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "status": "completed"},
                {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "d"}]},
                {"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "e"},
                {"type": "custom_tool_call_output", "call_id": "2", "output": "h"},
            ],
            '[{"role": "user", "content": ["a", {}]}, {"role": "assistant", "content": "b\\nc"}, '
            '{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}, '
            '{"type": "function_call_output", "call_id": "1", "output": "d"}, '
            '{"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "e"}, '
            '{"type": "custom_tool_call_output", "call_id": "2", "output": "h"}]',
        ),
    ],
)
def test_inputs_as_the_model_reads_them(given: object, state: str) -> None:
    assert openai_form(body(input=given), LIMITS).request.state == state


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}


@pytest.mark.parametrize(
    ("changes", "kind", "loc"),
    [
        ({"model": None}, SchemaError, ("model",)),
        ({"model": 3}, SchemaError, ("model",)),
        ({"input": None}, SchemaError, ("input",)),
        ({"input": 3}, SchemaError, ("input",)),
        ({"input": []}, SchemaError, ("input",)),
        ({"input": ["x"]}, SchemaError, ("input", 0)),
        ({"input": [{"role": "x", "content": ""}]}, SchemaError, ("input", 0, "role")),
        ({"input": [{"role": "user"}]}, SchemaError, ("input", 0, "content")),
        ({"input": [{"role": "user", "content": [IMAGE]}]}, QuestionError, ("input", 0, "content", 0)),
        ({"input": [{"type": ["x"]}]}, SchemaError, ("input", 0, "type")),
        ({"input": [{"type": "function_call_output", "output": ""}]}, SchemaError, ("input", 0, "call_id")),
        ({"input": [{"type": "function_call", "call_id": "1", "name": 1}]}, SchemaError, ("input", 0, "name")),
        (
            {"input": [{"role": "user", "content": [{"type": "input_json", "data": 1}]}]},
            SchemaError,
            ("input", 0, "content", 0, "data"),
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            SchemaError,
            ("input", 0, "content", 0, "text"),
        ),
        ({"questions": {}}, SchemaError, ("questions",)),
        ({"questions": []}, SchemaError, ("questions",)),
        ({"questions": [PREDICATE] * 5000}, TooLargeError, ("questions",)),
        ({"questions": ["x"]}, SchemaError, ("questions", 0)),
        ({"questions": [PREDICATE, {"type": "box"}]}, SchemaError, ("questions", 1, "type")),
        ({"questions": [{**PREDICATE, "type": []}]}, SchemaError, ("questions", 0, "type")),
        ({"questions": [{**PREDICATE, "name": 1}]}, SchemaError, ("questions", 0, "name")),
        ({"questions": [{"type": "predicate"}]}, SchemaError, ("questions", 0, "instructions")),
        ({"questions": [{**PREDICATE, "instructions": [IMAGE]}]}, QuestionError, ("questions", 0, "instructions", 0)),
        ({"questions": [{**PREDICATE, "instructions": ""}]}, QuestionError, ("questions", 0)),
        ({"questions": [{**CHOICE, "choices": []}]}, SchemaError, ("questions", 0, "choices")),
        ({"questions": [{**CHOICE, "choices": [{"value": 1}]}]}, SchemaError, ("questions", 0, "choices", 0, "value")),
        (
            {"questions": [{**CHOICE, "choices": [{"value": "a"}] * 2}]},
            QuestionError,
            ("questions", 0, "choices", 1, "value"),
        ),
        (
            {"questions": [{**CHOICE, "choices": [{"value": "true"}, {"value": True}]}]},
            QuestionError,
            ("questions", 0, "choices", 1, "value"),
        ),
        (
            {"questions": [{**CHOICE, "choices": [{"value": str(n)} for n in range(256)]}]},
            QuestionError,
            ("questions", 0, "choices"),
        ),
        (
            {"questions": [{**CHOICE, "choices": [{"value": "a", "description": 1}]}]},
            SchemaError,
            ("questions", 0, "choices", 0, "description"),
        ),
        ({"questions": [{**SCORE, "levels": [{"label": "a"}]}]}, QuestionError, ("questions", 0, "levels")),
        ({"questions": [{**SCORE, "levels": [{"label": "a"}] * 11}]}, QuestionError, ("questions", 0, "levels")),
        ({"questions": [{**SCORE, "levels": [{"label": None}, {}]}]}, SchemaError, ("questions", 0, "levels", 1)),
        ({"error_rate": 2}, SchemaError, ("error_rate",)),
        ({"layout": "x"}, SchemaError, ("layout",)),
        ({"input": "x" * (2**21 + 1)}, TooLargeError, ("input",)),
    ],
)
def test_faults_have_their_place(
    changes: dict[str, object], kind: type[InputError], loc: tuple[str | int, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        openai_form(body(**changes), LIMITS)
    assert (type(caught.value), caught.value.loc) == (kind, loc)


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(FakeBrain()) as running:
        yield running


def test_the_client_gets_typed_answers(server: Served) -> None:
    with openai.OpenAI(api_key="unused", base_url=f"{server.url}/v1") as client:
        decision = client.decisions.create(
            model="jev-latest",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "I was charged twice."}]}],
            questions=[PREDICATE, CHOICE, SCORE],  # type: ignore[list-item]
        )
    predicate, choice, score = decision.answers
    assert predicate.type == "predicate"
    assert choice.type == "choice"
    assert score.type == "score"
    assert predicate.name == "billing"
    assert 0 <= predicate.probability <= 1
    assert [type(one.value) for one in choice.probabilities] == [str, bool, str]
    assert choice.choice == max(choice.probabilities, key=lambda one: one.probability).value
    assert [one.label for one in score.probabilities] == ["calm", "angry"]
    assert decision.model == server.brain.name
    assert decision.usage.total_tokens == decision.usage.input_tokens > 0
    assert decision._request_id is not None


def test_answers_are_those_of_the_wire(server: Served) -> None:
    wire = server.post(
        "/v1/systemone",
        {
            "state": "s",
            "model": "jev-latest",
            "questions": {"q": {"type": "choice", "instructions": "Which?", "criteria": {"a": "x", "b": None}}},
        },
    ).json
    choices = [{"value": "a", "description": "x"}, {"value": "b"}]
    decision = server.post(
        "/v1/decisions",
        {
            "input": "s",
            "model": "jev-latest",
            "questions": [{"type": "choice", "instructions": "Which?", "choices": choices}],
        },
    ).json
    (answer,) = decision["answers"]
    assert {one["value"]: one["probability"] for one in answer["probabilities"]} == wire["answers"]["q"][
        "probabilities"
    ]
    assert decision["usage"]["input_tokens"] == wire["usage"]["input_tokens"]


def test_the_async_client_gets_its_errors(server: Served) -> None:
    async def ask() -> None:
        async with openai.AsyncOpenAI(api_key="unused", base_url=f"{server.url}/v1", max_retries=0) as client:
            with pytest.raises(openai.BadRequestError, match="unknown model") as unknown:
                await client.decisions.create(model="gpt-6-luna", input="x", questions=[PREDICATE])  # type: ignore[list-item]
            assert (unknown.value.type, unknown.value.param) == ("invalid_request_error", "model")
            with pytest.raises(openai.UnprocessableEntityError) as schema:
                await client.decisions.create(model="jev-latest", input="x", questions=[])
            assert schema.value.param == "questions"

    asyncio.run(ask())
