"""Files that are written whole or not at all: beside their place first, then moved into it.

It refuses to know what is written. Trap: a run of hours may be interrupted, or the disk fill up, in the middle of a
write; whoever opens the place itself for writing has by then destroyed what was there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from decider.errors import ConfigError


@contextmanager
def whole_place(path: Path) -> Iterator[Path]:
    """A file beside `path`, to be written by its name; it takes the place of `path` where this context ends without an
    exception; else nothing does.

    A link is replaced by the file. Raises ConfigError if it cannot be written, and for what is no regular file.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"cannot write {str(path)!r:.120}: it is no regular file; write to another place")
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name:.60}-", dir=path.parent)
        os.close(number)
        draft = Path(name)
        try:
            yield draft
            with draft.open("rb") as written:
                # Or the move may reach the disk before the bytes do.
                os.fsync(written.fileno())
            # mkstemp makes files that only their owner can read.
            draft.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r:.120}: {error.strerror}; write to another place") from error


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """`whole_place` as a binary file that is open for writing."""
    with whole_place(path) as draft, draft.open("wb") as written:
        yield written


def write_text(path: Path, text: str) -> None:
    """Write `text` and a line's end to `path`, as UTF-8. Raises as `whole_file` does."""
    body = f"{text}\n".encode()
    with whole_file(path) as file:
        file.write(body)
