"""Steps of training, made ahead: items asked anew, tokenised, packed, and laid out as tables, by worker processes.

It refuses to know devices and models. A step is what its number says, whoever makes it and whenever: items by a
shuffle of the epoch, askings by the item's place in it. Trap: a worker must not outlive a parent that was killed. It
ends because its pipe breaks, so no other process may hold the pipe's other end.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, count, cycle
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from decider.errors import ConfigError, EngineError, InputError
from decider.evaluate.labelled import LabelledItem
from decider.plan.pack import Pack
from decider.plan.packs import PackLimits, plan_packs
from decider.tokens.rows import Row
from decider.train.augment import TWIN_OPTIONS, Asking, Augmentation, asking_of, twin_of
from decider.train.examples import NO_TARGET, Example, Reading, Twin
from decider.train.stop import SIGNALS
from decider.train.tables import IntTable, PackTables, tables_of

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

SAMPLED_ITEMS = 512
"""By which the tokens of a step are told before any is made."""
SPREAD = 1.8
"""How many standard deviations of a step's tokens are left free where packs have one size: few steps then need a pack
more than they fill."""


REPEATS = 2
"""How often an item is asked in one pass at most. A small set that is asked twenty times is learned by heart."""


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What is right at a pack's slots; all [slots]."""

    n_options: IntTable
    right: IntTable
    """0 where there is no target; its weight is 0 there."""
    weight: NDArray[np.float32]
    twin: IntTable
    """The slot of the same question in another order; a slot's own where there is none in the pack."""
    order: IntTable
    """[slots, TWIN_OPTIONS] the place of each option there."""


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """One optimiser step."""

    packs: tuple[tuple[PackTables, Targets], ...]
    weight: float
    """Of all targets together."""
    row_tokens: int
    """Tokens of all rows, each counted in full."""
    pack_tokens: int
    """Tokens of all packs: what is computed."""
    n_refused: int
    """Items that the model cannot take."""


