"""The rows of every check, from seeded random ids, as many as the positions and the time budget allow.

It refuses to know executors. Trap: a case that is left out must be said; every cut here leaves a note for the report.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from decider.run.graphs import slot_capacity
from decider.tokens.rows import Row
from decider.verify.pace import Item, Pace, afford

# Fibonacci numbers are spread over all lengths, and no bucket of the ladder is one of them.
ROW_TOKENS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597)
# A row with so many slots runs outside the graphs.
MANY_SLOTS = slot_capacity(1) + 1
# Few options show a wrong logit most clearly; all of them see that no label is lost.
OPTIONS = (2, 5, 26, 255)

PREFIX_TOKENS = (20, 70, 300, 1100)
SUFFIX_TOKENS = (1, 2, 5, 17, 40)

SPLIT_ROW_TOKENS = (24, 72, 136, 200, 264, 520, 1032, 2056)
SMALL_CUTS = (1, 2, 3, 4, 5, 7, 8)
SPLIT_SLOTS = 8

PADDED_TOKENS = (3, 40)
# Beside the shortest of these a row is padded by almost any plan, beside the longest only where launches are dear.
PADDING_TOKENS = (48, 64, 128, 256, 384, 512, 1024)
NEIGHBOURS = (1, 3)

EDGES = "bucket edges"
SHARES = {"rows": 0.15, "long rows": 0.1, "shared prefixes": 0.2, "cached splits": 0.2, "padding": 0.1}
"""Most that a check takes of the time budget, by name. The bucket edges, of which there are most, take what is left."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What bounds the cases: the model, the executor's ladder and the room that the oracle has."""

    vocab: int
    labels: int
    positions: int
    lengths: tuple[int, ...]
    """Bucket lengths of the executor, rising."""
    long_multiple: int
    """Rows above the last bucket are padded to a multiple of it."""
    oracle_tokens: int | None
    """Longest row that the oracle has memory for; None where that is not known."""

    @property
    def most_tokens(self) -> int:
        """Longest row that can be verified."""
        return self.positions if self.oracle_tokens is None else min(self.positions, self.oracle_tokens)


@dataclass(frozen=True, slots=True)
class Split:
    """One row, to be cut before position `cut`, for each of `cuts`."""

    ids: tuple[int, ...]
    cuts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Padded:
    """A short row, and the longer ones it is to be padded beside."""

    row: Row
    neighbours: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Cases:
    """What each check runs. Rows say that they share nothing, but for those in `prefixes`."""

    rows: tuple[Row, ...]
    edges: tuple[tuple[Row, ...], ...]
    """Rows around one bucket length a tuple."""
    long: tuple[Row, ...]
    short: Row
    """To run in one call with long ones."""
    prefixes: tuple[tuple[Row, ...], ...]
    """Rows with a common prefix a tuple."""
    split: Split | None
    padded: tuple[Padded, ...]
    notes: Mapping[str, tuple[str, ...]]
    """Check → what was left out of it, and why."""
    planned_s: float


def random_ids(ground: Ground, n_tokens: int, seed: str) -> tuple[int, ...]:
    """The same ids for the same arguments."""
    source = random.Random(f"{n_tokens} {seed}")
    return tuple(source.randrange(ground.vocab) for _ in range(n_tokens))


def make_row(ground: Ground, n_tokens: int, *, seed: str, slots: int = 1) -> Row:
    """A random row, read at its last token and at up to `slots` − 1 places before it."""
    source = random.Random(f"slots {n_tokens} {seed}")
    places = sorted({n_tokens - 1, *source.sample(range(n_tokens - 1), min(slots, n_tokens) - 1)})
    return Row(random_ids(ground, n_tokens, seed), tuple(places), _options(ground, len(places), n_tokens), 0)


def _options(ground: Ground, n_slots: int, start: int) -> tuple[int, ...]:
    return tuple(min(ground.labels, OPTIONS[(start + slot) % len(OPTIONS)]) for slot in range(n_slots))


