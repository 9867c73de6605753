"""The items of a file of JSON lines, each read when it is asked for: a worker asks for few of many.

It refuses to check the file: whoever starts the workers has read it all. Trap: an item that names no id is called by
its line, so blank lines count.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import overload

from decider.evaluate.labelled import LabelledItem, Reading, numbered
from decider.questions.jsontext import loads
from decider.questions.limits import DEFAULT_LIMITS


class Lines(Sequence[LabelledItem]):
    """As `evaluate.labelled.read_labelled` reads the file, item by item. Raises InputError for a faulty line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            self._lines = list(numbered(file))

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> LabelledItem: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[LabelledItem]: ...

    def __getitem__(self, index: int | slice) -> LabelledItem | Sequence[LabelledItem]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        number, line = self._lines[index]
        reading = Reading(self._path, "line")
        with reading.at(number):
            reading.take(loads(line, DEFAULT_LIMITS))
        return reading.items()[0]
