"""What asking in several orders is worth: tool choice on real items, by the embedded model.

    python -m pip download --no-deps --dest DIR bfcl-eval==2026.3.23
    python benchmarks/permutations.py DIR/bfcl_eval-2026.3.23-py3-none-any.whl [--items 100] [--dtype auto]

The items are those of `BFCL_v4_multiple.json` (Berkeley function calling leaderboard, Apache-2.0): a user's request and
two to four functions, of which one is right. For 1, 2 and 4 orders: accuracy, negative log-likelihood, how often the
answer changes when the caller lists the options the other way round, the mean of the largest change of a probability
then, and milliseconds an item.

It refuses to judge a model. Trap: rotations of a reversed list are other orders than those of the list, so from three
options on something is left to change; and where the averaged probabilities are nearly equal, little changes an answer.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from decider import Choice, Decider

DATA = "bfcl_eval/data/{}BFCL_v4_multiple.json"
ORDERS = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Item:
    """One request with its functions."""

    state: str
    options: dict[str, object]
    gold: str


def main() -> None:
    """Ask, print one line for each number of orders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--dtype", default="auto")
    options = parser.parse_args()
    items = list(read(options.wheel))[: options.items]
    chance = statistics.mean(1 / len(item.options) for item in items)
    with Decider("smollm2-135m-instruct", dtype=options.dtype) as decider:
        picks = {pick.name: pick.value for pick in decider.picks}
        print(f"{picks['model']}, {picks['executor']}; {len(items)} items, chance {chance:.3f}")
        print(f"{'orders':>6}{'accuracy':>10}{'NLL':>8}{'changed':>9}{'max |Δp|':>10}{'ms':>7}")
        for n_orders in ORDERS:
            print(measure(decider, items, n_orders), flush=True)


def measure(decider: Decider, items: list[Item], n_orders: int) -> str:
    """One line of the table."""
    right = changed = 0
    losses, moved, times = [], [], []
    for item in items:
        began = time.perf_counter()
        ours = ask(decider, item, item.options, n_orders)
        times.append(1e3 * (time.perf_counter() - began))
        turned = ask(decider, item, dict(reversed(item.options.items())), n_orders)
        best, other = (max(each, key=each.__getitem__) for each in (ours, turned))
        right += best == item.gold
        changed += best != other
        losses.append(-math.log(max(ours[item.gold], 1e-12)))
        moved.append(max(abs(ours[name] - turned[name]) for name in ours))
    return (
        f"{n_orders:>6}{right / len(items):>10.3f}{statistics.mean(losses):>8.3f}{changed / len(items):>9.3f}"
        f"{statistics.mean(moved):>10.3f}{statistics.median(times):>7.0f}"
    )


def ask(decider: Decider, item: Item, options: dict[str, object], n_orders: int) -> dict[str, float]:
    """The probability of each function."""
    question = Choice("Which function answers the request?", options)
    return dict(decider.ask(item.state, {"tool": question}, permutations=n_orders).choice("tool").probabilities)


def read(wheel: Path) -> Iterator[Item]:
    """The items of the wheel that have two functions or more, all with names of their own."""
    with zipfile.ZipFile(wheel) as archive:
        asked, answers = (
            [json.loads(line) for line in archive.read(DATA.format(folder)).decode().splitlines()]
            for folder in ("", "possible_answer/")
        )
    gold = {answer["id"]: next(iter(answer["ground_truth"][0])) for answer in answers}
    for entry in asked:
        options: dict[str, object] = {function["name"]: function["description"] for function in entry["function"]}
        if len(options) == len(entry["function"]) > 1:
            yield Item(entry["question"][0][0]["content"], options, gold[entry["id"]])


if __name__ == "__main__":
    main()
