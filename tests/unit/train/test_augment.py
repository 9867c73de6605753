"""What training makes of an item: still the same decision, and the same whoever makes it.

Refuses to judge what helps. Trap: over many draws every change must occur, or a test of what it keeps is empty.
"""

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType

import pytest

from decider.evaluate.labelled import LabelledItem, gold_index
from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.request import make_request
from decider.questions.types import Choice, Noul, Question, Score
from decider.train.augment import (
    NONE_FITS,
    OFF,
    REWORDINGS,
    RIGHT_DROPPED,
    TWIN_OPTIONS,
    Asking,
    Augmentation,
    as_text,
    asking_of,
    twin_of,
)

DRAWS = 400
OPTIONS = {"red": "like blood", "blue": None, "green": None, "black": 3}


def item(questions: dict[str, Question], gold: dict[str, object], state: object = "It is red.") -> LabelledItem:
    request = make_request(state, questions)
    right = {name: gold_index(questions[name], answer) for name, answer in gold.items()}  # type: ignore[arg-type]
    return LabelledItem("a", "t", request, MappingProxyType(right))


ONE = item({"colour": Choice("Which?", OPTIONS)}, {"colour": "red"})
SEVERAL = item(
    {"colour": Choice("Which?", OPTIONS), "sure": Noul("Sure?"), "how": Score("How red?", ["pale", "pink", "deep"])},
    {"colour": "red", "sure": True, "how": 2},
)


def askings(which: LabelledItem, augmentation: Augmentation, *, schema_first: bool = False) -> list[Asking]:
    return [
        asking_of(which, augmentation, seed=1, epoch=epoch, index=7, schema_first=schema_first)
        for epoch in range(DRAWS)
    ]


def colour(asking: Asking) -> Choice:
    question = asking.request.questions["colour"]
    assert isinstance(question, Choice)
    return question


def test_the_right_option_stays_right_or_gives_way_to_one_that_says_so() -> None:
    dropped = kept = 0
    for asking in askings(ONE, Augmentation()):
        question = colour(asking)
        right = question.names[asking.gold["colour"]]
        assert 2 <= len(question.names) <= len(OPTIONS) + 1
        for name, description in zip(question.names, question.descriptions, strict=True):
            assert name in NONE_FITS or OPTIONS[name] == description
        if "red" in question.names:
            assert right == "red"
            kept += any(name in NONE_FITS for name in question.names)
        else:
            assert right in NONE_FITS
            dropped += 1
    assert RIGHT_DROPPED == 0.25
    assert 0.1 < dropped / (dropped + kept) < 0.4
    assert kept > DRAWS // 50


def test_every_place_and_every_size_occurs() -> None:
    made = askings(ONE, Augmentation())
    assert {asking.gold["colour"] for asking in made} == {0, 1, 2, 3, 4}
    assert {len(colour(asking).names) for asking in made} == {2, 3, 4, 5}
    texts = {colour(asking).instructions for asking in made}
    assert texts == {"Which?", *(wording.format("Which?") for wording in REWORDINGS)}


def test_what_is_drawn_depends_on_seed_epoch_and_place_alone() -> None:
    first = asking_of(ONE, Augmentation(), seed=1, epoch=2, index=3, schema_first=False)
    assert asking_of(ONE, Augmentation(), seed=1, epoch=2, index=3, schema_first=False) == first
    others = [
        asking_of(ONE, Augmentation(), seed=seed, epoch=epoch, index=index, schema_first=False)
        for seed, epoch, index in ((2, 2, 3), (1, 3, 3), (1, 2, 4))
    ]
    assert [other for other in others if other != first]


def test_off_is_the_item_itself() -> None:
    for which in (ONE, SEVERAL):
        for asking in askings(which, OFF, schema_first=True)[:20]:
            assert asking == Asking(which.request, which.gold)


