"""Rows into packs: what shares a trunk, what is split, what goes together, and the token bucket of each pack.

It refuses to know devices; a price comes from a measurement. Trap: a trunk costs its tokens in every pack that holds a
branch of it. Rows of one trunk are parted only where one pack cannot hold them.

**The rule.** The rows of one trunk are a part. A part that no pack holds is cut, longest branch first, into parts that
fit, each with the trunk. Then *first-fit decreasing*: the parts, those of most tokens first, go each into the first
pack with room. Finally a pack is cut in two, between any two of its parts in that order, where the two halves' buckets
cost less than the one of the whole; and the halves again. So the order of rows changes none of the packs' sizes.

**Oversize.** A row longer than every bucket runs at its exact length, with the other rows of its trunk but with nothing
else. So does a row of more slots than a pack may have.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import inf, isfinite
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from decider.errors import ConfigError
from decider.plan.pack import Group, Pack, make_pack
from decider.plan.tables import PackShape, capacity_of
from decider.plan.trunks import find_groups
from decider.tokens.rows import Row

LADDER = (
    *range(64, 705, 64),
    *(832, 960, 1088, 1280, 1472, 1728, 2048, 2176, 2432, 2880, 3392, 4032, 4736, 5632, 6656, 7872, 8192),
)
"""Token buckets: by 64, then about 1.19 times the one before."""


@dataclass(frozen=True, slots=True)
class PackLimits:
    """What a pack may hold. Raises ConfigError for a bound below 1, or a ladder that does not rise to `max_tokens`."""

    max_tokens: int
    """Tokens, with padding."""
    max_sequences: int
    """Trunks and branches."""
    max_slots: int
    """Places where logits are read."""
    ladder: tuple[int, ...] = ()
    """Token buckets, the last of which is `max_tokens`. Without any, a pack has its exact length."""

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_sequences", "max_slots"):
            value = getattr(self, name)
            if not _is_positive_int(value):
                raise ConfigError(f"{name} is {value!r:.60}; it must be a whole number, at least 1")
        rises = isinstance(self.ladder, tuple) and all(map(_is_positive_int, self.ladder))
        if not rises or any(upper <= lower for lower, upper in pairwise(self.ladder)):
            raise ConfigError(f"ladder is {self.ladder!r:.60}; it must be a tuple of whole numbers above 0 that rise")
        if self.ladder and self.ladder[-1] != self.max_tokens:
            raise ConfigError(
                f"the last bucket of ladder is {self.ladder[-1]} and max_tokens is {self.max_tokens}; they must be "
                "equal, so that each pack has a bucket"
            )

    def padded(self, n_tokens: int) -> int:
        """The tokens of a pack that holds `n_tokens`, at least 1: its bucket; above or without a ladder as many."""
        assert n_tokens >= 1, n_tokens
        place = bisect_left(self.ladder, n_tokens)
        return self.ladder[place] if place < len(self.ladder) else n_tokens


@dataclass(frozen=True, slots=True)
class PackCost:
    """What packs cost: measured milliseconds by tokens. Raises ConfigError for none, or for what is no size or time.

    Prices never fall with the tokens: where more were measured to be faster, fewer cost no more than they do.
    """

    measured: Mapping[int, float]
    _sizes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _prices: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes = sorted(self.measured)
        if not sizes:
            raise ConfigError("no size of a pack was measured; measure at least one")
        for size in sizes:
            price = self.measured[size]
            if not _is_positive_int(size) or not _is_time(price):
                raise ConfigError(
                    f"the forward of {size!r:.60} tokens took {price!r:.60} ms; both must be above 0 and finite, so "
                    "measure again"
                )
        falling = accumulate((self.measured[size] for size in reversed(sizes)), min)
        object.__setattr__(self, "measured", MappingProxyType({size: self.measured[size] for size in sizes}))
        object.__setattr__(self, "_sizes", tuple(sizes))
        object.__setattr__(self, "_prices", tuple(falling)[::-1])

    def price(self, n_tokens: int) -> float:
        """Milliseconds: on a line between the measured sizes, the first one's below, in proportion above the last."""
        sizes, prices = self._sizes, self._prices
        place = bisect_left(sizes, n_tokens)
        if place == len(sizes):
            return prices[-1] * n_tokens / sizes[-1]
        if sizes[place] == n_tokens or place == 0:
            return prices[place]
        lower, upper = sizes[place - 1], sizes[place]
        share = (n_tokens - lower) / (upper - lower)
        return prices[place - 1] + share * (prices[place] - prices[place - 1])

    def worth_capturing(self) -> tuple[int, ...]:
        """The measured sizes, rising, without those that are not faster than the next."""
        return tuple(
            size
            for size, price, longer in zip(self._sizes, self._prices, (*self._prices[1:], inf), strict=True)
            if price < longer
        )


class _Part(NamedTuple):
    """Rows that go into one pack together, and what they take of its room."""

    n_tokens: int
    n_spans: int
    n_slots: int
    group: Group


def card_limits(ladder: tuple[int, ...] = LADDER) -> PackLimits:
    """What static tables of the sizes in `ladder` hold: whatever is planned within it has a shape that may hold it."""
    most = capacity_of(PackShape(ladder[-1], is_tree=True))
    return PackLimits(ladder[-1], most.n_sequences, most.n_slots, ladder)


