"""Texts that are far too long: how little of them is tokenised, and that none is refused that would fit.

Refuses to time anything: characters that were read are counted. Trap: a tokenizer makes one token of many spaces, so a
text with few tokens for its length must come through whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.errors import TooLargeError
from decider.questions.request import make_request
from decider.questions.types import Choice, Noul, Question
from decider.tokens.bounded import CHARACTERS_PER_TOKEN, LEAST_CHARACTERS, encode_within
from decider.tokens.layout import Layout
from decider.tokens.rows import RowBuilder

PLAIN = Layout(chat=False, schema_first=False)
MAX_TOKENS = 1000
ENOUGH = 4 * CHARACTERS_PER_TOKEN * MAX_TOKENS


@dataclass
class Runs:
    """A token a character, but one for a run of up to 100 spaces."""

    read: int = 0
    longest: int = 0

    def encode(self, text: str) -> list[int]:
        self.read += len(text)
        self.longest = max(self.longest, len(text))
        ids: list[int] = []
        run = 0
        for character in text:
            run = run + 1 if character == " " else 0
            if character != " " or run % 100 == 1:
                ids.append(ord(character))
        return ids


@given(st.integers(1, 50), st.text(alphabet="ab ", max_size=3000), st.integers(0, 3))
def test_a_text_that_fits_is_read_whole_and_another_is_known_to_be_too_long(most: int, text: str, stretch: int) -> None:
    text = text.replace(" ", " " * (1 + 700 * stretch))
    whole, found = Runs().encode(text), encode_within(Runs(), text, most)
    if len(whole) <= most:
        assert found == whole
    else:
        assert len(found) > most
        assert found[: most + 1] == whole[: most + 1]


def test_what_is_read_follows_the_limit_and_not_the_text() -> None:
    runs = Runs()
    assert len(encode_within(runs, "x" * 2_000_000, MAX_TOKENS)) > MAX_TOKENS
    assert runs.read <= CHARACTERS_PER_TOKEN * MAX_TOKENS
    # English, about: the first start has twice the tokens or not quite.
    runs = Runs()
    assert len(encode_within(runs, ("x" + " " * 7) * 200_000, MAX_TOKENS)) > MAX_TOKENS
    assert runs.read <= ENOUGH
    runs = Runs()
    assert len(encode_within(runs, " " * 90_000, MAX_TOKENS)) == 900
    assert runs.longest == 90_000
    runs = Runs()
    encode_within(runs, "x" * LEAST_CHARACTERS, 1)
    assert runs.read == LEAST_CHARACTERS


def test_a_long_state_is_not_copied_for_thousands_of_questions(
    builder: RowBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: dict[str, Question] = {str(index): Noul("Is it?") for index in range(20)}
    request = make_request(LONG * 10, questions)
    rows = builder.build(request, layout=PLAIN, truncate=False).rows
    total = sum(len(row.ids) for row in rows)
    monkeypatch.setattr("decider.tokens.rows.MAX_TOKENS_OF_ROWS", total)
    assert builder.build(request, layout=PLAIN, truncate=False).rows == rows
    monkeypatch.setattr("decider.tokens.rows.MAX_TOKENS_OF_ROWS", total - 1)
    monkeypatch.setattr("decider.tokens.rows._row", lambda *_: pytest.fail("a row was made"))
    with pytest.raises(TooLargeError, match=rf"have {total:,} tokens.*too many tokens"):
        builder.build(request, layout=PLAIN, truncate=False)


LONG = "My card was charged twice. "


@pytest.mark.parametrize(
    ("state", "question"),
    [
        (LONG * 70_000, Noul("Is it?")),
        ("s", Noul(LONG * 30_000)),
        ("s", Choice("Which?", [f"{index} {LONG * 1000}" for index in range(30)])),
    ],
    ids=["state", "question", "options"],
)
@pytest.mark.parametrize("truncate", [False, True])
def test_rows_far_over_the_limit_are_refused_or_cut_without_being_read(
    builder: RowBuilder, state: str, question: Question, truncate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    encode = type(builder.tokenizer).encode

    def counted(tokenizer: object, text: str) -> list[int]:
        nonlocal read
        read += len(text)
        return encode(tokenizer, text)  # type: ignore[arg-type]

    monkeypatch.setattr(type(builder.tokenizer), "encode", counted)
    request = make_request(state, {"q": question})
    bounded = replace(builder, max_positions=MAX_TOKENS)
    if truncate and len(state) > 1:
        rows = bounded.build(request, layout=PLAIN, truncate=True)
        assert rows.truncated == {"q"}
        assert len(rows.rows[0].ids) == MAX_TOKENS
    else:
        with pytest.raises(TooLargeError, match=r"has at least [\d,]+ tokens.* maximum context length"):
            bounded.build(request, layout=PLAIN, truncate=truncate)
    assert read <= ENOUGH
