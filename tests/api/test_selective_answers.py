"""Raw answers, the map of P(yes), prediction sets and abstention of a whole model, against their definitions.

Trap: a map or a threshold that is passed over still answers, so each expectation is computed here from raw logits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from decider import (
    Choice,
    ConfigError,
    Decider,
    Noul,
    Question,
    QuestionError,
    SchemaError,
    Score,
    Selection,
    TooLargeError,
)
from decider.answering import RawAnswer
from decider.engine import Engine
from decider.questions.request import make_request
from decider.read import Float64Array, Temperature
from decider.tokens.calibration import PlattMap
from decider.tokens.rows import Row

TinyFolder = Callable[[str], Path]
STATE = "My card was charged twice for order 4417."
QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", {"billing": "charges", "technical": None, "sales": None}),
    "severity": Score("How severe?", ["none", "mild", "severe", "fatal"]),
    "levels": Score("How severe?", ["none", "mild", "severe"], isolated=True),
    "urgent": Noul("Is it urgent?"),
    "lone": Choice("Pick", ["only"]),
}
IN_ONE_ROW = {name: question for name, question in QUESTIONS.items() if name != "levels"}
"""Read as the thresholds below were calibrated."""
T = {"choice": 2.0, "score": 3.0, "noul": 0.5}
A, B = 1.5, -0.25


def thresholds(sets: list[float], accept: list[float | None], **more: object) -> dict[str, object]:
    return {"n": 50, "error_rates": [0.1, 0.3], "set_thresholds": sets, "accept": accept, **more}


SELECTIVE = {
    "layout": "plain",
    "permutations": 1,
    "risk_confidence": 0.9,
    "choice": thresholds([0.7, 0.6], [None, 0.0]),
    "score": thresholds([0.8, 0.7], [0.9, 0.3], isolated=False),
    "noul": thresholds([0.6, 0.4], [0.55, 0.5]),
}
CONFIG = {
    "temperature": 7.0,
    "schema_first_trained": True,
    "x_calibration": {
        "fp32": {"temperature_by_type": T, "noul_platt": {"a": A, "b": B}, "selective": SELECTIVE},
        "bf16": {"temperature": 9.0},
    },
}


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("config") / "calibrated.json"
    file.write_text(json.dumps(CONFIG), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def decider(tiny_folder: TinyFolder, config_file: Path) -> Decider:
    return Decider(tiny_folder("llama"), device="cpu", executor="reference", decider_config=config_file)


@pytest.fixture(scope="module")
def raw(decider: Decider) -> dict[str, RawAnswer]:
    (answers,) = decider.raw([make_request(STATE, QUESTIONS)])
    return answers


def softmax(logits: Sequence[float] | Float64Array, temperature: float) -> Float64Array:
    weights = np.exp((np.asarray(logits) - np.max(logits)) / temperature)
    return np.asarray(weights / weights.sum())


def sigmoid(z: Float64Array) -> Float64Array:
    return np.asarray(1 / (1 + np.exp(-z)))


def shares(answer: object) -> list[float]:
    wire = answer.to_wire()  # type: ignore[attr-defined]
    return [1 - wire["noul"], wire["noul"]] if "noul" in wire else list(wire["probabilities"].values())


def spied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each `Engine.score` to come."""
    calls: list[int] = []
    original = Engine.score

    def score(self: Engine, rows: Sequence[Row], temperature: Temperature = 1.0) -> object:
        calls.append(len(rows))
        return original(self, rows, temperature)

    monkeypatch.setattr(Engine, "score", score)
    return calls


def test_raw_answers_are_what_every_answer_is_made_of(decider: Decider, raw: dict[str, RawAnswer]) -> None:
    answers = decider.ask(STATE, QUESTIONS)
    assert list(raw) == list(QUESTIONS)
    assert [name for name, one in raw.items() if one.isolated] == ["levels"]
    for name, kind in (("team", "choice"), ("severity", "score")):
        np.testing.assert_allclose(shares(answers[name]), softmax(raw[name].logits, T[kind]), rtol=1e-12)
        assert math.isclose(np.exp(raw[name].logits).sum(), 1, rel_tol=1e-12)
    yes = sigmoid(raw["levels"].logits / T["score"])
    np.testing.assert_allclose(shares(answers["levels"]), yes / yes.sum(), rtol=1e-12)
    no, p = softmax(raw["urgent"].logits, T["noul"])
    mapped = float(sigmoid(np.asarray(A * math.log(p / no) + B)))
    assert answers.noul("urgent").noul == pytest.approx(mapped, rel=1e-12)
    assert abs(mapped - p) > 1e-3
    assert (raw["lone"].logits.tolist(), raw["lone"].row_tokens) == ([0.0], 0)
    assert all(one.logits.dtype == np.float64 for one in raw.values())


