"""Steps are what their numbers say, whoever makes them.

Refuses to run a model. Trap: a worker process imports all of torch, so there is one test with workers, of one start.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from train_data import write_data

from decider.errors import ConfigError, EngineError
from decider.evaluate.labelled import read_labelled
from decider.plan.packs import PackLimits
from decider.questions.request import make_request
from decider.questions.types import Choice, Noul, Question, Score
from decider.train.augment import TWIN_OPTIONS, Asking, Augmentation
from decider.train.examples import NO_TARGET, Reading, reading_of
from decider.train.feed import Kitchen, StepBatch, _received, batch_of, epoch_order, items_per_step, steps
from decider.train.loss import LossSpec
from decider.train.recipe import Recipe
from decider.train.run import Station
from decider.train.stop import SIGNALS
from decider.train.tables import IntTable

TinyFolder = Callable[[str], Path]


@pytest.fixture
def reading(tiny_folder: TinyFolder) -> Reading:
    return reading_of(
        tiny_folder("llama"), config=None, layout=None, max_positions=2048, max_state_tokens=64, schema_first=False
    )


def station(tiny_folder: TinyFolder, tmp_path: Path) -> Station:
    data = write_data(tmp_path / "data", 30, 1) / "train.jsonl"
    recipe = Recipe(epochs=1.0, pack_tokens=500, max_state_tokens=64)
    return Station(data, tiny_folder("llama"), None, None, 2048, 4, 8, recipe)


def same(a: StepBatch, b: StepBatch) -> bool:
    numbers = [(each.weight, each.row_tokens, each.pack_tokens, each.n_refused) for each in (a, b)]
    return numbers[0] == numbers[1] and np.array_equal(joined(a), joined(b))


def joined(batch: StepBatch) -> IntTable:
    return np.concatenate(
        [
            np.concatenate((own.ids, own.positions, own.slots, own.order, own.look_back.ravel(), to.right))
            for own, to in batch.packs
        ]
    )


def test_workers_make_the_same_steps_from_anywhere(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    where = station(tiny_folder, tmp_path)
    kitchen = where()
    assert kitchen.steps_per_epoch == 4
    with steps(kitchen, where, first=0, workers=0) as feed:
        here = list(islice(feed, 9))
    with steps(kitchen, where, first=3, workers=1) as feed:
        ahead = [next(feed)]
        # What a terminal sends to all is for the run, which ends its workers when it has saved.
        (worker,) = multiprocessing.active_children()
        for number in SIGNALS:
            os.kill(worker.pid or 0, number)
        ahead += islice(feed, 4)
    assert len(ahead) == 5
    assert all(same(a, b) for a, b in zip(here[3:8], ahead, strict=True))
    # Another epoch is another order, and other askings.
    assert not any(same(here[0], other) for other in here[1:])
    assert sum(batch.weight for batch in here[:4]) <= 60


def test_a_worker_that_has_ended_is_told() -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    sender.close()
    with pytest.raises(EngineError, match="a worker"):
        _received(receiver)


def test_targets_stand_at_the_slots_of_their_questions(reading: Reading) -> None:
    questions: dict[str, Question] = {
        "c": Choice("Which?", ["a", "b", "c"]),
        "one": Choice("Which?", ["only"]),
        "s": Score("How?", ["low", "mid", "high"], isolated=True),
        "n": Noul("Is it?"),
    }
    example = reading.example(Asking(make_request("state", questions), {"c": 2, "one": 0, "s": 1, "n": 0}))
    assert example.targets == ((2,), (0,), (1,), (0,), (0,))
    assert example.weights == ((1.0,), (1 / 3,), (1 / 3,), (1 / 3,), (1.0,))
    assert [row.n_options for row in example.rows] == [(3,), (2,), (2,), (2,), (2,)]


def test_a_twin_stands_behind_its_question_and_each_knows_the_other(reading: Reading) -> None:
    state = "a state that both share"
    questions: dict[str, Question] = {"n": Noul("Is it?"), "c": Choice("Which?", ["a", "b", "c"])}
    asking = Asking(make_request(state, questions), {"n": 1, "c": 2})
    twin = Asking(make_request(state, {"c": Choice("Which?", ["b", "c", "a"])}), {"c": 1})
    example = reading.example(asking, twin)
    assert example.targets == ((1,), (2,), (1,))
    assert example.weights == ((1.0,),) * 3
    assert [(each.first.row, each.second.row, each.order) for each in example.twins] == [(1, 2, (2, 0, 1))]
    batch = batch_of([reading.example(Asking(asking.request, asking.gold)), example], PackLimits(500, 64, 64), 1)
    ((tables, targets),) = batch.packs
    assert batch.weight == 5
    (slot,) = np.flatnonzero((targets.twin != np.arange(5)) & (targets.right == 2))
    there = targets.twin[slot]
    assert targets.twin[there] == slot
    assert targets.right[there] == targets.order[slot, targets.right[slot]] == 1
    assert targets.order[there, :4].tolist() == [1, 2, 0, 3]
    others = [place for place in range(5) if place not in (slot, there)]
    assert targets.twin[others].tolist() == others
    assert (targets.order[others] == np.arange(TWIN_OPTIONS)).all()
    # The state is computed once for all of them.
    assert tables.n_tokens < batch.row_tokens - 3 * len(reading.example(asking).rows[0].ids) // 3


def test_twins_in_two_packs_are_no_twins(reading: Reading) -> None:
    asking = Asking(make_request("s", {"c": Choice("Which?", ["a", "b"])}), {"c": 0})
    twin = Asking(make_request("s", {"c": Choice("Which?", ["b", "a"])}), {"c": 1})
    batch = batch_of([reading.example(asking, twin)], PackLimits(500, 64, 1), 1)
    assert [targets.twin.tolist() for _, targets in batch.packs] == [[0], [0]]


def test_a_run_that_compares_orders_asks_twins(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    plain = station(tiny_folder, tmp_path)
    weights = []
    for consistency in (0.0, 0.5):
        recipe = Recipe(epochs=1.0, pack_tokens=500, max_state_tokens=64, loss=LossSpec(consistency=consistency))
        weights.append([replace(plain, recipe=recipe)().step(number).weight for number in range(4)])
    # Of the thirty colours about half, and not those asked alone without one.
    assert 5 <= sum(weights[1]) - sum(weights[0]) <= 25


def test_questions_of_one_row_may_have_no_target(reading: Reading) -> None:
    questions: dict[str, Question] = {"a": Noul("Is it?"), "b": Choice("Which?", ["x", "y"])}
    example = reading.example(Asking(make_request("state", questions, independent=False), {"b": 1}))
    assert example.targets == ((NO_TARGET, 1),)
    assert example.weights == ((0.0, 1.0),)


def test_what_the_model_cannot_take_is_counted(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    items = read_labelled(write_data(tmp_path / "data", 6, 1) / "train.jsonl")

    def with_positions(n: int) -> Reading:
        return reading_of(
            tiny_folder("llama"), config=None, layout=None, max_positions=n, max_state_tokens=64, schema_first=False
        )

    batch = Kitchen(items, with_positions(40), Augmentation(), 0, 6, PackLimits(500, 64, 64), 1).step(0)
    assert 0 < batch.n_refused <= 6
    with pytest.raises(ConfigError, match="can take none of 6 items"):
        items_per_step(Kitchen(items, with_positions(3), Augmentation(), 0, 0, PackLimits(500, 64, 64), 1), 1000)


def test_a_step_has_about_as_many_tokens_as_asked_for(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    kitchen = station(tiny_folder, tmp_path)()
    own = replace(kitchen, items_per_step=items_per_step(kitchen, 1500))
    assert 3 <= own.items_per_step < len(own.items)
    assert own.step(0).pack_tokens == pytest.approx(1500, rel=0.25)


def test_packs_of_one_size_are_filled_and_seldom_overflow(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    items = read_labelled(write_data(tmp_path / "data", 400, 1) / "train.jsonl")
    kitchen = replace(
        station(tiny_folder, tmp_path)(), items=items, limits=PackLimits(1024, 4096, 4096, (1024,)), by_blocks=True
    )
    # Two packs, whatever lies between one and a half and two and a half.
    kitchen = replace(kitchen, items_per_step=items_per_step(kitchen, 2300))
    batches = [kitchen.step(number) for number in range(kitchen.steps_per_epoch - 1)]
    assert {tables.n_tokens for batch in batches for tables, _ in batch.packs} == {1024}
    assert all(tables.sight is not None and not tables.spans for batch in batches for tables, _ in batch.packs)
    counts = [len(batch.packs) for batch in batches]
    assert len(counts) > 5
    assert np.mean([count == 2 for count in counts]) >= 0.8


def test_tasks_are_balanced_between_as_they_are_and_all_alike() -> None:
    tasks = ["large"] * 900 + ["small"] * 90 + ["tiny"] * 10

    def counts(balance: float, epoch: int = 0) -> dict[str, int]:
        order = epoch_order(tasks, balance, seed=3, epoch=epoch)
        assert abs(len(order) - 1000) <= 2
        return Counter(tasks[index] for index in order)

    assert counts(1.0) == {"large": 900, "small": 90, "tiny": 10}
    # All alike would be 333, but no item comes more than `REPEATS` times.
    assert counts(0.0) == {"large": 800, "small": 180, "tiny": 20}
    assert counts(0.5) == {"large": 800, "small": 180, "tiny": 20}
    assert counts(0.8)["tiny"] == 20
    assert counts(0.8)["small"] == round(980 * 90**0.8 / (900**0.8 + 90**0.8))
    order = epoch_order(tasks, 0.8, seed=3, epoch=0)
    often = Counter(index for index in order if tasks[index] == "tiny")
    assert set(often.values()) == {2}
    often = Counter(index for index in order if tasks[index] == "small")
    assert len(often) == 90
    assert max(often.values()) - min(often.values()) <= 1
    assert order.tolist() == epoch_order(tasks, 0.8, seed=3, epoch=0).tolist()
    assert order.tolist() != epoch_order(tasks, 0.8, seed=3, epoch=1).tolist()
