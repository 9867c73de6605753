"""Strict JSON: what Python's parser would let through, and the path of every fault. Trap: a repeated key may nest."""

from __future__ import annotations

import datetime
import enum
import json
import math
from itertools import count
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.errors import SchemaError, TooLargeError
from decider.questions.faults import Path
from decider.questions.jsontext import MAX_DIGITS, JsonValue, check, dumps, loads, utf8_bytes
from decider.questions.limits import Limits

LIMITS = Limits()
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=10) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 2


class Metres(float):
    pass


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@given(json_values)
def test_what_dumps_writes_loads_reads(value: JsonValue) -> None:
    for body in (dumps(value), dumps(value).encode()):
        assert repr(loads(body, LIMITS)) == repr(value)


@given(json_values)
def test_check_copies_json_unchanged(value: JsonValue) -> None:
    assert repr(check(value, limits=LIMITS)) == repr(value)


@pytest.mark.parametrize(
    ("body", "loc", "said"),
    [
        ('{"a": 1, "b": [{"c": 1, "c": 2}]}', ("b", 0), "duplicate key 'c'"),
        ('{"a": 1, "\\u0061": 1}', (), "duplicate key 'a'"),
        ('{"a": [0, NaN]}', ("a", 1), "NaN is not JSON"),
        ("[-Infinity]", (0,), "-Infinity is not JSON"),
        ('{"a": 1e400}', ("a",), "1e400 is out of range"),
        (f"[{'9' * 5000}]", (0,), "5,000 characters is over the limit of 640"),
        (f"[0.{'9' * 5000}]", (0,), "5,002 characters is over the limit of 640"),
        ('["\\ud800"]', (0,), "lone surrogate"),
        ('{"a": {"\\udfff": 1}}', ("a",), "lone surrogate"),
        ('"\ud800"', (), "lone surrogate"),
        ('{"a": 1} x', (), "line 1, column 10: Extra data"),
        ("[1,\n 2,]", (), "line 2"),
        ("", (), "line 1, column 1"),
        ("\ufeff{}", (), "BOM"),
        ('["\n"]', (), "control character"),
        (b'["\xff"]', (), "not UTF-8: invalid start byte at byte 2"),
        ("{}".encode("utf-16"), (), "not UTF-8"),
        (b'["\xed\xa0\x80"]', (), "not UTF-8"),
        (nested(65), (0,) * 64, "more than 64 levels deep"),
        (nested(100_000), (), "more than 64 levels deep"),
        ("[" * 100_000, (), "more than 64 levels deep"),
        ('{"a":' * 100_000, (), "more than 64 levels deep"),
    ],
    ids=count(),
)
def test_loads_refuses(body: str | bytes, loc: Path, said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        loads(body, LIMITS)
    assert said in caught.value.message
    assert caught.value.loc == loc
    assert "\n" not in str(caught.value)
    assert len(caught.value.message) < 250


def test_surrogate_pairs_and_the_deepest_nesting_are_sound() -> None:
    assert loads('"\\ud83d\\ude42"', LIMITS) == "🙂"
    assert dumps(loads(nested(64), LIMITS)) == nested(64)
    assert loads("9" * MAX_DIGITS, LIMITS) == 10**MAX_DIGITS - 1


@pytest.mark.parametrize("body", ['"' + "x" * 99 + '"', b'"' + b"x" * 99 + b'"', '"' + "é" * 50 + '"', b"\xff" * 101])
def test_a_body_over_the_limit_is_refused_before_it_is_parsed(body: str | bytes) -> None:
    with pytest.raises(TooLargeError, match=r"maximum context length.*") as caught:
        loads(body, Limits(max_body_bytes=100))
    assert "over the limit of 100 (max_body_bytes)" in caught.value.message


def test_a_body_at_the_limit_is_read() -> None:
    assert loads('"' + "é" * 49 + '"', Limits(max_body_bytes=100)) == "é" * 49


def test_check_normalises_what_resembles_json() -> None:
    value = MappingProxyType({Colour.RED: (1, Size.BIG, Colour.RED, True, Metres(0.5))})
    checked = check(value, limits=LIMITS)
    assert checked == {"red": [1, 2, "red", True, 0.5]}
    assert isinstance(checked, dict)
    (key, elements), *_ = checked.items()
    assert isinstance(elements, list)
    assert [type(each) for each in (key, *elements)] == [str, int, int, str, bool, float]


def test_check_copies_containers() -> None:
    inner: list[JsonValue] = [1]
    checked = check({"a": inner}, limits=LIMITS)
    inner.append(2)
    assert checked == {"a": [1]}


@pytest.mark.parametrize(
    ("value", "loc", "said"),
    [
        ({"a": [math.nan]}, ("s", "a", 0), "nan is not JSON"),
        (math.inf, ("s",), "inf is not JSON"),
        ({"a": {1: 2}}, ("s", "a"), "key 1 is no string"),
        ({None: 2}, ("s",), "key None is no string"),
        ("\ud800", ("s",), "lone surrogate '\\ud800' at character 0"),
        ({"\ud800": 1}, ("s",), "lone surrogate"),
        ({"x" * 100: b""}, ("s", "x" * 60 + "…"), "a bytes of length 0 is not JSON"),
        ([datetime.date(2026, 1, 1)], ("s", 0), "a date is not JSON"),
        ({1, 2}, ("s",), "a set of length 2 is not JSON"),
        (10**5000, ("s",), "bits is over the limit of 640 digits"),
    ],
    ids=count(),
)
def test_check_refuses(value: object, loc: Path, said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        check(value, limits=LIMITS, loc=("s",))
    assert said in caught.value.message
    assert caught.value.loc == loc
    str(caught.value).encode()


def test_a_value_that_contains_itself_is_too_deep() -> None:
    circular: list[object] = []
    circular.append({"a": circular})
    with pytest.raises(SchemaError, match="containing itself"):
        check(circular, limits=LIMITS)


def test_depth_counts_containers() -> None:
    limits = Limits(max_depth=2)
    assert check([[1]], limits=limits) == [[1]]
    with pytest.raises(SchemaError, match="more than 2 levels"):
        check([[{}]], limits=limits)


def test_dumps_writes_as_the_model_was_trained() -> None:
    value = {"b": 1.0, "a": [1e22, 'é/\a"', None, True], "c": {}}
    assert dumps(value) == '{"b": 1.0, "a": [1e+22, "é/\\u0007\\"", null, true], "c": {}}'
    assert json.loads(dumps(value)) == value


@given(text)
def test_utf8_bytes_counts_bytes(value: str) -> None:
    assert utf8_bytes(value) == len(value.encode())
