"""How questions read, word for word. Trap: one space or newline more is another prompt than the trained one."""

from __future__ import annotations

import pytest

from decider.errors import TooLargeError
from decider.questions.limits import Limits
from decider.questions.prompt import DEFAULT_TEXT, Prompt, check_size, level_prompts, prompt
from decider.questions.types import Choice, Noul, Question, Score


def read(question: Question) -> Prompt:
    return prompt(question, neutralize_none=True)


def test_choice() -> None:
    criteria: dict[str, object] = {
        "a": "first",
        "b": None,
        "c": "",
        "d": 0,
        "e": False,
        "f": [],
        "g": {},
        "h": {"é": [1.0, "x"]},
        "i": " ",
    }
    expected = ("a: first", "b", "c", "d: 0", "e: false", "f: []", "g: {}", 'h: {"é": [1.0, "x"]}', "i:  ")
    assert read(Choice("Which?", criteria)) == Prompt("Which?", expected)


def test_arrays_in_questions_get_no_positions() -> None:
    asked = read(Choice([0] * 8, {"a": [1] * 8}))
    assert asked == Prompt("[0, 0, 0, 0, 0, 0, 0, 0]", ("a: [1, 1, 1, 1, 1, 1, 1, 1]",))


def test_score() -> None:
    question = Score({"rate": "it"}, [{"label": "low"}, ["mid", 2], "", 7, False])
    expected = ('0: {"label": "low"}', '1: ["mid", 2]', "2: ", "3: 7", "4: false")
    assert read(question) == Prompt('{"rate": "it"}', expected)
    assert read(Score("Rate", {"2": "high", "0": "low", "1": "mid"})).options == ("0: low", "1: mid", "2: high")


def test_noul() -> None:
    assert read(Noul("Urgent?")) == Prompt("Urgent?", ("no", "yes"))
    assert read(Noul("Urgent?", {"true": "today"})).options == ("no", "yes: today")
    assert read(Noul(None, {"true": "", "false": 0})) == Prompt(DEFAULT_TEXT, ("no: 0", "yes"))


@pytest.mark.parametrize("instructions", [None, "", {}, []])
def test_empty_instructions_read_as_the_default(instructions: str | None) -> None:
    for question in (Choice(instructions, ["a"]), Score(instructions, ["a", "b"]), Noul(instructions, {"true": "x"})):
        assert read(question).text == "Which answer fits the context?"


def test_white_space_is_text() -> None:
    assert read(Noul(" ")).text == " "


@pytest.mark.parametrize(
    "option",
    [
        "none",
        "None",
        "N/A",
        " none of these\n",
        "none of the above",
        "NONE OF THE ABOVE, really",
        "\tnone of the above ",
    ],
)
def test_none_is_neutral(option: str) -> None:
    question = Choice("Which?", ["a", option])
    assert read(question).options == ("a", "not listed here")
    assert prompt(question, neutralize_none=False).options == ("a", option)


def test_the_whole_option_text_decides() -> None:
    described: dict[str, object] = {
        "none of the above": "nothing fits",
        "none": "nothing fits",
        "n/a": {},
        "not none": None,
        "none of it": None,
    }
    expected = ("not listed here", "none: nothing fits", "n/a: {}", "not none", "none of it")
    assert read(Choice("Which?", described)).options == expected
    assert read(Score("How bad?", ["none", "n/a"])).options == ("0: none", "1: n/a")


def test_isolated_levels() -> None:
    asked = level_prompts(Score("How bad?", ["none", {"label": "x"}]))
    assert asked == (
        Prompt("How bad?\nProposed answer: none\nDoes the proposed answer fit?", ("no", "yes")),
        Prompt('How bad?\nProposed answer: {"label": "x"}\nDoes the proposed answer fit?', ("no", "yes")),
    )


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("0: none", "none"),
        (" -12 :  some", "some"),
        ("2 :\ta lot", "a lot"),
        ("1: 2: twice", "2: twice"),
        ("1:close", "1:close"),
        ("1 close", "1 close"),
        ("about 1: x", "about 1: x"),
        ("1.5: x", "1.5: x"),
        ("", ""),
        (5, "5"),
    ],
)
def test_a_levels_own_number_is_stripped_once(level: object, shown: str) -> None:
    first, _ = level_prompts(Score(None, [level, "z"]))
    assert first.text == f"{DEFAULT_TEXT}\nProposed answer: {shown}\nDoes the proposed answer fit?"


def test_size_is_of_text_and_options_in_utf8() -> None:
    question = Choice("éé", {"ab": "é"})  # 4 bytes, and "ab: é" of 6
    check_size(question, Limits(max_question_bytes=10))
    with pytest.raises(TooLargeError, match=r"10 bytes .* limit of 9 \(max_question_bytes\).*maximum context length"):
        check_size(question, Limits(max_question_bytes=9))
