"""Logits of an executor against the oracle's: differences in probability, how much is allowed, verdicts.

It refuses to know models and what a check does. Trap: NaN compares false with everything. A difference that is not a
number counts as infinite here, so that no fault can hide behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

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
SPREAD = 3.0
"""How the bound of the mean error loosens where few places were compared: by 2 to the power of this / √places."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest |Δp| that is no fault: `floor`, or `factor` times what the yardstick deviates, whichever is larger.

    A |Δp| is a blunt measure: of a hundred places, one where two options lie close together moves by 0.1 of rounding
    alone, and then every place might. So a coarse type has a second bound, of the mean error of all labels' logits.
    """

    floor: float
    factor: float
    reason: str
    yardstick: str = ""
    """What deviates, for readers; empty without a factor."""
    margin: float = MOST_ALLOWED
    """Most that is allowed above what the yardstick deviates, so that one bad place of it does not excuse others."""
    mean: float = math.inf
    """How many times as far from the oracle as the yardstick the logits may be, in the geometric mean of many places.
    That of one place has a factor of 2^`SPREAD` more."""


# float32, by derivation: logits of about 20 whose relative error has grown to some 160 roundings of 2⁻²⁴ are off by
# 2e-4, and |Δp| is at most half of the largest |Δlogit|. Seen: 7.6e-5 (a hybrid of random weights so large that they
# amplify), 7e-6 on the embedded model. A wrong position, mask or slot moves probabilities by 1e-3 and more; the
# mildest of the broken trees in the tests by 1.7e-2.
FLOAT32 = Tolerance(1.5e-4, 0.0, "float32 against float32 leaves only the order of sums")

# Coarser types round at 2⁻⁸ (bfloat16) or 2⁻¹¹ (float16), and how far that carries depends on the model: between 2e-4
# and 0.14. So the yardstick is the eager model in the same type. Two correct forwards of one type have errors of one
# distribution; the largest of some hundred differ by less than a factor of 2, and 3 leaves room for rows that the
# yardstick meets only once. The floor is for models so sure of themselves that the yardstick hardly moves.
# The mean: of sound packs of the embedded model it is 0.8 to 1.1 times the yardstick's. A wrong mask is usually beyond
# the bound, a position too far often below it: what rounding hides here is the float32 twin's to find.
_HALF = "× what eager {0} itself deviates from float32, at least {1:g} and at most {2:g} more"
COARSE = {
    name: Tolerance(floor, 3.0, f"3 {_HALF.format(name, floor, 0.15)}", f"eager {name}", 0.15, 2.0)
    for name, floor in (("bfloat16", 1e-2), ("float16", 2e-3))
}

# e4m3 rounds at 2⁻⁴, 16 times as coarsely as bfloat16, which is its yardstick.
FP8 = Tolerance(
    5e-2,
    16.0,
    "16 × what eager bfloat16 deviates from float32 (e4m3 has 4 bits less), at least 0.05",
    "eager bfloat16",
    mean=32.0,
)


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
    clearest: float = 0.0
    """Of the changed slots, the largest difference of the two largest probabilities before."""

    def __str__(self) -> str:
        changed = f", a winner by {self.clearest:.2g} changed" if self.changed else ""
        return f"{self.way}, {self.n_tokens:,} tokens: |Δp| {self.shift:.2g} at position {self.slot:,}{changed}"


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
    changed, clearest = 0, 0.0
    for one, other, n_options in zip(ours, theirs, row.n_options, strict=True):
        if not (np.isfinite(one).all() and np.isfinite(other).all()):
            shifts.append(math.inf)
            changed += 1
            continue
        p, q = probabilities(one, n_options, 1.0), probabilities(other, n_options, 1.0)
        shifts.append(float(np.abs(p - q).max()))
        second, first = np.sort(q)[-2:] if n_options > 1 else (0.0, 0.0)
        if first - second > CLEAR and p.argmax() != q.argmax():
            changed, clearest = changed + 1, max(clearest, float(first - second))
    worst = int(np.argmax(shifts))
    return Difference(way, len(row.ids), row.slots[worst], shifts[worst], changed, clearest)


def error(ours: Logits, theirs: Logits) -> float:
    """How far the logits [labels] are from `theirs`: the deviation of their difference, relative to that of `theirs`.

    A shift of all, which changes no answer, is none. At least 1e-4, below any coarse type's rounding.
    """
    return max(1e-4, float((ours - theirs).std() / max(1e-30, theirs.std())))


_Key = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(slots=True)
class _Pool:
    """Errors of one way of running rows, each against the yardstick's at the same place."""

    logs: list[float] = field(default_factory=list)
    places: set[tuple[int, ...]] = field(default_factory=set)

    @property
    def mean(self) -> float:
        """Geometric, which one place that the yardstick happens to meet exactly moves little."""
        return math.exp(sum(self.logs) / len(self.logs))


