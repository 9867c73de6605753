"""The cache: folders that appear whole or not at all, and how `DECIDER_CACHE` is read. Refuses to know what is cached.

Trap: an unfinished draft is as large as a model, so what fails must leave none behind.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from decider.errors import ModelError
from decider.model.cache import cache_dir, publish


def test_only_drafts_of_a_process_long_gone_are_swept(tmp_path: Path) -> None:
    old, young = tmp_path / ".target-old", tmp_path / ".target-young"
    for draft in (old, young):
        draft.mkdir()
    os.utime(old, (1, 1))
    publish(tmp_path / "target", lambda draft: (draft / "whole").touch())
    assert (old.exists(), young.exists()) == (False, True)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    def fills_the_disk(draft: Path) -> None:
        (draft / "half").write_text("x")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ModelError, match="No space left on device; free some space, or set DECIDER_CACHE"):
        publish(tmp_path / "target", fills_the_disk)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(draft: Path) -> None:
        (draft / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(tmp_path / "target", interrupted)
    assert list(tmp_path.iterdir()) == []


def test_other_users_can_read_what_was_published(tmp_path: Path) -> None:
    assert publish(tmp_path / "target", lambda draft: (draft / "whole").touch()).stat().st_mode & 0o777 == 0o755


def test_a_tilde_in_the_variable_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DECIDER_CACHE", "~/models")
    assert cache_dir() == tmp_path / "models"


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
