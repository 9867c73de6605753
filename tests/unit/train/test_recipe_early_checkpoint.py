"""Recipes, early stopping, learning rates, checkpoints on disk.

Refuses to run a model. Trap: a checkpoint must be whole or the one before, whatever happens while it is written.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from decider.errors import ConfigError
from decider.train import checkpoint
from decider.train.augment import OFF
from decider.train.checkpoint import Checkpoint
from decider.train.early import Evaluation, TaskFigures, Watch, evaluation_of
from decider.train.loss import LossSpec
from decider.train.recipe import PRESETS, RATES, Recipe, recipe_of
from decider.train.step import learning_rate


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "either epochs"),
        ({"epochs": 1.0, "minutes": 1.0}, "either epochs"),
        ({"epochs": 0.0}, "epochs is 0.0"),
        ({"epochs": math.nan}, "epochs is nan"),
        ({"epochs": 1.0, "rank": 0}, "rank is 0"),
        ({"epochs": 1.0, "method": "half"}, "method is 'half'"),
        ({"epochs": 1.0, "learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"epochs": 1.0, "smoothing": 1.0}, "smoothing is 1.0"),
        ({"epochs": 1.0, "seed": -1}, "seed is -1"),
    ],
)
def test_a_recipe_refuses_what_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        recipe_of(None, given)


def test_what_is_given_wins_over_a_preset() -> None:
    assert recipe_of("mini", {}) == Recipe(**PRESETS["mini"])
    made = recipe_of("mini", {"epochs": 3.0, "method": "full", "brier": 0.25, "seed": None})
    assert (made.epochs, made.minutes, made.method, made.seed) == (3.0, None, "full", 0)
    assert made.learning_rate == RATES["full"]
    assert made.loss == LossSpec(brier=0.25, consistency=2.0)
    # Orders that are not asked are not compared, unless that is said.
    plain = recipe_of("mini", {"augmentation": OFF})
    assert (plain.augmentation, plain.loss.consistency) == (OFF, 0.0)
    with pytest.raises(ConfigError, match="no question is asked in two orders"):
        recipe_of("mini", {"augmentation": OFF, "consistency": 1.0})
    assert recipe_of(None, {"epochs": 1.0}).learning_rate == RATES["lora"]


def test_the_rate_rises_then_falls() -> None:
    recipe = Recipe(epochs=1.0, learning_rate=1.0, warmup=0.1, final_rate=0.1)
    rates = [learning_rate(recipe, progress / 100) for progress in range(101)]
    assert rates[0] > 0
    assert rates[5] == pytest.approx(0.5)
    assert max(rates) == rates[10] == pytest.approx(1.0)
    assert rates[55] == pytest.approx(0.55)
    assert rates[100] == pytest.approx(0.1)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_a_run_is_over_when_nothing_got_better() -> None:
    watch = Watch(patience=2)
    for step, nll in ((1, 0.9), (2, 1.0), (3, 0.8), (4, math.nan)):
        watch = watch.after(nll, step)
        assert not watch.is_over
    watch = watch.after(0.8, 5)
    assert (watch.best_step, watch.best_nll, watch.is_over) == (3, 0.8, True)


def test_tasks_count_alike_whatever_their_size() -> None:
    tasks = {"a": TaskFigures(1000, 0.2, 0.9, 0.5, 0.1), "b": TaskFigures(1, 1.0, 0.5, 0.5, 0.1)}
    found = Evaluation(3, tasks, temperature=1.5, calibrated_nll=0.5)
    assert found.nll == pytest.approx(0.6)
    assert found.accuracy == pytest.approx(0.7)
    assert evaluation_of(found.to_json()) == found


def made(step: int, best: int) -> Checkpoint:
    trained = {"w": torch.full((2, 2), float(step))}
    optimizer = {"w/step": torch.tensor(float(step)), "w/exp_avg": torch.ones(2, 2, dtype=torch.float64)}
    watch = {"patience": 2, "best_nll": 0.5, "best_step": best, "n_worse": 0}
    return Checkpoint(step, 1.5, {"seed": 1}, ({"step": 1, "loss": 0.25},), watch, trained, optimizer)


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path) is None
    checkpoint.save(tmp_path, made(7, 0))
    found = checkpoint.load(tmp_path)
    assert found is not None
    wanted = made(7, 0)
    for field in ("step", "elapsed_s", "facts", "history", "watch"):
        assert getattr(found, field) == getattr(wanted, field)
    for ours, theirs in ((found.trained, wanted.trained), (found.optimizer, wanted.optimizer)):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in ours)


def test_the_best_weights_stay_until_a_checkpoint_names_others(tmp_path: Path) -> None:
    checkpoint.save_best(tmp_path, 5, {"w": torch.ones(1)})
    checkpoint.save(tmp_path, made(5, 5))
    checkpoint.save_best(tmp_path, 9, {"w": torch.zeros(1)})
    assert checkpoint.load_best(tmp_path, 5)["w"] == 1
    checkpoint.save(tmp_path, made(9, 9))
    assert checkpoint.load_best(tmp_path, 9)["w"] == 0
    with pytest.raises(ConfigError, match=r"best-5\.safetensors"):
        checkpoint.load_best(tmp_path, 5)


def test_a_write_that_fails_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, made(3, 0))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def refuse(*_: object, **__: object) -> None:
        raise SafetensorError("I/O error")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(ConfigError, match="No space"):
            checkpoint.save(tmp_path, made(4, 0))
    # What safetensors itself says of a full disk is neither.
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save_file", refuse)
        with pytest.raises(ConfigError, match="I/O error; free some space"):
            checkpoint.save(tmp_path, made(4, 0))
    assert [file.name for file in (tmp_path / checkpoint.FOLDER).iterdir()] == [checkpoint.STATE]
    found = checkpoint.load(tmp_path)
    assert found is not None
    assert found.step == 3


def test_drafts_of_a_killed_run_do_not_pile_up(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, made(3, 0))
    (tmp_path / checkpoint.FOLDER / f".{checkpoint.STATE}-half").write_bytes(b"x")
    checkpoint.save(tmp_path, made(4, 0))
    assert [file.name for file in (tmp_path / checkpoint.FOLDER).iterdir()] == [checkpoint.STATE]


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, made(3, 0))
    path = tmp_path / checkpoint.FOLDER / checkpoint.STATE
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ConfigError, match="cannot read the checkpoint"):
        checkpoint.load(tmp_path)


def test_recipes_differ_by_every_field() -> None:
    recipe = Recipe(epochs=1.0)
    assert replace(recipe, seed=1).to_json() != recipe.to_json()
