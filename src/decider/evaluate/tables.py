"""Labelled decisions as a table: CSV, TSV or Parquet, by a mapping (`mapping`).

It refuses to know what columns mean. Rows are counted from 1, without the header. Trap: CSV has no types and Parquet
has, so "007" is text in one and may be 7 in the other; no cell of CSV is turned into a number before its question asks.
"""

from __future__ import annotations

import csv
import datetime
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decider.errors import ConfigError, InputError, MissingDependencyError, SchemaError, first_line, printable
from decider.evaluate.labelled import LabelledItem, Reading, check_text, in_file, read_labelled
from decider.evaluate.mapping import TableMapping, read_mapping
from decider.questions.faults import hint, show, step
from decider.questions.jsontext import JsonValue
from decider.questions.limits import DEFAULT_LIMITS, Limits
from decider.questions.types import Choice, Question, Score
from decider.settings import TRUE_WORDS

if TYPE_CHECKING:
    from pyarrow.lib import RecordBatch

LINES = (".jsonl", ".ndjson")
DELIMITED: Mapping[str, str] = {".csv": ",", ".tsv": "\t"}
PARQUET = ".parquet"
PACKED = (".gz", ".zip", ".bz2", ".xz", ".zst")
TIMES = ("time", "date", "duration")
"""Parts of the names of Arrow's types of times."""
BATCH_ROWS = 1024
MOST_DIGITS = 10
"""A longer number is no level."""

Cells = Mapping[str, Any]
"""One row of a table, by column."""


def read_data(path: Path, mapping: Path | None, limits: Limits = DEFAULT_LIMITS) -> tuple[LabelledItem, ...]:
    """The items of a labelled file, by its suffix: JSON lines, or a table with a mapping.

    Raises ConfigError for another suffix, or a mapping that is missing or not needed; else as `read_labelled` and
    `read_table` do.
    """
    suffix = path.suffix.lower()
    if suffix in LINES:
        if mapping is not None:
            raise ConfigError(
                f"{printable(path.name)} is JSON lines, which name their own fields; leave out the mapping"
            )
        return read_labelled(path, limits)
    if suffix in PACKED:
        raise ConfigError(f"{printable(path.name)} ends in {suffix!r:.20}, so it is compressed; unpack it")
    if suffix not in (*DELIMITED, PARQUET):
        known = ", ".join((*LINES, *DELIMITED, PARQUET))
        raise ConfigError(f"{printable(path.name)} ends in {suffix!r:.20}; labelled data ends in {known}")
    if mapping is None:
        raise ConfigError(
            f"{printable(path.name)} is a table; say what its columns mean by a mapping (--mapping FILE, TOML or JSON)"
        )
    return read_table(path, read_mapping(mapping, limits), limits)


def read_table(path: Path, mapping: TableMapping, limits: Limits = DEFAULT_LIMITS) -> tuple[LabelledItem, ...]:
    """The items of a table's rows, in order.

    Raises an InputError that names the file, the first faulty row and how many are; SchemaError for a file that cannot
    be read or lacks a column; MissingDependencyError for Parquet without pyarrow.
    """
    rows = _parquet_rows if path.suffix.lower() == PARQUET else _delimited_rows
    reading = Reading(path, "row", limits)
    with in_file(path), closing(rows(path, mapping.columns, limits)) as table:
        for number, cells in enumerate(table, 1):
            with reading.at(number):
                if isinstance(cells, InputError):
                    raise cells
                reading.take(_line(cells, mapping))
    return reading.items()


def _line(cells: Cells, mapping: TableMapping) -> JsonValue:
    """The labelled line that a row stands for. Raises SchemaError with the column in its path."""
    line: dict[str, JsonValue] = dict(mapping.asked)
    if isinstance(mapping.state, str):
        line["state"] = _state_cell(cells[mapping.state])
    else:
        line["state"] = {column: _state_cell(cells[column]) for column in mapping.state}
    for field, column in (("id", mapping.id), ("task", mapping.task)):
        if column is not None:
            line[field] = _text(cells, column)
    gold: dict[str, JsonValue] = {}
    for question_id, where in mapping.gold.items():
        text = _text(cells, where.column)
        if where.values is not None and (text in where.values or text):
            if text not in where.values:
                raise SchemaError(
                    f"{show(text)} is none of the mapping's values; {hint(text, where.values)}",
                    loc=(step(where.column),),
                )
            gold[question_id] = where.values[text]
        elif text:
            gold[question_id] = _answer(mapping.questions[question_id], text)
    if not gold:
        empty = ", ".join(sorted({repr(where.column) for where in mapping.gold.values()}))
        raise SchemaError(f"the row has no right answer ({empty}); fill one in, or leave the row out")
    line["gold"] = gold
    return line


