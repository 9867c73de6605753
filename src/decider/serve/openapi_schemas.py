"""The bodies that `openapi` describes, as JSON Schema: requests, answers, errors.

It refuses to know paths. Trap: a schema cannot say everything that is checked (a sum of sizes, a repeated key), so a
body that fits may still be refused; but a body that does not fit is answered with 200 only where it names the model by
its folder.
"""

from __future__ import annotations

from decider.questions.limits import Limits
from decider.questions.request import LAYOUT_NAMES
from decider.questions.wire import MODEL_ALIAS

Json = dict[str, object]

_TEXT: Json = {"type": "string"}
_CONTENT: Json = {"type": ["string", "object", "array"]}
_CONTENT_OR_NULL: Json = {"type": ["string", "object", "array", "null"]}
_SHARE: Json = {"type": "number", "minimum": 0, "maximum": 1}
_COUNT: Json = {"type": "integer", "minimum": 0}


def schemas(limits: Limits, name: str) -> Json:
    """By name, as `components.schemas` holds them."""
    return {**_requests(limits, name), **_openai_requests(limits, name), **_answers(), **_decision(), **_others()}


def _requests(limits: Limits, name: str) -> Json:
    options: Json = {"oneOf": [_map_of({}, limits.max_options), _names(limits.max_options)]}
    levels = _array({"type": ["string", "number", "boolean", "object", "array"]}, limits.min_levels, limits.max_levels)
    question: Json = {"oneOf": [_ref("Choice"), _ref("Score"), _ref("Noul")]}
    return {
        "SystemOneRequest": _object(
            {
                "state": {**_CONTENT, "description": "What the questions are about: text, or JSON."},
                "model": {"enum": [name, MODEL_ALIAS]},
                "questions": {
                    **_map_of(_ref("Question"), limits.max_questions),
                    "description": "By an id of your own, which the model is not shown.",
                },
                **_ours(),
                "assets": {"type": "object", "maxProperties": 0, "description": "Images; no text model takes any."},
            },
            ("state", "model", "questions"),
        ),
        "Question": {**question, "examples": [{"type": "noul", "instructions": "Is this about billing?"}]},
        "Choice": _closed(
            {"type": {"const": "choice"}, "instructions": _CONTENT_OR_NULL, "criteria": options},
            ("type", "criteria"),
        ),
        "Score": _closed(
            {
                "type": {"const": "score"},
                "instructions": _CONTENT_OR_NULL,
                "criteria": {**levels, "description": "The levels, lowest first."},
                "isolated": {"type": ["boolean", "null"], "description": "Judge each level in a row of its own."},
            },
            ("type", "criteria"),
        ),
        "Noul": _closed(
            {
                "type": {"enum": ["noul", "bool"]},
                "instructions": _CONTENT_OR_NULL,
                "criteria": {
                    "type": ["object", "null"],
                    "properties": {"true": {}, "false": {}},
                    "additionalProperties": False,
                },
            },
            ("type",),
        ),
        "PlainRequest": _object(
            {
                "context": _CONTENT,
                "schema": {**_map_of(_ref("PlainQuestion"), limits.max_questions), "description": "By question text."},
            },
            ("context", "schema"),
        ),
        "PlainQuestion": {
            "oneOf": [
                _closed({"type": {"const": "choice"}, "options": options}, ("type", "options")),
                _closed({"type": {"const": "scale"}, "levels": levels}, ("type", "levels")),
                _closed({"type": {"const": "bool"}}, ("type",)),
            ]
        },
    }


def _openai_requests(limits: Limits, name: str) -> Json:
    text = _part("input_text", "text", _TEXT)
    data = _part("input_json", "data", {"type": ["object", "array"]})
    content: Json = {"oneOf": [_TEXT, _array({"oneOf": [text, data]}, 1)]}
    named: Json = {"type": ["string", "null"]}
    described: Json = {"type": ["string", "null"]}
    choice = _object({"value": {"type": ["string", "boolean"]}, "description": described}, ("value",))
    level = _object({"label": _TEXT, "description": described}, ("label",))
    asked: Json = {"name": named, "instructions": content}
    required = ("type", "instructions")
    return {
        "DecisionsRequest": _object(
            {
                "model": {"enum": [name, MODEL_ALIAS]},
                "input": {"oneOf": [_TEXT, _array({"oneOf": [_ref("Message"), _ref("Call"), _ref("Output")]}, 1)]},
                "questions": _array(_ref("DecisionsQuestion"), 1, limits.max_questions),
                **{key: {"anyOf": [value, {"type": "null"}]} for key, value in _ours().items()},
            },
            ("model", "input", "questions"),
        ),
        "Message": _object(
            {
                "type": {"const": "message"},
                "role": {"enum": ["user", "developer", "system", "assistant"]},
                "content": content,
            },
            ("role", "content"),
        ),
        "Call": {
            "oneOf": [
                _item("function_call", {"name": _TEXT, "arguments": _TEXT}),
                _item("custom_tool_call", {"name": _TEXT, "input": _TEXT}),
            ]
        },
        "Output": {
            "oneOf": [
                _item("function_call_output", {"output": content}),
                _item("custom_tool_call_output", {"output": content}),
            ]
        },
        "DecisionsQuestion": {
            "oneOf": [
                _object({"type": {"const": "predicate"}, **asked}, required),
                _object(
                    {"type": {"const": "choice"}, **asked, "choices": _array(choice, 1, limits.max_options)},
                    (*required, "choices"),
                ),
                _object(
                    {
                        "type": {"const": "score"},
                        **asked,
                        "levels": _array(level, limits.min_levels, limits.max_levels),
                    },
                    (*required, "levels"),
                ),
            ]
        },
    }


