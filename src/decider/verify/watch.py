"""The executor under test, watched: every call counted, every logit looked at, every exception told from ours.

It refuses to judge differences. Trap: an executor that raises has a fault, an oracle that raises has none; so only what
passes through here becomes a fault of the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from decider.errors import DeciderError, EngineError, first_line
from decider.run.executor import Logits
from decider.tokens.rows import Row

# What a broken executor raises; anything else (KeyboardInterrupt, SystemExit) is none of its faults.
_FAULTS = (
    DeciderError,
    RuntimeError,
    AssertionError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
)

Result = TypeVar("Result")


class Counts(Protocol):
    """What an executor counts, as far as it is looked at."""

    @property
    def captures(self) -> int:
        """Graphs captured since the executor was made."""
        ...

    @property
    def forwards(self) -> int:
        """Forwards since the executor was made."""
        ...


class Subject(Protocol):
    """An executor that can be verified."""

    @property
    def stats(self) -> Counts:
        """Counts up to now."""
        ...

    def label_logits(self, rows: Sequence[Row]) -> list[Logits]:
        """See `Executor`."""
        ...

    def score_shared(self, rows: Sequence[Row], *, gate: bool = True) -> list[Logits] | None:
        """The same by the common prefix of `rows`, run once; None if declined. `gate=False` asks not if it pays."""
        ...

    def why_not_shared(self, rows: Sequence[Row], *, gate: bool = True) -> str | None:
        """Why `score_shared` would decline; None if it would not."""
        ...


class Watched:
    """Runs rows through `subject`. Raises EngineError for whatever it raises or gives too few results for."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.captures_before = subject.stats.captures
        self.n_rows = 0
        self.n_logits = 0
        self.n_not_finite = 0

    @property
    def captures(self) -> int:
        """Graphs captured up to now."""
        return self._subject.stats.captures

    @property
    def forwards(self) -> int:
        """Forwards up to now."""
        return self._subject.stats.forwards

    def full(self, rows: Sequence[Row]) -> list[Logits]:
        """Full rows in one call."""
        return self._looked_at(rows, self._told(lambda: self._subject.label_logits(rows)))

    def alone(self, rows: Sequence[Row]) -> list[Logits]:
        """Full rows, each in a call of its own."""
        return [logits for row in rows for logits in self.full([row])]

    def shared(self, rows: Sequence[Row]) -> list[Logits] | str:
        """By their common prefix, whether it pays or not; the reason where that is declined."""
        results = self._told(lambda: self._subject.score_shared(rows, gate=False))
        if results is not None:
            return self._looked_at(rows, results)
        reason = self._told(lambda: self._subject.why_not_shared(rows, gate=False))
        if reason is None:
            raise EngineError("it declined to share a prefix and knows no reason")
        return reason

    def _told(self, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except _FAULTS as error:
            raise EngineError(f"it raised {type(error).__name__}: {first_line(error):.160}") from error

    def _looked_at(self, rows: Sequence[Row], results: list[Logits]) -> list[Logits]:
        if len(results) != len(rows):
            raise EngineError(f"it gave {len(results)} results for {len(rows)} rows")
        self.n_rows += len(rows)
        self.n_logits += sum(one.size for one in results)
        self.n_not_finite += sum(int(one.size - np.isfinite(one).sum()) for one in results)
        return results
