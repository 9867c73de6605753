"""The arrays of a NumPy archive (`.npz`) that anybody may have made, read with nothing taken on trust.

It refuses to know what arrays mean. Trap: a header of a hundred bytes may declare an array of terabytes, and a small
member unpack to gigabytes; so sizes are added up, and compared with what the members hold, before any array is made.
"""

from __future__ import annotations

import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from decider.errors import SchemaError, TooLargeError
from decider.questions.faults import hint, show

MOST_BYTES = 2**32
"""Of all arrays together, a number counted as 8 bytes: half a million decisions of a thousand options."""
NUMBER_BYTES = 8
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
REMEDY = "save it again with numpy.savez"

Arrays = Mapping[str, NDArray[Any]]


def read_arrays(path: Path, known: Collection[str]) -> Arrays:
    """Every array of the archive, by name.

    Raises SchemaError for anything but a sound archive of plain arrays whose names are `known`, TooLargeError where
    they are over `MOST_BYTES`, and OSError for a file that cannot be read.
    """
    with path.open("rb") as file:
        magic = file.read(len(npy.MAGIC_PREFIX))
        if magic == npy.MAGIC_PREFIX:
            raise SchemaError("the file holds one bare array; save named ones with numpy.savez")
        if not magic.startswith(ZIP_MAGICS):
            raise SchemaError(f"it is no .npz file, which is a ZIP archive of arrays; {REMEDY}")
        try:
            with zipfile.ZipFile(file) as archive:
                members = _members(archive, known)
                total = sum(_declared_bytes(archive, name, member) for name, member in members.items())
                if total > MOST_BYTES:
                    raise TooLargeError(
                        f"its arrays are {total:,} bytes, over the limit of {MOST_BYTES:,}; save fewer decisions"
                    )
                return {name: _array(archive, member) for name, member in members.items()}
        # What damage raises is up to where it is.
        except (ValueError, EOFError, KeyError, TypeError, OverflowError, SyntaxError, tokenize.TokenError,
                NotImplementedError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:  # fmt: skip
            raise SchemaError(f"it is no sound .npz file of plain arrays; {REMEDY}") from error
        except MemoryError as error:
            raise TooLargeError("its arrays do not fit into memory; save fewer decisions in a file") from error


def _members(archive: zipfile.ZipFile, known: Collection[str]) -> Mapping[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name not in known:
            raise SchemaError(f"an array called {show(name)} means nothing here; {hint(name, known)}")
        if name in members:
            raise SchemaError(f"two arrays are called {show(name)}; {REMEDY}")
        if member.flag_bits & 1:
            raise SchemaError(f"the array {show(name)} is encrypted; {REMEDY}")
        members[name] = member
    return members


def _declared_bytes(archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> int:
    """What the array takes by its header, as the limit counts it. Raises SchemaError if the member holds another."""
    with archive.open(member) as stream:
        shape, dtype = _header(stream)
        length = member.file_size - stream.tell()
    if dtype.hasobject:
        raise SchemaError(f"the array {show(name)} holds Python objects, which are not read; save text as text")
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize != length:
        raise SchemaError(
            f"the array {show(name)} declares {count * dtype.itemsize:,} bytes and holds {length:,}; {REMEDY}"
        )
    return count * max(dtype.itemsize, NUMBER_BYTES)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(stream)
    # Version 3 is for fields with names in Unicode, and arrays with fields mean nothing here.
    if version not in ((1, 0), (2, 0)):
        raise ValueError(version)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as stream:
        return np.asarray(npy.read_array(stream, allow_pickle=False))
