"""The checks: watched executor, judge and cases in, a verdict out.

They refuse to know how rows were made, and which executor they check. Trap: a check that compares the executor with
itself alone passes when both are wrong; each here meets the oracle too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from decider.run.precision import full_float32
from decider.tokens.rows import Row
from decider.verify.cases import OPTIONS, SPLIT_SLOTS, Padded, Split
from decider.verify.compare import Findings, Judge, Verdict
from decider.verify.watch import Watched

WATCHED = "finite and sealed"
"""The check of all calls, whose rows the others count too."""
TWIN = "float32 twin"
"""The check that only an executor in a coarse type has."""


def check_rows(engine: Watched, judge: Judge, rows: Sequence[Row], notes: Sequence[str] = ()) -> Verdict:
    """Mixed lengths in one call, in another order, and one at a time: neighbours and order move nothing."""
    findings, want = Findings(judge), judge.want(rows)
    together = engine.full(rows)
    order = list(range(len(rows)))
    random.Random(0).shuffle(order)
    shuffled = dict(zip(order, engine.full([rows[place] for place in order]), strict=True))
    reordered = [shuffled[place] for place in range(len(rows))]
    alone = engine.alone(rows)
    for way, ours in (("in one call", together), ("in another order", reordered), ("one at a time", alone)):
        findings.against_oracle(way, rows, ours, want)
    findings.against_itself("in another order, against in one call", rows, reordered, together)
    findings.against_itself("one at a time, against in one call", rows, alone, together)
    return findings.verdict(
        "rows", f"{_lengths(rows)}, in one call, in another order and one at a time, against the oracle", notes
    )


def check_edges(engine: Watched, judge: Judge, edges: Sequence[Sequence[Row]], notes: Sequence[str] = ()) -> Verdict:
    """Rows around each bucket length, one at a time and those of one bucket in one call."""
    findings = Findings(judge)
    for rows in edges:
        want = judge.want(rows)
        findings.against_oracle("alone", rows, engine.alone(rows), want)
        findings.against_oracle("with the same bucket's", rows, engine.full(rows), want)
    every = [row for rows in edges for row in rows]
    return findings.verdict(
        "bucket edges", f"{_lengths(every)}, around {len(edges)} bucket lengths, alone and together", notes
    )


def check_long(engine: Watched, judge: Judge, rows: Sequence[Row], short: Row, notes: Sequence[str] = ()) -> Verdict:
    """Rows above the last bucket, one at a time, and in one call with a `short` one."""
    findings = Findings(judge)
    if rows:
        mixed = [*rows[:1], short, *rows[1:]]
        findings.against_oracle("one at a time", rows, engine.alone(rows), judge.want(rows))
        findings.against_oracle("in one call with a short row", mixed, engine.full(mixed), judge.want(mixed))
    return findings.verdict("long rows", f"{_lengths(rows)}, above the last bucket, alone and together", notes)


def check_prefixes(
    engine: Watched, judge: Judge, groups: Sequence[Sequence[Row]], notes: Sequence[str] = ()
) -> Verdict:
    """Rows with a common prefix: sharing forced, full rows, all groups in one call, and each against the oracle."""
    findings, said = Findings(judge), list(notes)
    for rows in groups:
        want = judge.want(rows)
        # Rows that say they have no reusable start cannot be shared behind our back.
        full = engine.full([replace(row, prefix_tokens=0) for row in rows])
        findings.against_oracle("full rows", rows, full, want)
        shared = engine.shared(rows)
        way = f"behind {rows[0].prefix_tokens:,} shared tokens"
        if isinstance(shared, str):
            said.append(f"not shared, {way}: {shared}")
            continue
        findings.against_oracle(way, rows, shared, want, pool="behind shared tokens")
        findings.against_itself(f"{way}, against full rows", rows, shared, full)
    _all_at_once(findings, engine, judge, groups)
    prefixes = ", ".join(f"{rows[0].prefix_tokens:,}" for rows in groups) or "no"
    return findings.verdict("shared prefixes", f"prefixes of {prefixes} tokens, shared and as full rows", _once(said))


def _all_at_once(findings: Findings, engine: Watched, judge: Judge, groups: Sequence[Sequence[Row]]) -> None:
    """Where several prefixes run in one call, one can be taken for another."""
    every = [row for rows in groups for row in rows]
    if every:
        findings.against_oracle("all prefixes in one call", every, engine.full(every), judge.want(every))


def check_twin(twin: Watched, judge: Judge, groups: Sequence[Sequence[Row]]) -> Verdict:
    """Shared prefixes by an executor of the same code in float32, against the oracle as closely as float32 allows.

    In a coarse type a token that is missing among many hides behind rounding. Which tokens a branch sees, and where it
    takes them to be, is the same in every type.
    """
    findings, said = Findings(judge), []
    with full_float32():
        for rows in groups:
            shared, way = twin.shared(rows), f"behind {rows[0].prefix_tokens:,} shared tokens"
            if isinstance(shared, str):
                said.append(f"not shared, {way}: {shared}")
            else:
                findings.against_oracle(way, rows, shared, judge.want(rows))
        _all_at_once(findings, twin, judge, groups)
    return findings.verdict(TWIN, f"{len(groups)} shared prefixes by the same code in float32", _once(said))


def check_splits(engine: Watched, judge: Judge, split: Split | None, notes: Sequence[str] = ()) -> Verdict:
    """One row, cut at many points: the rest behind the cached start against the whole row.

    Beside the rest runs a row that ends one token after the cut. Then two of these run alone, as families take another
    path for a single token.
    """
    findings, said = Findings(judge), list(notes)
    if split is None:
        return findings.verdict("cached splits", "no row", said)
    n_tokens = len(split.ids)
    spread = {n_tokens - 1 - place * n_tokens // SPLIT_SLOTS for place in range(SPLIT_SLOTS)}
    slots = tuple(sorted(spread | {*split.cuts}))
    # Few options show a wrong logit most clearly; the rows of other checks have the others.
    whole = Row(split.ids, slots, (OPTIONS[1],) * len(slots), 0)
    [want] = judge.want([whole])
    for cut in split.cuts:
        rest = _tail(whole, cut, n_tokens, slots)
        one = _tail(whole, cut, cut + 1, slots)
        for way, rows in (("the rest", [rest, one]), ("one token", [one, one])):
            shared = engine.shared(rows)
            if isinstance(shared, str):
                said.append(f"not cut at {cut:,}, {way}: {shared}")
                continue
            wanted = [want[[slots.index(slot) for slot in row.slots]] for row in rows]
            findings.against_oracle(f"{way} behind {cut:,} cached tokens", rows, shared, wanted, pool=f"{way}, cached")
    compared = f"a row of {n_tokens:,} tokens cut at {len(split.cuts)} points, the rest behind its cached start"
    return findings.verdict("cached splits", compared, _once(said))


def _tail(whole: Row, cut: int, end: int, slots: Sequence[int]) -> Row:
    """`whole` up to `end`, to be shared up to `cut` and read behind it."""
    behind = tuple(slot for slot in slots if cut <= slot < end)
    return Row(whole.ids[:end], behind, whole.n_options[:1] * len(behind), cut)


def check_padding(engine: Watched, judge: Judge, cases: Sequence[Padded], notes: Sequence[str] = ()) -> Verdict:
    """A row alone, and the same row in one call with longer ones, whose bucket it is padded into."""
    findings, n_padded, said = Findings(judge), 0, list(notes)
    for case in cases:
        rows = [case.row, *case.neighbours]
        want = judge.want(rows)
        alone = engine.full([case.row])
        before = engine.forwards
        together = engine.full(rows)
        n_padded += int(engine.forwards == before + 1)
        findings.against_oracle("alone", rows[:1], alone, want[:1])
        findings.against_oracle(f"beside {len(case.neighbours)} longer", rows, together, want)
        findings.against_itself("beside longer rows, against alone", rows[:1], together[:1], alone)
    if cases:
        rest = "" if n_padded == len(cases) else "; in the others the plan found a forward of its own cheaper"
        said.insert(0, f"the row was padded in {n_padded} of {len(cases)} calls{rest}")
    longest = max((len(row.ids) for case in cases for row in case.neighbours), default=0)
    short = _lengths([case.row for case in cases])
    return findings.verdict("padding", f"{short}, alone and beside rows of {longest:,}", said)


def check_watched(engine: Watched, judge: Judge) -> Verdict:
    """What all calls together showed: logits that are not finite, graphs captured on the way."""
    findings = Findings(judge)
    if engine.n_not_finite:
        findings.fault(f"{engine.n_not_finite:,} of {engine.n_logits:,} logits are not finite")
    grown = engine.captures - engine.captures_before
    if grown:
        findings.fault(f"{grown} graphs were captured while rows ran; a sealed executor captures none")
    verdict = findings.verdict(
        "finite and sealed",
        f"{engine.n_logits:,} logits of all calls; captures {engine.captures_before} before and after",
    )
    return replace(verdict, n_rows=engine.n_rows)


def _lengths(rows: Sequence[Row]) -> str:
    lengths = sorted({len(row.ids) for row in rows})
    if not lengths:
        return "no row"
    return (
        f"rows of {lengths[0]:,} tokens" if len(lengths) == 1 else f"rows of {lengths[0]:,} to {lengths[-1]:,} tokens"
    )


def _once(notes: Sequence[str]) -> list[str]:
    """Notes that differ only before the colon, once each with how many more there are."""
    by_reason: dict[str, list[str]] = {}
    for note in notes:
        by_reason.setdefault(note.partition(": ")[2], []).append(note)
    return [f"{each[0]} (and {len(each) - 1} more)" if len(each) > 1 else each[0] for each in by_reason.values()]
