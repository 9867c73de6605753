"""How near a question's wording is to those a model was trained on: `decider_wordings.npy`, beside its weights.

Small models learn a decision together with its wording. Asked in other words they are right less often and no less
sure, and no temperature serves both. So the share of a question's spans of three words that training had is its
familiarity, and a calibration may have one temperature for familiar questions and another for the rest. Words that
training hardly asked are left out before: they belong to what stands in a question, such as a name, and not to its
wording.

It refuses to know temperatures, states and options. Trap: a familiarity that is never 0 in what a temperature is fitted
on says nothing of strange questions; fit on questions that were not trained.
"""

from __future__ import annotations

import hashlib
import json
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from decider.errors import ConfigError, first_line
from decider.questions.types import Question
from decider.questions.words import plain_words
from decider.tokens.config import WORDINGS_NAME

Counted = TypeVar("Counted")

SPAN_WORDS = 3
LEAST_ASKED = 20
"""Of a word and of a span. What training asked less often is unknown."""
MOST_KNOWN = 2**24
FIRST, LAST = "^", "$"
"""Before and behind the words of a question."""
NUMBER = "0"
"""Every number, for "order 4417" and "order 4418" are one wording."""


@dataclass(frozen=True, slots=True)
class Wordings:
    """The words, and the spans of such words, that training had, as 64-bit hashes."""

    known: frozenset[int]

    def familiarity(self, question: Question) -> float:
        """In [0, 1]: the share of the spans of its instructions that training had; 0 for a question without a word that
        training had.
        """
        words = [word for word in words_of(_instructions(question)) if hash_of((word,)) in self.known]
        spans = [hash_of(span) for span in spans_of(words)]
        return sum(span in self.known for span in spans) / len(spans) if spans else 0.0


def words_of(instructions: str) -> list[str]:
    """Its words, every number the same."""
    return [NUMBER if word.isdigit() else word for word in plain_words(instructions)]


def spans_of(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every run of `SPAN_WORDS` words, the marks of both ends among them; none if there are no words."""
    marked = [FIRST, *words, LAST]
    yield from zip(*(islice(marked, start, None) for start in range(SPAN_WORDS)), strict=False)


def hash_of(span: tuple[str, ...]) -> int:
    """The first 64 bits of its BLAKE2b: the same on every machine, as Python's own hash is not."""
    return int.from_bytes(hashlib.blake2b(" ".join(span).encode(), digest_size=8).digest(), "little")


FORM = hash_of((FIRST, "words", LAST, "spans", LAST))
"""Marks a file that has words beside spans; no words and no span hash to it. Without words all would be strange."""


def wordings_of(questions: Iterable[Question]) -> Wordings:
    """Of all that a training asks, each question as often as it is asked; words and spans from `LEAST_ASKED` times."""
    asked = {text: (words_of(text), n) for text, n in Counter(map(_instructions, questions)).items()}
    words = _often((word, n) for found, n in asked.values() for word in set(found))
    spans = _often((span, n) for found, n in asked.values() for span in spans_of([w for w in found if w in words]))
    return Wordings(frozenset(map(hash_of, (*((word,) for word in words), *spans))))


def _often(counted: Iterable[tuple[Counted, int]]) -> set[Counted]:
    total: Counter[Counted] = Counter()
    for each, n in counted:
        total[each] += n
    return {each for each, n in total.items() if n >= LEAST_ASKED}


def save_wordings(folder: Path, wordings: Wordings) -> None:
    """Write them into `folder`, with `FORM` among them. Raises OSError."""
    np.save(folder / WORDINGS_NAME, np.array(sorted(wordings.known | {FORM}), dtype=np.uint64), allow_pickle=False)


def load_wordings(folder: Path) -> Wordings | None:
    """Those beside the weights in `folder`, or None. Raises ConfigError for a file that is damaged or lacks `FORM`."""
    path = folder / WORDINGS_NAME
    if not path.exists():
        return None
    try:
        with path.open("rb") as file:
            known: NDArray[np.uint64] = npy.read_array(file, allow_pickle=False)
    # What damage raises is up to where it is; a header may declare an array of terabytes.
    except (OSError, ValueError, EOFError, TypeError, OverflowError, MemoryError, SyntaxError,
            tokenize.TokenError) as error:  # fmt: skip
        raise ConfigError(f"cannot read {path}: {first_line(error)}; copy it again from where the model is") from error
    if known.dtype != np.uint64 or known.ndim != 1 or known.size > MOST_KNOWN:
        shown = f"{known.dtype} {list(known.shape)}"
        raise ConfigError(f"{path} holds {shown}; it must be at most {MOST_KNOWN:,} uint64; copy it again")
    if FORM not in (hashes := frozenset(known.tolist())):
        raise ConfigError(
            f"{path} was written by another version of decider; train the model again, or move the file away"
        )
    return Wordings(hashes - {FORM})


def _instructions(question: Question) -> str:
    given = question.instructions
    return given if isinstance(given, str) else "" if given is None else json.dumps(given, ensure_ascii=False)
