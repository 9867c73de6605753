"""One call's rows for several engines at once: runs of rows that cost about the same.

It refuses to know engines and models. Trap: rows that share a start run it once while they are together. A cut between
them runs it once more, so no cut is made where that is much of a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from decider.tokens.rows import ID_BYTES, Row

LEAST_TOKENS = 2048
"""Of a part. Fewer fill no pack, and take little less time for it."""
MOST_AGAIN = 0.25
"""Of a part: the longest start that a cut may have run again."""


def even_parts(rows: Sequence[Row], n_parts: int) -> list[range]:
    """Neighbouring `rows` as at most `n_parts` ranges of their indices, which cover all of them in order."""
    again = [0, *(_common_tokens(*pair) for pair in pairwise(rows))][: len(rows)]
    total = sum(len(row.ids) for row in rows) - sum(again)
    n_parts = min(n_parts, total // LEAST_TOKENS)
    edges, spent = [0], 0
    for index, (row, common) in enumerate(zip(rows, again, strict=True)):
        share = total / max(1, n_parts)
        if index and len(edges) < n_parts and spent >= share * len(edges) and common <= MOST_AGAIN * share:
            edges.append(index)
        spent += len(row.ids) - common
    return [range(*pair) for pair in pairwise((*edges, len(rows)))]


def _common_tokens(one: Row, other: Row) -> int:
    """Tokens of the start that both may share: states are cut a question, and the shorter is a start of the longer."""
    ours, theirs = one.start_bytes, other.start_bytes
    shorter = min(len(ours), len(theirs))
    return shorter // ID_BYTES if ours is theirs or ours[:shorter] == theirs[:shorter] else 0
