"""The whole of a calibration: what thresholds are counted on had no part in the fit; text and JSON of it.

Refuses to test the fit and the thresholds, which have tests of their own. Trap: halves of decisions would look the same
as halves of items in every figure, and break the promise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic_decisions import synthetic, with_gold

from decider.calibrate.apply import served_distributions
from decider.calibrate.fit import fit
from decider.calibrate.run import LEAST_ITEMS, Calibrated, calibrate
from decider.calibrate.selective_fit import selective_of
from decider.calibrate.table import as_json, as_text
from decider.decisions import NOUL, Decisions
from decider.tokens.calibration import Calibration, IsotonicMap, PlattMap, Temperatures

NOW = Calibration(Temperatures(9.0), PlattMap(1.0, 1.0))


def run(decisions: Decisions, **options: object) -> Calibrated:
    given = {"layout": "plain", "schema_first": False} | options
    return calibrate(decisions, NOW, **given)  # type: ignore[arg-type]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Decisions]:
    """What the fit and the thresholds were given."""
    seen: dict[str, Decisions] = {}

    def remember(name: str, function: Callable[..., Any]) -> None:
        def remembering(decisions: Decisions, *rest: object, **more: object) -> Any:
            seen[name] = decisions
            return function(decisions, *rest, **more)

        monkeypatch.setattr(f"decider.calibrate.run.{name}", remembering)

    remember("fit", fit)
    remember("selective_of", selective_of)
    return seen


def test_fits_and_thresholds_share_no_item(given: dict[str, Decisions]) -> None:
    decisions = synthetic(1501, per_item=3)
    result = run(decisions)
    fitted, counted = given["fit"], given["selective_of"]
    items = [{key.rpartition("/")[0] for key in part.key} for part in (fitted, counted)]
    assert not items[0] & items[1]
    assert sorted(fitted.key + counted.key) == sorted(decisions.key)
    assert abs(len(items[0]) - len(items[1])) <= 1
    assert (result.fit.n, result.n_thresholds) == (len(fitted), len(counted))
    assert result.n_threshold_items == len(items[1])
    run(decisions, seed=1)
    assert {key.rpartition("/")[0] for key in given["fit"].key} != items[0]


def test_thresholds_are_of_what_is_served(given: dict[str, Decisions]) -> None:
    decisions = synthetic(4000, kinds=(NOUL,))
    shifted = replace(decisions, logits=decisions.logits + np.array([1.5, 0.0]))
    result = run(shifted, risk_confidence=0.8, class_conditional=True)
    assert result.calibration.noul_map is not None
    assert run(shifted, noul_map=False).calibration.noul_map is None
    assert result.calibration.temperatures.plain != 9.0
    selective = result.calibration.selective
    assert selective is not None
    assert (selective.layout, selective.permutations, selective.risk_confidence) == ("plain", 1, 0.8)
    assert {*selective.by_kind["noul"].by_class} == {"no", "yes"}
    counted = given["selective_of"]
    again = selective_of(
        counted,
        served_distributions(counted, result.calibration, schema_first=False),
        layout="plain",
        permutations=1,
        class_conditional=True,
        risk_confidence=0.8,
    )
    assert again == selective


def test_few_items_have_no_thresholds_and_drop_the_old_map() -> None:
    result = run(synthetic(2 * (LEAST_ITEMS - 1)))
    assert (result.calibration.selective, result.calibration.noul_map) == (None, None)
    assert (result.fit.n_items, result.n_thresholds) == (LEAST_ITEMS - 1, 0)
    assert "map of P(yes) that was there is dropped" in result.warnings[-2]
    assert "too few to keep half" in result.warnings[-1]
    assert run(synthetic(2 * LEAST_ITEMS)).calibration.selective is not None


def test_thresholds_of_another_layout_are_said_to_go() -> None:
    decisions = synthetic(400)
    before = run(decisions).calibration
    for layout, said in (("plain", 0), ("chat", 1)):
        result = calibrate(decisions, before, layout=layout, schema_first=False)
        assert sum("thresholds of the layout plain are dropped" in warning for warning in result.warnings) == said


def test_the_text_says_what_was_compared_and_taken() -> None:
    text = as_text(run(synthetic(4000)))
    lines = text.splitlines()
    assert lines[0] == "temperatures: 2,000 decisions of 1,000 items, compared over 5 folds of items"
    assert [line[4:20].strip() for line in lines[2:7]] == [
        "T = 1",
        "as in the file",
        "one temperature",
        "by type",
        "by option count",
    ]
    marked = [line for line in lines if line.startswith(" *")]
    assert marked[0][4:20].strip() == "one temperature"
    assert any(line.startswith("taken: one temperature: ") for line in lines)
    assert any(line.startswith("  T(all) = 1.") and " ± " in line for line in lines)
    assert any(line.startswith("map of P(yes): none: ") for line in lines)
    assert any(line.startswith("thresholds: 2,000 other decisions of 1,000 items") for line in lines)


def test_the_text_says_which_of_two_temperatures_is_for_what() -> None:
    familiarity = (np.arange(8000) // 2 % 2).astype(np.float64)
    decisions = synthetic(8000, temperature=lambda _, __: np.where(familiarity == 1, 1.25, 6.0))
    result = run(replace(decisions, familiarity=familiarity))
    given = result.calibration.temperatures
    assert given.by_type["choice"] < given.unfamiliar_by_type["choice"]
    pair = f"T(choice) = {given.by_type['choice']:.4g} in familiar words to {given.unfamiliar_by_type['choice']:.4g} in"
    [line] = [line for line in as_text(result).splitlines() if line.startswith("  T(")]
    assert pair in line
    assert line.count("in familiar words") == 3


@pytest.mark.parametrize("n", [1, 60, 3000])
def test_every_calibration_has_a_text_and_sound_json(n: int) -> None:
    decisions = synthetic(n)
    decisions = with_gold(decisions, decisions.logits.argmax(axis=1)) if n == 60 else decisions
    result = run(decisions)
    assert as_text(result)
    entries = json.loads(json.dumps(as_json(result, {"model": "tiny"}, "fp32"), allow_nan=False))
    assert (entries["facts"], entries["dtype"]) == ({"model": "tiny"}, "fp32")
    assert entries["fit"]["winner"] == result.fit.winner.name
    assert [form["name"] for form in entries["fit"]["forms"]] == [form.name for form in result.fit.forms]
    assert entries["fit"]["forms"][0]["nll"] == result.fit.forms[0].nll.value
    assert entries["calibration"]["temperature"] == result.calibration.temperatures.plain
    assert entries["warnings"] == list(result.warnings)


def test_maps_are_shown_as_what_they_are() -> None:
    result = run(synthetic(400))
    for noul_map, said in (
        (PlattMap(0.5, -1.25), "P(yes) = σ(0.5 · logit(p) -1.25)"),
        (IsotonicMap((0.1, 0.5), (0.2, 0.7)), "2 points"),
    ):
        text = as_text(replace(result, fit=replace(result.fit, noul_map=noul_map)))
        assert said in text


def test_questions_that_share_a_row_have_no_thresholds() -> None:
    decisions = synthetic(400)
    assert run(decisions).calibration.selective is not None
    result = run(decisions, joint_items=3)
    assert (result.calibration.selective, result.n_thresholds) == (None, 0)
    assert result.warnings[-1].startswith("no thresholds: 3 items asked their questions in one row")


@pytest.mark.parametrize("seed", [0, 1])
def test_halves_are_drawn_by_a_stream_of_their_own(given: dict[str, Decisions], seed: int) -> None:
    """Folds are drawn by the seed alone; of one stream, which half an item is in would say in which fold."""
    run(synthetic(400), seed=seed)
    fitted = {key.rpartition("/")[0] for key in given["fit"].key}
    items = sorted({f"item {n}" for n in range(200)})
    same_stream = np.random.default_rng(seed).permutation(200) < 100
    shared = fitted & {item for item, chosen in zip(items, same_stream, strict=True) if chosen}
    assert len(fitted) == 100
    assert 25 < len(shared) < 75
