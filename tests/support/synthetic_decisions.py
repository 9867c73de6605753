"""Decisions of a model whose true temperatures are known: right answers are drawn from its logits at them.

They refuse to be realistic. Trap: a Score with isolated levels has log-odds for logits, and its answers are drawn from
the levels' share of yes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from decider.decisions import CHOICE, NOUL, SCORE, Decisions, Float64Array, IntArray, distributions


def synthetic(
    n: int,
    *,
    seed: int = 0,
    temperature: Callable[[IntArray, IntArray], Float64Array] = lambda kind, _: np.full(len(kind), 1.7),
    kinds: Sequence[int] = (CHOICE, SCORE, NOUL),
    most_options: int = 12,
    per_item: int = 2,
    isolated: bool = False,
) -> Decisions:
    """`n` decisions; `temperature` maps kind [n] and option count [n] to the true temperatures [n]."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(kinds, n).astype(np.int64)
    n_options = np.select([kind == CHOICE, kind == SCORE], [rng.integers(2, most_options + 1, n), np.full(n, 5)], 2)
    width = int(n_options.max())
    logits = rng.normal(0, 2.5, (n, width))
    logits[np.arange(width) >= n_options[:, None]] = -np.inf
    decisions = Decisions(
        key=tuple(f"item {row // per_item}/q{row % per_item}" for row in range(n)),
        task=("synthetic",) * n,
        kind=kind,
        n_options=n_options,
        gold=np.zeros(n, dtype=np.int64),
        logits=logits,
        isolated=(kind == SCORE) & isolated,
        row_tokens=np.full(n, 100),
        option_lists=tuple(tuple(map(str, range(count))) for count in range(width + 1)),
        option_list=n_options,
    )
    chances = distributions(decisions, temperature(kind, n_options)).cumsum(axis=1)
    gold = (chances < rng.random((n, 1))).sum(axis=1)
    return with_gold(decisions, np.minimum(gold, n_options - 1))


def with_gold(decisions: Decisions, gold: IntArray) -> Decisions:
    """The same with other right answers."""
    return replace(decisions, gold=gold)