class Judge:
    """The oracle, which runs each row once, and what may differ from it.

    `yardstick` is the eager model in the executor's own type; None where `tolerance` has no factor for it.
    """

    def __init__(self, oracle: Executor, tolerance: Tolerance, yardstick: Executor | None) -> None:
        assert (yardstick is None) == (tolerance.factor == 0), tolerance
        self._oracle = oracle
        self._tolerance = tolerance
        self._yardstick = yardstick
        self._known: dict[_Key, Logits] = {}
        # By the ids up to a place: what comes after it moves nothing there.
        self._rounded: dict[tuple[int, ...], Logits] = {}
        self._deviation = 0.0

    def in_float32(self) -> Judge:
        """A judge of the same rows with the tolerance of float32; what is known now is known to it."""
        judge = Judge(self._oracle, FLOAT32, None)
        judge._known |= self._known
        return judge

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
        most = min(MOST_ALLOWED, self._deviation + self._tolerance.margin)
        return max(self._tolerance.floor, min(most, self._tolerance.factor * self._deviation))

    def rounded(self, place: tuple[int, ...]) -> Logits | None:
        """The yardstick's logits [labels] behind these ids, where a row was judged there; None without a yardstick."""
        return self._rounded.get(place)

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
                    self._rounded |= {row.ids[: slot + 1]: one for slot, one in zip(row.slots, eager, strict=True)}
            self._known[key] = logits
        return self._known[key]


class Findings:
    """Collects the differences of one check and sums them up."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._found: list[Difference] = []
        self._faults: list[str] = []
        self._pools: dict[str, _Pool] = {}
        self._eager: dict[tuple[int, ...], Difference] = {}
        self._n_rows = 0
        self._changed = 0

    def against_oracle(
        self, way: str, rows: Sequence[Row], ours: Sequence[Logits], want: Sequence[Logits], *, pool: str | None = None
    ) -> None:
        """Compare what the executor gave for `rows` with the oracle's logits.

        Ways of one `pool` have one mean error; without a name the way is its own.
        """
        found = [difference(way, *one) for one in zip(rows, ours, want, strict=True)]
        self._found += found
        self._n_rows += len(rows)
        self._changed += sum(one.changed for one in found)
        for one, row, mine, theirs in zip(found, rows, ours, want, strict=True):
            if math.isfinite(one.shift):
                self._against_rounding(way if pool is None else pool, row, mine, theirs)

    def _against_rounding(self, pool: str, row: Row, ours: Logits, want: Logits) -> None:
        for nth, slot in enumerate(row.slots):
            place, here = row.ids[: slot + 1], slice(nth, nth + 1)
            eager = self._judge.rounded(place)
            if eager is not None:
                single = replace(row, slots=(slot,), n_options=row.n_options[here])
                self._eager.setdefault(place, difference("", single, eager[None], want[here]))
                kept = self._pools.setdefault(pool, _Pool())
                kept.logs.append(math.log(error(ours[nth], want[nth]) / error(eager, want[nth])))
                kept.places.add(place)

    def against_itself(self, way: str, rows: Sequence[Row], ours: Sequence[Logits], other: Sequence[Logits]) -> None:
        """Compare two of the executor's ways of running `rows`; they are counted where each meets the oracle."""
        self._found += [difference(way, *one) for one in zip(rows, ours, other, strict=True)]

    def fault(self, said: str) -> None:
        """A fault that is no difference of logits."""
        self._faults.append(said)

    def verdict(self, name: str, compared: str, notes: Sequence[str] = ()) -> Verdict:
        """Sum up. The worst few differences above the tolerance are named.

        A clear answer that changed is one of them where its two largest probabilities were farther apart than the
        tolerance: what the oracle is that sure of, rounding does not turn round.
        """
        allowed = self._judge.allowed
        # A NaN must be a fault too, so the comparison is not turned round.
        wrong = sorted(
            (one for one in self._found if not one.shift <= allowed or one.clearest > allowed),
            key=lambda one: -one.shift,
        )
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
            (*self._faults, *named, *self._far()),
            (*notes, *self._of_rounding()),
        )

    def _far(self) -> Iterator[str]:
        tolerance = self._judge.tolerance
        for way, pool in self._pools.items():
            most = tolerance.mean * 2 ** (SPREAD / math.sqrt(len(pool.places)))
            if not pool.mean <= most:
                yield (
                    f"{way}: logits are {pool.mean:.2g} times as far from the oracle's as those of "
                    f"{tolerance.yardstick}, in the mean of {len(pool.places):,} places; allowed {most:.2g}"
                )

    def _of_rounding(self) -> Iterator[str]:
        if self._eager:
            moved = self._eager.values()
            yield (
                f"rounding alone: {self._judge.tolerance.yardstick} differs from float32 by |Δp| "
                f"{max(one.shift for one in moved):.1e} on these rows, and changes "
                f"{sum(one.changed for one in moved):,} of their clear answers"
            )
