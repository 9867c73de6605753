"""`decider data build eval` and `train` for real: every package from its index, every task, twice.

Refuses to judge answers. Trap: a package that was replaced under its version fails the hash, and a loader that finds
fewer items than the documents say fails here alone.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from decider.data.build import LIMIT, build
from decider.data.families.catalogue import FAMILIES
from decider.data.folder import MANIFEST
from decider.data.split import Near, normalised
from decider.data.tasks import TASKS
from decider.data.train_build import build_train
from decider.data.train_tasks import NEVER, TRAINED

MOST_STATE_CHARS = 2500
BUILD_S = 120.0
TRAIN_BUILD_S = 120.0
MOST_TRAIN_BYTES = 300e6

pytestmark = pytest.mark.long


def test_everything_is_fetched_and_built_the_same_twice(tmp_path: Path) -> None:
    started = time.monotonic()
    first = build(tmp_path / "first", tmp_path / "cache", print, tasks=TASKS, limit=LIMIT)
    elapsed_s = time.monotonic() - started
    print(f"\nfetched and built in {elapsed_s:.1f} s")
    assert elapsed_s <= BUILD_S

    second = build(tmp_path / "second", tmp_path / "cache", print, tasks=TASKS, limit=LIMIT)
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()

    manifest = json.loads((first / MANIFEST).read_text(encoding="utf-8"))
    for task in TASKS:
        said = manifest["tasks"][task.name]
        assert (said["calibrate"]["decisions"], said["test"]["decisions"]) == task.n_decisions, task.name
    for side in ("calibrate", "test"):
        for line in (first / f"all.{side}.jsonl").read_text(encoding="utf-8").splitlines():
            state = json.loads(line)["state"]
            assert len(state if isinstance(state, str) else json.dumps(state)) <= MOST_STATE_CHARS


def test_training_data_are_built_the_same_twice_and_hold_nothing_of_an_evaluation(tmp_path: Path) -> None:
    # Of the processor alone: a registry's answer time and other people's work are not ours.
    started = time.process_time()
    first = build_train(tmp_path / "first", tmp_path / "cache", print)
    elapsed_s = time.process_time() - started
    print(f"\nbuilt in {elapsed_s:.1f} s of one core")
    assert elapsed_s <= TRAIN_BUILD_S
    second = build_train(tmp_path / "second", tmp_path / "cache", print)
    assert (first / MANIFEST).read_bytes() == (second / MANIFEST).read_bytes()
    assert (first / "train.jsonl").stat().st_size <= MOST_TRAIN_BYTES

    manifest = json.loads((first / MANIFEST).read_text(encoding="utf-8"))
    assert {name: said["train"]["items"] for name, said in manifest["tasks"].items()} == {
        each.task.name: each.n_train for each in TRAINED
    } | {family.name: family.share for family in FAMILIES}

    shown = build(tmp_path / "eval", tmp_path / "cache", print, tasks=TASKS, limit=LIMIT)
    states: dict[str, list[str]] = {}
    for side in ("calibrate", "test"):
        for entry in lines(shown / f"all.{side}.jsonl"):
            states.setdefault(str(entry["task"]), []).append(words(entry["state"]))
    near = {each.task.name: Near(states.get(each.task.name, [])) for each in TRAINED if not each.task.templated}
    everything = {normalised(text) for task in states.values() for text in task}
    for name in ("train", "heldout"):
        for entry in lines(first / f"{name}.jsonl"):
            task, text = str(entry["task"]), words(entry["state"])
            assert task not in NEVER
            assert normalised(text) not in everything
            assert task not in near or task == "word_sense" or not near[task].has(text)


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]


def words(state: object) -> str:
    return state.removeprefix("Job title: ") if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
