"""When a GGUF file is converted again, what the list shows, and that naming a model loads nothing.

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

from decider.model.embedded import wheel_target
from decider.model.source import list_models, resolve


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


def test_a_changed_decider_config_beside_it_is_not_missed(converted: Callable[[], Path], tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", b"x", second=1)
    assert not (converted() / "decider_config.json").exists()
    for second, text in enumerate((b"{}", b"{ }")):
        write(tmp_path / "decider_config.json", text, second=second)
        assert (converted() / "decider_config.json").read_bytes() == text


def test_the_list_shows_sizes_and_hides_drafts(tmp_path: Path) -> None:
    for folder in (wheel_target(tmp_path), tmp_path / "gguf" / "done-0123", tmp_path / "gguf" / ".half-0123"):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(bytes(2_000_000))
    listed = [(listing.name, listing.state) for listing in list_models(tmp_path)]
    assert listed == [
        ("smollm2-135m-instruct", "ready, 2 MB"),
        (str(tmp_path / "gguf" / "done-0123"), "ready, 2 MB"),
    ]


def test_finding_a_ready_model_and_listing_import_nothing_heavy(tmp_path: Path) -> None:
    wheel_target(tmp_path).mkdir(parents=True)
    code = (
        "import sys; from pathlib import Path; from decider.model.source import list_models, resolve\n"
        f"cache = Path({str(tmp_path)!r}); resolve(None, gguf_file=None, cache=cache, say=print); list_models(cache)\n"
        "sys.exit(' '.join({'torch', 'transformers', 'numpy', 'huggingface_hub'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
