"""Temperatures and maps over many decisions: one by one, and through a real model, they are what `ask` answers.

Refuses to test fits. Trap: isolated levels go through other rows, temperatures and code than joint ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from synthetic_decisions import synthetic
from tiny_models import link_checkpoint

from decider.api import Decider
from decider.calibrate.apply import served_distributions, served_temperatures
from decider.decisions import KINDS, Decisions, distributions
from decider.errors import ConfigError
from decider.evaluate import ask
from decider.evaluate.labelled import read_labelled
from decider.questions.answered import Answers
from decider.questions.answers import ChoiceAnswer, ScoreAnswer
from decider.questions.types import Noul
from decider.tokens.calibration import (
    Calibration,
    IsotonicMap,
    OptionTemperature,
    PlattMap,
    Temperatures,
    to_json,
)
from decider.tokens.temperature import temperature_for
from decider.tokens.wordings import LEAST_ASKED, save_wordings, wordings_of

TinyFolder = Callable[[str], Path]

BY_TYPE = MappingProxyType({"choice": 0.4, "score": 2.5, "noul": 1.75})
GIVEN = [
    Temperatures(),
    Temperatures(1.3),
    Temperatures(1.3, BY_TYPE),
    Temperatures(1.3, BY_TYPE, unfamiliar_by_type=MappingProxyType({"choice": 1.0, "noul": 4.0})),
    Temperatures(1.3, by_options=OptionTemperature(2.0, -0.7, 0.6)),
    Temperatures(1.3, BY_TYPE, schema_first=0.8, schema_first_by_type=MappingProxyType({"noul": 3.0})),
]
MAPS = [None, PlattMap(0.7, -0.4), IsotonicMap((0.1, 0.4, 0.9), (0.2, 0.3, 0.6))]


@pytest.mark.parametrize("temperatures", GIVEN)
@pytest.mark.parametrize("schema_first", [False, True])
def test_each_decision_has_the_temperature_of_its_kind_and_count(
    temperatures: Temperatures, schema_first: bool
) -> None:
    familiarity = np.random.default_rng(0).integers(0, 5, 300) / 4
    decisions = replace(synthetic(300, isolated=True), familiarity=familiarity)
    expected = [
        temperature_for(
            temperatures,
            kind=KINDS[kind],  # type: ignore[arg-type]
            n_options=2 if isolated else count,
            familiarity=share,
            schema_first=schema_first,
        )
        for kind, count, isolated, share in zip(
            decisions.kind.tolist(),
            decisions.n_options.tolist(),
            decisions.isolated.tolist(),
            familiarity.tolist(),
            strict=True,
        )
    ]
    for given in (temperatures, Calibration(temperatures)):
        assert served_temperatures(decisions, given, schema_first=schema_first).tolist() == expected


def test_temperatures_by_familiarity_want_decisions_that_say_theirs() -> None:
    given = Temperatures(1.0, BY_TYPE, unfamiliar_by_type=MappingProxyType({"choice": 3.0}))
    with pytest.raises(ConfigError, match=r"do not say how familiar .*decider_wordings\.npy"):
        served_distributions(synthetic(300), Calibration(given), schema_first=False)
    # Where no temperature goes by it, nothing is wanted.
    own = replace(given, schema_first=2.0)
    assert served_temperatures(synthetic(300), own, schema_first=True).tolist() == [2.0] * 300


def test_a_map_changes_nouls_alone() -> None:
    decisions = synthetic(300)
    plain = distributions(decisions, 1.3)
    served = served_distributions(decisions, Calibration(Temperatures(1.3), PlattMap(0.7, -0.4)), schema_first=False)
    nouls = decisions.kind == KINDS.index("noul")
    np.testing.assert_array_equal(served[~nouls], plain[~nouls])
    odds = 0.7 * np.log(plain[nouls, 1] / plain[nouls, 0]) - 0.4
    np.testing.assert_allclose(served[nouls, 1], 1 / (1 + np.exp(-odds)), atol=1e-12)
    np.testing.assert_allclose(served.sum(axis=1), 1, atol=1e-12)


def test_nothing_is_served_nothing() -> None:
    none = synthetic(3).take(np.zeros(0, dtype=np.int64))
    assert served_distributions(none, Calibration(), schema_first=False).shape[0] == 0


LEVELS = ["awful", "poor", "fair", "good"]
QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"a": "", "b": "money", "c": "", "d": ""}},
    "lone": {"type": "choice", "instructions": "Which one?", "criteria": {"only": ""}},
    "urgent": {"type": "noul", "instructions": "Is it urgent?"},
    "mood": {"type": "score", "instructions": "How is the mood?", "criteria": LEVELS, "isolated": False},
    "tone": {"type": "score", "instructions": "How is the tone?", "criteria": LEVELS, "isolated": True},
}
GOLD = {"team": "b", "lone": "only", "urgent": True, "mood": 2, "tone": 0}
STATES = ["I was charged twice.", "It broke, and nobody answers.", "Thank you!"]


def answered(answers: Answers, decisions: Decisions, key: str) -> list[float]:
    answer = answers[key.rpartition("/")[2]]
    if isinstance(answer, ChoiceAnswer):
        names = decisions.option_lists[decisions.option_list[decisions.key.index(key)]]
        return [answer.probabilities[name] for name in names]
    return list(answer.probabilities) if isinstance(answer, ScoreAnswer) else [1 - answer.noul, answer.noul]


@pytest.mark.usefixtures("one_thread")
def test_what_is_served_is_what_ask_answers(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    folder = link_checkpoint(tiny_folder("qwen3"), tmp_path / "model")
    save_wordings(folder, wordings_of([Noul("Which team?"), Noul("Is it so?")] * LEAST_ASKED))
    data = tmp_path / "data.jsonl"
    lines: list[Mapping[str, object]] = [{"state": state, "questions": QUESTIONS, "gold": GOLD} for state in STATES]
    data.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    items = read_labelled(data)
    for layout, schema_first in (("plain", False), ("plain_schema_first", True)):
        decisions: Decisions | None = None
        for number, temperatures in enumerate(GIVEN):
            calibration = Calibration(temperatures, MAPS[number % len(MAPS)])
            (folder / "decider_config.json").write_text(
                json.dumps(
                    {"schema_first_trained": True, "x_calibration": {"fp32": to_json(calibration)}}, allow_nan=False
                )
            )
            with Decider(folder, executor="reference", device="cpu", dtype="float32", layout=layout) as decider:
                assert decider.calibration == calibration
                decisions = decisions or ask.run(decider, items, say=lambda _: None).decisions
                served = served_distributions(decisions, calibration, schema_first=schema_first)
                asked = [decider.answer(item.request) for item in items]
            assert decisions.isolated.sum() == len(STATES)
            assert decisions.familiarity is not None
            assert set(decisions.familiarity.tolist()) == {1.0, 1 / 2, 0.0}
            for row, key in enumerate(decisions.key):
                own = answered(asked[int(key.partition("/")[0]) - 1], decisions, key)
                assert served[row, : len(own)].tolist() == pytest.approx(own, abs=1e-12), (key, calibration)
