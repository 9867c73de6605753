"""Files written whole or not at all. Refuses to test what is written. Trap: a draft that stays behind fills a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from decider.calibrate.whole import whole_file, write_text
from decider.errors import ConfigError


def interrupted(path: Path, error: BaseException) -> None:
    with whole_file(path) as file:
        file.write(b"half")
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("x"), OSError(28, "No space left on device")])
def test_what_is_interrupted_changes_nothing(tmp_path: Path, error: BaseException) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("before", encoding="utf-8")
    for path in (old, new):
        kind = ConfigError if isinstance(error, OSError) else type(error)
        with pytest.raises(kind):
            interrupted(path, error)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert old.read_text(encoding="utf-8") == "before"


def test_text_is_utf_8_with_a_lines_end_and_modes_are_kept(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("before", encoding="utf-8")
    old.chmod(0o640)
    for path in (old, new):
        write_text(path, "größer")
        assert path.read_bytes() == "größer\n".encode()
    assert [path.stat().st_mode & 0o777 for path in (old, new)] == [0o640, 0o644]


def test_text_that_cannot_be_encoded_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "new", "\ud800")
    assert list(tmp_path.iterdir()) == []


def test_a_long_name_and_no_place(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 255)
    write_text(long, "a")
    assert long.read_text(encoding="utf-8") == "a\n"
    with pytest.raises(ConfigError, match="No such file or directory; write to another place"):
        write_text(tmp_path / "none" / "a", "a")


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(ConfigError, match="it is no regular file; write to another place"):
            write_text(path, "a")
    assert pipe.is_fifo()
