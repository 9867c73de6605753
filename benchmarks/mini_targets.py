"""The aims of decider-mini, set before it was trained, and what was reached of each.

It refuses to judge by a mean alone where an aim is of each task: both stand there. Trap: an ECE is above zero by
chance, the more the fewer decisions there are, so that of few and that of many do not compare as they stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mini_tables import FEW, FEW_OPTIONS, GROUPS, MANY, NAMED, NOT_MEASURED, ORDER, UNSEEN, Figures, Table

from decider.decisions import KINDS
from decider.evaluate.summary import Group
from decider.evaluate.table import number
from decider.model.mini import PACKAGED

CALIBRATED = {"trained": 0.05, "family": 0.05, "daily": 0.05, "lot": 0.05, "never": 0.08, "asked": 0.08}
"""The ECE that is aimed at for each of `GROUPS`."""
EVERYDAY = ("reviews", "spam", "satire", "log_severity")
MOST_MEGABYTES, MOST_MINUTES = 25, 9


def targets(figures: Figures, rates: Sequence[Mapping[str, Any]], minutes: float | None) -> Table:
    """Each aim with what was reached."""
    rows = [*accuracy_targets(figures), *calibration_targets(figures), *order_targets(rates)]
    adapter = PACKAGED / "adapter.safetensors"
    megabytes = adapter.stat().st_size / 1e6 if adapter.is_file() else None
    rows.append(at_most("size of the adapter, MB", MOST_MEGABYTES, megabytes, digits=1))
    rows.append(at_most("minutes of a run of its training, on one card", MOST_MINUTES, minutes, digits=1))
    return Table("Targets", ("", "aim", "reached", "", "which"), tuple(rows), words=True)


def accuracy_targets(figures: Figures) -> Iterator[tuple[str, ...]]:
    """Means of tasks' accuracies."""
    for what, wanted, aim in (
        (f"accuracy, mean of {', '.join(EVERYDAY)}", EVERYDAY, 0.90),
        (f"accuracy, mean of {', '.join(UNSEEN)} (never trained)", UNSEEN, 0.68),
        ("accuracy, mean of the families", tuple(name for name, group in ORDER.items() if group == "family"), 0.93),
        ("accuracy, look-up among 64 options", ("lookup_64",), 0.85),
    ):
        value, missing = figures.mean(wanted)
        if value is None:
            yield what, f"at least {aim:.2f}", "-", NOT_MEASURED, f"{len(missing)} tasks missing, as {missing[0]}"
        else:
            yield what, f"at least {aim:.2f}", number(value), "met" if value >= aim else "missed", ""


def calibration_targets(figures: Figures) -> Iterator[tuple[str, ...]]:
    """ECE of groups together and of tasks one by one, of types, and of many options against few."""
    yield at_most(f"ECE, never trained, {NAMED} together", 0.08, ece(figures.after.get(("unseen", NAMED))))
    for group, aim in CALIBRATED.items():
        yield at_most(f"ECE, {GROUPS[group]} together", aim, ece(figures.after.get(("group", GROUPS[group]))))
        each = [figures.after["task", task] for task in figures.tasks(group)]
        over = [own for own in each if own.equal_width.ece.value > aim]
        within = sum(own.equal_width.ece.value <= own.equal_width.floor.high for own in over)
        names = ", ".join(f"{own.name} {number(own.equal_width.ece.value)}" for own in over)
        said = f"{names}; {within} of these within the noise floor" if over else ""
        verdict = "missed" if over else "met" if each else NOT_MEASURED
        reached = f"{len(each) - len(over)} of {len(each)} tasks" if each else "-"
        yield f"ECE, {GROUPS[group]} one by one", f"at most {aim:.2f}", reached, verdict, said
    for kind in KINDS:
        yield at_most(f"ECE, {kind}", 0.10, ece(figures.after.get(("type", kind))))
    yield many_options(figures)


def many_options(figures: Figures) -> tuple[str, ...]:
    """The ECE of many options against that of few, and how much of it may be chance: the fewer decisions, the more."""
    few, many = (figures.after.get(("few or many", name)) for name in (FEW, MANY))
    what = f"ECE beyond {FEW_OPTIONS} options, against {FEW}"
    if few is None or many is None:
        return at_most(what, None, None)
    own, floor = few.equal_width.ece.value, many.equal_width.floor.high
    said = f"{many.n:,} decisions, whose noise floor is {number(floor)}, against {few.n:,}"
    return (*at_most(what, own, many.equal_width.ece.value, digits=3)[:-1], said)


def order_targets(rates: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """What changes an answer that should not."""
    found = {rate["name"]: rate for rate in rates}
    for name, what, aim in (("order", "answers changed by one rotation", 0.08), ("ids", "by renaming ids", 0.0)):
        rate = found.get(name)
        yield at_most(what, aim, rate["changed_askings"] / rate["askings"] if rate and rate["askings"] else None)


def ece(group: Group | None) -> float | None:
    """Of 15 bins of equal width; None of no group."""
    return None if group is None else group.equal_width.ece.value


def at_most(what: str, aim: float | None, value: float | None, digits: int = 2) -> tuple[str, ...]:
    """A row of the targets."""
    verdict = NOT_MEASURED if value is None or aim is None else "met" if value <= aim else "missed"
    return what, f"at most {number(aim, digits)}", number(value), verdict, ""
