"""What a user may call a model, when a GGUF file is converted again, what the list shows; naming loads nothing.

Refuses the network and real conversions: `convert` is a stand-in. Trap: a file replaced by one of the same name and
size is another model.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from decider.errors import ModelError
from decider.model import source
from decider.model.embedded import wheel_target
from decider.model.source import list_models, resolve

TinyFolder = Callable[[str], Path]


@pytest.fixture
def converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """() → the folder that `model.gguf` of this test resolves to."""

    def copy(file: Path, draft: Path, _say: object) -> None:
        (draft / "model.safetensors").write_bytes(file.read_bytes())

    monkeypatch.setattr("decider.model.gguf.convert", copy)
    file = tmp_path / "model.gguf"
    return lambda: resolve(file, gguf_file=None, cache=tmp_path / "cache", say=print).path


def write(file: Path, content: bytes, *, second: int) -> None:
    file.write_bytes(content)
    os.utime(file, (second, second))


def test_a_replaced_file_of_the_same_size_is_converted_again(converted: Callable[[], Path], tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", b"old", second=1)
    old = converted()
    assert converted() == old
    write(tmp_path / "model.gguf", b"new", second=2)
    assert (converted() / "model.safetensors").read_bytes() == b"new"
    assert (old / "model.safetensors").read_bytes() == b"old"


@pytest.mark.parametrize("name", ["decider_config.json", "decider_wordings.npy"])
def test_what_changed_beside_it_is_not_missed(converted: Callable[[], Path], tmp_path: Path, name: str) -> None:
    write(tmp_path / "model.gguf", b"x", second=1)
    assert not (converted() / name).exists()
    for second, text in enumerate((b"{}", b"{ }")):
        write(tmp_path / name, text, second=second)
        assert (converted() / name).read_bytes() == text


def test_the_list_shows_sizes_and_hides_drafts(tmp_path: Path) -> None:
    for folder in (wheel_target(tmp_path), tmp_path / "gguf" / "done-0123", tmp_path / "gguf" / ".half-0123"):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(bytes(2_000_000))
    listed = [(listing.name, listing.state) for listing in list_models(tmp_path)]
    assert listed[1:] == [
        ("smollm2-135m-instruct", "ready, 2 MB"),
        (str(tmp_path / "gguf" / "done-0123"), "ready, 2 MB"),
    ]


def test_finding_a_ready_model_and_listing_import_nothing_heavy(tmp_path: Path) -> None:
    wheel_target(tmp_path).mkdir(parents=True)
    code = (
        "import sys; from pathlib import Path; from decider.model.source import list_models, resolve\n"
        f"cache = Path({str(tmp_path)!r}); list_models(cache)\n"
        "resolve('smollm2', gguf_file=None, cache=cache, say=print)\n"
        "sys.exit(' '.join({'torch', 'transformers', 'numpy', 'huggingface_hub'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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


def test_the_list_needs_no_cache(tmp_path: Path) -> None:
    assert all("fetched on first use, 93 MB" in one.state for one in list_models(tmp_path / "nowhere")[1:])
    assert len(list_models(tmp_path / "nowhere")) == 2
    (tmp_path / "gguf" / "model-0123").mkdir(parents=True)
    assert [listing.origin for listing in list_models(tmp_path)][2:] == ["converted from GGUF"]
