"""Answered questions whose right answer is known, as columns, and their distributions at any temperature.

Evaluation and calibration both start here. It refuses to know models, files and what a good number would be.

Trap: a Score whose levels were judged one by one has a log-odds of yes a level in `logits`, not one logit an option; a
softmax over them would be another distribution, so every distribution is made by `distributions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KINDS = ("choice", "score", "noul")
"""What `Decisions.kind` counts; a Noul's options are always (no, yes)."""
CHOICE, SCORE, NOUL = range(3)

Float64Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Decisions:
    """N decisions. Every array has length N; W is the most options that any of them has."""

    key: tuple[str, ...]
    """Item and question (`decision_key`): what two runs over the same data are paired by. Unique."""
    task: tuple[str, ...]
    kind: IntArray
    """Index into `KINDS`."""
    n_options: IntArray
    gold: IntArray
    """Index of the right option, level, or (no, yes)."""
    logits: Float64Array
    """[N, W]: each option's logit up to a constant a row; −inf beyond `n_options`."""
    isolated: BoolArray
    """Whether a row of `logits` holds a Score's log-odds of yes, level by level."""
    row_tokens: IntArray
    """Tokens of the longest row that the question was read from."""
    option_lists: tuple[tuple[str, ...], ...]
    """The distinct lists of option names; levels and (no, yes) are named too."""
    option_list: IntArray
    """Index into `option_lists`."""
    familiarity: Float64Array | None = None
    """Each question's, in [0, 1], as `tokens.wordings` has it; None where the model has no wordings to compare with."""

    def __len__(self) -> int:
        return len(self.key)

    def __post_init__(self) -> None:
        n = len(self.key)
        columns = (self.kind, self.n_options, self.gold, self.isolated, self.row_tokens, self.option_list)
        assert len(self.task) == n, (len(self.task), n)
        assert all(column.shape == (n,) for column in columns), n
        assert self.logits.shape[:-1] == (n,), self.logits.shape
        assert self.familiarity is None or self.familiarity.shape == (n,), n

    def take(self, rows: IntArray | BoolArray) -> Decisions:
        """The decisions at `rows` (indices or a mask), in that order."""
        indices = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Decisions(
            key=tuple(self.key[i] for i in indices),
            task=tuple(self.task[i] for i in indices),
            kind=self.kind[indices],
            n_options=self.n_options[indices],
            gold=self.gold[indices],
            logits=self.logits[indices],
            isolated=self.isolated[indices],
            row_tokens=self.row_tokens[indices],
            option_lists=self.option_lists,
            option_list=self.option_list[indices],
            familiarity=None if self.familiarity is None else self.familiarity[indices],
        )


def decision_key(item_id: str, question_id: str) -> str:
    """What a decision is called in `Decisions.key`; `item_and_question` is the way back."""
    # So that the last "/" is the one between the two.
    return f"{item_id}/{question_id.replace('%', '%25').replace('/', '%2F')}"


def item_and_question(key: str) -> tuple[str, str]:
    """The two parts of a decision's key; one without a slash is an item of its own, and its question has no name."""
    item, slash, question = key.rpartition("/")
    if not slash:
        return key, ""
    return item, question.replace("%2F", "/").replace("%25", "%")


def item_codes(keys: Sequence[str]) -> IntArray:
    """[N]: the number of the item of each of `keys`, from 0, in the sorted order of the items' names."""
    items = [item_and_question(key)[0] for key in keys]
    numbers = {item: number for number, item in enumerate(sorted(set(items)))}
    return np.fromiter((numbers[item] for item in items), dtype=np.int64, count=len(items))


def distributions(decisions: Decisions, temperature: float | Float64Array) -> Float64Array:
    """Each decision's distribution at `temperature` (one number, or [N]); float64 [N, W], 0 beyond its options.

    A softmax; for isolated levels the levels' share of yes, as `read.normalise_levels` gives it.
    """
    spread = np.broadcast_to(np.asarray(temperature, dtype=np.float64), (len(decisions),))
    if not len(decisions):
        return np.zeros_like(decisions.logits)
    with np.errstate(over="ignore", invalid="ignore"):
        top = decisions.logits.max(axis=1, where=~decisions.isolated[:, None], initial=-np.inf)
        scaled = (decisions.logits - np.where(decisions.isolated, 0.0, top)[:, None]) / spread[:, None]
    if decisions.isolated.any():
        own = scaled[decisions.isolated]
        # log σ(z), by which padding stays −inf.
        logs = -np.logaddexp(0.0, -own)
        top_log = logs.max(axis=1, keepdims=True)
        # Where every P(yes) vanishes, as at a tiny temperature, the levels are alike.
        gone = np.isneginf(top_log)
        beyond = np.arange(logs.shape[1]) >= decisions.n_options[decisions.isolated, None]
        scaled[decisions.isolated] = np.where(gone, np.where(beyond, -np.inf, 0.0), logs - np.where(gone, 0.0, top_log))
    weights = np.exp(scaled)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