def _answers() -> Json:
    answer: Json = {"oneOf": [_ref("ChoiceAnswer"), _ref("ScoreAnswer"), _ref("NoulAnswer")]}
    probabilities: Json = {"type": "object", "additionalProperties": _SHARE, "minProperties": 1}
    return {
        "SystemOneResponse": _closed(
            {
                "model": _TEXT,
                "answers": _ref("Answers"),
                "usage": _closed({"input_tokens": _COUNT, "output_tokens": _COUNT}),
            }
        ),
        "Answers": {
            "type": "object",
            "additionalProperties": answer,
            "description": "By question, in the order asked.",
        },
        "ChoiceAnswer": _answer(
            {"type": {"const": "choice"}, "choice": _TEXT, "confidence": _SHARE, "probabilities": probabilities}
        ),
        "ScoreAnswer": _answer(
            {
                "type": {"const": "score"},
                "score": {"type": "number", "minimum": 0, "maximum": 9},
                "confidence": _SHARE,
                "legend": {"type": "object", "additionalProperties": {}},
                "probabilities": probabilities,
            }
        ),
        "NoulAnswer": _answer({"type": {"const": "noul"}, "noul": _SHARE}),
    }


def _decision() -> Json:
    named: Json = {"type": ["string", "null"]}
    value: Json = {"type": ["string", "boolean"]}
    of_choice = _closed({"value": value, "probability": _SHARE})
    of_score = _closed({"value": _COUNT, "label": _TEXT, "probability": _SHARE})
    answers = [
        _answer({"type": {"const": "predicate"}, "name": named, "probability": _SHARE}),
        _answer(
            {
                "type": {"const": "choice"},
                "name": named,
                "choice": value,
                "confidence": _SHARE,
                "probabilities": _array(of_choice, 1),
            }
        ),
        _answer(
            {
                "type": {"const": "score"},
                "name": named,
                "score": {"type": "number", "minimum": 0, "maximum": 9},
                "confidence": _SHARE,
                "probabilities": _array(of_score, 2),
            }
        ),
    ]
    usage = _closed(
        {
            "input_tokens": _COUNT,
            "input_tokens_details": _closed({"cached_tokens": _COUNT, "cache_write_tokens": _COUNT}),
            "output_tokens": _COUNT,
            "output_tokens_details": _closed({"reasoning_tokens": _COUNT}),
            "total_tokens": _COUNT,
        }
    )
    return {"Decision": _closed({"model": _TEXT, "answers": _array({"oneOf": answers}, 1), "usage": usage})}


def _others() -> Json:
    fault = _closed({"loc": _array({"type": ["string", "integer"]}, 1), "msg": _TEXT, "type": _TEXT})
    model = _closed({"name": _TEXT, "description": _TEXT, "release_date": _TEXT})
    return {
        "Models": _closed({"models": _array(model, 1)}),
        "Status": _closed({"status": _TEXT}),
        "Stats": {"type": "object"},
        "Detail": _object({"detail": _TEXT}, ("detail",)),
        "TypedDetail": _object({"detail": _closed({"error_type": _TEXT, "message": _TEXT})}, ("detail",)),
        "SchemaDetail": _object({"detail": _array(fault, 1)}, ("detail",)),
    }


def _ours() -> Json:
    return {
        "independent": {"type": "boolean", "default": True, "description": "Each question in a row of its own."},
        "layout": {"enum": list(LAYOUT_NAMES), "description": "How rows are written; else the model's own way."},
        "error_rate": {
            "type": "number",
            "exclusiveMinimum": 0,
            "exclusiveMaximum": 1,
            "description": "Ask for prediction sets and abstention at this rate, where the model has thresholds.",
        },
    }


def _answer(properties: Json) -> Json:
    """An answer with the fields that every one has, and those of an error rate."""
    ours: Json = {"x_p_max": _SHARE, "x_certainty": _SHARE, "x_truncated": {"type": "boolean"}}
    selective: Json = {
        "x_error_rate": _SHARE,
        "x_set": {"type": "array", "items": {"type": ["string", "integer", "boolean"]}},
        "x_abstain": {"type": "boolean"},
    }
    return _closed({**properties, **ours, **selective}, (*properties, *ours))


def _item(kind: str, properties: Json) -> Json:
    return _object({"type": {"const": kind}, "call_id": _TEXT, **properties}, ("type", "call_id", *properties))


def _part(kind: str, field: str, schema: Json) -> Json:
    return _object({"type": {"const": kind}, field: schema}, ("type", field))


def _object(properties: Json, required: tuple[str, ...]) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


def _closed(properties: Json, required: tuple[str, ...] | None = None) -> Json:
    """An object without other fields; `required` None: all of them."""
    return {**_object(properties, tuple(properties) if required is None else required), "additionalProperties": False}


def _map_of(schema: Json, most: int) -> Json:
    return {"type": "object", "additionalProperties": schema, "minProperties": 1, "maxProperties": most}


def _names(most: int) -> Json:
    return {**_array(_TEXT, 1, most), "uniqueItems": True}


def _array(items: Json, least: int, most: int | None = None) -> Json:
    return {"type": "array", "items": items, "minItems": least, **({} if most is None else {"maxItems": most})}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}