def _state_cell(cell: Any) -> JsonValue:
    """A cell as JSON, but for what the request's own checks refuse."""
    return cell.isoformat() if isinstance(cell, (datetime.date, datetime.time)) else cell


def _text(cells: Cells, column: str) -> str:
    """What a cell says, "" for none. Raises SchemaError for what is no text, number or bool."""
    cell = cells[column]
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    # Labels with gaps are often kept as floats.
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if not isinstance(cell, (str, int, float)):
        raise SchemaError(f"the cell is {show(cell)}; it must be text, a number or a bool", loc=(step(column),))
    return str(cell)


def _answer(question: Question, text: str) -> JsonValue:
    """A cell without a map; what is no answer stays text, which its question refuses."""
    if isinstance(question, Choice):
        return text
    if isinstance(question, Score):
        return int(text) if text.isascii() and text.isdecimal() and len(text) < MOST_DIGITS else text
    return TRUE_WORDS.get(text.lower(), text)


def _delimited_rows(path: Path, columns: Sequence[str], limits: Limits) -> Generator[Cells | InputError]:
    """The rows of a CSV or TSV file (RFC 4180, UTF-8), every cell as text. A row of another length is an error."""
    with path.open("rb") as raw:
        check_text(raw)
    with _long_fields(limits.max_body_bytes), path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, delimiter=DELIMITED[path.suffix.lower()], strict=True)
        try:
            header = next(lines, [])
            if not header:
                raise SchemaError("it is empty; a table starts with a header")
            _check_columns(header, columns)
            for row in lines:
                if len(row) == len(header):
                    yield dict(zip(header, row, strict=True))
                # A blank line is no row.
                elif row:
                    yield SchemaError(
                        f"{len(row):,} cells, and the header has {len(header):,}; quote commas and quotes"
                    )
        except csv.Error as error:
            raise SchemaError(f"line {lines.line_num:,}: {error}; quote cells as RFC 4180 says") from error
        except UnicodeDecodeError as error:
            raise SchemaError(f"it is not UTF-8: {error.reason} after line {lines.line_num:,}; encode it so") from error


def _parquet_rows(path: Path, columns: Sequence[str], _: Limits) -> Generator[Cells | InputError]:
    """The rows of a Parquet file, batch by batch, cells as Python values."""
    try:
        from pyarrow import parquet
        from pyarrow.lib import ArrowException
    except ImportError as error:
        raise MissingDependencyError(
            "Parquet is read by pyarrow, which is not installed; run, in a checkout: pip install '.[tables]'"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            _check_columns(file.schema_arrow.names, columns)
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(columns)):
                yield from _python_rows(batch)
    except (ArrowException, ValueError) as error:
        raise SchemaError(f"it is no sound Parquet file: {first_line(error)}; write it again") from error


def _python_rows(batch: RecordBatch) -> list[Cells]:
    try:
        rows: list[Cells] = batch.to_pylist()
    # Of a time that Python has no value for: finer than a microsecond, or out of its years.
    except (ValueError, OverflowError) as error:
        timed = [field.name for field in batch.schema if any(word in str(field.type) for word in TIMES)]
        raise SchemaError(
            f"a time cannot be read ({', '.join(map(show, timed))}); write times in microseconds, of years 1 to 9999"
        ) from error
    return rows


def _check_columns(header: Sequence[str], columns: Sequence[str]) -> None:
    for column in columns:
        if column not in header:
            raise SchemaError(f"the mapping names a column {show(column)}, which is not there; {hint(column, header)}")
        if header.count(column) > 1:
            raise SchemaError(f"two columns are called {show(column)}; rename one")


@contextmanager
def _long_fields(n_characters: int) -> Iterator[None]:
    """Let `csv` read cells as long as a request may be; its own limit, which is the process's, is put back."""
    before = csv.field_size_limit(n_characters)
    try:
        yield
    finally:
        csv.field_size_limit(before)
