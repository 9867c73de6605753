"""Relations: a rule that a question speaks of is there, and now and then none is said.

Refuses to judge the world; `test_families.py` works every answer out. Trap: a rule is at times left to common sense,
so its absence from a state is no fault by itself.
"""

from __future__ import annotations

import itertools
import json

from solvers.daily import ENOUGH, bank, flat, rank

from decider.data.families.catalogue import FAMILIES, items

(FAMILY,) = [family for family in FAMILIES if family.name == "relations"]
N = 120


def given(text: str) -> list[str]:
    """The relations whose rule stands there."""
    return [key for key, entry in bank("relations").items() if max(rank(r, text) for r in entry["rule"])[0] >= ENOUGH]


def test_a_rule_is_there_where_it_is_spoken_of_and_now_and_then_it_is_not_said() -> None:
    unsaid = 0
    for item in itertools.islice(items(FAMILY, "seed 0"), N):
        state = json.loads(json.dumps(item.state))
        for question in item.questions.values():
            text = str(question["instructions"])
            has_rule = bool(given(f"{flat(state)}\n{text}"))
            unsaid += not has_rule
            assert has_rule or "rule" not in text.lower(), (state, text)
    assert 0.08 * N < unsaid < 0.5 * N