def test_raw_counts_the_longest_row(decider: Decider, raw: dict[str, RawAnswer]) -> None:
    assert raw["team"].row_tokens == decider.ask(STATE, {"q": QUESTIONS["team"]}).input_tokens
    joint, alone = decider.raw(
        [make_request(STATE, {"q": QUESTIONS["team"]}, independent=independent) for independent in (False, True)]
    )
    assert joint["q"].row_tokens == alone["q"].row_tokens
    # The rows of the levels differ by the level's text alone, and the longest is counted.
    longer = Score("How severe?", ["none", "mild " * 30], isolated=True)
    (long,) = decider.raw([make_request(STATE, {"levels": longer})])
    assert long["levels"].row_tokens > raw["levels"].row_tokens


def test_raw_scores_all_requests_at_once_and_knows_no_settings(
    tiny_folder: TinyFolder, config_file: Path, raw: dict[str, RawAnswer], monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = Decider(
        tiny_folder("llama"),
        device="cpu",
        executor="reference",
        decider_config=str(config_file),
        temperature=3,
        permutations=3,
    )
    calls = spied(monkeypatch)
    other, again = hot.raw([make_request(text, QUESTIONS, error_rate=0.001) for text in ("Thank you.", STATE)])
    assert len(calls) == 1
    assert hot.raw([]) == []
    for name, one in raw.items():
        np.testing.assert_array_equal(again[name].logits, one.logits)
    assert other["team"].logits.tolist() != raw["team"].logits.tolist()
    del calls[:]
    with pytest.raises(TooLargeError, match=r"requests\.1\.state"):
        hot.raw([make_request(text, QUESTIONS) for text in (STATE, "word " * 4000)])
    assert calls == []


def test_a_decider_says_what_its_logits_come_from(decider: Decider) -> None:
    assert (decider.dtype_key, decider.executor_name, decider.layout_name) == ("fp32", "reference", "plain")
    assert decider.calibration.noul_map == PlattMap(A, B)
    assert decider.calibration.temperatures.by_type == T


@pytest.mark.parametrize("independent", [True, False])
def test_the_map_of_p_yes_comes_after_the_mean_over_orders(
    tiny_folder: TinyFolder, tmp_path: Path, decider: Decider, independent: bool
) -> None:
    file = tmp_path / "unmapped.json"
    file.write_text(json.dumps({"x_calibration": {"fp32": {"temperature_by_type": T}}}))
    plain = Decider(tiny_folder("llama"), device="cpu", executor="reference", decider_config=file)
    questions = {"team": QUESTIONS["team"], "urgent": QUESTIONS["urgent"]}
    p = plain.ask(STATE, questions, independent=independent, permutations=3).noul("urgent").noul
    mapped = decider.ask(STATE, questions, independent=independent, permutations=3).noul("urgent").noul
    assert mapped == pytest.approx(float(sigmoid(np.asarray(A * math.log(p / (1 - p)) + B))), rel=1e-12)


def test_an_explicit_temperature_switches_the_map_off(
    tiny_folder: TinyFolder, config_file: Path, decider: Decider, raw: dict[str, RawAnswer]
) -> None:
    want = float(softmax(raw["urgent"].logits, 0.5)[1])
    assert decider.ask(STATE, QUESTIONS, temperature=0.5).noul("urgent").noul == pytest.approx(want, rel=1e-12)
    set_so = Decider(
        tiny_folder("llama"), device="cpu", executor="reference", decider_config=config_file, temperature=0.5
    )
    assert set_so.ask(STATE, QUESTIONS).noul("urgent").noul == pytest.approx(want, rel=1e-12)
    with pytest.raises(QuestionError, match="explicit temperature"):
        set_so.ask(STATE, QUESTIONS, error_rate=0.1)


@pytest.mark.parametrize(("rate", "index"), [(0.1, 0), (0.2, 0), (0.3, 1), (0.9, 1)])
def test_selections_follow_their_definitions(decider: Decider, rate: float, index: int) -> None:
    answers = decider.ask(STATE, IN_ONE_ROW, error_rate=rate)
    without = decider.ask(STATE, IN_ONE_ROW)
    assert all(answer.selection is None for answer in without.values())
    names: dict[str, list[object]] = {
        "team": ["billing", "technical", "sales"],
        "severity": [0, 1, 2, 3],
        "urgent": [False, True],
        "lone": ["only"],
    }
    for name, answer in answers.items():
        p = shares(answer)
        assert p == shares(without[name])
        kind = QUESTIONS[name].kind
        fitted = SELECTIVE[kind]
        assert isinstance(fitted, dict)
        chosen = [i for i, share in enumerate(p) if 1 - share <= fitted["set_thresholds"][index] or share == max(p)]
        if kind == "score":
            chosen = list(range(chosen[0], chosen[-1] + 1))
        least = fitted["accept"][index]
        abstain = name != "lone" and (least is None or max(p) < least)
        assert answer.selection == Selection(rate, tuple(names[name][i] for i in chosen), abstain)  # type: ignore[arg-type]
    selections = {name: answer.selection for name, answer in answers.items()}
    assert selections["lone"] == Selection(rate, ("only",), False)
    assert all(type(entry) is bool for entry in selections["urgent"].prediction_set)  # type: ignore[union-attr]


@pytest.mark.parametrize("isolated_levels", [False, True])
@pytest.mark.parametrize("calibrated", [False, True])
def test_scores_are_selected_in_the_form_that_was_calibrated(
    tiny_folder: TinyFolder, tmp_path: Path, isolated_levels: bool, calibrated: bool
) -> None:
    """`levels` is isolated by itself, `severity` says nothing and so is what the file says."""
    score = thresholds([0.8, 0.7], [0.9, 0.3], isolated=calibrated)
    entry = {"temperature_by_type": T, "selective": {**SELECTIVE, "score": score}}
    file = tmp_path / "form.json"
    file.write_text(json.dumps({"isolated_levels": isolated_levels, "x_calibration": {"fp32": entry}}))
    decider = Decider(tiny_folder("llama"), device="cpu", executor="reference", decider_config=file)
    for name, isolated in (("levels", True), ("severity", isolated_levels)):
        question = {name: QUESTIONS[name]}
        (raw,) = decider.raw([make_request(STATE, question)])
        assert raw[name].isolated == isolated
        if isolated == calibrated:
            assert decider.ask(STATE, question, error_rate=0.1)[name].selection is not None
        else:
            with pytest.raises(QuestionError, match=f"the score '{name}' is asked with"):
                decider.ask(STATE, question, error_rate=0.1)


def test_classes_of_a_choice_have_their_own_thresholds(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    own = {"billing": 0.0, "technical": 1.0}
    by_class = {name: {"n": 9, "set_thresholds": [limit, limit]} for name, limit in own.items()}
    selective = {**SELECTIVE, "choice": thresholds([0.0, 0.0], [0, 0], by_class=by_class)}
    file = tmp_path / "by_class.json"
    file.write_text(json.dumps({"x_calibration": {"fp32": {"selective": selective}}}))
    decider = Decider(tiny_folder("llama"), device="cpu", executor="reference", decider_config=file)
    answer = decider.ask(STATE, {"team": QUESTIONS["team"]}, error_rate=0.1).choice("team")
    # `sales` was not calibrated, so it is in whatever its probability.
    want = tuple(name for name in answer.probabilities if name in ("technical", "sales") or name == answer.choice)
    assert answer.selection == Selection(0.1, want, False)


def test_many_and_wire_and_request_say_the_same(decider: Decider) -> None:
    one = decider.ask(STATE, IN_ONE_ROW, error_rate=0.2)
    assert decider.ask_many(["Thank you.", STATE], IN_ONE_ROW, error_rate=0.2)[1] == one
    assert decider.answer(make_request(STATE, IN_ONE_ROW, error_rate=0.2)) == one
    wire = {
        "state": STATE,
        "error_rate": 0.2,
        "questions": {
            "team": {"type": "choice", "question": "Which team?", "criteria": {"billing": "charges", "sales": None}},
            "severity": {"type": "score", "question": "How severe?", "criteria": ["none", "mild", "severe", "fatal"]},
            "urgent": {"type": "noul", "question": "Is it urgent?"},
        },
    }
    response = json.loads(json.dumps(decider.system_one(json.dumps(wire)), allow_nan=False))
    for name in ("severity", "urgent"):
        selection = one[name].selection
        assert selection is not None
        fields = {key: value for key, value in response["answers"][name].items() if key in selection.to_wire()}
        assert fields == {
            "x_error_rate": 0.2,
            "x_set": list(selection.prediction_set),
            "x_abstain": selection.abstain,
        }
    assert response["answers"]["team"]["choice"] in response["answers"]["team"]["x_set"]
    del wire["error_rate"]
    assert not {"x_error_rate", "x_abstain"} & set(decider.system_one(wire)["answers"]["team"])  # type: ignore[index]


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5, math.nan, math.inf, True, "0.1", [0.1]])
def test_a_rate_out_of_range_is_refused(decider: Decider, rate: object) -> None:
    with pytest.raises(SchemaError, match=r"error_rate is .*; it must be a number above 0 and below 1"):
        decider.ask(STATE, QUESTIONS, error_rate=rate)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="error_rate is"):
        decider.ask_many([STATE], QUESTIONS, error_rate=rate)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"error_rate": 0.05}, "error_rate is 0.05, and the smallest with thresholds"),
        ({"independent": False}, "share a row"),
        ({"temperature": 1.0}, "explicit temperature"),
        ({"permutations": 2}, "permutations is 2"),
        ({"layout": "plain_schema_first"}, "layout is 'plain_schema_first', and error rates were calibrated"),
    ],
)
def test_refusals_come_before_the_first_forward(
    decider: Decider, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], said: str
) -> None:
    calls = spied(monkeypatch)
    with pytest.raises(QuestionError, match=said):
        decider.ask(STATE, IN_ONE_ROW, **{"error_rate": 0.1, **options})  # type: ignore[arg-type]
    with pytest.raises(QuestionError, match=r"states\.0\.error_rate"):
        decider.ask_many([STATE, STATE], IN_ONE_ROW, **{"error_rate": 0.1, **options})  # type: ignore[arg-type]
    assert calls == []
    decider.ask(STATE, IN_ONE_ROW, **{key: value for key, value in options.items() if key != "error_rate"})  # type: ignore[arg-type]
    assert len(calls) == 1


