"""Logits of an executor against the oracle's: differences in probability, how much is allowed, verdicts.

It refuses to know models and what a check does. Trap: NaN compares false with everything. A difference that is not a
number counts as infinite here, so that no fault can hide behind it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decider.errors import ModelError
from decider.read import probabilities
from decider.run.executor import Executor, Logits
from decider.tokens.rows import Row

CLEAR = 0.01
"""An answer counts as changed only if the oracle's two largest probabilities differ by more than this."""

MOST_NAMED = 3
MOST_ALLOWED = 0.5
"""However far a yardstick deviates: more would find no fault at all."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest |Δp| that is no fault: `floor`, or `factor` times what the yardstick deviates, whichever is larger."""

    floor: float
    factor: float
    reason: str


# float32, by derivation: logits of about 20 whose relative error has grown to some 80 roundings of 2⁻²⁴ are off by
# 1e-4, and |Δp| is at most half of the largest |Δlogit|. Seen: 1.4e-5 (a hybrid behind a cache, random weights that
# amplify), 7e-6 on the embedded model. A wrong position, mask or slot moves probabilities by 1e-3 and more.
FLOAT32 = Tolerance(5e-5, 0.0, "float32 against float32 leaves only the order of sums")

# Coarser types round at 2⁻⁸ (bfloat16) or 2⁻¹¹ (float16), and how far that carries depends on the model: between 2e-4
# and 6e-2 on tiny ones. So the yardstick is the eager model in the same type. Two correct forwards of one type have
# errors of one distribution; the largest of some hundred differ by less than a factor of 2, and 3 leaves room for rows
# that the yardstick meets only once. The floor is for models so sure of themselves that the yardstick hardly moves.
COARSE = {
    "bfloat16": Tolerance(1e-2, 3.0, "3 × what eager bfloat16 itself deviates from float32, at least 0.01"),
    "float16": Tolerance(2e-3, 3.0, "3 × what eager float16 itself deviates from float32, at least 0.002"),
}

# e4m3 rounds at 2⁻⁴, 16 times as coarsely as bfloat16, which is its yardstick.
FP8 = Tolerance(5e-2, 16.0, "16 × what eager bfloat16 deviates from float32 (e4m3 has 4 bits less), at least 0.05")


def tolerance_for(dtype: str, *, fp8: bool) -> Tolerance:
    """The tolerance of an executor that runs in `dtype`, with large layers in e4m3 if `fp8`."""
    if fp8:
        return FP8
    return FLOAT32 if dtype == "float32" else COARSE[dtype]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far the answers of one row are from those they were compared with."""

    way: str
    """How the row was run, and against what where that is not the oracle."""
    n_tokens: int
    slot: int
    """The position of the slot that moved most."""
    shift: float
    """Largest |Δp| of all slots; infinite where logits are not finite or have another shape."""
    changed: int
    """Slots with another winner, of those whose winner is clear."""

    def __str__(self) -> str:
        return f"{self.way}, {self.n_tokens:,} tokens: |Δp| {self.shift:.2g} at position {self.slot:,}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check found."""

    name: str
    compared: str
    n_rows: int
    """Rows that the executor ran and that were compared."""
    largest_shift: float
    allowed: float
    changed: int
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    """What was left out, and why; what a reader must know of the way the rows ran."""

    @property
    def passed(self) -> bool:
        """No fault was found."""
        return not self.faults


def difference(way: str, row: Row, ours: Logits, theirs: Logits) -> Difference:
    """Compare the answers of `row`, both [slots, labels], at temperature 1. `theirs` are finite: the oracle's own."""
    if ours.shape != theirs.shape or ours.shape[0] != len(row.slots):
        return Difference(f"{way}, logits of shape {ours.shape}", len(row.ids), row.slots[0], math.inf, len(row.slots))
    shifts: list[float] = []
    changed = 0
    for one, other, n_options in zip(ours, theirs, row.n_options, strict=True):
        if not (np.isfinite(one).all() and np.isfinite(other).all()):
            shifts.append(math.inf)
            changed += 1
            continue
        p, q = probabilities(one, n_options, 1.0), probabilities(other, n_options, 1.0)
        shifts.append(float(np.abs(p - q).max()))
        second, first = np.sort(q)[-2:] if n_options > 1 else (0.0, 0.0)
        changed += int(first - second > CLEAR and p.argmax() != q.argmax())
    worst = int(np.argmax(shifts))
    return Difference(way, len(row.ids), row.slots[worst], shifts[worst], changed)


