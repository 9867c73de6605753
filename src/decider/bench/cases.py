"""The work that is timed: states with questions, and rows without a state.

It refuses to know executors and devices. Trap: the questions of a case must differ from their first token on. Else
they share more than the state, and a row that is asked twice is timed for one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from decider.tokens.rows import Row

N_OPTIONS = 4


@dataclass(frozen=True, slots=True)
class Case:
    """One call: a state that every question shares, and the questions behind it, a row each."""

    state_tokens: int
    """0 for plain rows, which share nothing."""
    lengths: tuple[int, ...]
    """Tokens of each question, without the state."""

    @property
    def question_tokens(self) -> int | None:
        """Tokens of each question; None where they differ."""
        return self.lengths[0] if len(set(self.lengths)) == 1 else None

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return self.state_tokens + max(self.lengths)

    @property
    def tokens(self) -> int:
        """Tokens of the call, the state counted once."""
        return self.state_tokens + sum(self.lengths)

    def __str__(self) -> str:
        """As the tables name it: state tokens + questions × tokens."""
        each = "mixed" if self.question_tokens is None else str(self.question_tokens)
        return f"{self.state_tokens} + {len(self.lengths)} × {each}"


def same(state_tokens: int, questions: int, question_tokens: int) -> Case:
    """A case whose questions are equally long."""
    return Case(state_tokens, (question_tokens,) * questions)


def mixed_lengths(rows: int = 256) -> tuple[int, ...]:
    """Log-normal lengths of 40 to 1,500 tokens, the same in every run; 256 of them are 66,684 tokens."""
    draw = random.Random(1)
    return tuple(min(1500, max(40, int(draw.lognormvariate(5.3, 0.7)))) for _ in range(rows))


SMALL_CASES = (same(0, 1, 200), same(300, 1, 40), same(300, 5, 40), same(1000, 3, 40))
"""For a model on a CPU: seconds a case for 135 million parameters."""

CARD_CASES = (
    *(same(0, *rows) for rows in ((1, 64), (1, 256), (1, 1024), (8, 256), (32, 256), (16, 512), (32, 1024), (1, 8192))),
    Case(0, mixed_lengths()),
    *(same(*state) for state in ((300, 5, 40), (1500, 16, 40), (1500, 32, 60), (6000, 16, 40))),
)
"""For two billion parameters on one large card."""


def rows_of(case: Case, vocab: int) -> list[Row]:
    """Random rows of `case`, the same in every run, each read at its last token. `vocab` is the number of ids."""
    draw = random.Random(f"{case.state_tokens} {case.lengths}")
    state = draw.choices(range(vocab), k=case.state_tokens)
    first = draw.sample(range(vocab), len(case.lengths))
    rows = []
    for start, length in zip(first, case.lengths, strict=True):
        ids = (*state, start, *draw.choices(range(vocab), k=length - 1))
        rows.append(Row(ids, (len(ids) - 1,), (N_OPTIONS,), prefix_tokens=case.state_tokens))
    return rows
