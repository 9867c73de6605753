"""The JSON forms: a wire request or a plain `/decide` request in, a wire response out.

It refuses to know HTTP and which models are served. Trap: unknown top-level keys are ignored, as clients send more than
is documented, but `assets` must not be: an image that is dropped would be answered as if it had been seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from decider.errors import QuestionError, SchemaError
from decider.questions.answers import Answer
from decider.questions.faults import located, show, step
from decider.questions.jsontext import check, loads
from decider.questions.limits import Limits
from decider.questions.parse import parse_plain_question
from decider.questions.request import Request, check_questions, make_request
from decider.questions.state import render_json
from decider.questions.types import Question

_OPTIONAL = ("independent", "layout", "model", "error_rate")

MODEL_ALIAS = "jev-latest"
"""The name present clients ask for; it means the model that is served, whatever it is."""


def parse_request(body: bytes | str | Mapping[str, object], limits: Limits) -> Request:
    """A wire request, as JSON or as the mapping it stands for: `state`, `questions`, and optionally `independent`
    (default true), `layout`, `model` and `error_rate`.

    Raises TooLargeError, SchemaError, or QuestionError, with the path inside the request.
    """
    request = loads(body, limits) if isinstance(body, (bytes, str)) else check(body, limits=limits)
    if not isinstance(request, dict):
        raise SchemaError(f"the request is {show(request)}; it must be an object with state and questions")
    for key in ("state", "questions"):
        if key not in request:
            raise SchemaError(f"the request has no {key}; add it", loc=(key,))
    if request.get("assets"):
        raise QuestionError("this model is text-only; send the request without assets", loc=("assets",))
    options: dict[str, Any] = {key: request[key] for key in _OPTIONAL if key in request}
    for key, value in options.items():
        if value is None:
            raise SchemaError(f"{key} is null; give a value, or leave it out", loc=(key,))
    state, questions = request["state"], request["questions"]
    rendered = render_json(state, limits) if isinstance(state, (dict, list)) else state
    return make_request(rendered, cast("dict[str, Any]", questions), **options, limits=limits, are_json=True)


def parse_plain(
    context: object, questions: Mapping[str, object], *, independent: bool = False, limits: Limits
) -> Request:
    """A request of the plain form: question text → `{"type": "choice", "options": […]}`, `{"type": "bool"}` or
    `{"type": "scale", "levels": […]}`. Ids are the question texts.

    Raises as `parse_request` does.
    """
    parsed: dict[str, Question] = {}
    for text, value in check_questions(questions, limits).items():
        if not isinstance(text, str):
            raise SchemaError(f"the question {show(text)} is no string; the keys are the questions", loc=("questions",))
        with located("questions", step(text)):
            parsed[text] = parse_plain_question(text, check(value, limits=limits))
    return make_request(context, parsed, independent=independent, limits=limits)


def response(model: str, answers: Mapping[str, Answer], input_tokens: int) -> dict[str, object]:
    """The wire response, ready for strict JSON. A readout generates nothing, so `output_tokens` is 0."""
    return {
        "model": model,
        "answers": {question_id: answer.to_wire() for question_id, answer in answers.items()},
        "usage": {"input_tokens": input_tokens, "output_tokens": 0},
    }
