"""The built folder: the same bytes every time, whole or not at all, and never over somebody's files.

Refuses the network: made wheels lie where a user offline would put them. Trap: a folder that is replaced is in danger
while it is replaced, so a build that fails half-way is tried on one that is there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from made_wheels import made_tasks

from decider.data import build as build_module
from decider.data.build import MADE_BY, build, named
from decider.data.fetch import wheel_of
from decider.data.folder import MANIFEST
from decider.data.items import Item, Read, Task
from decider.data.sources import SOURCES, VADER
from decider.data.tasks import TASKS
from decider.errors import ConfigError, ModelError, SetupError
from decider.model.wheel import Say, Wheel
from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.wire import parse_request


def refuse(_wheel: Wheel, _folder: Path, _say: Say) -> None:
    raise ModelError("no network here")


def silent(_line: str) -> None:
    pass


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def tasks(cache: Path) -> tuple[Task, ...]:
    return made_tasks(cache / "downloads")


def backwards(read: Read) -> Read:
    return lambda archive: reversed(list(read(archive)))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_two_builds_are_equal_byte_for_byte(tmp_path: Path, cache: Path, tasks: tuple[Task, ...]) -> None:
    first = build(tmp_path / "a", cache, silent, tasks=tasks, download=refuse)
    turned = tuple(replace(task, read=backwards(task.read)) for task in tasks)
    second = build(tmp_path / "deep" / "b", cache, silent, tasks=turned, download=refuse)
    assert contents(first) == contents(second)
    names = [*(f"{task.name}.{side}.jsonl" for task in tasks for side in ("calibrate", "test"))]
    assert set(contents(first)) == {*names, "all.calibrate.jsonl", "all.test.jsonl", MANIFEST}


def test_every_line_is_a_labelled_decision(tmp_path: Path, cache: Path, tasks: tuple[Task, ...]) -> None:
    out = build(tmp_path / "a", cache, silent, tasks=tasks, download=refuse)
    ids = set()
    for side in ("calibrate", "test"):
        whole = (out / f"all.{side}.jsonl").read_text(encoding="utf-8")
        parts = [(out / f"{task.name}.{side}.jsonl").read_text(encoding="utf-8") for task in tasks]
        assert whole == "".join(parts)
        for line in whole.splitlines():
            entry = json.loads(line)
            assert list(entry) == ["id", "task", "state", "questions", "gold"]
            request = parse_request({key: entry[key] for key in ("state", "questions")}, DEFAULT_LIMITS)
            assert entry["gold"].keys() == request.questions.keys()
            assert entry["id"] not in ids
            ids.add(entry["id"])


def test_the_manifest_says_what_was_made_of_what(tmp_path: Path, cache: Path, tasks: tuple[Task, ...]) -> None:
    out = build(tmp_path / "a", cache, silent, tasks=tasks, limit=5, download=refuse)
    manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    assert (manifest["made_by"], manifest["limit"]) == (MADE_BY, 5)
    for name, said in manifest["files"].items():
        content = (out / name).read_bytes()
        assert said == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert [source["requirement"] for source in manifest["sources"]] == sorted(
        source.wheel.requirement for source in SOURCES
    )
    for task in tasks:
        said = manifest["tasks"][task.name]
        assert (said["package"], said["licence"]) == (task.source.package, task.licence)
        for side in ("calibrate", "test"):
            lines = (out / f"{task.name}.{side}.jsonl").read_text(encoding="utf-8").splitlines()
            assert said[side] == {
                "items": len(lines),
                "decisions": sum(len(json.loads(line)["gold"]) for line in lines),
            }
            assert 1 <= len(lines) <= 5
    assert str(tmp_path) not in json.dumps(manifest)


def test_an_older_build_is_replaced_as_a_whole(tmp_path: Path, cache: Path, tasks: tuple[Task, ...]) -> None:
    out = build(tmp_path / "a", cache, silent, tasks=tasks, download=refuse)
    build(out, cache, silent, tasks=named(["satire"], tasks), download=refuse)
    assert set(contents(out)) == {
        "satire.calibrate.jsonl",
        "satire.test.jsonl",
        "all.calibrate.jsonl",
        "all.test.jsonl",
        MANIFEST,
    }
    assert [path.name for path in tmp_path.iterdir() if path != cache] == ["a"]


@pytest.mark.parametrize("there", [True, False])
def test_a_build_that_fails_leaves_things_as_they_were(
    tmp_path: Path, cache: Path, tasks: tuple[Task, ...], monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    out = tmp_path / "a"
    if there:
        build(out, cache, silent, tasks=tasks, download=refuse)
    before = contents(out) if there else {}

    def full(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(build_module, "line_of", full)
    with pytest.raises(ConfigError, match=r"cannot write .*No space left"):
        build(out, cache, silent, tasks=tasks, limit=3, download=refuse)
    assert out.exists() is there
    assert (contents(out) if there else {}) == before
    assert [path.name for path in tmp_path.iterdir() if path != cache] == (["a"] if there else [])


def test_other_peoples_files_are_left_alone(tmp_path: Path, cache: Path, tasks: tuple[Task, ...]) -> None:
    out = tmp_path / "a"
    out.mkdir()
    build(out, cache, silent, tasks=tasks, limit=2, download=refuse)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds other files"):
        build(out, cache, silent, tasks=tasks, download=refuse)
    assert (out / "notes.txt").read_text() == "mine"
    (out / MANIFEST).write_text("[]")
    (out / "notes.txt").unlink()
    with pytest.raises(ConfigError, match="holds other files"):
        build(out, cache, silent, tasks=tasks, download=refuse)
    with pytest.raises(ConfigError, match="is a file"):
        build(out / MANIFEST, cache, silent, tasks=tasks, download=refuse)


def test_a_package_that_is_not_to_be_had_says_what_to_do(tmp_path: Path, cache: Path, tasks: tuple[Task, ...]) -> None:
    shutil.rmtree(cache)
    with pytest.raises(SetupError) as caught:
        build(tmp_path / "a", cache, silent, tasks=tasks, download=refuse)
    for text in ("bfcl-eval==2026.3.23", "no network here", str(cache / "downloads"), tasks[0].source.wheel.file):
        assert text in str(caught.value)
    assert not (tmp_path / "a").exists()


def test_a_damaged_wheel_is_refused(tmp_path: Path, cache: Path, tasks: tuple[Task, ...]) -> None:
    wheel = cache / "downloads" / VADER.wheel.file
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(SetupError, match=r"vaderSentiment==3\.3\.2.*SHA-256"):
        build(tmp_path / "a", cache, silent, tasks=named(["word_feeling"], tasks), download=refuse)


def test_a_wheel_is_fetched_once_and_checked_every_time(cache: Path, tasks: tuple[Task, ...]) -> None:
    source = named(["word_feeling"], tasks)[0].source
    given = cache / "downloads" / source.wheel.file
    elsewhere = given.rename(cache / "elsewhere")
    said: list[str] = []

    def copy(wheel: Wheel, folder: Path, _say: Say) -> None:
        (folder / "requirements.txt").touch()
        shutil.copy(elsewhere, folder / wheel.file)

    kept = wheel_of(source, cache, said.append, copy)
    assert wheel_of(source, cache, said.append, refuse) == kept
    assert said == ["vaderSentiment==3.3.2: fetching 0.1 MB, once"]
    assert [path.name for path in kept.parent.iterdir()] == [source.wheel.file]
    kept.write_bytes(b"")
    with pytest.raises(SetupError, match="damaged"):
        wheel_of(source, cache, said.append, refuse)


@pytest.mark.parametrize("error", [ModelError("gone"), ConnectionError("gone")])
def test_a_failed_fetch_leaves_nothing(cache: Path, tasks: tuple[Task, ...], error: Exception) -> None:
    shutil.rmtree(cache)

    def half(wheel: Wheel, folder: Path, _say: Say) -> None:
        (folder / wheel.file).write_bytes(b"half")
        raise error

    with pytest.raises(SetupError, match="gone"):
        wheel_of(tasks[0].source, cache, silent, half)
    assert list((cache / "wheels").iterdir()) == []


@pytest.mark.parametrize("error", [KeyError("There is no item named 'x'"), ValueError("bad JSON"), IndexError()])
def test_a_wheel_with_other_contents_names_the_task(
    tmp_path: Path, cache: Path, tasks: tuple[Task, ...], error: Exception
) -> None:
    def read(_archive: object) -> Iterator[Item]:
        raise error

    with pytest.raises(SetupError, match=r"tool_choice: bfcl_eval.*does not hold what was expected"):
        build(tmp_path / "a", cache, silent, tasks=(replace(tasks[0], read=read),), download=refuse)


def test_a_task_without_items_for_a_split_is_said(tmp_path: Path, cache: Path, tasks: tuple[Task, ...]) -> None:
    empty = replace(tasks[0], read=lambda _archive: iter(()))
    with pytest.raises(SetupError, match=r"tool_choice: .*no items for one of the splits"):
        build(tmp_path / "a", cache, silent, tasks=(empty,), download=refuse)


def test_tasks_by_name_keep_their_order() -> None:
    assert [task.name for task in named(["word_sense", "satire"], TASKS)] == ["satire", "word_sense"]
    with pytest.raises(ConfigError, match="no task 'sarcasm'; there are tool_choice, "):
        named(["satire", "sarcasm"], TASKS)


def test_sources_and_tasks_are_pinned_and_named_once() -> None:
    assert len({task.name for task in TASKS}) == len(TASKS)
    assert {task.source for task in TASKS} == set(SOURCES)
    for source in SOURCES:
        name, version = source.wheel.requirement.split("==")
        assert source.wheel.file == f"{name.replace('-', '_')}-{version}-{source.wheel.file.split('-', 2)[2]}"
        assert source.wheel.file.endswith("-none-any.whl")
        assert len(source.wheel.sha256) == 64
