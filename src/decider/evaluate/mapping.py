"""What the columns of a table of labelled decisions mean: a TOML or JSON file.

    state = "text"                      # one column: its text is the state
    # state = ["subject", "body"]       # or several: an object of these columns
    id = "ticket"                       # optional: a column; else the row's number
    task = "source"                     # optional: a column; else the file's name without its suffix
    # independent = false               # optional, as on the wire; so is layout

    [questions.team]                    # every row is asked these; as on the wire
    type = "choice"
    instructions = "Which team?"
    criteria = { billing = "charges", technical = "" }

    [questions.urgent]
    type = "noul"
    instructions = "Is it urgent?"

    [gold]                              # the column of each question's right answer
    team = "label"
    [gold.urgent]                       # or that, with what its values stand for
    column = "priority"
    values = { "1" = true, "2" = true, "3" = false }

Without `values` a cell is an option's name, a level's number, or for a noul true or false, yes or no, 1 or 0. `values`
looks up a cell's text: a number as 1 or 1.5, a bool as true. An empty cell that they do not name is no answer, and the
question is left out of that row.

It refuses to guess: no column is taken for the state because of its name. Trap: a value that stands for no option would
show on the first row that has it, after many; so values are checked against their question here.
"""

from __future__ import annotations

import codecs
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from decider.errors import SchemaError, first_line
from decider.evaluate.labelled import gold_index, in_file
from decider.questions.faults import hint, located, show, step
from decider.questions.jsontext import JsonValue, check, loads
from decider.questions.limits import DEFAULT_LIMITS, Limits
from decider.questions.types import Question
from decider.questions.wire import parse_request

ASKED = ("questions", "independent", "layout")
"""Fields of the wire."""
FIELDS = ("state", "id", "task", "gold", *ASKED)
GOLD_FIELDS = ("column", "values")
ANY_STATE = "a state, to check the questions with"


@dataclass(frozen=True, slots=True)
class GoldColumn:
    """Where a question's right answer is."""

    column: str
    values: Mapping[str, JsonValue] | None
    """What a cell's text stands for; None where a cell is the answer itself."""


@dataclass(frozen=True, slots=True)
class TableMapping:
    """What the columns of a table mean; `read_mapping` makes one that is sound."""

    state: str | tuple[str, ...]
    """One column, or several that make an object."""
    id: str | None
    task: str | None
    asked: Mapping[str, JsonValue]
    """`questions` of the wire, and `independent` and `layout` where they are given."""
    questions: Mapping[str, Question]
    gold: Mapping[str, GoldColumn]
    """By question id."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read, once."""
        states = (self.state,) if isinstance(self.state, str) else self.state
        named = (*states, self.id, self.task, *(gold.column for gold in self.gold.values()))
        return tuple(dict.fromkeys(column for column in named if column is not None))


def read_mapping(path: Path, limits: Limits = DEFAULT_LIMITS) -> TableMapping:
    """The mapping in a TOML or JSON file. Raises an InputError that names the file and the path inside it."""
    with in_file(path):
        return _mapping(_document(path, limits), limits)


def _document(path: Path, limits: Limits) -> JsonValue:
    body = path.read_bytes()
    suffix = path.suffix.lower()
    if suffix == ".json":
        return loads(body.removeprefix(codecs.BOM_UTF8), limits)
    if suffix != ".toml":
        raise SchemaError(f"it ends in {suffix!r:.20}; a mapping is a .toml or a .json file")
    try:
        return check(tomllib.loads(body.decode("utf-8-sig")), limits=limits)
    # Numbers of thousands of digits and deep nesting raise their own.
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"it is not valid TOML: {first_line(error)}") from error


def _mapping(value: JsonValue, limits: Limits) -> TableMapping:
    if not isinstance(value, dict):
        raise SchemaError(f"the mapping is {show(value)}; it must be an object with state, questions and gold")
    for name in value:
        if name not in FIELDS:
            raise SchemaError(f"a mapping has no field {show(name)}; {hint(name, FIELDS)}")
    asked: dict[str, JsonValue] = {name: value[name] for name in ASKED if name in value}
    questions = parse_request(asked | {"state": ANY_STATE}, limits).questions
    return TableMapping(
        state=_state_columns(value),
        id=_column(value["id"], "id") if "id" in value else None,
        task=_column(value["task"], "task") if "task" in value else None,
        asked=asked,
        questions=questions,
        gold=_gold_columns(value.get("gold"), questions),
    )


def _state_columns(mapping: Mapping[str, JsonValue]) -> str | tuple[str, ...]:
    columns = mapping.get("state")
    if isinstance(columns, list) and columns:
        return tuple(_column(column, "state", index) for index, column in enumerate(columns))
    return _column(columns, "state")


def _column(value: JsonValue, *loc: str | int) -> str:
    if not isinstance(value, str):
        raise SchemaError(f"{loc[0]} is {show(value)}; give the name of a column", loc=loc)
    return value


def _gold_columns(value: JsonValue, questions: Mapping[str, Question]) -> Mapping[str, GoldColumn]:
    if not isinstance(value, dict) or not value:
        raise SchemaError(f"gold is {show(value)}; name the column of one question at least", loc=("gold",))
    columns = {}
    for question_id, given in value.items():
        if question_id not in questions:
            raise SchemaError(
                f"there is no question {show(question_id)}; {hint(question_id, questions)}", loc=("gold",)
            )
        loc = ("gold", step(question_id))
        if not isinstance(given, dict):
            columns[question_id] = GoldColumn(_column(given, *loc), None)
            continue
        for name in given:
            if name not in GOLD_FIELDS:
                raise SchemaError(f"gold has no field {show(name)}; {hint(name, GOLD_FIELDS)}", loc=loc)
        values = given.get("values")
        if values is not None and not isinstance(values, dict):
            raise SchemaError(f"values are {show(values)}; give a map from a cell's text to the answer", loc=loc)
        for text, answer in (values or {}).items():
            with located(*loc, "values", step(text)):
                gold_index(questions[question_id], answer)
        columns[question_id] = GoldColumn(_column(given.get("column"), *loc, "column"), values)
    return columns
