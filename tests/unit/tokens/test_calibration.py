"""`x_calibration`: everything it may hold, there and back, and every refusal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decider.errors import ConfigError
from decider.questions.jsontext import JsonValue, loads
from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.request import LAYOUT_NAMES
from decider.tokens.calibration import (
    DTYPES,
    Calibration,
    IsotonicMap,
    OptionTemperature,
    PlattMap,
    Selective,
    Temperatures,
    Thresholds,
    parse_calibration,
    to_json,
)
from decider.tokens.config import CONFIG_NAME, load_config
from decider.tokens.table import Table

KINDS = ("choice", "noul", "score")
CHOICE: dict[str, JsonValue] = {
    "n": 40,
    "error_rates": [0.05, 0.1],
    "set_thresholds": [1, 0.75],
    "accept": [None, 0.5],
    "by_class": {"billing": {"n": 12, "set_thresholds": [1.0, 0.5]}},
}
SELECTIVE: dict[str, JsonValue] = {"layout": "plain", "permutations": 1, "risk_confidence": 0.9, "choice": CHOICE}


def parsed(entry: dict[str, JsonValue]) -> Calibration:
    return parse_calibration(Table("file", entry), isolated_levels=False)


def test_nothing_gives_the_defaults() -> None:
    assert parsed({}) == Calibration(Temperatures(), None, None)
    assert parsed({"noul_platt": None, "noul_isotonic": None, "selective": None}) == Calibration()


def test_every_key_is_read() -> None:
    entry: dict[str, JsonValue] = {"temperature": 2, "noul_isotonic": {"x": [0, 0.5], "y": [0.25, 1]}}
    assert parsed({**entry, "selective": SELECTIVE}) == Calibration(
        Temperatures(2.0),
        IsotonicMap((0.0, 0.5), (0.25, 1.0)),
        Selective(
            "plain",
            1,
            0.9,
            {"choice": Thresholds(40, (0.05, 0.1), (1.0, 0.75), (None, 0.5), {"billing": (12, (1.0, 0.5))})},
        ),
    )
    assert parsed({"noul_platt": {"a": 2, "b": -1}}).noul_map == PlattMap(2.0, -1.0)


def test_it_is_read_from_a_config_and_unknown_keys_are_named(tmp_path: Path) -> None:
    content = {"x_calibration": {"bf16": {"selective": SELECTIVE, "noul_plat": {"a": 1, "b": 0}}}}
    (tmp_path / CONFIG_NAME).write_text(json.dumps(content), encoding="utf-8")
    config = load_config(tmp_path)
    assert config.for_dtype("bf16") == parsed({"selective": SELECTIVE})
    assert config.for_dtype("fp32") == Calibration()
    (warning,) = config.warnings
    assert "unknown key 'noul_plat' (did you mean 'noul_platt'?); it has no effect" in warning


@pytest.mark.parametrize("isolated_levels", [True, False])
def test_thresholds_know_what_the_file_says_of_levels_now(tmp_path: Path, isolated_levels: bool) -> None:
    entry = {"selective": {**SELECTIVE, "score": {**CHOICE, "isolated": True}}}
    content = {"isolated_levels": isolated_levels, "x_calibration": {"bf16": entry}}
    (tmp_path / CONFIG_NAME).write_text(json.dumps(content), encoding="utf-8")
    calibration = load_config(tmp_path).for_dtype("bf16")
    assert calibration.selective is not None
    assert calibration.selective.isolated_levels == isolated_levels
    assert calibration.selective.by_kind["score"].isolated
    # It is the file's, and no part of the entry.
    assert to_json(calibration)["selective"] == entry["selective"]


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        ("int3", "unknown precision 'int3'; known are fp32, bf16, fp16, fp8; it has no effect"),
        ("float32", "unknown precision 'float32' (did you mean 'fp32'?); known are fp32, bf16, fp16, fp8"),
        ("bfloat16", "(did you mean 'bf16'?)"),
        ("fp23", "(did you mean 'fp32'?)"),
    ],
)
def test_an_unknown_precision_is_warned_of(tmp_path: Path, dtype: str, said: str) -> None:
    content = {"x_calibration": {dtype: {"temperature": 2}, **{name: {} for name in DTYPES}}}
    (tmp_path / CONFIG_NAME).write_text(json.dumps(content), encoding="utf-8")
    (warning,) = load_config(tmp_path).warnings
    assert said in warning


positive = st.floats(1e-9, 1e9)
finite = st.floats(-1e9, 1e9)
unit = st.floats(0, 1)
open_unit = st.floats(0, 1, exclude_min=True, exclude_max=True)
by_type = st.dictionaries(st.sampled_from(KINDS), positive)
temperatures = st.builds(
    Temperatures, positive, by_type, st.none(), st.none() | positive, schema_first_by_type=by_type
) | st.builds(Temperatures, positive, by_options=st.builds(OptionTemperature, finite, finite, positive))
isotonic = st.lists(st.tuples(unit, unit), min_size=1, max_size=4, unique_by=lambda point: point[0]).map(
    lambda points: IsotonicMap(tuple(sorted(x for x, _ in points)), tuple(sorted(y for _, y in points)))
)


@st.composite
def thresholds(draw: st.DrawFn) -> Thresholds:
    rates = tuple(sorted(draw(st.lists(open_unit, min_size=1, max_size=3, unique=True))))
    sets = st.lists(st.floats(0, 2), min_size=len(rates), max_size=len(rates)).map(
        lambda values: tuple(sorted(values, reverse=True))
    )
    n_none = draw(st.integers(0, len(rates)))
    accept = sorted(draw(st.lists(unit, min_size=len(rates) - n_none, max_size=len(rates) - n_none)), reverse=True)
    names = st.text(st.characters(codec="utf-8"), max_size=8)
    counts = st.integers(1, 10**9)
    by_class = draw(st.dictionaries(names, st.tuples(counts, sets), max_size=2))
    return Thresholds(draw(counts), rates, draw(sets), (*(None,) * n_none, *accept), by_class)


@st.composite
def thresholds_by_kind(draw: st.DrawFn) -> dict[str, Thresholds]:
    drawn = draw(st.dictionaries(st.sampled_from(KINDS), thresholds()))
    return {kind: replace(own, isolated=kind == "score" and draw(st.booleans())) for kind, own in drawn.items()}


@settings(max_examples=50, deadline=None)
@given(
    st.builds(
        Calibration,
        temperatures,
        st.none() | st.builds(PlattMap, positive, finite) | isotonic,
        st.none()
        | st.builds(
            Selective,
            st.sampled_from(LAYOUT_NAMES),
            st.integers(1, 255),
            open_unit,
            thresholds_by_kind(),
        ),
    )
)
def test_there_and_back(calibration: Calibration) -> None:
    entry = loads(json.dumps(to_json(calibration), allow_nan=False), DEFAULT_LIMITS)
    assert isinstance(entry, dict)
    assert parsed(entry) == calibration


def selective(**changes: JsonValue) -> dict[str, JsonValue]:
    return {"selective": {**SELECTIVE, **changes}}


def choice(**changes: JsonValue) -> dict[str, JsonValue]:
    return selective(choice={**CHOICE, **changes})


def one_class(**changes: JsonValue) -> dict[str, JsonValue]:
    return choice(by_class={"a": {"n": 1, "set_thresholds": [1, 1], **changes}})


BAD: list[tuple[dict[str, JsonValue], str]] = [
    ({"temperature": 0}, "file: temperature is 0"),
    ({"noul_platt": [1, 2]}, "file: noul_platt is a list of length 2; it must be an object"),
    ({"noul_platt": {"a": 1}}, "noul_platt: b is missing; it must be a finite number"),
    ({"noul_platt": {"a": 0, "b": 0}}, "noul_platt: a is 0; it must be a finite number above 0"),
    ({"noul_platt": {"a": 1, "b": True}}, "b is True"),
    ({"noul_platt": {"a": 1, "b": 1, "c": 1}}, "unknown key 'c'; allowed are a, b"),
    ({"noul_isotonic": {"x": [0, 1]}}, "noul_isotonic: y is missing; it must be a list"),
    ({"noul_isotonic": {"x": [], "y": []}}, "x is a list of length 0"),
    ({"noul_isotonic": {"x": [0, None], "y": [0, 1]}}, "x: element 1 is None; it must be a finite number"),
    ({"noul_isotonic": {"x": [0, "1"], "y": [0, 1]}}, "x: element 1 is '1'; it must be a finite number"),
    ({"noul_isotonic": {"x": [0, True], "y": [0, 1]}}, "x: element 1 is True"),
    (
        {"noul_isotonic": {"x": [0, 0], "y": [0, 1]}},
        r"x: element 1 is 0; it must be a number in \[0, 1\] and above the one",
    ),
    ({"noul_isotonic": {"x": [0, 1.5], "y": [0, 1]}}, "x: element 1 is 1.5; it must be"),
    ({"noul_isotonic": {"x": [0, 1], "y": [1, 0]}}, "y: element 1 is 0; .*not below the one before"),
    ({"noul_isotonic": {"x": [0, 1], "y": [-0.1, 0]}}, "y: element 0 is -0.1"),
    ({"noul_isotonic": {"x": [0, 1], "y": [0]}}, r"y is a list of length 1; .*as many as x has \(2\)"),
    (
        {"noul_isotonic": {"x": [0], "y": [0]}, "noul_platt": {"a": 1, "b": 0}},
        "noul_isotonic is .*; it must be absent where noul_platt is given",
    ),
    ({"selective": []}, "selective is a list"),
    (selective(chioce=CHOICE), r"unknown key 'chioce' \(did you mean 'choice'\?\)"),
    (selective(layout="fancy"), "selective: layout is 'fancy'; it must be one of plain, chat"),
    ({"selective": {"permutations": 1, "risk_confidence": 0.9}}, "layout is missing"),
    (selective(permutations=0), "permutations is 0; it must be a whole number, 1 to 255"),
    (selective(permutations=256), "permutations is 256"),
    (selective(permutations=True), "permutations is True"),
    (selective(permutations=1.0), r"permutations is 1\.0"),
    (selective(risk_confidence=1), "risk_confidence is 1; it must be a number above 0 and below 1"),
    (selective(risk_confidence=0), "risk_confidence is 0"),
    (choice(n=0), "selective: choice: n is 0; it must be a whole number, 1 to 9223372036854775807"),
    (choice(n=10**30), "n is 1000000000000000000000000000000; it must be a whole number, 1 to 9223372036854775807"),
    (choice(m=0), "unknown key 'm'; allowed are n, error_rates"),
    (choice(error_rates=[0.1, 0.05]), "error_rates: element 1 is 0.05; it must be .*above the one before"),
    (choice(error_rates=[0, 0.05]), "error_rates: element 0 is 0;"),
    (choice(error_rates=[0.05, 1]), "error_rates: element 1 is 1;"),
    (choice(error_rates=[0.05]), r"set_thresholds is .*one an error rate \(1\)"),
    (choice(set_thresholds=[0.5, 0.75]), "set_thresholds: element 1 is 0.75; .*not above the one before"),
    (choice(set_thresholds=[0.5, -0.1]), "set_thresholds: element 1 is -0.1; .*from 0 on"),
    (choice(set_thresholds=[0.5, None]), "set_thresholds: element 1 is None"),
    (choice(accept=[0.5]), r"accept is .*one an error rate \(2\)"),
    (choice(accept=[0.5, None]), "accept: element 1 is None; it must be null where no number is before"),
    (choice(accept=[0.5, 0.75]), "accept: element 1 is 0.75; .*not above the one before"),
    (choice(accept=[1.5, 0.75]), r"accept: element 0 is 1.5; it must be .*in \[0, 1\]"),
    (choice(accept=[None, "x"]), "accept: element 1 is 'x'"),
    (choice(by_class=[]), "by_class is a list"),
    (selective(score=CHOICE), "score: isolated is missing; it must be true or false"),
    (selective(score={**CHOICE, "isolated": None}), "score: isolated is None; it must be true or false"),
    (choice(isolated=False), "unknown key 'isolated'; allowed are n, error_rates"),
    (choice(by_class={"a": None}), "by_class: a is None; it must be an object"),
    (one_class(n=0), "by_class: a: n is 0"),
    (one_class(set_thresholds=[1]), r"by_class: a: set_thresholds is .*one an error rate \(2\)"),
    (one_class(accept=[1]), "unknown key 'accept'; allowed are n, set_thresholds"),
]


@pytest.mark.parametrize(("entry", "message"), BAD)
def test_bad_content_is_refused(entry: dict[str, JsonValue], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parsed(entry)
