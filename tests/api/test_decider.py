"""`Decider` on tiny random checkpoints of every family: whole requests through the real stages.

Refuses to check answers against anything but the Hugging Face model's own logits. Trap: random models answer badly, but
they must answer the same, whatever else is asked beside.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ticket import QUESTIONS, STATE, flat
from tiny_models import FAMILIES
from transformers import AutoModelForCausalLM, AutoTokenizer

from decider import Choice, ConfigError, Decider, Noul, Question, QuestionError, SchemaError, TooLargeError
from decider.engine import Engine
from decider.read import Temperature
from decider.tokens.rows import Row

TinyFolder = Callable[[str], Path]


@pytest.fixture(scope="module")
def decider(tiny_folder: TinyFolder) -> Decider:
    return Decider(tiny_folder("llama"), device="cpu", executor="reference")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layout", ["plain", "chat", "plain_schema_first", "chat_schema_first"])
def test_answers_equal_the_models_own_logits(tiny_folder: TinyFolder, family: str, layout: str) -> None:
    folder = tiny_folder(family)
    decider = Decider(folder, device="cpu", executor="reference", layout=layout)
    answer = decider.ask(STATE, {"team": QUESTIONS["team"]}).choice("team")

    question = "Question: Which team?\nOptions:"
    options = "\n(A) billing: charges\n(B) technical\n(C) sales"
    head, tail = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    pieces = {
        "plain": [f"Context:\n{STATE}", f"\n\n{question}{options}\nAnswer: ("],
        "chat": [head, f"Context:\n{STATE}", f"\n\n{question}", options, tail, "Answer: ("],
        "plain_schema_first": [question, options, "\n\nContext:\n", STATE, "\n\nAnswer: ("],
        "chat_schema_first": [head, question, options, "\n\nContext:\n", STATE, tail, "Answer: ("],
    }[layout]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [token for piece in pieces for token in tokenizer.encode(piece, add_special_tokens=False)]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0, -1, [tokenizer.convert_tokens_to_ids(label) for label in "ABC"]]
    expected = torch.softmax(logits.double(), dim=-1).tolist()
    np.testing.assert_allclose(list(answer.probabilities.values()), expected, atol=1e-6)
    assert answer.choice == list(answer.probabilities)[int(np.argmax(expected))]
    assert answer.probabilities.keys() == {"billing", "technical", "sales"}


def test_each_type_is_answered_with_its_own_fields(decider: Decider) -> None:
    answers = decider.ask({"text": STATE}, QUESTIONS)
    score = answers.score("severity")
    assert list(answers) == list(QUESTIONS)
    assert math.isclose(sum(answers.choice("team").probabilities.values()), 1, rel_tol=1e-12)
    assert score.score == pytest.approx(sum(level * p for level, p in enumerate(score.probabilities)))
    assert score.legend == ("none", "mild", "severe")
    assert 0 < answers.noul("urgent").noul < 1
    assert answers.input_tokens > 20
    assert answers.model == "decider-dev"
    with pytest.raises(TypeError, match="ChoiceAnswer, not a NoulAnswer"):
        answers.noul("team")


def test_independent_questions_do_not_see_each_other(decider: Decider) -> None:
    together = flat(decider.ask(STATE, QUESTIONS))
    reordered = flat(decider.ask(STATE, dict(reversed(QUESTIONS.items()))))
    renamed = flat(decider.ask(STATE, {f"{name} 🙂": question for name, question in QUESTIONS.items()}))
    alone = {name: flat(decider.ask(STATE, {name: question}))[name] for name, question in QUESTIONS.items()}
    assert together == reordered == alone == {name.removesuffix(" 🙂"): p for name, p in renamed.items()}
    joint = flat(decider.ask(STATE, QUESTIONS, independent=False))
    assert joint["urgent"] != together["urgent"]


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(names, min_size=2, max_size=14, unique=True), st.sampled_from(["plain", "chat_schema_first"]))
def test_every_option_comes_back_by_its_own_name(decider: Decider, options: list[str], layout: str) -> None:
    answer = decider.ask(STATE, {"q": Choice("Pick\n(A) one", options)}, layout=layout).choice("q")
    assert list(answer.probabilities) == options
    assert answer.choice in options
    assert math.isclose(math.fsum(answer.probabilities.values()), 1, rel_tol=1e-12)


def test_wide_and_lone_options(decider: Decider) -> None:
    wide = decider.ask(STATE, {"q": Choice("Pick", [str(index) for index in range(255)])}).choice("q")
    assert len(wide.probabilities) == 255
    lone = decider.ask(STATE, {"q": Choice("Pick", ["only"])})
    assert lone.choice("q").probabilities == {"only": 1.0}
    assert lone.choice("q").confidence == 1.0
    assert lone.input_tokens == 0


def test_temperature_flattens_and_is_checked(decider: Decider) -> None:
    usual = decider.ask(STATE, QUESTIONS).choice("team").p_max
    assert decider.ask(STATE, QUESTIONS, temperature=5.0).choice("team").p_max < usual
    with pytest.raises(ConfigError, match="temperature is 0"):
        decider.ask(STATE, QUESTIONS, temperature=0)


def test_a_long_state_is_refused_or_cut_and_reported(decider: Decider) -> None:
    long_state = "the state and the answer " * 1000
    with pytest.raises(TooLargeError, match="maximum context length"):
        decider.ask(long_state, QUESTIONS)
    answers = decider.ask(long_state, QUESTIONS, truncate=True)
    assert all(answer.truncated for answer in answers.values())
    assert answers.to_wire()["answers"]["urgent"]["x_truncated"] is True  # type: ignore[index]


def test_a_truncate_that_is_no_flag_is_refused(decider: Decider) -> None:
    with pytest.raises(ConfigError, match="truncate is 'no'"):
        decider.ask(STATE, QUESTIONS, truncate="no")  # type: ignore[arg-type]


def test_ask_many_names_the_state_at_fault_before_anything_runs(decider: Decider) -> None:
    many = decider.ask_many([STATE, {"text": "Thank you."}], QUESTIONS)
    assert flat(many[0]) == flat(decider.ask(STATE, QUESTIONS))
    assert decider.ask_many([], QUESTIONS) == []
    with pytest.raises(SchemaError, match=r"states\.1\.state"):
        decider.ask_many([STATE, {"x": math.nan}], QUESTIONS)
    with pytest.raises(TooLargeError, match=r"states\.1"):
        decider.ask_many([STATE, "word " * 4000], QUESTIONS)
    with pytest.raises(QuestionError, match="list of states"):
        decider.ask_many(STATE, QUESTIONS)


def test_system_one_speaks_the_wire(decider: Decider) -> None:
    request = {
        "state": STATE,
        "model": "jev-latest",
        "questions": {
            "t": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "charges", "sales": None}},
            "s": {"type": "score", "instructions": "How severe?", "criteria": ["none", "severe"]},
            "n": {"type": "bool", "question": "Is it urgent?"},
        },
    }
    response = decider.system_one(json.dumps(request))
    assert response == decider.system_one(request)
    assert json.loads(json.dumps(response, allow_nan=False)) == response
    answers = response["answers"]
    assert isinstance(answers, dict)
    assert [answer["type"] for answer in answers.values()] == ["choice", "score", "noul"]
    assert response["usage"]["output_tokens"] == 0  # type: ignore[index]
    with pytest.raises(QuestionError, match="unknown model 'gpt-9'"):
        decider.system_one({**request, "model": "gpt-9"})


def test_decide_is_one_joint_row_unless_told_otherwise(decider: Decider) -> None:
    plain = {"Is it urgent?": {"type": "bool"}, "Which team?": {"type": "choice", "options": ["billing", "sales"]}}
    joint, apart = decider.decide(STATE, plain), decider.decide(STATE, plain, independent=True)
    assert list(joint) == list(plain)
    asked: dict[str, Question] = {
        "Is it urgent?": Noul("Is it urgent?"),
        "Which team?": Choice("Which team?", ["billing", "sales"]),
    }
    assert flat(joint) == flat(decider.ask(STATE, asked, independent=False))
    assert flat(apart) == flat(decider.ask(STATE, asked))


def test_picks_carry_their_reasons(decider: Decider) -> None:
    picks = {pick.name: pick for pick in decider.picks}
    assert picks.keys() >= {"model", "executor", "device", "dtype", "attention", "layout", "labels"}
    assert all(pick.reason for pick in picks.values())
    assert picks["device"].value == "cpu"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_grid_executor_gives_the_references_answers(tiny_folder: TinyFolder, family: str) -> None:
    reference = Decider(tiny_folder(family), device="cpu", executor="reference").ask(STATE, QUESTIONS)
    grid = Decider(tiny_folder(family), device="cpu", executor="grid").ask(STATE, QUESTIONS)
    for name, numbers in flat(reference).items():
        np.testing.assert_allclose(flat(grid)[name], numbers, atol=1e-5)


def test_many_states_are_scored_at_once_and_keep_their_answers(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    original = Engine.score

    def score(self: Engine, rows: Sequence[Row], temperature: Temperature = 1.0) -> object:
        calls.append(len(rows))
        return original(self, rows, temperature)

    states = ["one", STATE, "three"]
    with Decider(tiny_folder("llama"), device="cpu", executor="grid") as grid:
        alone = [grid.ask(state, QUESTIONS) for state in states]
        monkeypatch.setattr(Engine, "score", score)
        together = grid.ask_many(states, QUESTIONS)
    assert len(calls) == 1
    for one, other in zip(together, alone, strict=True):
        assert one.input_tokens == other.input_tokens
        for name, numbers in flat(one).items():
            np.testing.assert_allclose(flat(other)[name], numbers, atol=1e-5)


@pytest.mark.parametrize("independent", [True, False])
def test_permutations_average_over_orders_of_the_options(decider: Decider, independent: bool) -> None:
    options = {"billing": "charges", "technical": None, "sales": None}
    questions: dict[str, Question] = {"team": Choice("Which team?", options), "urgent": Noul("Is it urgent?")}
    names = list(options)
    asked = []
    for turn in range(3):
        order = names[turn:] + names[:turn]
        turned = questions | {"team": Choice("Which team?", {name: options[name] for name in order})}
        asked.append(decider.ask(STATE, turned, independent=independent))
    averaged = decider.ask(STATE, questions, independent=independent, permutations=3)
    for name in names:
        mean = sum(answers.choice("team").probabilities[name] for answers in asked) / 3
        assert averaged.choice("team").probabilities[name] == pytest.approx(mean, abs=1e-9)
    nouls = [answers.noul("urgent").noul for answers in asked]
    want = nouls[0] if independent else sum(nouls) / 3
    assert averaged.noul("urgent").noul == pytest.approx(want, abs=1e-9)
    # Asked in every order, where an option stands does not matter.
    first = {"team": Choice("Which team?", {name: options[name] for name in names[1:] + names[:1]})}
    again = decider.ask(STATE, first, permutations=255).choice("team").probabilities
    alone = decider.ask(STATE, {"team": questions["team"]}, permutations=3).choice("team").probabilities
    assert again == pytest.approx(alone, abs=1e-9)


def test_further_orders_are_counted_without_the_state_they_share(decider: Decider) -> None:
    team = {"team": QUESTIONS["team"]}
    once, twice, thrice = (decider.ask(STATE, team, permutations=n).input_tokens for n in (1, 2, 3))
    assert twice - once == thrice - twice
    longer = decider.ask(STATE + " Please help." * 20, team, permutations=2).input_tokens
    assert longer - decider.ask(STATE + " Please help." * 20, team).input_tokens == twice - once > 0


@pytest.mark.parametrize("permutations", [0, -1, 256, 1.5, True, "2"])
def test_permutations_out_of_range_are_refused(decider: Decider, permutations: object) -> None:
    with pytest.raises(ConfigError, match="permutations is"):
        decider.ask(STATE, QUESTIONS, permutations=permutations)  # type: ignore[arg-type]
