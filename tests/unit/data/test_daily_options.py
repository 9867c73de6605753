"""Which meanings are offered beside the right one.

Refuses to read sentences. Trap: near meanings make an item hard, and one that may be right as well makes it wrong.
"""

from __future__ import annotations

import random

from decider.data.families.daily.banks import Bank
from decider.data.families.daily.options import NEAR, NEAR_SHARE, drawn, rivals

DRAWS = 600


def meanings(n: int) -> Bank:
    return {f"m{index}": {} for index in range(n)}


def test_half_of_the_others_are_now_and_then_of_the_same_subject() -> None:
    bank, rng = meanings(400), random.Random(0)
    others = rivals(bank, "m200")
    near = {f"m{index}" for index in range(200 - NEAR, 201 + NEAR)} - {"m200"}
    assert near <= set(others)
    counts = []
    for _ in range(DRAWS):
        keys = drawn(rng, bank, "m200", others, 6)
        assert len(keys) == len(set(keys)) == 6
        assert "m200" not in keys
        counts.append(len(near & set(keys)))
    # Without a hand in it, six of 399 are seldom near at all.
    often = sum(count >= 3 for count in counts) / DRAWS
    assert abs(often - NEAR_SHARE) < 0.07
    # Half of them, and what chance adds.
    assert sum(count > 4 for count in counts) < 0.05 * DRAWS


def test_few_meanings_are_drawn_whole() -> None:
    bank, rng = meanings(4), random.Random(0)
    for _ in range(50):
        assert sorted(drawn(rng, bank, "m0", rivals(bank, "m0"), 3)) == ["m1", "m2", "m3"]


def test_what_must_not_stand_beside_each_other_does_not_either_way() -> None:
    bank: Bank = {"a": {"avoid": ("b",)}, "b": {}, "c": {}, "d": {"avoid": ("c", "a")}}
    assert rivals(bank, "a") == ["c"]
    assert rivals(bank, "b") == ["c", "d"]
    assert rivals(bank, "c") == ["a", "b"]
    assert rivals(bank, "d") == ["b"]
