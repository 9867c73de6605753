"""Labelled tables and their mappings. Refuses models. Trap: a cell that is silently another value is another label."""

from __future__ import annotations

import builtins
import codecs
import csv
import datetime
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import lib as pa
from pyarrow import parquet

from decider.errors import ConfigError, InputError, MissingDependencyError, SchemaError
from decider.evaluate import mapping as mapping_module
from decider.evaluate.labelled import read_labelled
from decider.evaluate.mapping import read_mapping
from decider.evaluate.tables import read_data, read_table

MAPPING = """
state = "text"
id = "ticket"
task = "source"

[questions.team]
type = "choice"
instructions = "Which team?"
criteria = { billing = "charges", technical = "" }

[questions.severity]
type = "score"
criteria = ["none", "mild", "severe"]

[questions.urgent]
type = "noul"
instructions = "Is it urgent?"

[gold]
team = "label"
severity = "level"
[gold.urgent]
column = "priority"
values = { "1" = true, "2" = false }
"""
CSV = '''ticket,source,text,label,level,priority,unused
t1,mail,"Charged, twice
""again""",billing,2,1,x
t2,chat,It is down,technical,0,,y

t3,chat,,,,2,z
'''

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """(name, text) → the file."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_csv_file_means_what_its_mapping_says(write: Write, tmp_path: Path) -> None:
    ours = read_data(write("t.csv", CSV), write("m.toml", MAPPING))
    questions = json.loads(
        """{"team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "charges",
        "technical": ""}}, "severity": {"type": "score", "criteria": ["none", "mild", "severe"]},
        "urgent": {"type": "noul", "instructions": "Is it urgent?"}}"""
    )
    rows: list[tuple[str, str, str, dict[str, object]]] = [
        ("t1", "mail", 'Charged, twice\n"again"', {"team": "billing", "severity": 2, "urgent": True}),
        ("t2", "chat", "It is down", {"team": "technical", "severity": 0}),
        ("t3", "chat", "", {"urgent": False}),
    ]
    lines = [
        {"id": name, "task": task, "state": state, "questions": questions, "gold": gold}
        for name, task, state, gold in rows
    ]
    same = tmp_path / "same.jsonl"
    same.write_text("\n".join(map(json.dumps, lines)))
    assert ours == read_labelled(same)


def test_a_tsv_file_with_a_byte_order_mark_and_json_mapping(write: Write) -> None:
    mapping = {
        "state": ["subject", "body"],
        "questions": {"team": {"type": "choice", "criteria": ["a", "b"]}},
        "gold": {"team": {"column": "y", "values": {"007": "a", "": "b"}}},
        "independent": False,
        "layout": "chat",
    }
    path = write("t.tsv", "\ufeffsubject\tbody\ty\nHi\t12\t007\nHo\t1,5\t\n")
    first, second = read_data(path, write("m.json", "\ufeff" + json.dumps(mapping)))
    assert first.request.state == '{"subject": "Hi", "body": "12"}'
    assert second.request.state == '{"subject": "Ho", "body": "1,5"}'
    assert (first.id, second.id, first.task) == ("1", "2", "t")
    assert (first.gold, second.gold) == ({"team": 0}, {"team": 1})
    assert (first.request.independent, first.request.layout) == (False, "chat")


def test_parquet_keeps_the_types_of_a_state_and_reads_labels_of_any(tmp_path: Path, write: Write) -> None:
    table = {
        "text": ["a", "b"],
        "n": pa.array([1, None], pa.int64()),
        "day": [datetime.date(2024, 2, 29), datetime.date(2024, 3, 1)],
        "tags": [["x"], []],
        "label": [True, False],
        "level": pa.array([1.0, None], pa.float64()),
        "row": [10, 11],
    }
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    mapping = """
        state = ["text", "n", "day", "tags"]
        id = "row"
        gold = { urgent = "label", level = "level", team = { column = "row", values = { "10" = "b", "11" = "a" } } }
        [questions]
        urgent = { type = "noul", instructions = "Urgent?" }
        level = { type = "score", criteria = ["low", "high"] }
        team = { type = "choice", criteria = ["a", "b"] }
    """
    first, second = read_data(tmp_path / "t.parquet", write("m.toml", mapping))
    assert first.request.state == '{"text": "a", "n": 1, "day": "2024-02-29", "tags": ["x"]}'
    assert second.request.state == '{"text": "b", "n": null, "day": "2024-03-01", "tags": []}'
    assert first.gold == {"urgent": 1, "level": 1, "team": 1}
    assert second.gold == {"urgent": 0, "team": 0}
    assert (first.id, second.id) == ("10", "11")


def test_words_of_a_noul_without_values(write: Write) -> None:
    mapping = write("m.toml", 'state="s"\ngold={u="y"}\n[questions.u]\ntype="noul"\ninstructions="?"')
    path = write("t.csv", "s,y\n" + "".join(f"a,{word}\n" for word in ("true", "False", "YES", "no", "1", "0")))
    assert [item.gold["u"] for item in read_data(path, mapping)] == [1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("t4,m,s,bilings,0,1,", r"row 4: gold.team: 'bilings' is no option of this question; did you mean 'billing'\?"),
        ("t4,m,s,billing,2.5,1,", "row 4: gold.severity: '2.5' is no level of this question; give a whole number"),
        ("t4,m,s,billing,99999999999,1,", "row 4: gold.severity: '99999999999' is no level"),
        ("t4,m,s,billing,0,3,", "row 4: priority: '3' is none of the mapping's values; known: '1', '2'"),
        ("t4,m,s,,,,", r"row 4: the row has no right answer \('label', 'level', 'priority'\); fill one in"),
        ("t4,m,s,billing,0,1", "row 4: 6 cells, and the header has 7"),
        (",m,s,billing,0,1,", "row 4: id: id is ''"),
        ("t1,m,s,billing,0,1,", "row 4: id: the decision 't1/team' is on row 1 too"),
    ],
)
def test_a_fault_names_the_row_the_column_and_the_remedy(write: Write, row: str, said: str) -> None:
    path = write("t.csv", CSV + row + "\nt5,m,s,,,7,\n")
    with pytest.raises(InputError, match=rf"^t.csv, {said}.*\(2 of 5 rows are faulty"):
        read_data(path, write("m.toml", MAPPING))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('state = "text"', "state = 3"), "state: state is 3; give the name of a column"),
        (('state = "text"', ""), "state: state is None"),
        (('state = "text"', 'state = ["text", 3]'), "state.1: state is 3"),
        (('id = "ticket"', 'idd = "ticket"'), r"a mapping has no field 'idd'; did you mean 'id'\?"),
        (('team = "label"', 'tean = "label"'), r"gold: there is no question 'tean'; did you mean 'team'\?"),
        (('column = "priority"', 'colum = "priority"'), r"gold.urgent: gold has no field 'colum'; did you mean"),
        (('column = "priority"', ""), "gold.urgent.column: gold is None; give the name of a column"),
        (('"2" = false', '"2" = "no"'), "gold.urgent.values.2: 'no' is no answer to a noul; give true or false"),
        (('type = "score"', 'type = "scor"'), "questions.severity.type: unknown question type 'scor'"),
        (("[gold]", "[gold"), "it is not valid TOML"),
    ],
)
def test_a_wrong_mapping_is_refused_before_the_table_is_read(write: Write, change: tuple[str, str], said: str) -> None:
    with pytest.raises(InputError, match=rf"^m.toml: {said}"):
        read_mapping(write("m.toml", MAPPING.replace(*change)))


def test_columns_must_be_there_once(write: Write, tmp_path: Path) -> None:
    mapping = read_mapping(write("m.toml", MAPPING))
    with pytest.raises(SchemaError, match=r"^t.csv: the mapping names a column 'label', .* did you mean 'labels'\?"):
        read_table(write("t.csv", CSV.replace("label", "labels")), mapping)
    with pytest.raises(SchemaError, match="two columns are called 'text'"):
        read_table(write("t.csv", CSV.replace("unused", "text")), mapping)
    with pytest.raises(SchemaError, match=r"^t.csv: it is empty; a table starts with a header"):
        read_table(write("t.csv", ""), mapping)
    with pytest.raises(SchemaError, match=r"t.csv has no rows"):
        read_table(write("t.csv", CSV.partition("\n")[0]), mapping)
    parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "t.parquet")
    with pytest.raises(SchemaError, match=r"^t.parquet: the mapping names a column 'ticket'"):
        read_table(tmp_path / "t.parquet", mapping)


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("t.csv", CSV.encode() + b't9,"a"b,c,,,,\n', r"^t.csv: line 7: .*RFC 4180"),
        ("t.csv", CSV.encode() + b"\xff,,,,,,\n", r"^t.csv: it is not UTF-8"),
        ("t.parquet", b"PAR1 is not enough", "t.parquet: it is no sound Parquet file"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, write: Write, name: str, body: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(body)
    with pytest.raises(SchemaError, match=said):
        read_data(tmp_path / name, write("m.toml", MAPPING))


def test_long_cells_are_read_and_the_process_is_left_as_it_was(write: Write) -> None:
    before = csv.field_size_limit()
    mapping = write("m.toml", MAPPING)
    [*_, long] = read_data(write("t.csv", CSV + f"t4,m,{'a' * 500_000},billing,,,\n"), mapping)
    assert len(long.request.state) == 500_000
    assert csv.field_size_limit() == before
    with pytest.raises(InputError):
        read_data(write("t.csv", CSV + "t4,m,s,nobody,,,\n"), mapping)
    assert csv.field_size_limit() == before


def test_the_suffix_says_what_a_file_is(write: Write) -> None:
    mapping = write("m.toml", MAPPING)
    with pytest.raises(ConfigError, match=r"t.csv is a table; .*--mapping FILE"):
        read_data(write("t.csv", CSV), None)
    with pytest.raises(ConfigError, match="JSON lines, which name their own fields; leave out the mapping"):
        read_data(write("t.jsonl", "{}"), mapping)
    with pytest.raises(ConfigError, match=r"ends in '.xlsx'; labelled data ends in .jsonl"):
        read_data(write("t.xlsx", ""), mapping)
    with pytest.raises(SchemaError, match=r"^m.yaml: it ends in '.yaml'; a mapping is"):
        read_data(write("t.csv", CSV), write("m.yaml", ""))


def test_without_pyarrow_parquet_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    mapping = write("m.toml", MAPPING)
    with pytest.raises(MissingDependencyError, match=r"pip install '.\[tables\]'$"):
        read_data(write("t.parquet", ""), mapping)
    assert len(read_data(write("t.csv", CSV), mapping)) == 3


def test_the_documented_mapping_is_sound(write: Write) -> None:
    """The example in the module's docstring, as it stands."""
    text = str(mapping_module.__doc__)
    example = text.partition("\n\n")[2].partition("\nWithout `values`")[0]
    read = read_mapping(write("m.toml", example))
    assert read.columns == ("text", "ticket", "source", "label", "priority")
    assert read.gold["urgent"].values == {"1": True, "2": True, "3": False}


