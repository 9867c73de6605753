"""What messages say of values. Trap: a value may be too large, or too deep, for `repr`."""

from __future__ import annotations

import pytest

from decider.errors import QuestionError
from decider.questions.faults import hint, located, show, step


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (True, "True"),
        (1.5, "1.5"),
        (-7, "-7"),
        ("a\n", "'a\\n'"),
        ("x" * 61, "'" + "x" * 60 + "'…"),
        (10**5000, "an int of 16,610 bits"),
        ([1, 2], "a list of length 2"),
        (b"", "a bytes of length 0"),
        (object(), "an object"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_show(value: object, shown: str) -> None:
    assert show(value) == shown


def test_a_value_too_deep_for_repr_can_be_shown() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert show(deep) == "a list of length 1"


def test_step_cuts_long_keys() -> None:
    assert step("k" * 60) == "k" * 60
    assert step("k" * 61) == "k" * 60 + "…"


def test_hint_finds_the_near_name_or_lists_all() -> None:
    assert hint("criterai", ("criteria", "type")) == "did you mean 'criteria'?"
    assert hint("zzz", ("criteria", "type")) == "known: 'criteria', 'type'"
    assert hint(None, ("criteria",)) == "known: 'criteria'"


def test_located_prefixes_the_path() -> None:
    def fail() -> None:
        raise QuestionError("no", loc=("criteria",))

    with pytest.raises(QuestionError, match=r"questions\.q\.criteria: no"), located("questions", "q"):
        fail()


class NoLength:
    def __len__(self) -> int:
        raise TypeError("len() of unsized object")


def test_a_value_whose_length_raises_is_still_shown() -> None:
    assert show(NoLength()) == "a NoLength"