class Judge:
    """The oracle, which runs each row once, and what may differ from it.

    `yardstick` is the eager model in the executor's own type; None where `tolerance` has no factor for it.
    """

    def __init__(self, oracle: Executor, tolerance: Tolerance, yardstick: Executor | None) -> None:
        assert (yardstick is None) == (tolerance.factor == 0), tolerance
        self._oracle = oracle
        self._tolerance = tolerance
        self._yardstick = yardstick
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], Logits] = {}
        self._deviation = 0.0

    @property
    def tolerance(self) -> Tolerance:
        """What may differ, and why."""
        return self._tolerance

    @property
    def judges(self) -> tuple[Executor, ...]:
        """What each judged row runs through, for whoever times it."""
        return (self._oracle,) if self._yardstick is None else (self._oracle, self._yardstick)

    @property
    def allowed(self) -> float:
        """Largest |Δp| that is no fault, by all rows judged up to now."""
        return min(MOST_ALLOWED, max(self._tolerance.floor, self._tolerance.factor * self._deviation))

    def want(self, rows: Sequence[Row]) -> list[Logits]:
        """The oracle's logits of `rows`. Raises ModelError if they are not finite."""
        return [self._one(row) for row in rows]

    def _one(self, row: Row) -> Logits:
        key = (row.ids, row.slots)
        if key not in self._known:
            [logits] = self._oracle.label_logits([row])
            if not np.isfinite(logits).all():
                raise ModelError(
                    f"the oracle's own logits of a row of {len(row.ids):,} random tokens are not finite; "
                    "the weights are damaged, so fetch them again"
                )
            if self._yardstick is not None:
                [eager] = self._yardstick.label_logits([row])
                shift = difference("yardstick", row, eager, logits).shift
                # A yardstick that overflows measures nothing.
                if math.isfinite(shift):
                    self._deviation = max(self._deviation, shift)
            self._known[key] = logits
        return self._known[key]


class Findings:
    """Collects the differences of one check and sums them up."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._found: list[Difference] = []
        self._faults: list[str] = []
        self._n_rows = 0
        self._changed = 0

    def against_oracle(self, way: str, rows: Sequence[Row], ours: Sequence[Logits], want: Sequence[Logits]) -> None:
        """Compare what the executor gave for `rows` with the oracle's logits."""
        found = [difference(way, *one) for one in zip(rows, ours, want, strict=True)]
        self._found += found
        self._n_rows += len(rows)
        self._changed += sum(one.changed for one in found)

    def against_itself(self, way: str, rows: Sequence[Row], ours: Sequence[Logits], other: Sequence[Logits]) -> None:
        """Compare two of the executor's ways of running `rows`; they are counted where each meets the oracle."""
        self._found += [difference(way, *one) for one in zip(rows, ours, other, strict=True)]

    def fault(self, said: str) -> None:
        """A fault that is no difference of logits."""
        self._faults.append(said)

    def verdict(self, name: str, compared: str, notes: Sequence[str] = ()) -> Verdict:
        """Sum up. The worst few differences above the tolerance are named."""
        allowed = self._judge.allowed
        # A NaN must be a fault too, so the comparison is not turned round.
        wrong = sorted((one for one in self._found if not one.shift <= allowed), key=lambda one: -one.shift)
        named = [str(one) for one in wrong[:MOST_NAMED]]
        if len(wrong) > MOST_NAMED:
            named.append(f"and {len(wrong) - MOST_NAMED} more above {allowed:.2g}")
        return Verdict(
            name,
            compared,
            self._n_rows,
            max((one.shift for one in self._found), default=0.0),
            allowed,
            self._changed,
            (*self._faults, *named),
            tuple(notes),
        )
