"""The state's text. Trap: an array's positions are written before its size in bytes is known."""

from __future__ import annotations

import json
import math
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.errors import SchemaError, TooLargeError
from decider.questions.faults import Path
from decider.questions.limits import Limits
from decider.questions.state import render_state

LIMITS = Limits()
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
keys = text | st.just("_index")
states: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=40,
).filter(lambda value: isinstance(value, (list, dict)))


def without_positions(value: object, original: object) -> object:
    """Undo the positions, guided by the original; checks them on the way."""
    if isinstance(original, dict):
        assert isinstance(value, dict)
        assert value.keys() == original.keys()
        return {key: without_positions(value[key], each) for key, each in original.items()}
    if not isinstance(original, list):
        return value
    assert isinstance(value, list)
    assert len(value) == len(original)
    if len(original) < 8:
        return [without_positions(each, own) for each, own in zip(value, original, strict=True)]
    bare: list[object] = []
    for index, (each, own) in enumerate(zip(value, original, strict=True)):
        assert next(iter(each)) == "_index"
        if isinstance(own, dict):
            rest = {key: each[key] for key in own}
            assert "_index" in own or each["_index"] == index
            bare.append(without_positions(rest, own))
        else:
            assert list(each) == ["_index", "value"]
            assert each["_index"] == index
            bare.append(without_positions(each["value"], own))
    return bare


@given(states)
def test_positions_are_in_every_long_array_and_nothing_else_changes(state: object) -> None:
    assert without_positions(json.loads(render_state(state, LIMITS)), state) == state


@given(text)
def test_text_is_unchanged(state: str) -> None:
    assert render_state(state, LIMITS) == state


def test_seven_elements_get_no_positions() -> None:
    assert render_state([0] * 7, LIMITS) == "[0, 0, 0, 0, 0, 0, 0]"
    assert render_state({"é": (1.0, None)}, LIMITS) == '{"é": [1.0, null]}'
    assert render_state(MappingProxyType({}), LIMITS) == "{}"


def test_eight_elements_get_positions_at_any_depth() -> None:
    state: dict[str, object] = {"rows": [{"b": 1}, {"b": 2, "_index": "own"}, "x", [1], [0] * 8, {}, None, 7]}
    inner = ", ".join(f'{{"_index": {index}, "value": 0}}' for index in range(8))
    assert render_state(state, LIMITS) == (
        '{"rows": [{"_index": 0, "b": 1}, {"_index": "own", "b": 2}, {"_index": 2, "value": "x"}, '
        f'{{"_index": 3, "value": [1]}}, {{"_index": 4, "value": [{inner}]}}, {{"_index": 5}}, '
        '{"_index": 6, "value": null}, {"_index": 7, "value": 7}]}'
    )


@pytest.mark.parametrize(
    ("state", "loc", "said"),
    [
        (None, ("state",), "state is None; give text"),
        (5, ("state",), "state is 5"),
        (True, ("state",), "state is True"),
        (b"x", ("state",), "state is a bytes"),
        ("a\ud800", ("state",), "lone surrogate"),
        ({"a": math.nan}, ("state", "a"), "nan is not JSON"),
        ([{"a": {1}}], ("state", 0, "a"), "a set of length 1"),
    ],
)
def test_refused(state: object, loc: Path, said: str) -> None:
    with pytest.raises(SchemaError, match=said) as caught:
        render_state(state, LIMITS)
    assert caught.value.loc == loc


@pytest.mark.parametrize("state", ["x" * 33, "é" * 17, {"a": "x" * 30}, [0] * 8, {"a": {"b": [[]] * 8}}])
def test_a_state_over_the_limit_is_refused(state: object) -> None:
    with pytest.raises(TooLargeError, match=r"maximum context length") as caught:
        render_state(state, Limits(max_state_bytes=32))
    assert "over the limit of 32 (max_state_bytes)" in caught.value.message
    assert caught.value.loc == ("state",)


def test_the_limit_is_of_the_rendered_bytes() -> None:
    state: dict[str, object] = {"rows": [{}] * 8}
    rendered = render_state(state, LIMITS)
    assert render_state(state, Limits(max_state_bytes=len(rendered))) == rendered
    with pytest.raises(TooLargeError):
        render_state(state, Limits(max_state_bytes=len(rendered) - 1))
    assert render_state("é" * 16, Limits(max_state_bytes=32)) == "é" * 16


def test_long_arrays_are_refused_before_positions_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: object) -> None:
        raise AssertionError("positions were written")

    monkeypatch.setattr("decider.questions.state._indexed", never)
    with pytest.raises(TooLargeError, match="at least 1,500,000 bytes"):
        render_state({"a": [[0] * 50_000] * 2}, Limits(max_state_bytes=10**6))