def test_a_twin_is_the_same_choice_in_another_order() -> None:
    twins = []
    for epoch, asking in enumerate(askings(SEVERAL, Augmentation(twin=0.5))):
        assert twin_of(asking, replace(Augmentation(), twin=0.0), seed=1, epoch=epoch, index=7) is None
        twin = twin_of(asking, Augmentation(twin=0.5), seed=1, epoch=epoch, index=7)
        assert twin == twin_of(asking, Augmentation(twin=0.5), seed=1, epoch=epoch, index=7)
        if twin is None or "colour" not in asking.gold:
            assert twin is None
            continue
        twins.append(twin)
        own, other = colour(asking), colour(twin)
        assert list(twin.request.questions) == ["colour"]
        assert twin.request.state == asking.request.state
        assert own.instructions == other.instructions
        assert own.names != other.names
        assert dict(zip(own.names, own.descriptions, strict=True)) == dict(
            zip(other.names, other.descriptions, strict=True)
        )
        assert other.names[twin.gold["colour"]] == own.names[asking.gold["colour"]]
    # Half of the askings that have the colour among them.
    assert 0.3 * DRAWS < len(twins) < 0.5 * DRAWS


def test_no_twin_of_many_options_nor_in_a_joint_row() -> None:
    always = Augmentation(twin=1.0)

    def found(n: int, *, independent: bool = True) -> Asking | None:
        request = make_request("s", {"c": Choice("Which?", [f"o{i}" for i in range(n)])}, independent=independent)
        return twin_of(Asking(request, MappingProxyType({"c": 0})), always, seed=0, epoch=0, index=0)

    assert found(TWIN_OPTIONS) is not None
    assert found(2) is not None
    assert found(TWIN_OPTIONS + 1) is None
    assert found(1) is None
    assert found(2, independent=False) is None


def test_scores_and_nouls_keep_their_order_and_questions_stand_alone_now_and_then() -> None:
    made = askings(SEVERAL, Augmentation())
    alone = 0
    for asking in made:
        questions = asking.request.questions
        assert asking.gold.keys() == questions.keys()
        alone += len(questions) == 1
        if isinstance(score := questions.get("how"), Score):
            assert score.levels == ("pale", "pink", "deep")
            assert asking.gold["how"] == 2
        assert asking.gold.get("sure", 1) == 1
    assert 0.2 < alone / len(made) < 0.4


def test_an_option_that_says_none_is_added_to_no_list_that_has_one() -> None:
    for own in ("none of these", "Other", "no"):
        which = item({"colour": Choice("Which?", ["red", "blue", own])}, {"colour": "red"})
        for asking in askings(which, Augmentation()):
            assert set(colour(asking).names) <= {"red", "blue", own}
            assert colour(asking).names[asking.gold["colour"]] == "red"


def test_the_schema_comes_first_only_where_it_is_trained_and_no_layout_was_named() -> None:
    assert {asking.request.layout for asking in askings(ONE, Augmentation())} == {None}
    assert {asking.request.layout for asking in askings(ONE, Augmentation(), schema_first=True)} == {
        None,
        "plain_schema_first",
    }
    named = LabelledItem("a", "t", make_request("x", ONE.request.questions, layout="chat"), ONE.gold)
    assert {asking.request.layout for asking in askings(named, Augmentation(), schema_first=True)} == {"chat"}


def test_a_state_of_json_is_read_as_text_now_and_then() -> None:
    state = {"name": "Eva", "paid": True, "tags": ["a", "b"], "left": None, "more": {"n": [{"x": 1}], "none": []}}
    which = item({"colour": Choice("Which?", OPTIONS)}, {"colour": "red"}, state)
    states = {asking.request.state for asking in askings(which, Augmentation())}
    assert states == {which.request.state, as_text(which.request.state)}
    assert as_text(which.request.state).splitlines() == [
        "name: Eva",
        "paid: yes",
        "tags:",
        "  - a",
        "  - b",
        "left:",
        "more:",
        "  n:",
        "    -",
        "      x: 1",
        "  none:",
    ]


def test_positions_that_rendering_wrote_are_left_out() -> None:
    rendered = make_request(list(range(9)), {"q": Noul("?")}).state
    assert "_index" in rendered
    assert as_text(rendered) == "\n".join(f"- {number}" for number in range(9))


@pytest.mark.parametrize("state", ["plain", "{not json", "[1, 2", "", json.dumps({"a": "b" * 30_000})])
def test_other_states_stay(state: str) -> None:
    assert as_text(state) == state


def test_no_option_is_added_to_the_longest_list_there_may_be() -> None:
    names = [f"option number {n}" for n in range(DEFAULT_LIMITS.max_options)]
    which = item({"colour": Choice("Which?", names)}, {"colour": names[7]})
    made = asking_of(which, replace(OFF, abstain=1.0), seed=0, epoch=0, index=0, schema_first=False)
    assert made == Asking(which.request, which.gold)
