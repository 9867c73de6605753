"""Which planned rows share a trunk.

It refuses to know limits and prices: rows of one trunk may be more than a forward holds. Trap: a state cut for one
question is a start of the same state in full. Rows of one trunk need not have equal reusable starts, and a trunk as
short as the shortest of them may save less than two trunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from decider.plan.pack import Group
from decider.tokens.rows import ID_BYTES, Row

Start = tuple[bytes, list[int]]
"""A reusable start, and the rows that have it."""


def find_groups(rows: Sequence[Row]) -> list[Group]:
    """Every row in one group, in the order of their first rows; rows of a group may be anywhere in `rows`.

    A trunk is the whole reusable start of at least one of its rows, and begins those of the others. There are no such
    groups with fewer tokens, rows of equal starts stay together, and another order of `rows` changes only the indices.
    Only tokens before a row's first slot are shared, so no branch is empty.
    """
    starts: list[Start] = []
    last = None
    for index, row in enumerate(rows):
        assert row.slots, "a row without a slot asks nothing"
        start = row.start_bytes
        # Most rows start as the one before does, and this comparison is the cheapest.
        if start == last:
            starts[-1][1].append(index)
        else:
            starts.append((start, [index]))
            last = start
    # Whatever begins with a start comes right behind it. Hashes would read all of every start, and this only as far as
    # two of them are alike.
    starts.sort(key=itemgetter(0))
    groups: list[Group] = []
    family: list[Start] = []
    for start, members in starts:
        if not start:
            groups += [Group((index,), 0) for index in members]
        elif family and start.startswith(family[0][0]):
            # Equal ones count once: the work on a family may grow with the square of its size.
            if start == family[-1][0]:
                family[-1][1].extend(members)
            else:
                family.append((start, members))
        else:
            groups += _groups(family)
            family = [(start, members)]
    groups += _groups(family)
    groups.sort(key=_first_row)
    return groups


def _first_row(group: Group) -> int:
    return group.rows[0]


def _groups(family: Sequence[Start]) -> list[Group]:
    """The groups of the rows of `family`: different starts in the order of their bytes, which begin with the first."""
    if len(family) == 1:
        ((start, members),) = family
        return [_group(start, members)]
    groups = []
    dealt: dict[int | None, list[int]] = {}
    for trunk, (_, members) in zip(_trunks(family), family, strict=True):
        dealt.setdefault(trunk, []).extend(members)
    for trunk, members in dealt.items():
        if trunk is None:
            groups += [Group((index,), 0) for index in members]
        else:
            groups.append(_group(family[trunk][0], sorted(members)))
    return groups


def _group(trunk: bytes, members: Sequence[int]) -> Group:
    return Group(tuple(members), len(trunk) // ID_BYTES if len(members) > 1 else 0)


def _trunks(family: Sequence[Start]) -> list[int | None]:
    """The trunk of the rows of each start, as an index of `family`; None for rows that run alone.

    Starts are a tree: below each are those that begin with it. Whatever the trunks are, a row is best off with the
    longest of those that it begins with, and each trunk costs its own tokens once. So what can be saved from a start
    downwards depends on nothing above it but the nearest trunk, and is known once all below is.
    """
    lengths = [len(start) // ID_BYTES for start, _ in family]
    # The starts above each, the shortest first.
    above: list[list[int]] = []
    way: list[int] = []
    for place, (start, _) in enumerate(family):
        while way and not start.startswith(family[way[-1]][0]):
            way.pop()
        above.append(list(way))
        way.append(place)
    # below[place][n] is what is saved below, if the nearest trunk is the n-th on the way there; the 0-th is none.
    below = [[0] * (len(way) + 2) for way in above]
    is_trunk: list[list[bool]] = [[]] * len(family)
    for place in reversed(range(len(family))):
        n_rows, way = len(family[place][1]), above[place]
        as_trunk = (n_rows - 1) * lengths[place] + below[place].pop()
        reaches = [0, *(lengths[other] for other in way)]
        savings = [n_rows * reach + saved for reach, saved in zip(reaches, below[place], strict=True)]
        is_trunk[place] = [as_trunk > saving for saving in savings]
        if way:
            parent = below[way[-1]]
            for nearest, saving in enumerate(savings):
                parent[nearest] += max(as_trunk, saving)
    trunks: list[int | None] = []
    chosen: list[int] = []
    for place, way in enumerate(above):
        nearest = chosen[way[-1]] if way else 0
        chosen.append(len(way) + 1 if is_trunk[place][nearest] else nearest)
        trunks.append([None, *way, place][chosen[-1]])
    return trunks