@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.csv.zip", "t.csv.zst"])
def test_a_packed_file_is_to_be_unpacked(write: Write, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} ends in .*, so it is compressed; unpack it"):
        read_data(write(name, ""), None)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (gzip.compress(b"{}"), r"it is compressed \(gzip\); unpack it"),
        (b"PK\x03\x04", r"it is compressed \(ZIP\); unpack it"),
        ("{}".encode("utf-16"), "it is UTF-16; encode it as UTF-8"),
        (codecs.BOM_UTF16_BE + "{}".encode("utf-16-be"), "it is UTF-16; encode it as UTF-8"),
    ],
)
def test_what_a_file_is_instead_of_text_is_said(tmp_path: Path, write: Write, head: bytes, said: str) -> None:
    for name, mapping in (("t.jsonl", None), ("t.csv", write("m.toml", MAPPING))):
        (tmp_path / name).write_bytes(head)
        with pytest.raises(SchemaError, match=rf"^{name}: {said}$"):
            read_data(tmp_path / name, mapping)


def test_times_that_python_does_not_have_are_said_in_our_own_words(tmp_path: Path, write: Write) -> None:
    mapping = read_mapping(write("m.toml", MAPPING))
    row = {column: ["x"] for column in mapping.columns}
    column = mapping.columns[0]
    for times in (pa.array([1], pa.timestamp("ns")), pa.array([2**60], pa.timestamp("ms"))):
        parquet.write_table(pa.table({**row, column: times}), tmp_path / "t.parquet")
        with pytest.raises(
            SchemaError, match=rf"^t.parquet: a time cannot be read \('{column}'\); write times in"
        ) as caught:
            read_table(tmp_path / "t.parquet", mapping)
        assert "andas" not in str(caught.value)