@dataclass(frozen=True, slots=True)
class Kitchen:
    """Makes steps."""

    items: Sequence[LabelledItem]
    reading: Reading
    augmentation: Augmentation
    seed: int
    items_per_step: int
    limits: PackLimits
    n_taps: int
    by_blocks: bool = False
    """Tables for the compiled forward."""
    balance: float = 1.0
    """A task of n items has a share of the decisions in proportion to n to the power of this."""

    @property
    def steps_per_epoch(self) -> int:
        """The last step of an epoch may be shorter."""
        return -(-len(self.items) // self.items_per_step)

    def step(self, number: int) -> StepBatch:
        """Step `number`, from 0."""
        epoch, place = divmod(number, self.steps_per_epoch)
        chosen = self.order(epoch)[place * self.items_per_step : (place + 1) * self.items_per_step]
        examples = [self.example(int(index), epoch) for index in chosen]
        found = [example for example in examples if example is not None]
        return batch_of(found, self.limits, self.n_taps, n_refused=len(examples) - len(found), by_blocks=self.by_blocks)

    def order(self, epoch: int) -> IntTable:
        """The items of pass `epoch`, by their places."""
        # Items that are read when they are asked for are not asked for their tasks alone.
        tasks = [item.task for item in self.items] if self.balance < 1 else [""] * len(self.items)
        return epoch_order(tasks, self.balance, seed=self.seed, epoch=epoch)

    def example(self, index: int, epoch: int) -> Example | None:
        """Item `index` as it is asked in pass `epoch`; None for one that the model cannot take."""
        asking = asking_of(
            self.items[index],
            self.augmentation,
            seed=self.seed,
            epoch=epoch,
            index=index,
            schema_first=self.reading.trains_schema_first,
        )
        twin = twin_of(asking, self.augmentation, seed=self.seed, epoch=epoch, index=index)
        try:
            return self.reading.example(asking, twin)
        # Counted, and told by whoever asked for the step.
        except InputError:
            return None


def epoch_order(tasks: Sequence[str], balance: float, *, seed: int, epoch: int) -> IntTable:
    """The places of an epoch's items, about as many as there are `tasks` (one an item).

    A task whose share is more than its items has them again, at most `REPEATS` times; beyond, the others share the
    rest. No item of a task comes twice more than another of it.
    """
    draw = np.random.default_rng([seed, epoch])
    if balance == 1.0:
        return draw.permutation(len(tasks))
    _, codes, counts = np.unique(np.array(tasks), return_inverse=True, return_counts=True)
    chosen = []
    for code, (n_own, n_wanted) in enumerate(zip(counts.tolist(), _shares(counts, balance), strict=True)):
        own = np.flatnonzero(codes == code)
        often, rest = divmod(n_wanted, n_own)
        chosen += [np.tile(own, often), draw.permutation(own)[:rest]]
    return draw.permutation(np.concatenate(chosen))


def _shares(counts: IntTable, balance: float) -> list[int]:
    """How many items of each task an epoch has, of `counts` items."""
    shares = counts.astype(np.float64) ** balance
    most = REPEATS * counts.astype(np.float64)
    capped = np.zeros(len(counts), np.bool_)
    while True:
        free = shares[~capped].sum()
        wanted = np.where(capped, most, shares * (counts.sum() - most[capped].sum()) / free)
        beyond = ~capped & (wanted > most)
        if not beyond.any():
            return [max(1, round(each)) for each in wanted.tolist()]
        capped |= beyond


def batch_of(
    examples: Sequence[Example], limits: PackLimits, n_taps: int, *, n_refused: int = 0, by_blocks: bool = False
) -> StepBatch:
    """The packs of `examples`, planned together as the packed executor plans a call."""
    rows = [row for example in examples for row in example.rows]
    targets = [own for example in examples for own in example.targets]
    weights = [own for example in examples for own in example.weights]
    twins = _twins(examples)
    packs = tuple(
        (tables_of(pack, n_taps, by_blocks=by_blocks), _targets(pack, rows, targets, weights, twins))
        for pack in plan_packs(rows, limits)
    )
    return StepBatch(
        packs=packs,
        weight=float(sum(map(sum, weights))),
        row_tokens=sum(len(row.ids) for row in rows),
        pack_tokens=sum(tables.n_tokens for tables, _ in packs),
        n_refused=n_refused,
    )


def _twins(examples: Sequence[Example]) -> list[Twin]:
    """Of all examples, with rows counted over all of them."""
    twins = []
    n_before = 0
    for example in examples:
        for twin in example.twins:
            first, second = (replace(slot, row=slot.row + n_before) for slot in (twin.first, twin.second))
            twins.append(Twin(first, second, twin.order))
        n_before += len(example.rows)
    return twins


def _targets(
    pack: Pack,
    rows: Sequence[Row],
    targets: Sequence[tuple[int, ...]],
    weights: Sequence[tuple[float, ...]],
    twins: Sequence[Twin],
) -> Targets:
    right = np.array([target for index in pack.rows for target in targets[index]], np.int64)
    starts = dict(zip(pack.rows, accumulate((len(targets[index]) for index in pack.rows), initial=0), strict=False))
    twin, order = np.arange(len(right)), np.tile(np.arange(TWIN_OPTIONS), (len(right), 1))
    for each in twins:
        # Two rows of one state seldom part, but a pack may be full.
        if each.first.row in starts and each.second.row in starts:
            first, second = (starts[slot.row] + slot.index for slot in (each.first, each.second))
            twin[first], twin[second] = second, first
            order[first, : len(each.order)] = each.order
            order[second, : len(each.order)] = np.argsort(each.order)
    return Targets(
        n_options=np.array([n for index in pack.rows for n in rows[index].n_options], np.int64),
        right=np.where(right == NO_TARGET, 0, right),
        weight=np.array([weight for index in pack.rows for weight in weights[index]], np.float32),
        twin=twin,
        order=order,
    )


def items_per_step(kitchen: Kitchen, tokens: int) -> int:
    """How many items fill packs of about `tokens` tokens together, by a sample as it would be trained on.

    Packs of one size keep some room, `SPREAD`. Raises ConfigError if no item can be taken.
    """
    sample = kitchen.order(0)[:SAMPLED_ITEMS].tolist()
    found = [example for index in sample if (example := kitchen.example(index, 0)) is not None]
    if not any(example.rows for example in found):
        fault = _fault(kitchen, sample)
        raise ConfigError(f"this model can take none of {len(sample)} items of the data: {fault}; use other data")
    lengths = np.array([sum(len(row.ids) for row in example.rows) for example in found])
    if kitchen.limits.ladder:
        size = kitchen.limits.max_tokens
        tokens = size * max(1, round(tokens / size))
        # Of a sum of items drawn alike, as a share of it.
        deviation = float(lengths.std() / (lengths.mean() * tokens) ** 0.5)
        tokens = int(tokens / (1 + SPREAD * deviation))
    exact = PackLimits(kitchen.limits.max_tokens, kitchen.limits.max_sequences, kitchen.limits.max_slots)
    # In portions of a step's size, as the more there are the more they share.
    portion = max(1, min(len(found), round(tokens / float(lengths.mean()))))
    portions = [found[start : start + portion] for start in range(0, len(found) - portion + 1, portion)]
    rows = [[row for example in each for row in example.rows] for each in portions]
    n_packed_tokens = sum(pack.n_tokens for each in rows for pack in plan_packs(each, exact))
    return max(1, round(tokens * portion * len(portions) / n_packed_tokens))


def _fault(kitchen: Kitchen, sample: Sequence[int]) -> InputError | None:
    for index in sample:
        item = kitchen.items[index]
        try:
            kitchen.reading.example(Asking(item.request, item.gold))
        except InputError as error:
            return error
    return None


Serve = Callable[[], Kitchen]
"""Makes a kitchen anew in a worker; it can be pickled."""


@contextmanager
def steps(kitchen: Kitchen, serve: Serve, *, first: int, workers: int) -> Iterator[Iterator[StepBatch]]:
    """Steps `first`, `first` + 1, … without end, made ahead by `workers` processes, or here where there are none.

    Reading from it raises EngineError if a worker ends.
    """
    if not workers:
        yield map(kitchen.step, count(first))
        return
    # Not forked: a process with threads, or with a card, cannot be.
    context = multiprocessing.get_context("spawn")
    receivers: list[Connection] = []
    processes: list[SpawnProcess] = []
    try:
        for number in range(workers):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(serve, sender, first + number, workers), daemon=True)
            process.start()
            # The worker's own is the only one left: it sees when this process ends, and this one when the worker does.
            sender.close()
            receivers.append(receiver)
            processes.append(process)
        yield map(_received, cycle(receivers))
    finally:
        for receiver in receivers:
            receiver.close()
        for process in processes:
            process.kill()
            process.join()


def _received(receiver: Connection) -> StepBatch:
    try:
        batch: StepBatch = receiver.recv()
    except EOFError as error:
        raise EngineError("a worker that makes steps ahead has ended; what it printed says why") from error
    return batch


def _work(serve: Serve, sender: Connection, first: int, stride: int) -> None:
    """Steps `first`, `first` + `stride`, … into the pipe, each when the one before was taken."""
    # A terminal tells a whole group to end. The run saves first, and ends its workers then.
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    # Its work is not for threads; as many as there are cores, in each worker, would only wait for each other.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    kitchen = serve()
    # Nobody listens any more.
    with suppress(BrokenPipeError, ConnectionResetError):
        for number in count(first, stride):
            sender.send(kitchen.step(number))
