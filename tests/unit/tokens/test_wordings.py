"""How familiar a question's wording is: spans, hashes that hold everywhere, the file, and what is refused.

Trap: a test that makes wordings and asks by the same function holds with any hash; the hashes are pinned once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from decider.errors import ConfigError
from decider.questions.types import Choice, Noul, Question, Score
from decider.tokens import wordings
from decider.tokens.config import WORDINGS_NAME
from decider.tokens.wordings import (
    FORM,
    LEAST_ASKED,
    Wordings,
    hash_of,
    load_wordings,
    save_wordings,
    spans_of,
    wordings_of,
    words_of,
)


def noul(text: str) -> Question:
    return Noul(text)


def test_spans_are_of_plain_words_with_both_ends() -> None:
    assert words_of("Is  order 4417 LATE?") == ["is", "order", "0", "late"]
    assert list(spans_of(["is", "order", "0", "late"])) == [
        ("^", "is", "order"),
        ("is", "order", "0"),
        ("order", "0", "late"),
        ("0", "late", "$"),
    ]
    assert list(spans_of(["queue"])) == [("^", "queue", "$")]
    assert words_of("?!") == words_of("") == []
    assert list(spans_of([])) == []


def test_hashes_are_the_same_everywhere() -> None:
    assert hash_of(("^", "queue", "$")) == 0x34488D3741F26B36


def test_familiarity_is_the_share_of_known_spans() -> None:
    known = wordings_of([noul("Is order 12 late?"), noul("Who paid?")] * LEAST_ASKED)
    assert known.familiarity(noul("is ORDER 99 late")) == 1.0
    # Two of the four spans of each.
    assert known.familiarity(noul("Is order 12 paid?")) == 0.5
    assert known.familiarity(noul("Anything else?")) == 0.0
    assert known.familiarity(Choice("Is order 12 late?", {"a": None, "b": None})) == 1.0
    assert known.familiarity(Score("Was it paid?", ("low", "high"))) == 0.0


def test_words_that_training_hardly_asked_are_left_out() -> None:
    names = [noul(f"Is order {name} late?") for name in ("Xaver", "Yuki", "Zita") for _ in range(LEAST_ASKED - 1)]
    known = wordings_of(names)
    assert known.familiarity(noul("Is order Xaver late?")) == 1.0
    assert known.familiarity(noul("Is my order Bo late?")) == 1.0
    # Known words in another order: two of the four spans.
    assert known.familiarity(noul("Is order late Bo order")) == 2 / 4
    assert known.familiarity(noul("Xaver, Yuki")) == 0.0


def test_a_word_said_twice_in_a_question_is_asked_once() -> None:
    often = [noul("Is it so?")] * LEAST_ASKED
    known = wordings_of(often + [noul("late late")] * (LEAST_ASKED - 1))
    assert known.familiarity(noul("Is it late so?")) == 1.0


def test_a_span_counts_as_often_as_it_is_there() -> None:
    known = wordings_of([noul("no no no")] * LEAST_ASKED)
    assert known.familiarity(noul("No, no, no, no, no way")) == 1.0
    assert known.familiarity(noul("No")) == 0.0


def test_what_is_asked_seldom_is_not_known() -> None:
    often, seldom = noul("Is it urgent?"), noul("Is Xaver angry?")
    known = wordings_of([often] * LEAST_ASKED + [seldom] * (LEAST_ASKED - 1))
    assert known.familiarity(often) == 1.0
    assert known.familiarity(seldom) == 0.0


def test_a_question_without_words_is_not_familiar() -> None:
    known = wordings_of([noul("Is it urgent?")] * LEAST_ASKED)
    assert known.familiarity(Choice(None, {"a": None, "b": None})) == 0.0
    assert known.familiarity(Choice("…", {"a": None, "b": None})) == 0.0


def test_instructions_that_are_no_text_are_compared_too() -> None:
    asked = Choice({"ask": "which team", "of": ["a", "b"]}, {"a": None, "b": None})
    assert wordings_of([asked] * LEAST_ASKED).familiarity(asked) == 1.0
    # By the words that are in them.
    assert wordings_of([noul("ask: Größe?")] * LEAST_ASKED).familiarity(Noul({"ask": "größe"})) == 1.0


def test_the_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    assert load_wordings(tmp_path) is None
    known = wordings_of([noul("Is order 12 late?"), noul("Who has it?")] * LEAST_ASKED)
    save_wordings(tmp_path, known)
    assert load_wordings(tmp_path) == known
    assert (tmp_path / WORDINGS_NAME).stat().st_size < 300
    stored = np.load(tmp_path / WORDINGS_NAME).tolist()
    assert stored == sorted({*known.known, FORM})
    assert FORM not in known.known
    save_wordings(tmp_path, Wordings(frozenset()))
    assert load_wordings(tmp_path) == Wordings(frozenset())


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.arange(3, dtype=np.int64), r"holds int64 \[3\]; it must be at most 16,777,216 uint64"),
        (np.zeros((2, 2), dtype=np.uint64), r"holds uint64 \[2, 2\]"),
        (np.array([{"a": 1}], dtype=object), "cannot read .*allow_pickle"),
    ],
)
def test_another_array_is_refused(
    tmp_path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], said: str
) -> None:
    np.save(tmp_path / WORDINGS_NAME, array, allow_pickle=True)
    with pytest.raises(ConfigError, match=said):
        load_wordings(tmp_path)


def test_more_than_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_wordings(tmp_path, Wordings(frozenset({1, 2, 3})))
    monkeypatch.setattr(wordings, "MOST_KNOWN", 4)
    assert load_wordings(tmp_path) is not None
    monkeypatch.setattr(wordings, "MOST_KNOWN", 3)
    with pytest.raises(ConfigError, match=r"holds uint64 \[4\]; it must be at most 3 uint64"):
        load_wordings(tmp_path)


def test_a_file_of_spans_alone_is_refused(tmp_path: Path) -> None:
    """As it was written before words were left out: by it, every question would be strange."""
    spans = [hash_of(span) for span in spans_of(["is", "it", "urgent"])]
    np.save(tmp_path / WORDINGS_NAME, np.array(sorted(spans), dtype=np.uint64))
    with pytest.raises(ConfigError, match=r"decider_wordings\.npy was written by another version of decider; train"):
        load_wordings(tmp_path)


def declared(header: str) -> bytes:
    """An array's file that has no more than a header."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


DAMAGED = (
    b"",
    b"no array",
    b"\x93NUMPY\x01\x00",
    b"PK\x03\x04",
    declared("((("),
    declared("{{}: 1}"),
    *(declared(f"{{'descr': '<u8', 'fortran_order': False, 'shape': ({n},)}}") for n in (3, 2**45, 2**70)),
)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / WORDINGS_NAME).write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot read .*decider_wordings\.npy.*copy it again"):
        load_wordings(tmp_path)


def test_an_archive_in_its_place_is_refused(tmp_path: Path) -> None:
    with (tmp_path / WORDINGS_NAME).open("wb") as file:
        np.savez(file, spans=np.arange(3, dtype=np.uint64))
    with pytest.raises(ConfigError, match=r"cannot read .*copy it again"):
        load_wordings(tmp_path)