def make_cases(ground: Ground, pace: Pace, budget_s: float) -> Cases:
    """The cases that take about `budget_s` seconds at most, each check within its share."""
    maker = _Maker(ground, pace, budget_s)
    # The edges take what the others leave, so they come last.
    rows, long, prefixes, split, padded = maker.rows(), maker.long(), maker.prefixes(), maker.split(), maker.padded()
    return Cases(
        rows=rows,
        edges=maker.edges(),
        long=long,
        short=make_row(ground, min(20, ground.most_tokens), seed="short"),
        prefixes=prefixes,
        split=split,
        padded=padded,
        notes={name: tuple(notes) for name, notes in maker.notes.items()},
        planned_s=maker.planned_s,
    )


class _Maker:
    def __init__(self, ground: Ground, pace: Pace, budget_s: float) -> None:
        self._ground = ground
        self._pace = pace
        self._budget_s = budget_s
        self.notes: dict[str, list[str]] = {name: [] for name in (*SHARES, EDGES)}
        self.planned_s = 0.0

    def rows(self) -> tuple[Row, ...]:
        lengths = [n for n in ROW_TOKENS if n <= self._ground.most_tokens]
        kept = self._kept("rows", lengths, lambda n: self._pace.seconds(n, runs=3), lambda n: f"{n:,}")
        rows = [make_row(self._ground, n, seed="rows", slots=1 + place % 4) for place, n in enumerate(kept)]
        if kept[-1] > MANY_SLOTS:
            rows.append(make_row(self._ground, MANY_SLOTS + 1, seed="many slots", slots=MANY_SLOTS))
        return tuple(rows)

    def edges(self) -> tuple[tuple[Row, ...], ...]:
        around = [
            (n, [m for m in (n - 1, n, n + 1) if 1 <= m <= self._ground.most_tokens]) for n in self._ground.lengths
        ]
        reachable = [edge for edge in around if edge[1]]
        kept = self._kept(
            EDGES,
            reachable,
            lambda edge: sum(self._pace.seconds(n, runs=2) for n in edge[1]),
            lambda edge: f"{edge[0]:,}",
        )
        if (over := self._ground.lengths[-1] + 1) > self._ground.positions:
            self._note(EDGES, f"{over:,} tokens are left out: the model has {self._ground.positions:,} positions")
        self._no_room(EDGES, [n for n in self._ground.lengths if n + 1 <= self._ground.positions])
        return tuple(
            tuple(make_row(self._ground, n, seed="edges", slots=1 + place) for place, n in enumerate(lengths))
            for _, lengths in kept
        )

    def long(self) -> tuple[Row, ...]:
        last, multiple, positions = self._ground.lengths[-1], self._ground.long_multiple, self._ground.positions
        if positions <= last:
            self._note("long rows", f"none fits: the last bucket of {last:,} tokens holds all {positions:,} positions")
            return ()
        wanted = {
            last + 1,
            last + multiple // 2,
            last + multiple,
            last + multiple + 1,
            min(positions, last + 3 * multiple),
        }
        fitting = sorted(n for n in wanted if last < n <= positions)
        self._no_room("long rows", fitting)
        kept = self._kept(
            "long rows",
            [n for n in fitting if n <= self._ground.most_tokens],
            lambda n: self._pace.seconds(n, runs=2),
            lambda n: f"{n:,}",
            least=0,
        )
        return tuple(make_row(self._ground, n, seed="long", slots=2) for n in kept)

    def prefixes(self) -> tuple[tuple[Row, ...], ...]:
        longest = SUFFIX_TOKENS[-1]
        fitting = [n for n in PREFIX_TOKENS if n + longest <= self._ground.most_tokens]
        if not fitting:
            self._note("shared prefixes", f"none fits: {self._ground.most_tokens:,} positions are too few")
            return ()
        kept = self._kept(
            "shared prefixes",
            fitting,
            lambda n: sum(self._pace.seconds(n + m, runs=3) for m in SUFFIX_TOKENS),
            lambda n: f"{n:,}",
            # One prefix cannot be taken for another.
            least=2,
        )
        return tuple(self._group(n) for n in kept)

    def _group(self, n_prefix: int) -> tuple[Row, ...]:
        prefix = random_ids(self._ground, n_prefix, "prefix")
        rows = []
        for place, n_tokens in enumerate(SUFFIX_TOKENS):
            # The first token tells the rows apart, so that the common prefix ends where it should.
            suffix = (place % self._ground.vocab, *random_ids(self._ground, n_tokens - 1, "suffix"))
            slots = tuple(sorted({n_prefix, n_prefix + n_tokens // 2, n_prefix + n_tokens - 1}))
            rows.append(Row(prefix + suffix, slots, _options(self._ground, len(slots), place), n_prefix))
        return tuple(rows)

    def split(self) -> Split | None:
        fitting = [n for n in SPLIT_ROW_TOKENS if n <= self._ground.most_tokens]
        if not fitting:
            self._note("cached splits", f"none fits: {self._ground.most_tokens:,} positions are too few")
            return None

        def price(n_tokens: int) -> float:
            return self._pace.seconds(n_tokens, runs=2 * len(cuts_of(n_tokens)))

        n_tokens = fitting[0]
        # Only the longest row runs, so each is priced alone.
        for longer in fitting[1:]:
            if price(longer) > self._share_s("cached splits"):
                self._note("cached splits", f"left out by the time budget: rows of {longer:,} tokens and more")
                break
            n_tokens = longer
        self.planned_s += price(n_tokens)
        return Split(random_ids(self._ground, n_tokens, "split"), cuts_of(n_tokens))

    def padded(self) -> tuple[Padded, ...]:
        longest = min(self._ground.lengths[-1], self._ground.most_tokens)
        fitting = [n for n in PADDING_TOKENS if n <= longest]
        shorts = [n for n in PADDED_TOKENS if fitting and n < fitting[-1]]
        if not shorts:
            self._note("padding", f"none fits: rows of {longest:,} tokens are too short to pad beside")
            return ()

        def price(n_tokens: int) -> float:
            runs = len(shorts) * sum(1 + n for n in NEIGHBOURS)
            return self._pace.seconds(n_tokens, judged=max(NEIGHBOURS), runs=runs)

        n_tokens = fitting[0]
        for longer in fitting[1:]:
            if price(fitting[0]) + price(longer) > self._share_s("padding"):
                self._note("padding", f"left out by the time budget: padding to {longer:,} tokens and more")
                break
            n_tokens = longer
        lengths = sorted({fitting[0], n_tokens})
        self.planned_s += sum(map(price, lengths))
        return tuple(
            Padded(
                make_row(self._ground, short, seed="padded", slots=2),
                tuple(make_row(self._ground, long, seed=f"beside {place}") for place in range(n_beside)),
            )
            for long in lengths
            for short in shorts
            if short < long
            for n_beside in NEIGHBOURS
        )

    def _kept(
        self,
        name: str,
        items: Sequence[Item],
        price_s: Callable[[Item], float],
        show: Callable[[Item], str],
        *,
        least: int = 1,
    ) -> list[Item]:
        kept, spent = afford(items, price_s, self._share_s(name), least=least)
        self.planned_s += spent
        if len(kept) < len(items):
            dropped = ", ".join(map(show, items[len(kept) :]))
            self._note(name, f"left out by the time budget: {dropped} tokens")
        return kept

    def _share_s(self, name: str) -> float:
        return self._budget_s - self.planned_s if name == EDGES else self._budget_s * SHARES[name]

    def _no_room(self, name: str, lengths: Sequence[int]) -> None:
        room = self._ground.most_tokens
        if any(n > room for n in lengths):
            self._note(name, f"left out, as the oracle has no memory for them: rows of more than {room:,} tokens")

    def _note(self, name: str, said: str) -> None:
        self.notes[name].append(said)


def cuts_of(n_tokens: int) -> tuple[int, ...]:
    """Where a row of `n_tokens` is cut: small numbers, around each power of two from 16 on, and just before its end."""
    cuts = {*SMALL_CUTS, n_tokens - 2, n_tokens - 1}
    power = 16
    while power - 1 < n_tokens:
        cuts |= {power - 1, power, power + 1}
        power *= 2
    return tuple(sorted(cut for cut in cuts if 1 <= cut < n_tokens))
