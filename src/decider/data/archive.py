"""A package's file as an archive of named members, whichever kind of file it is: a wheel (zip) or an npm package (tar).

It refuses to unpack anything to disk. Trap: a tar file cannot be read out of order at any speed, so a whole one is held
in memory; only packages of a few ten MB are meant.
"""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


class Archive(Protocol):
    """What a loader may ask of a package."""

    def read(self, name: str, /) -> bytes:
        """The member's content. Raises KeyError if there is none."""

    def namelist(self) -> list[str]:
        """All members, in the file's order."""


class _Tar:
    def __init__(self, file: Path) -> None:
        with tarfile.open(file, "r:gz") as archive:
            # Members are read here and never extracted, so their paths cannot do harm.
            self._members = {
                member.name: content.read()
                for member in archive
                if member.isfile() and (content := archive.extractfile(member)) is not None
            }

    def read(self, name: str, /) -> bytes:
        return self._members[name]

    def namelist(self) -> list[str]:
        return list(self._members)


@contextmanager
def opened(file: Path) -> Iterator[Archive]:
    """The archive. Raises OSError, zipfile.BadZipFile or tarfile.TarError for a file of another kind."""
    if file.suffix == ".tgz":
        yield _Tar(file)
    else:
        with zipfile.ZipFile(file) as archive:
            yield archive
