"""What produced a run's logits: model, precision, engine, layout and data, by which a figure can be told from another.

It refuses to know the figures, and the calibration, which is applied to logits later. Trap: a data file is known by its
digest; two files of one name are not one data set, and a path would say where somebody's home is.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from decider.errors import SchemaError
from decider.questions.faults import hint, show
from decider.settings import MOST_PERMUTATIONS

NOT_SAID = "not said"
"""What stands for a fact that logits of other makers came without."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What produced the logits of one run."""

    model: str
    dtype: str
    """As `x_calibration` calls it: "fp32", "bf16", "fp16" or "fp8"."""
    executor: str
    layout: str
    permutations: int
    """In how many orders each Choice was asked; logits are always of one."""
    joint_items: int
    """Items whose questions were read from one row, each seeing those before it."""
    data: str
    """The data file's name."""
    data_sha256: str
    """Of its bytes, in hexadecimal."""
    decider_version: str

    def to_json(self) -> dict[str, str | int]:
        """The fields by name."""
        return asdict(self)


def facts_from_json(value: object) -> RunFacts:
    """The facts of `RunFacts.to_json`. Raises SchemaError for a missing or unknown one, or one of another type."""
    if not isinstance(value, Mapping):
        raise SchemaError(f"the facts are {show(value)}; they must be an object")
    known = {field.name: int if field.name in ("permutations", "joint_items") else str for field in fields(RunFacts)}
    for name in value:
        if name not in known:
            raise SchemaError(f"unknown fact {show(name)}; {hint(name, known)}")
    for name, kind in known.items():
        if name not in value:
            raise SchemaError(f"the facts have no {name}; add it")
        given = value[name]
        if not isinstance(given, kind) or isinstance(given, bool):
            wanted = "a whole number" if kind is int else "text"
            raise SchemaError(f"the fact {name} is {show(given)}; it must be {wanted}")
    for name, least, most in (("permutations", 1, MOST_PERMUTATIONS), ("joint_items", 0, sys.maxsize)):
        if not least <= value[name] <= most:
            raise SchemaError(f"the fact {name} is {show(value[name])}; it must be from {least} to {most}")
    return RunFacts(**value)


def unknown_facts(data: Path, sha256: str) -> RunFacts:
    """Of logits whose maker says nothing."""
    return RunFacts(NOT_SAID, NOT_SAID, NOT_SAID, NOT_SAID, 1, 0, data.name, sha256, NOT_SAID)


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal. Raises OSError for one that cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
