"""What a user may call a model, and folders that appear whole or not at all. Refuses the network.

Trap: a folder named like a Hub id must win over the Hub.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from decider.errors import ModelError
from decider.model import source
from decider.model.cache import cache_dir, publish
from decider.model.source import list_models, resolve

TinyFolder = Callable[[str], Path]


def test_a_local_folder_wins_over_a_hub_id(
    tiny_folder: TinyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "name").symlink_to(tiny_folder("llama"))
    monkeypatch.chdir(tmp_path)
    found = resolve("org/name", gguf_file=None, cache=tmp_path / "cache", say=print)
    assert (found.path, found.name) == (Path("org/name"), "org/name")


def test_a_hub_id_is_fetched_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def snapshot(repository: str, _say: object, *, only: str | None = None) -> Path:
        asked.append((repository, only))
        return tmp_path

    monkeypatch.setattr(source, "snapshot", snapshot)
    assert resolve("org/name", gguf_file=None, cache=tmp_path, say=print).path == tmp_path
    with pytest.raises(ModelError, match="no GGUF file"):
        resolve("org/name", gguf_file="q4.gguf", cache=tmp_path, say=print)
    assert asked == [("org/name", None), ("org/name", "q4.gguf")]


def test_the_hub_out_of_reach_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"cannot fetch 'org/name' from the Hub.*local folder") as caught:
        resolve("org/name", gguf_file=None, cache=tmp_path, say=print)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "gguf_file", "said"),
    [
        ("smollm-2", None, "did you mean 'smollm2'"),
        ("no model of this name", None, "Hub id"),
        ("missing.gguf", None, "no model 'missing.gguf'"),
        ("smollm2", "x.gguf", "without a folder"),
        ("empty", None, "no config.json; it needs"),
        ("with-gguf", None, "gguf_file='a.gguf'"),
        ("with-gguf", "b.gguf", "there is no GGUF file"),
        ("with-gguf", "a.gguf", "not a readable GGUF file"),
        ("with-gguf/a.gguf", None, "not a readable GGUF file"),
        ("with-gguf/note.txt", None, "no model"),
    ],
)
def test_what_is_no_model_is_said_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, gguf_file: str | None, said: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "with-gguf").mkdir()
    (tmp_path / "with-gguf" / "a.gguf").write_bytes(b"GGUF, but no more")
    (tmp_path / "with-gguf" / "note.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=said):
        resolve(model, gguf_file=gguf_file, cache=tmp_path / "cache", say=print)
    assert not list((tmp_path / "cache").glob("gguf/*"))


def test_the_cache_is_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DECIDER_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("DECIDER_CACHE")
    assert cache_dir().name == "decider"


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def fails(draft: Path) -> None:
        (draft / "half").write_text("x")
        raise ModelError("stopped")

    with pytest.raises(ModelError, match="stopped"):
        publish(tmp_path / "target", fails)
    assert list(tmp_path.iterdir()) == []
    made = publish(tmp_path / "target", lambda draft: (draft / "whole").touch())
    assert [file.name for file in made.iterdir()] == ["whole"]
    assert publish(made, fails) == made


def test_of_two_at_once_one_wins_and_both_have_it(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=10)
    results = []

    def fill(draft: Path) -> None:
        both.wait()
        (draft / "whole").touch()

    def make() -> None:
        results.append(publish(tmp_path / "target", fill))

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [tmp_path / "target"] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelError, match="set DECIDER_CACHE"):
        publish(tmp_path / "file" / "target", lambda _draft: None)


def test_the_list_needs_no_cache(tmp_path: Path) -> None:
    (lone,) = list_models(tmp_path / "nowhere")
    assert "fetched on first use, 93 MB" in lone.state
    (tmp_path / "gguf" / "model-0123").mkdir(parents=True)
    assert [listing.origin for listing in list_models(tmp_path)][1:] == ["converted from GGUF"]
