"""Texts that are the same words. Refuses to know what is compared. Trap: in ASCII every way of folding is the same."""

from __future__ import annotations

import pytest

from decider.questions.words import plain_words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Is it LATE?", "is it, late"),
        ("STRASSE", "Straße"),
        ("cafe\u0301", "caf\u00e9"),
        ("\uff46\uff55\uff4c\uff4c", "full"),
        ("\ufb01nal", "final"),
    ],
)
def test_they_are_told_apart_by_nothing_but_words(one: str, other: str) -> None:
    assert plain_words(one) == plain_words(other) != []


def test_accents_tell_words_apart_and_signs_are_none() -> None:
    assert plain_words("caf\u00e9") != plain_words("cafe")
    assert plain_words("?! …") == []
