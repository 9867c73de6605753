"""Drawn rows for packs, and packs read back. Trap: few different ids, so that rows often start alike by chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from decider.plan.pack import Group, Pack, Span
from decider.tokens.rows import Row


def row(*ids: int, prefix: int, n_slots: int = 1) -> Row:
    """A row whose last `n_slots` tokens are slots."""
    return Row(ids, tuple(range(len(ids) - n_slots, len(ids))), (2,) * n_slots, prefix)


@st.composite
def requests(draw: st.DrawFn) -> list[Row]:
    """The rows of one request, the state first, cut for some questions."""
    state = draw(st.lists(st.integers(0, 1), max_size=9))
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        n_kept = len(state) - draw(st.sampled_from([0, 0, 0, 1, 2]))
        kept = state[: max(n_kept, 0)]
        question = draw(st.lists(st.integers(0, 1), min_size=1, max_size=6))
        places = draw(st.sets(st.integers(0, len(question) - 1), min_size=1, max_size=3))
        slots = tuple(len(kept) + place for place in sorted(places))
        rows.append(Row((*kept, *question), slots, (2,) * len(slots), len(kept)))
    return rows


ticks = st.lists(requests(), max_size=6).map(lambda drawn: [each for rows in drawn for each in rows])
"""Rows of several requests, one after the other."""


def tokens_of(span: Span) -> range:
    """The tokens of a span, as indices of the pack's ids."""
    return range(span.start, span.start + span.length)


def own_tokens(pack: Pack, span: Span) -> list[int]:
    """The tokens of the row that ends in `span`, trunk and branch, as indices of the pack's ids."""
    before = [] if span.parent is None else list(tokens_of(pack.spans[span.parent]))
    return before + list(tokens_of(span))


def read_back(pack: Pack, rows: Sequence[Row]) -> dict[int, Row]:
    """The planned rows that the pack's tables say are in it."""
    found = {}
    start = 0
    for index in pack.rows:
        n_slots = len(rows[index].slots)
        slots = pack.slots[start : start + n_slots].tolist()
        start += n_slots
        (span,) = (span for span in pack.spans if slots[-1] in tokens_of(span))
        own = own_tokens(pack, span)
        assert pack.positions[own].tolist() == list(range(len(own)))
        found[index] = Row(
            tuple(pack.ids[own].tolist()),
            tuple(own.index(slot) for slot in slots),
            rows[index].n_options,
            rows[index].prefix_tokens,
        )
    assert start == len(pack.slots)
    return found


def n_tokens(group: Group, rows: Sequence[Row]) -> int:
    """Tokens of a group's trunk and branches."""
    lengths = [len(rows[index].ids) for index in group.rows]
    return sum(lengths) - (len(lengths) - 1) * group.trunk_tokens


def partitions(items: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every way to put `items` into parts."""
    if not items:
        yield []
        return
    first, *others = items
    for parts in partitions(others):
        yield [[first], *parts]
        for place in range(len(parts)):
            yield [*parts[:place], [first, *parts[place]], *parts[place + 1 :]]
