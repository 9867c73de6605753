"""HTTP answers are the Python API's: to the last bit for the same pack, within 1e-5 whatever else is in flight.

A tiny random model in float32, so that other questions in a pack could show. Trap: a model whose answers do not depend
on the question would pass, so the first test looks at that.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from serving import Served, served

from decider import Decider
from decider.serve.brain import DeciderBrain

STATE = "I was charged twice for my subscription. " * 5
QUESTIONS: dict[str, dict[str, object]] = {
    "billing": {"type": "noul", "instructions": "Is this about billing?", "criteria": {"true": "money", "false": None}},
    "tone": {
        "type": "choice",
        "instructions": "What is the tone?",
        "criteria": {"calm": None, "angry": "shouts", "ä": [1]},
    },
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["can wait", "soon", "now"]},
    "many": {"type": "choice", "criteria": [f"option {n}" for n in range(30)]},
    "levels": {"type": "score", "instructions": "How sure?", "criteria": ["not", "quite"], "isolated": True},
    "one": {"type": "choice", "criteria": ["only"]},
}


def thresholds(**more: object) -> dict[str, object]:
    return {"n": 50, "error_rates": [0.1, 0.3], "set_thresholds": [0.7, 0.5], "accept": [None, 0.0], **more}


SELECTIVE = {
    "layout": "plain",
    "permutations": 1,
    "risk_confidence": 0.9,
    "choice": thresholds(),
    "score": thresholds(isolated=False),
    "noul": thresholds(),
}
CALIBRATED = {
    "schema_first_trained": True,
    "x_calibration": {"fp32": {"noul_platt": {"a": 1.5, "b": -0.25}, "selective": SELECTIVE}},
}


@pytest.fixture(scope="module", params=["packed", "reference"])
def server(
    request: pytest.FixtureRequest, tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    calibrated = tmp_path_factory.mktemp("config") / "calibrated.json"
    calibrated.write_text(json.dumps(CALIBRATED), encoding="utf-8")
    decider = Decider(
        tiny_folder("qwen3"),
        device="cpu",
        dtype="float32",
        executor=request.param,
        decider_config=calibrated,
        say=lambda _: None,
    )
    with served(DeciderBrain(decider)) as running:
        yield running
        assert running.idle()
    torch.set_num_threads(threads)


def decider_of(server: Served) -> Decider:
    assert isinstance(server.brain, DeciderBrain)
    return server.brain.decider


def wire(questions: dict[str, dict[str, object]], state: object = STATE) -> dict[str, object]:
    return {"state": state, "model": "jev-latest", "questions": questions}


def answers(server: Served, questions: dict[str, dict[str, object]], state: object = STATE) -> dict[str, Any]:
    reply = server.post("/v1/systemone", wire(questions, state))
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json["answers"]
    return found


def assert_near(one: object, other: object) -> None:
    """Equal, but for numbers, which may differ by 1e-5."""
    if isinstance(one, dict) and isinstance(other, dict):
        assert list(one) == list(other)
        for key, value in one.items():
            assert_near(value, other[key])
    elif isinstance(one, float) and isinstance(other, float):
        assert one == pytest.approx(other, abs=1e-5)
    else:
        assert one == other


def test_the_model_tells_questions_and_states_apart(server: Served) -> None:
    one = answers(server, QUESTIONS)
    other = answers(server, QUESTIONS, "Something else entirely.")
    assert all(one[name]["x_p_max"] != other[name]["x_p_max"] for name in QUESTIONS if name != "one")


def test_http_is_python_to_the_last_bit(server: Served) -> None:
    for questions in (QUESTIONS, *({name: question} for name, question in QUESTIONS.items())):
        assert server.post("/v1/systemone", wire(questions)).json == decider_of(server).system_one(wire(questions))
    shared = {name: question for name, question in QUESTIONS.items() if name != "levels"}
    joint = {**wire(shared), "independent": False}
    assert server.post("/v1/systemone", joint).json == decider_of(server).system_one(joint)
    schema = {"Which?": {"type": "choice", "options": ["a", "b"]}, "Is it?": {"type": "bool"}}
    plain = server.post("/decide", {"context": STATE, "schema": schema}).json
    python = decider_of(server).decide(STATE, schema)
    assert plain == {text: answer.to_wire() for text, answer in python.items()}


def test_ids_are_names_and_no_more(server: Served) -> None:
    renamed = {f"\U0001f600 {len(name)} \n{name[::-1]}": question for name, question in QUESTIONS.items()}
    one, other = answers(server, QUESTIONS), answers(server, renamed)
    assert list(one.values()) == list(other.values())


def test_neither_order_nor_company_changes_an_answer(server: Served) -> None:
    together = answers(server, QUESTIONS)
    for seed in range(3):
        names = list(QUESTIONS)
        random.Random(seed).shuffle(names)
        shuffled = answers(server, {name: QUESTIONS[name] for name in names})
        assert list(shuffled) == names
        assert_near({name: shuffled[name] for name in QUESTIONS}, together)
    assert_near({name: answers(server, {name: QUESTIONS[name]})[name] for name in QUESTIONS}, together)


def test_whatever_else_is_in_flight(server: Served) -> None:
    states = [f"{n} {STATE[: 7 * n]}" for n in range(1, 13)]
    alone = [answers(server, QUESTIONS, state) for state in states]
    with ThreadPoolExecutor(12) as threads:
        together = list(threads.map(lambda state: answers(server, QUESTIONS, state), states))
    for one, other in zip(alone, together, strict=True):
        assert_near(one, other)


def test_sets_and_abstention_at_an_error_rate(server: Served) -> None:
    questions = {name: QUESTIONS[name] for name in ("billing", "tone", "urgency", "one")}
    request = {**wire(questions), "error_rate": 0.3}
    reply = server.post("/v1/systemone", request)
    assert reply.json == decider_of(server).system_one(request)
    found = reply.json["answers"]
    ours = {"x_error_rate", "x_set", "x_abstain"}
    assert all(set(answer) >= ours for answer in found.values())
    assert set(found["billing"]["x_set"]) <= {True, False}
    assert found["tone"]["choice"] in found["tone"]["x_set"]
    assert not ours & set(answers(server, questions)["tone"])
    low = server.post("/v1/systemone", {**request, "error_rate": 0.01})
    assert low.status == 400
    assert low.json["detail"].startswith("error_rate: ")


def test_sets_in_the_openai_shape_hold_the_callers_values(server: Served) -> None:
    choices = [{"value": True}, {"value": "false"}, {"value": "maybe"}]
    asked = {"type": "choice", "instructions": "Is it?", "choices": choices}
    request = {"model": "jev-latest", "input": STATE, "questions": [asked], "error_rate": 0.3}
    (answer,) = server.post("/v1/decisions", request).json["answers"]
    likely = [one["value"] for one in answer["probabilities"] if 1 - one["probability"] <= 0.5] or [answer["choice"]]
    assert answer["x_set"] == likely
    assert answer["x_abstain"] is False
    assert answer["x_error_rate"] == 0.3
