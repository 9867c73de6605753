"""The answer labels of a tokenizer: `A`..`Z`, then `AA`..`ZZ`, those that are one token each, 255 at most.

It refuses to know options and questions. Trap: the labels' order is a fact of training; a table sorted by id answers
confidently and wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from string import ascii_uppercase

from decider.errors import ModelError
from decider.tokens.tokenizer import Tokenizer

MAX_LABELS = 255
REQUIRED_LABELS = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True)
class LabelTable:
    """Label strings and their token ids, aligned; option i of any question is answered by label i."""

    names: tuple[str, ...]
    ids: tuple[int, ...]

    def __post_init__(self) -> None:
        assert len(self.names) == len(self.ids), (len(self.names), len(self.ids))

    def __len__(self) -> int:
        return len(self.ids)


def label_table(tokenizer: Tokenizer) -> LabelTable:
    """The label table of a tokenizer. Raises ModelError unless it starts with `A`..`J` and all ids are distinct."""
    names: list[str] = []
    ids: list[int] = []
    for name in (*ascii_uppercase, *map("".join, product(ascii_uppercase, repeat=2))):
        encoded = tokenizer.encode(name)
        if len(encoded) == 1:
            names.append(name)
            ids += encoded
        if len(names) == MAX_LABELS:
            break
    if names[: len(REQUIRED_LABELS)] != list(REQUIRED_LABELS):
        missing = ", ".join(name for name in REQUIRED_LABELS if name not in names)
        raise ModelError(
            f"the tokenizer has {len(names)} one-token labels among A to ZZ, without {missing}; A to J are needed, "
            "so use a model whose vocabulary holds single capital letters"
        )
    if len(set(ids)) != len(ids):
        raise ModelError(
            f"the tokenizer has {len(names)} one-token labels among A to ZZ but only {len(set(ids))} distinct ids; "
            "use a model whose vocabulary tells capital letters apart"
        )
    return LabelTable(tuple(names), tuple(ids))
