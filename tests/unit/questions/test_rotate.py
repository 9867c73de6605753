"""Rotations of options and the way back. Refuses models. Trap: a rotation that is undone the wrong way round still sums
to 1."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from decider.questions.request import make_request
from decider.questions.rotate import rotations
from decider.questions.types import Choice, Noul, Question, Score

LETTERS = "abcdefghijkl"


def choice(n_options: int) -> Choice:
    return Choice("Which?", {name: f"option {name}" for name in LETTERS[:n_options]})


def test_one_order_asks_nothing_again() -> None:
    assert rotations(make_request("s", {"q": choice(3)}), 1) == ()


def test_options_move_with_their_descriptions_and_orders_are_spread() -> None:
    [first, second] = rotations(make_request("s", {"q": choice(7)}), 3)
    assert (first.offsets["q"], second.offsets["q"]) == (2, 4)
    moved = first.request.questions["q"]
    assert isinstance(moved, Choice)
    assert moved.names == tuple("cdefgab")
    assert moved.descriptions[0] == "option c"
    assert moved.instructions == "Which?"


@given(st.integers(2, 12), st.integers(1, 15))
def test_every_order_is_asked_once_and_undone(n_options: int, n_orders: int) -> None:
    question = choice(n_options)
    askings = rotations(make_request("s", {"q": question}), n_orders)
    assert len({0, *(asking.offsets["q"] for asking in askings)}) == min(n_orders, n_options) == 1 + len(askings)
    for asking in askings:
        moved = asking.request.questions["q"]
        assert isinstance(moved, Choice)
        # As if a model had answered with the place of each option in the alphabet.
        assert asking.back("q", [float(LETTERS.index(name)) for name in moved.names]) == list(
            map(float, range(n_options))
        )


def test_only_choices_are_asked_again_unless_all_share_a_row() -> None:
    questions: dict[str, Question] = {"q": choice(3), "pair": choice(2), "s": Score("?", ["a", "b"]), "n": Noul("?")}
    alone = rotations(make_request("s", questions), 3)
    assert [set(asking.request.questions) for asking in alone] == [{"q", "pair"}, {"q"}]
    joint = rotations(make_request("s", questions, independent=False), 3)
    assert [set(asking.request.questions) for asking in joint] == [set(questions)] * 2
    assert [asking.offsets["pair"] for asking in joint] == [1, 0]
    assert joint[0].back("n", [0.2, 0.8]) == [0.2, 0.8]
    assert rotations(make_request("s", {"n": Noul("?")}), 5) == ()