def plan_packs(rows: Sequence[Row], limits: PackLimits, cost: PackCost | None = None) -> tuple[Pack, ...]:
    """Every row in one pack, longest packs first; () for no rows.

    In a pack, groups that share a trunk come first, each kind in the order of first rows. Without `cost` no pack is cut
    in two for its price, as is right where packs have their exact length.
    """
    return tuple(iter_packs(rows, limits, cost))


def iter_packs(rows: Sequence[Row], limits: PackLimits, cost: PackCost | None = None) -> Iterator[Pack]:
    """As `plan_packs`, each pack made when it is asked for: the first may run while the others are made."""
    parts: list[_Part] = []
    for group in find_groups(rows):
        part = _part(rows, group)
        if len(group.rows) == 1 or _fits(part, limits):
            parts.append(part)
        else:
            parts += _cut_group(rows, group, limits)
    # By tokens, spans and slots; the order of rows decides only between parts that take the same room.
    parts.sort(key=itemgetter(0, 1, 2), reverse=True)
    price = None if cost is None or len(parts) < 2 else _price(limits, cost)
    for filled in _fill(parts, limits):
        if not _fits(filled[0], limits):
            yield make_pack(rows, [filled[0].group], n_tokens=None, oversize=True)
            continue
        for piece in [filled] if price is None else _cut(filled, price):
            n_tokens = limits.padded(sum([part.n_tokens for part in piece]))
            yield make_pack(rows, sorted([part.group for part in piece], key=_in_pack), n_tokens=n_tokens)


def _in_pack(group: Group) -> tuple[bool, Group]:
    """Trunks with branches first: only of those a linear attention keeps the final states."""
    return not group.trunk_tokens, group


def _cut_group(rows: Sequence[Row], group: Group, limits: PackLimits) -> list[_Part]:
    """A group that no pack holds, in several parts. A part that no pack holds goes alone."""
    trunk = group.trunk_tokens
    members: list[list[int]] = []
    n_tokens = n_slots = budget = 0
    for index in sorted(group.rows, key=lambda index: (len(rows[index].ids), len(rows[index].slots)), reverse=True):
        row = rows[index]
        n_tokens += len(row.ids) - trunk
        n_slots += len(row.slots)
        room = n_tokens <= budget and n_slots <= limits.max_slots
        if members and room and len(members[-1]) + 2 <= limits.max_sequences:
            members[-1].append(index)
            continue
        members.append([index])
        n_tokens, n_slots = len(row.ids), len(row.slots)
        # Where even one row is oversize, its trunk has to run so anyway, and other branches are cheaper with it.
        budget = limits.max_tokens + (trunk if n_tokens > limits.max_tokens else 0)
    return [_part(rows, Group(tuple(sorted(run)), trunk if len(run) > 1 else 0)) for run in members]


def _part(rows: Sequence[Row], group: Group) -> _Part:
    n_tokens = n_slots = 0
    for index in group.rows:
        row = rows[index]
        n_tokens += len(row.ids)
        n_slots += len(row.slots)
    n_rows, trunk = len(group.rows), group.trunk_tokens
    return _Part(n_tokens - (n_rows - 1) * trunk, n_rows + (trunk > 0), n_slots, group)


def _fits(part: _Part, limits: PackLimits) -> bool:
    return (
        part.n_tokens <= limits.max_tokens and part.n_spans <= limits.max_sequences and part.n_slots <= limits.max_slots
    )


def _fill(parts: Sequence[_Part], limits: PackLimits) -> list[list[_Part]]:
    """Each part into the first pack with room for it."""
    packs: list[list[_Part]] = []
    rooms: list[tuple[int, int, int]] = []
    for part in parts:
        n_tokens, n_spans, n_slots, _ = part
        for place, (tokens, spans, slots) in enumerate(rooms):
            if n_tokens <= tokens and n_spans <= spans and n_slots <= slots:
                packs[place].append(part)
                break
        else:
            # What does not fit leaves no room: less than none.
            place, (tokens, spans, slots) = len(packs), (limits.max_tokens, limits.max_sequences, limits.max_slots)
            packs.append([part])
            rooms.append((tokens, spans, slots))
        rooms[place] = (tokens - n_tokens, spans - n_spans, slots - n_slots)
    return packs


def _price(limits: PackLimits, cost: PackCost) -> Callable[[int], float]:
    """The price of a pack of so many tokens in its bucket. It is asked twice for every place to cut."""
    ladder = limits.ladder
    if not ladder:
        return cost.price
    prices = [cost.price(bucket) for bucket in ladder]
    return lambda n_tokens: prices[bisect_left(ladder, n_tokens)]


def _cut(parts: list[_Part], price: Callable[[int], float]) -> list[list[_Part]]:
    """The parts of a pack in runs, of which none costs more than any two halves of it."""
    runs = []
    # No recursion: where many parts each go alone, the halves lie as deep as there are parts.
    waiting = [parts]
    while waiting:
        run = waiting.pop()
        sizes = list(accumulate([part.n_tokens for part in run]))
        total = sizes.pop()
        halves = [price(size) + price(total - size) for size in sizes]
        least = min(halves, default=inf)
        if least >= price(total):
            runs.append(run)
            continue
        cut = halves.index(least) + 1
        waiting += [run[cut:], run[:cut]]
    return runs


def _is_positive_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and value > 0
