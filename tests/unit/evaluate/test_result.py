"""The JSON of an evaluation: what programs find in it, and what a comparison reads back.

Refuses to test figures. Trap: Python's reader takes NaN and Infinity, which JSON does not have; they are refused here.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from made_decisions import FACTS, SCRIPT, made_evaluation

from decider.decisions import distributions
from decider.errors import ConfigError
from decider.evaluate import metrics
from decider.evaluate.result import Evaluation, as_json, read_scored
from decider.evaluate.sensitivity import Rate, Sensitivity
from decider.evaluate.summary import Group, summarise

RATE = Rate("order", "options rotated", 9, 2, 2 / 9, 0.03, 0.6, 20, 3, 0.25, 0)


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return made_evaluation()


def strict(text: str) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_the_json_holds_facts_groups_and_decisions(evaluation: Evaluation) -> None:
    found = strict(as_json(replace(evaluation, sensitivity=Sensitivity(3, 0, (RATE,)))))
    assert (found["format"], found["version"]) == ("decider evaluation", 1)
    assert found["facts"] == FACTS.to_json()
    assert (found["calibration"], found["resamples"], found["seed"], found["level"]) == (
        "none, as the logits are",
        100,
        0,
        0.95,
    )
    assert found["refused"] == [{"item": f"17 {SCRIPT}", "reason": f"the option {SCRIPT!r} is too long"}]
    assert found["warnings"] == [f"read {SCRIPT} with care"]
    assert found["sensitivity"]["rates"][0]["changed"] == 2
    assert found["confusions"][0]["options"] == ["good", SCRIPT, "neither"]
    summary, decisions = evaluation.summary, evaluation.decisions
    assert len(found["groups"]) == len(summary.groups)
    for made, group in zip(found["groups"], summary.groups, strict=True):
        assert set(made) == {field.name for field in fields(Group)}
        assert made["nll"]["value"] == group.nll.value
        assert group.nll.interval is not None
        assert made["nll"]["interval"]["low"] == group.nll.interval.low
        assert made["equal_mass"]["floor"]["high"] == group.equal_mass.floor.high
        assert made["equal_width"]["bins"]["n"] == group.equal_width.bins.n.tolist()
        assert made["curve"]["risk"] == group.curve.risk.tolist()
        assert (made["auroc"] is None) == (group.auroc is None)
    columns = found["decisions"]
    assert columns["key"] == list(decisions.key)
    assert columns["kind"][:4] == ["choice", "noul", "score", "choice"]
    assert columns["gold"] == decisions.gold.tolist()
    assert columns["n_options"] == decisions.n_options.tolist()
    shares = distributions(decisions, 1.0)
    assert columns["predicted"] == shares.argmax(axis=1).tolist()
    assert columns["correct"] == metrics.correct_of(shares, decisions.gold).tolist()
    assert columns["p_max"] == shares.max(axis=1).tolist()
    assert {len(column) for column in columns.values()} == {len(decisions)}


def test_a_line_a_key(evaluation: Evaluation) -> None:
    assert as_json(evaluation).count("\n") == len(strict(as_json(evaluation))) - 1


def test_what_is_infinite_is_null_and_read_back_as_infinite(evaluation: Evaluation, tmp_path: Path) -> None:
    decisions = evaluation.decisions
    shares = distributions(decisions, 1.0)
    shares[0] = np.eye(20)[(decisions.gold[0] + 1) % 3]
    summary = summarise(decisions, shares, resamples=100, seed=0)
    text = as_json(replace(evaluation, summary=summary))
    found = strict(text)
    assert found["decisions"]["nll"][0] is None
    assert found["decisions"]["nll"][1] == summary.nll[1]
    assert found["groups"][0]["nll"]["value"] is None
    assert found["groups"][0]["nll"]["interval"]["high"] is None
    assert found["groups"][0]["n_infinite"] == 1
    file = tmp_path / "a.json"
    file.write_text(text, encoding="utf-8")
    assert read_scored(file).nll.tolist() == summary.nll.tolist()


def test_a_comparison_reads_back_what_was_written(evaluation: Evaluation, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(as_json(evaluation), encoding="utf-8")
    scored, summary, decisions = read_scored(file), evaluation.summary, evaluation.decisions
    assert (scored.name, scored.data_sha256, scored.keys) == ("a.json", FACTS.data_sha256, decisions.key)
    assert scored.correct.tolist() == (summary.answers == decisions.gold).tolist()
    for read, made in (
        (scored.gold, decisions.gold),
        (scored.n_options, decisions.n_options),
        (scored.confidence, summary.confidence),
        (scored.nll, summary.nll),
        (scored.brier, summary.brier),
    ):
        assert read.dtype == made.dtype
        assert read.tolist() == made.tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda whole: whole.update(format="other"), "a.json is no evaluation; give what `decider eval --json` wrote"),
        (lambda whole: whole.update(version=2), "a.json is of version 2, not 1; evaluate again"),
        (lambda whole: whole.pop("decisions"), "a.json is damaged (no 'decisions'); evaluate again"),
        (lambda whole: whole["decisions"].pop("n_options"), "a.json is damaged (no 'n_options'); evaluate again"),
        (lambda whole: whole["decisions"]["nll"].pop(), "columns of different lengths"),
        (lambda whole: whole["decisions"].update(gold=["x"]), "a.json is damaged (gold 0 is 'x')"),
        (lambda whole: whole["decisions"].update(brier=None), "a.json is damaged (brier is None)"),
        (lambda whole: whole.update(decisions=[]), "a.json is damaged ("),
        (lambda whole: whole["facts"].pop("data_sha256"), "the facts have no data_sha256"),
    ],
)
def test_a_damaged_file_is_refused(evaluation: Evaluation, tmp_path: Path, change: Any, said: str) -> None:
    whole = json.loads(as_json(evaluation))
    change(whole)
    file = tmp_path / "a.json"
    file.write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_scored(file)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[(name, bad) for name in ("p_max", "brier") for bad in (None, math.nan, math.inf, -0.5, "0.5", True, 1e308)],
        *[("nll", bad) for bad in (math.nan, math.inf, -math.inf, -5, -0.1, "0.5", False, 10**400)],
        *[("correct", bad) for bad in ("false", 2, 0, 1.0, None)],
        *[("gold", bad) for bad in (0.5, -1, True, 20, 10**30, None, "0")],
        *[("n_options", bad) for bad in (0, 2.0, 10**30, True)],
        ("p_max", 7), ("p_max", 1.001), ("brier", 2.001), ("key", 1), ("key", None),
    ],
)  # fmt: skip
def test_no_figure_is_made_of_what_is_none(evaluation: Evaluation, tmp_path: Path, column: str, value: object) -> None:
    whole = json.loads(as_json(evaluation))
    whole["decisions"][column][1] = value
    file = tmp_path / "a.json"
    file.write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^a.json is damaged \("):
        read_scored(file)


@pytest.mark.parametrize(
    ("body", "said"), [(b"{", "a.json is no JSON"), (b"\xff\xfe\x00", "a.json is no JSON"), (b"[]", "is no evaluation")]
)
def test_other_files_are_refused(tmp_path: Path, body: bytes, said: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(body)
    with pytest.raises(ConfigError, match=said):
        read_scored(file)
    with pytest.raises(ConfigError, match="cannot read"):
        read_scored(tmp_path / "none.json")
