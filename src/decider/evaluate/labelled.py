"""Labelled decisions as JSON lines: one request a line, and what its right answers are.

    {"id"?: text, "task"?: text, "state": …, "questions": {id: question of the wire}, "gold": {id: answer}}

The answer is an option's name, a level's number from 0, or true or false. `independent`, `layout` and the question
types are those of the wire, read by its parser, and what it ignores is ignored here. `id` is the line's number where
it is not given, `task` the file's name without its suffix.

It refuses to know models, and to use a part of a file: one faulty line refuses all, since rates over what happened to
parse are rates of something else. Trap: questions repeat from line to line, so what the parser made of everything but
the state is kept by its text; a key that left out one field of the request would hand a line another line's questions.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from decider.decisions import decision_key
from decider.errors import InputError, SchemaError, first_line, printable
from decider.questions.faults import hint, located, show, step
from decider.questions.jsontext import JsonValue, dumps, loads
from decider.questions.limits import DEFAULT_LIMITS, Limits
from decider.questions.request import Request
from decider.questions.state import render_state
from decider.questions.types import Choice, Question, Score
from decider.questions.wire import parse_request

OWN_FIELDS = frozenset(("id", "task", "state", "gold"))
"""What differs from line to line; the rest of a line is kept by its text."""
MOST_KEPT = 1024
"""How many different rests are kept. Notes of the user's own on every line would otherwise be kept for every line."""
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "ZIP",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
}
"""How compressed files begin."""
MOST_HINTED = 12
"""The most options that a fault lists."""


@dataclass(frozen=True, slots=True)
class LabelledItem:
    """One request and its right answers."""

    id: str
    task: str
    request: Request
    """Independent questions without a right answer are left out of it; those that share a row all stay."""
    gold: Mapping[str, int]
    """By question id, at least one: the index of the option, of the level, or in (no, yes). In the request's order."""


def gold_index(question: Question, answer: JsonValue) -> int:
    """The index of a right answer: an option's name, a level's number, or a bool. Raises SchemaError for any other."""
    if isinstance(question, Choice):
        if isinstance(answer, str) and answer in question.criteria:
            return question.names.index(answer)
        raise SchemaError(f"{show(answer)} is no option of this question; {_hint(answer, question.names)}")
    if isinstance(question, Score):
        most = len(question.levels) - 1
        if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer <= most:
            raise SchemaError(f"{show(answer)} is no level of this question; give a whole number from 0 to {most}")
        return answer
    if not isinstance(answer, bool):
        raise SchemaError(f"{show(answer)} is no answer to a noul; give true or false")
    return int(answer)


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Every InputError in this context names the file; one that cannot be read raises SchemaError."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{printable(path.name)}: {error}") from error
    except OSError as error:
        why = error.strerror or first_line(error)
        raise SchemaError(f"cannot read {printable(str(path))}: {why}; give a file that can be read") from error


def check_text(file: BinaryIO) -> None:
    """Raises SchemaError for a `file` that does not begin as text in UTF-8 does; it is put back to its start."""
    head = file.read(8)
    file.seek(0)
    for magic, name in COMPRESSED.items():
        if head.startswith(magic):
            raise SchemaError(f"it is compressed ({name}); unpack it")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SchemaError("it is UTF-16; encode it as UTF-8")


def read_labelled(path: Path, limits: Limits = DEFAULT_LIMITS) -> tuple[LabelledItem, ...]:
    """The items of a file of JSON lines, in order; blank lines count in the numbers, and are skipped.

    Raises an InputError that names the file, the first faulty line, the path inside it, and how many lines are faulty;
    SchemaError for a file that cannot be read or has no lines.
    """
    reading = Reading(path, "line", limits)
    with in_file(path), path.open("rb") as file:
        check_text(file)
        for number, body in numbered(file):
            with reading.at(number):
                reading.take(loads(body, limits))
    return reading.items()


def numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines of JSON in a file with their numbers, from 1; blank ones count, and are left out."""
    for number, line in enumerate(file, 1):
        # Some editors write a byte-order mark in front of a file; JSON has none.
        body = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if body and not body.isspace():
            yield number, body


class Reading:
    """The items of one file so far, and its faults. `unit` is what the file is counted in: "line" or "row"."""

    def __init__(self, path: Path, unit: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self._file, self._task, self._unit, self._limits = printable(path.name), path.stem, unit, limits
        self._items: list[LabelledItem] = []
        self._kept: dict[str, Request] = {}
        self._places: dict[str, int] = {}
        self._first: tuple[int, InputError] | None = None
        self._number = self._read = self._faulty = 0

    @contextmanager
    def at(self, number: int) -> Iterator[None]:
        """Line or row `number` is read in this context; an InputError in it is counted, and the first one kept."""
        self._number = number
        self._read += 1
        try:
            yield
        except InputError as error:
            self._faulty += 1
            self._first = self._first or (number, error)

    def take(self, line: JsonValue) -> None:
        """Keep the item of a labelled line; call it inside `at`. Raises an InputError with the path inside the line."""
        item = self._item(line)
        keys = [decision_key(item.id, question_id) for question_id in item.gold]
        for key in keys:
            if key in self._places:
                raise SchemaError(
                    f"the decision {show(key)} is on {self._unit} {self._places[key]:,} too; give every "
                    f"{self._unit} an id of its own",
                    loc=("id",),
                )
        self._places.update(dict.fromkeys(keys, self._number))
        self._items.append(item)

    def items(self) -> tuple[LabelledItem, ...]:
        """All items. Raises the first fault, as an error of its own class, or SchemaError where there are none."""
        if self._first is not None:
            number, error = self._first
            raise type(error)(
                f"{self._file}, {self._unit} {number:,}: {error} ({self._faulty:,} of {self._read:,} {self._unit}s "
                f"{'is' if self._faulty == 1 else 'are'} faulty, and nothing is run before all are sound)"
            ) from error
        if not self._items:
            raise SchemaError(f"{self._file} has no {self._unit}s; give it one labelled decision at least")
        return tuple(self._items)

    def _item(self, line: JsonValue) -> LabelledItem:
        if not isinstance(line, dict):
            raise SchemaError(f"the line is {show(line)}; it must be an object with state, questions and gold")
        item_id = self._label(line, "id", str(self._number))
        task = self._label(line, "task", self._task)
        request = self._request(line)
        if "gold" not in line:
            raise SchemaError("there is no gold; add the right answers, question id → answer", loc=("gold",))
        with located("gold"):
            gold = _gold(request.questions, line["gold"])
        if request.independent and len(gold) < len(request.questions):
            asked = {question_id: request.questions[question_id] for question_id in gold}
            request = replace(request, questions=MappingProxyType(asked))
        return LabelledItem(item_id, task, request, gold)

    def _label(self, line: Mapping[str, JsonValue], field: str, default: str) -> str:
        value = line.get(field, default)
        # Data sets number their items as often as they name them.
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value or value[-1] == "\0":
            raise SchemaError(f"{field} is {show(value)}; give text or a whole number, or leave it out", loc=(field,))
        return value

    def _request(self, line: Mapping[str, JsonValue]) -> Request:
        rest = {name: value for name, value in line.items() if name not in OWN_FIELDS}
        text = dumps(rest)
        kept = self._kept.get(text)
        if kept is None or "state" not in line:
            kept = parse_request({**rest, **({"state": line["state"]} if "state" in line else {})}, self._limits)
            if len(self._kept) < MOST_KEPT:
                self._kept[text] = kept
            return kept
        return replace(kept, state=render_state(line["state"], self._limits))


def _gold(questions: Mapping[str, Question], answers: JsonValue) -> Mapping[str, int]:
    if not isinstance(answers, dict) or not answers:
        raise SchemaError(f"gold is {show(answers)}; give a map question id → answer, with one answer at least")
    for question_id in answers:
        if question_id not in questions:
            raise SchemaError(f"there is no question {show(question_id)}; {_hint(question_id, tuple(questions))}")
    gold = {}
    for question_id, question in questions.items():
        if question_id in answers:
            with located(step(question_id)):
                gold[question_id] = gold_index(question, answers[question_id])
    return MappingProxyType(gold)


def _hint(name: JsonValue, known: tuple[str, ...]) -> str:
    """As `hint`, but of a long list only the first names."""
    said = hint(name, known)
    if len(known) <= MOST_HINTED or said.startswith("did you mean"):
        return said
    return f"{hint(None, known[:MOST_HINTED])} and {len(known) - MOST_HINTED:,} more"
