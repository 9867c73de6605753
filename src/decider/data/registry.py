"""The registry of `evals`: one JSONL file a set, each sample a chat and its ideal answer.

It refuses to know what a set asks. Trap: samples were written by many hands; a line that does not have the shape its
loader expects is a changed package, and an error, never an item fewer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from decider.data.archive import Archive
from decider.errors import SetupError

FOLDER = "evals/registry/data/"


@dataclass(frozen=True, slots=True)
class Sample:
    """What the chat's turns say, and the answer wanted."""

    turns: tuple[str, ...]
    ideal: str

    @property
    def asked(self) -> str:
        """The last turn."""
        return self.turns[-1]


def samples(archive: Archive, file: str) -> Iterator[Sample]:
    """The samples of `file`, in its order; texts stripped."""
    for line in archive.read(FOLDER + file).decode().splitlines():
        if line.strip():
            entry = json.loads(line)
            yield Sample(tuple(turn["content"].strip() for turn in entry["input"]), str(entry["ideal"]).strip())


def parts(pattern: re.Pattern[str], text: str, file: str) -> tuple[str, ...]:
    """The groups of `pattern`, stripped. Raises SetupError where `text` is not of that shape."""
    found = pattern.fullmatch(text)
    if found is None:
        raise SetupError(f"a sample of {file} reads {text[:80]!r}, which is not the form expected; report this")
    return tuple(part.strip() for part in found.groups())
