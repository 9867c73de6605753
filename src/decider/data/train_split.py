"""Which items of a labelled set are trained, which stop training early, and which are held out for its evaluation.

It refuses to know wordings. Trap: of a set that is also an evaluation task, the whole test side stays out, and not only
the items that an evaluation file shows, so that a larger evaluation is not one on training items.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from decider.data.build import LIMIT
from decider.data.items import Item
from decider.data.split import Near, distinct, is_test, normalised, split
from decider.data.train_tasks import TrainTask

TEST_SHARE = 0.2
"""Of a set that has no evaluation task."""
STOP_SHARE = 0.03
"""Of what is left, for early stopping."""
MOST_TEST = 600


@dataclass(frozen=True, slots=True)
class TrainSplit:
    """Items by hash, and what was left out."""

    train: tuple[Item, ...]
    stop: tuple[Item, ...]
    test: tuple[Item, ...]
    """Only of a set that has no evaluation task."""
    n_found: int
    n_repeated: int
    n_evaluation: int
    """Items of the evaluation's side of the split."""
    n_near: int
    """Items near one of those, or near one that stops training."""


def train_split(each: TrainTask, items: list[Item], limit: int, most_stop: int) -> TrainSplit:
    """At most `limit` items to train and `most_stop` to stop, by hash, whatever order `items` come in."""
    kept = distinct(items)
    ordered = [kept[digest] for digest in sorted(kept)]
    test: tuple[Item, ...] = ()
    if each.evaluated:
        shown = {normalised(item.group) for item in split(each.task, items, LIMIT).calibrate}
        away = [item for item in ordered if is_test(item.group) or normalised(item.group) in shown]
    else:
        away = [item for item in ordered if share(item.group, "test") < TEST_SHARE]
        test = tuple(away[:MOST_TEST])
    barred = {normalised(item.group) for item in away}
    rest = [item for item in ordered if normalised(item.group) not in barred]
    free = _far(each, rest, away)
    stop = [item for item in free if share(item.group, "stop") < STOP_SHARE][:most_stop]
    stopping = {normalised(item.group) for item in stop}
    others = _far(each, [item for item in free if normalised(item.group) not in stopping], stop)
    return TrainSplit(
        tuple(others[: min(limit, each.cap)]),
        tuple(stop),
        test,
        len(items),
        len(items) - len(kept),
        len(ordered) - len(rest),
        len(rest) - len(others) - sum(normalised(item.group) in stopping for item in free),
    )


def share(text: str, purpose: str) -> float:
    """A number from 0 to 1 that the text decides, another for each purpose."""
    digest = hashlib.sha256(f"{purpose}\n{normalised(text)}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


def _far(each: TrainTask, items: list[Item], away: list[Item]) -> list[Item]:
    if each.task.templated:
        return items
    near = Near(item.group for item in away)
    return [item for item in items if not near.has(item.group)]
