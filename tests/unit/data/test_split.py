"""Splits: by text alone, whole groups, no repeats, no near-copies across. Trap: an order that leaks shows only when the
same items come in another one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from decider.data.items import Item, Task, noul
from decider.data.sources import VADER
from decider.data.split import is_test, normalised, split

LOOSE = Task("t", ("noul",), "yes, no", VADER, "MIT", "?", (0, 0), lambda _archive: iter(()))
TEMPLATED = replace(LOOSE, templated=True)


def item(text: str, gold: bool = True, group: str | None = None) -> Item:
    return Item(text, {"q": noul("Is it so?")}, {"q": gold}, text if group is None else group)


def texts(n: int) -> list[str]:
    source = random.Random(7)
    return [" ".join(source.choices(["ape", "bee", "cat", "doe", "elk", "fox", "gnu", "hen"], k=12)) for _ in range(n)]


def in_split(test: bool, start: str) -> Iterator[str]:
    return (text for number in range(1000) if is_test(text := f"{start} {number}") is test)


def test_whatever_order_items_come_in_the_split_is_the_same() -> None:
    items = [item(text, gold=bool(number % 2)) for number, text in enumerate(texts(300))]
    shuffled = list(items)
    random.Random(1).shuffle(shuffled)
    assert split(LOOSE, items, 40) == split(LOOSE, shuffled, 40)


def test_both_splits_get_about_half_and_share_nothing() -> None:
    found = split(TEMPLATED, map(item, texts(1000)), 1000)
    assert 420 < len(found.test) < 580
    assert len(found.test) + len(found.calibrate) == 1000
    assert not {each.group for each in found.test} & {each.group for each in found.calibrate}


def test_a_smaller_limit_takes_a_part_of_the_larger_ones_items() -> None:
    items = list(map(item, texts(300)))
    small, large = split(TEMPLATED, items, 20), split(TEMPLATED, items, 90)
    assert len(small.test) == len(small.calibrate) == 20
    assert large.test[:20] == small.test
    assert large.calibrate[:20] == small.calibrate


def test_the_split_is_fixed_for_good() -> None:
    # Published figures rest on these; a change of the normalisation or the hash moves every one.
    assert [is_test(f"text {number}") for number in range(8)] == [
        False, False, True, True, False, True, True, True
    ]  # fmt: skip


def test_a_group_is_never_parted() -> None:
    items = [item(text, group=f"group {number // 10}") for number, text in enumerate(texts(200))]
    found = split(TEMPLATED, items, 200)
    assert found.test
    assert found.calibrate
    assert not {each.group for each in found.test} & {each.group for each in found.calibrate}


@pytest.mark.parametrize("other", ["the end, he said", "THE END  he said!", "The End – he said."])
def test_texts_that_differ_in_case_and_punctuation_are_one(other: str) -> None:
    found = split(LOOSE, [item("The end, he said."), item(other)], 9)
    assert len(found.test) + len(found.calibrate) == 1
    assert (found.n_found, found.n_repeated) == (2, 1)
    assert is_test(other) == is_test("The end, he said.")


def test_of_repeats_with_other_answers_none_is_kept() -> None:
    found = split(LOOSE, [item("So it is."), item("so it is", gold=False), item("so it is", gold=False)], 9)
    assert found.test == found.calibrate == ()
    assert found.n_repeated == 3


def test_near_copies_of_a_test_item_are_left_out_of_calibration() -> None:
    long = "please move order {} of my account to the warehouse in the north before the week ends"
    asked = next(text for number in range(99) if is_test(text := long.format(number)))
    copy = next(text for number in range(99) if not is_test(text := long.format(number)))
    other = next(in_split(False, "something else altogether, with many words of its own and nothing shared"))
    found = split(LOOSE, map(item, (asked, copy, other)), 9)
    assert [each.state for each in found.calibrate] == [other]
    assert [each.state for each in found.test] == [asked]
    assert found.n_near == 1
    assert len(split(TEMPLATED, map(item, (asked, copy, other)), 9).calibrate) == 2


def test_texts_without_words_are_themselves() -> None:
    assert normalised("?!") == "?!"
    assert normalised("ﬁne  CAFÉ") == "fine café"
