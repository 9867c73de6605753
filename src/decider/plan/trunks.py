"""Which planned rows share a trunk.

It refuses to know limits and prices: rows of one trunk may be more than a forward holds. Trap: a state cut for one
question is a start of the same state in full. Rows of one trunk need not have equal reusable starts, and a trunk as
short as the shortest of them may save less than two trunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from decider.plan.pack import Group
from decider.tokens.rows import ID_BYTES, Row


def find_groups(rows: Sequence[Row]) -> list[Group]:
    """Every row in one group, in the order of their first rows.

    Neighbouring rows are grouped where, of their reusable starts, each is a start of the longest. Starts of different
    lengths are split among several trunks if that leaves fewer tokens. Only tokens before a row's first slot are
    shared, so no branch is empty.
    """
    groups: list[Group] = []
    # The longest start of the rows that may be a group, and that of the row before.
    head = last = b""
    reach = 0
    reaches: list[int] = []
    for index, row in enumerate(rows):
        assert row.slots, "a row without a slot asks nothing"
        start = row.start_bytes
        # Most rows start as the one before does, and this comparison is the cheapest.
        if not start or start != last:
            if start and head and (head.startswith(start) or start.startswith(head)):
                head = max(head, start, key=len)
            else:
                groups += _split(index - len(reaches), reaches)
                head, reaches = start, []
            last, reach = start, len(start) // ID_BYTES
        reaches.append(reach)
    return groups + _split(len(rows) - len(reaches), reaches)


def _split(start: int, reaches: Sequence[int]) -> list[Group]:
    """The groups of neighbours from `start` on, each of which could share its `reaches` tokens with the longer ones."""
    n_rows = len(reaches)
    if n_rows < 2:
        return [Group((start,), 0)] * n_rows
    if reaches.count(reaches[0]) == n_rows:
        return [Group(tuple(range(start, start + n_rows)), reaches[0])]
    order = sorted(range(n_rows), key=reaches.__getitem__, reverse=True)
    groups = []
    for first, stop in _runs([reaches[place] for place in order]):
        members = tuple(sorted(start + place for place in order[first:stop]))
        groups.append(Group(members, reaches[order[stop - 1]] if len(members) > 1 else 0))
    return sorted(groups)


def _runs(reaches: Sequence[int]) -> list[tuple[int, int]]:
    """Falling `reaches` in runs that save the most tokens: a trunk is as long as the last of its run, for all but one.

    Runs are enough: trading a longer reach for a shorter one between two trunks never makes either trunk shorter. And
    equal reaches stay together, as moving the fewer to the longer trunk saves no less.
    """
    ends = [0]
    for _, equal in groupby(reaches):
        ends.append(ends[-1] + len(list(equal)))
    # The most tokens saved among the rows before each end, and where the last run of those starts.
    saved = [0]
    begins: list[int] = []
    for place in range(1, len(ends)):
        stop = ends[place]
        trunk = reaches[stop - 1]
        sums = [saved[before] + (stop - ends[before] - 1) * trunk for before in range(place)]
        saved.append(max(sums))
        begins.append(sums.index(saved[-1]))
    runs = []
    place = len(ends) - 1
    while place:
        runs.append((ends[begins[place - 1]], ends[place]))
        place = begins[place - 1]
    return runs[::-1]