def test_a_model_that_is_not_calibrated_refuses_rates(tiny_folder: TinyFolder) -> None:
    plain = Decider(tiny_folder("llama"), device="cpu", executor="reference")
    with pytest.raises(QuestionError, match=r"^error_rate: this model has no thresholds .*`decider calibrate`"):
        plain.ask(STATE, QUESTIONS, error_rate=0.1)


def test_a_named_config_is_used_and_must_be_there(
    tiny_folder: TinyFolder, config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "decider.toml"
    settings.write_text(f"decider_config = {json.dumps(str(config_file))}\n")
    by_file = Decider(tiny_folder("llama"), device="cpu", executor="reference", config=settings)
    monkeypatch.setenv("DECIDER_DECIDER_CONFIG", str(config_file))
    by_variable = Decider(tiny_folder("llama"), device="cpu", executor="reference")
    assert by_file.calibration == by_variable.calibration
    assert by_file.calibration.noul_map == PlattMap(A, B)
    with pytest.raises(ConfigError, match=r"nowhere\.json cannot be read"):
        Decider(tiny_folder("llama"), device="cpu", executor="reference", decider_config=tmp_path / "nowhere.json")
    with pytest.raises(ConfigError, match="'decider_config' is 3"):
        Decider(tiny_folder("llama"), decider_config=3)  # type: ignore[arg-type]
