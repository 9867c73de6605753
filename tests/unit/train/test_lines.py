"""Items read one at a time are those of the whole file.

Refuses to judge faults: `tests/unit` of the labelled files do.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from train_data import lines

from decider.errors import SchemaError
from decider.evaluate.labelled import read_labelled
from decider.train.lines import Lines


def test_each_item_is_the_one_of_the_whole_file(tmp_path: Path) -> None:
    texts = [json.dumps(line) for line in lines(5)]
    # Without an id, an item is called by its line.
    texts[3] = json.dumps({name: value for name, value in lines(5)[3].items() if name != "id"})
    path = tmp_path / "some.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + "\n\n".join(texts).encode() + b"\r\n \n")
    found, whole = Lines(path), read_labelled(path)
    assert len(found) == 5
    assert tuple(found) == whole
    assert found[-2].id == whole[3].id == "7"
    assert tuple(found[1:4]) == whole[1:4]


def test_a_faulty_line_is_told_when_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(json.dumps(lines(1)[0]) + "\n{}\n", encoding="utf-8")
    found = Lines(path)
    assert found[0].task == "words"
    with pytest.raises(SchemaError, match="line 2"):
        found[1]
