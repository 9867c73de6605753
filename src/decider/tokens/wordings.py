"""How near a question's wording is to those a model was trained on: `decider_wordings.npy`, beside its weights.

Small models learn a decision together with its wording. Asked in other words they are right less often and no less
sure, and no temperature serves both. So the share of a question's spans of three words that training had is its
familiarity, and a calibration may have one temperature for familiar questions and another for the rest.

It refuses to know temperatures, states and options. Trap: a familiarity that is never 0 in what a temperature is fitted
on says nothing of strange questions; fit on questions that were not trained.
"""

from __future__ import annotations

import hashlib
import json
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from decider.errors import ConfigError, first_line
from decider.questions.types import Question
from decider.questions.words import plain_words
from decider.tokens.config import WORDINGS_NAME

SPAN_WORDS = 3
LEAST_ASKED = 20
"""A span that training asked less often belongs to what stood in a question, such as a name, and not to its wording."""
MOST_SPANS = 2**24
FIRST, LAST = "^", "$"
"""Before and behind the words of a question."""
NUMBER = "0"
"""Every number, for "order 4417" and "order 4418" are one wording."""


@dataclass(frozen=True, slots=True)
class Wordings:
    """The spans of words that training had, as 64-bit hashes."""

    spans: frozenset[int]

    def familiarity(self, question: Question) -> float:
        """In [0, 1]: the share of the spans of its instructions that training had; 0 for a question without words."""
        spans = [hash_of(span) for span in spans_of(_instructions(question))]
        return sum(span in self.spans for span in spans) / len(spans) if spans else 0.0


def spans_of(instructions: str) -> Iterator[tuple[str, ...]]:
    """Every run of `SPAN_WORDS` words, the marks of both ends among them."""
    words = plain_words(instructions)
    if words:
        marked = [FIRST, *(NUMBER if word.isdigit() else word for word in words), LAST]
        yield from zip(*(islice(marked, start, None) for start in range(SPAN_WORDS)), strict=False)


def hash_of(span: tuple[str, ...]) -> int:
    """The first 64 bits of its BLAKE2b: the same on every machine, as Python's own hash is not."""
    return int.from_bytes(hashlib.blake2b(" ".join(span).encode(), digest_size=8).digest(), "little")


def wordings_of(questions: Iterable[Question]) -> Wordings:
    """Of all that a training asks, each question as often as it is asked; spans from `LEAST_ASKED` times on."""
    asked = Counter(map(_instructions, questions))
    spans: Counter[tuple[str, ...]] = Counter()
    for instructions, n in asked.items():
        for span in spans_of(instructions):
            spans[span] += n
    return Wordings(frozenset(hash_of(span) for span, n in spans.items() if n >= LEAST_ASKED))


def save_wordings(folder: Path, wordings: Wordings) -> None:
    """Write them into `folder`. Raises OSError."""
    np.save(folder / WORDINGS_NAME, np.array(sorted(wordings.spans), dtype=np.uint64), allow_pickle=False)


def load_wordings(folder: Path) -> Wordings | None:
    """Those beside the weights in `folder`, or None. Raises ConfigError for a file that is damaged."""
    path = folder / WORDINGS_NAME
    if not path.exists():
        return None
    try:
        with path.open("rb") as file:
            spans: NDArray[np.uint64] = npy.read_array(file, allow_pickle=False)
    # What damage raises is up to where it is; a header may declare an array of terabytes.
    except (OSError, ValueError, EOFError, TypeError, OverflowError, MemoryError, SyntaxError,
            tokenize.TokenError) as error:  # fmt: skip
        raise ConfigError(f"cannot read {path}: {first_line(error)}; copy it again from where the model is") from error
    if spans.dtype != np.uint64 or spans.ndim != 1 or spans.size > MOST_SPANS:
        shown = f"{spans.dtype} {list(spans.shape)}"
        raise ConfigError(f"{path} holds {shown}; it must be at most {MOST_SPANS:,} uint64; copy it again")
    return Wordings(frozenset(spans.tolist()))


def _instructions(question: Question) -> str:
    given = question.instructions
    return given if isinstance(given, str) else "" if given is None else json.dumps(given, ensure_ascii=False)
