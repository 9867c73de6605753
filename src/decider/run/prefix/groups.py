"""Which rows start alike, and for how many tokens.

It refuses to know what a common start is good for. Trap: rows of two requests may lie side by side and start alike for
a few tokens; a group ends where the *whole* reusable start of the next row differs.
"""

from __future__ import annotations

from collections.abc import Sequence

from decider.tokens.rows import Row


def prefix_groups(rows: Sequence[Row], min_prefix_tokens: int) -> list[range]:
    """Runs of two or more neighbouring rows with equal reusable starts of at least `min_prefix_tokens`."""
    groups = []
    start = 0
    for stop in range(1, len(rows) + 1):
        if stop < len(rows) and _alike(rows[start], rows[stop]):
            continue
        if stop - start > 1 and rows[start].prefix_tokens >= min_prefix_tokens:
            groups.append(range(start, stop))
        start = stop
    return groups


def _alike(one: Row, other: Row) -> bool:
    n_tokens = one.prefix_tokens
    return n_tokens == other.prefix_tokens and one.ids[:n_tokens] == other.ids[:n_tokens]


def common_prefix(rows: Sequence[Row]) -> int:
    """Tokens that all `rows` start with, at most the `prefix_tokens` of any; 0 for no rows."""
    if not rows:
        return 0
    first, most = rows[0].ids, min(row.prefix_tokens for row in rows)

    def shared(n_tokens: int) -> bool:
        start = first[:n_tokens]
        return all(row.ids[:n_tokens] == start for row in rows)

    if shared(most):
        return most
    # `least` tokens are shared, `most` are not.
    least = 0
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if shared(middle) else (least, middle)
    return least
