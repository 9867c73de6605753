"""Labelled items through a model, into columns.

It refuses to judge answers, and to lose those of other items for one that the model cannot take: such an item is
refused with its reason, and the rest goes on. Trap: what is asked together is held in memory together, as text, token
ids and logits; so items go in chunks of bounded rows and characters, and only results grow with their number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from decider.answering import RawAnswer
from decider.api import Decider
from decider.assembly import Say
from decider.decisions import KINDS, Decisions, decision_key
from decider.errors import InputError, QuestionError
from decider.evaluate.facts import RunFacts, file_sha256
from decider.evaluate.labelled import LabelledItem, in_file
from decider.questions.prompt import prompt
from decider.questions.request import Request
from decider.questions.types import Score
from decider.selective import class_names
from decider.version import VERSION

CHUNK_ROWS = 512
"""Many full batches of any executor, and on a slow machine still a line of progress now and then."""
CHUNK_CHARACTERS = 2**21
"""Over all rows of a chunk: a state counts once a row, as the rows hold it."""
SAY_EVERY_S = 10.0
MIXED = "mixed"
"""The layout of a run whose items ask for several."""


class Asker(Protocol):
    """What is needed of a `Decider`."""

    def raw(self, requests: Sequence[Request]) -> list[dict[str, RawAnswer]]:
        """As `Decider.raw`; an InputError's path starts with ("requests", index)."""
        ...


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the model could not take a request."""

    reason: str


Answers = Mapping[str, RawAnswer] | Refused


@dataclass(frozen=True, slots=True)
class Asked:
    """The decisions of all items that could be asked, in order, and (item's id, reason) of the others."""

    decisions: Decisions
    refused: tuple[tuple[str, str], ...]


class Interrupted(KeyboardInterrupt):
    """A run was interrupted; `asked` is what came of the first `done` items."""

    def __init__(self, asked: Asked, done: int) -> None:
        super().__init__()
        self.asked, self.done = asked, done


def run(
    decider: Asker, items: Sequence[LabelledItem], *, say: Say, clock: Callable[[], float] = time.monotonic
) -> Asked:
    """Ask every item once. `say` hears of the progress, with rate and time left, at most every `SAY_EVERY_S`.

    `clock` counts seconds. Raises QuestionError where no item at all could be asked, EngineError as a forward does, and
    Interrupted for a KeyboardInterrupt.
    """
    columns = _Columns()
    refused: list[tuple[str, str]] = []
    began = told = clock()
    # Items, their decisions and refusals of whole chunks; an interruption may come anywhere between two of them.
    settled = (0, 0, 0)
    try:
        for chunk in ask(decider, [item.request for item in items]):
            done = settled[0] + len(chunk)
            for item, answers in zip(items[settled[0] : done], chunk, strict=True):
                if isinstance(answers, Refused):
                    refused.append((item.id, answers.reason))
                else:
                    columns.add(item, answers)
            settled = (done, len(columns), len(refused))
            now = clock()
            if now - told >= SAY_EVERY_S and done < len(items):
                told, rate = now, done / (now - began)
                left = _duration((len(items) - done) / rate)
                say(f"asked {done:,} of {len(items):,} items, {rate:.3g} a second, {left} left{_and(refused)}")
    except KeyboardInterrupt as error:
        done, n, n_refused = settled
        raise Interrupted(Asked(columns.decisions(n), tuple(refused[:n_refused])), done) from error
    if refused and len(refused) == len(items):
        raise QuestionError(f"none of {len(items):,} items can be asked; the first, {refused[0][0]!r}: {refused[0][1]}")
    took = clock() - began
    rate_said = f", {len(items) / took:.3g} a second" if took > 0 else ""
    say(f"asked {len(items):,} items in {_duration(took)}{rate_said}{_and(refused)}")
    return Asked(columns.decisions(len(columns)), tuple(refused))


def ask(decider: Asker, requests: Sequence[Request]) -> Iterator[list[Answers]]:
    """What came of each request, in order, chunk by chunk.

    The chunks depend on the requests alone, so that a run can be repeated to the bit.
    """
    for chunk in _chunks(requests):
        yield _ask_chunk(decider, chunk)


def run_facts(decider: Decider, items: Sequence[LabelledItem], data: Path) -> RunFacts:
    """What produces the logits of `items`, which were read from the file `data`."""
    with in_file(data):
        data_sha256 = file_sha256(data)
    model = next(pick.value for pick in decider.picks if pick.name == "model")
    layouts = {item.request.layout or decider.layout_name for item in items}
    return RunFacts(
        # Of a local folder only its name: the path says where somebody's home is.
        model=name.name if (name := Path(model)).is_absolute() else model,
        dtype=decider.dtype_key,
        executor=decider.executor_name,
        layout=layouts.pop() if len(layouts) == 1 else MIXED,
        permutations=1,
        joint_items=sum(not item.request.independent and len(item.request.questions) > 1 for item in items),
        data=data.name,
        data_sha256=data_sha256,
        decider_version=VERSION,
    )


class _Columns:
    """`Decisions` as they grow."""

    def __init__(self) -> None:
        self._key: list[str] = []
        self._task: list[str] = []
        self._numbers: list[tuple[int, int, int, bool, int, int]] = []
        self._logits: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
        self._lists: dict[tuple[str, ...], int] = {}
        self._familiarity: list[float | None] = []

    def __len__(self) -> int:
        return len(self._key)

    def add(self, item: LabelledItem, answers: Mapping[str, RawAnswer]) -> None:
        """Those of an item's questions that have a right answer."""
        for question_id, gold in item.gold.items():
            question, answer = item.request.questions[question_id], answers[question_id]
            names = class_names(question)
            assert len(answer.logits) == len(names), (question_id, len(answer.logits), len(names))
            self._key.append(decision_key(item.id, question_id))
            self._task.append(item.task)
            which = self._lists.setdefault(names, len(self._lists))
            kind = KINDS.index(question.kind)
            self._numbers.append((kind, len(names), gold, answer.isolated, answer.row_tokens, which))
            self._logits.append(answer.logits)
            self._familiarity.append(answer.familiarity)

    def decisions(self, n: int) -> Decisions:
        """The first `n`."""
        familiarity = self._familiarity[:n]
        numbers = np.array(self._numbers[:n], dtype=np.int64).reshape(-1, 6)
        kind, n_options, gold, isolated, row_tokens, option_list = numbers.T.copy()
        logits = np.full((len(numbers), n_options.max(initial=0)), -np.inf)
        if n:
            logits[np.arange(logits.shape[1]) < n_options[:, None]] = np.concatenate(self._logits[:n])
        return Decisions(
            key=tuple(self._key[:n]),
            task=tuple(self._task[:n]),
            kind=kind,
            n_options=n_options,
            gold=gold,
            logits=logits,
            isolated=isolated.astype(np.bool_),
            row_tokens=row_tokens,
            option_lists=tuple(self._lists),
            option_list=option_list,
            familiarity=None if None in familiarity else np.array(familiarity, dtype=np.float64),
        )


def _chunks(requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
    """Runs of requests of at most `CHUNK_ROWS` rows and `CHUNK_CHARACTERS`, and of one request at least."""
    start = rows = characters = 0
    for index, request in enumerate(requests):
        own_rows, own_characters = _weight(request)
        rows, characters = rows + own_rows, characters + own_characters
        if index > start and (rows > CHUNK_ROWS or characters > CHUNK_CHARACTERS):
            yield requests[start:index]
            start, rows, characters = index, own_rows, own_characters
    if start < len(requests):
        yield requests[start:]


def _weight(request: Request) -> tuple[int, int]:
    """The rows and characters of a request, at most: a Score may be judged level by level."""
    rows = characters = 0
    for question in request.questions.values():
        asked = prompt(question, neutralize_none=False)
        own_rows = len(question.levels) if isinstance(question, Score) and question.isolated is not False else 1
        rows += own_rows
        characters += len(asked.text) * own_rows + sum(map(len, asked.options))
    if not request.independent:
        rows = 1
    return rows, characters + len(request.state) * rows


def _ask_chunk(decider: Asker, chunk: Sequence[Request]) -> list[Answers]:
    """Each request's answers, or its refusal, at the price of checking no request more than twice.

    A refusal comes before any forward. What stands before it is sound and waits; what stands behind it is tried next.
    """
    found: dict[int, Answers] = {}
    sound: list[int] = []
    untried = list(range(len(chunk)))
    while untried:
        try:
            found.update(zip(untried, decider.raw([chunk[index] for index in untried]), strict=True))
            break
        except InputError as error:
            match error.loc:
                case ("requests", int(place), *rest):
                    pass
                # No refusal of one request, so there is none to leave out.
                case _:
                    raise
            found[untried[place]] = Refused(str(type(error)(error.message, loc=tuple(rest))))
            sound += untried[:place]
            untried = untried[place + 1 :]
    if sound:
        found.update(zip(sound, decider.raw([chunk[index] for index in sound]), strict=True))
    return [found[index] for index in range(len(chunk))]


def _and(refused: Sequence[object]) -> str:
    return f"; {len(refused):,} refused" if refused else ""


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
