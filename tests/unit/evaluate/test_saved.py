"""Decisions as NumPy archives. Refuses models. Trap: NumPy reads almost anything; what it reads must still be sound."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

from decider.decisions import CHOICE, NOUL, SCORE, Decisions
from decider.errors import ConfigError, SchemaError, TooLargeError
from decider.evaluate.facts import NOT_SAID, RunFacts
from decider.evaluate.saved import load_decisions, save_decisions

FACTS = RunFacts("tiny", "fp32", "packed", "plain", 1, 0, "tickets.jsonl", "ab" * 32, "0.1.0")
DECISIONS = Decisions(
    key=("a/team", "a/severity", "ü 🙂/urgent"),
    task=("mail", "mail", "chat"),
    kind=np.array([CHOICE, SCORE, NOUL]),
    n_options=np.array([3, 2, 2]),
    gold=np.array([2, 0, 1]),
    logits=np.array([[-1.5, -0.25, -3.0], [2.0, -1.0, -np.inf], [-0.1, -2.3, -np.inf]]),
    isolated=np.array([False, True, False]),
    row_tokens=np.array([40, 55, 30]),
    option_lists=(("billing", "tech, \x00", "sales"), ("0", "1"), ("no", "yes")),
    option_list=np.array([0, 1, 2]),
)
LOGITS = np.array([[0.5, 1.5, -np.inf], [0.0, -1.0, 2.0]], dtype=np.float32)
GOLD = np.array([1, 2], dtype=np.int8)

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Arrays → a file, as another maker writes it."""

    def save(**arrays: Any) -> Path:
        path = tmp_path / "theirs.npz"
        np.savez(path, **arrays)
        return path

    return save


def same(one: Decisions, other: Decisions) -> None:
    assert (one.key, one.task, one.option_lists) == (other.key, other.task, other.option_lists)
    for name in ("kind", "n_options", "gold", "logits", "isolated", "row_tokens", "option_list"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine.dtype == theirs.dtype, name
        np.testing.assert_array_equal(mine, theirs)
    assert (one.familiarity is None) == (other.familiarity is None)
    if one.familiarity is not None and other.familiarity is not None:
        assert one.familiarity.dtype == other.familiarity.dtype == np.float64
        np.testing.assert_array_equal(one.familiarity, other.familiarity)


def test_how_familiar_questions_are_is_kept_where_it_is_known(tmp_path: Path, save: Save) -> None:
    known = replace(DECISIONS, familiarity=np.array([0.0, 1 / 3, 1.0]))
    save_decisions(tmp_path / "d.npz", known, FACTS)
    same(load_decisions(tmp_path / "d.npz")[0], known)
    theirs, _ = load_decisions(save(logits=LOGITS, gold=GOLD, familiarity=np.array([0.5, 0.25], dtype=np.float16)))
    assert theirs.familiarity is not None
    assert theirs.familiarity.dtype == np.float64
    assert theirs.familiarity.tolist() == [0.5, 0.25]


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save_decisions(tmp_path / "d.npz", DECISIONS, FACTS)
    decisions, facts = load_decisions(tmp_path / "d.npz")
    same(decisions, DECISIONS)
    assert facts == FACTS
    assert list(tmp_path.iterdir()) == [tmp_path / "d.npz"]


def test_two_arrays_are_enough(save: Save) -> None:
    path = save(logits=LOGITS, gold=GOLD)
    decisions, facts = load_decisions(path)
    same(
        decisions,
        Decisions(
            key=("1", "2"),
            task=("theirs", "theirs"),
            kind=np.array([CHOICE, CHOICE]),
            n_options=np.array([2, 3]),
            gold=np.array([1, 2]),
            logits=LOGITS.astype(np.float64),
            isolated=np.array([False, False]),
            row_tokens=np.array([0, 0]),
            option_lists=(("0", "1"), ("0", "1", "2")),
            option_list=np.array([0, 1]),
        ),
    )
    assert facts.data_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (facts.data, facts.model, facts.dtype, facts.permutations) == ("theirs.npz", NOT_SAID, NOT_SAID, 1)


def test_kinds_may_be_words_and_options_are_named_by_them(save: Save) -> None:
    logits = np.array([[0.0, 1.0], [0.0, 1.0], [3.0, -np.inf]])
    kind = np.array(["noul", "score", "choice"])
    decisions, _ = load_decisions(save(logits=logits, gold=np.array([1, 1, 0]), kind=kind))
    assert decisions.kind.tolist() == [NOUL, SCORE, CHOICE]
    assert [decisions.option_lists[which] for which in decisions.option_list] == [("no", "yes"), ("0", "1"), ("0",)]


def test_an_option_may_be_impossible(save: Save) -> None:
    logits = np.array([[0.0, -np.inf, -np.inf]])
    decisions, _ = load_decisions(save(logits=logits, gold=np.array([1]), n_options=np.array([3])))
    assert decisions.n_options.tolist() == [3]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"logits": None}, "logits: the array is not there; it must be floating-point"),
        ({"logits": np.zeros((2, 3), dtype=np.int64)}, r"logits: the array is int64 \[2, 3\]"),
        ({"logits": np.zeros(2)}, r"logits: the array is float64 \[2\]"),
        ({"logits": np.zeros((0, 3))}, r"logits: the array is float64 \[0, 3\]"),
        ({"logits": LOGITS * np.nan}, r"logits: row 0 has a NaN or \+∞.*\(2 such rows\)"),
        ({"logits": np.array([[0.0, 1, 2], [0, np.inf, 1]])}, r"logits: row 1 has a NaN or \+∞"),
        ({"logits": np.array([[-np.inf] * 3, [0.0, 1, 2]])}, "logits: row 0 has no option"),
        ({"gold": None}, "gold: there is no array 'gold'; add it"),
        ({"gold": np.array([1, 3])}, "gold: row 1 is no option of its row; count options from 0"),
        ({"gold": np.array([2, 2])}, "gold: row 0 is no option"),
        ({"gold": np.array([-1, 2])}, "gold: row 0 is no option"),
        ({"gold": np.array([1.0, 2.0])}, r"gold: the array is float64 \[2\]; it must be integers \[2\]"),
        ({"gold": np.array([1])}, r"gold: the array is int64 \[1\]"),
        ({"n_options": np.array([0, 3])}, "n_options: row 0 is none of 1 to 3"),
        ({"n_options": np.array([2, 4])}, "n_options: row 1 is none of 1 to 3"),
        ({"n_options": np.array([2, 2])}, "logits: row 1 has a number beyond its options; put −inf there"),
        ({"kind": np.array([0, 3])}, r"kind: row 1 is none of 0 to 2 \(choice, score, noul\)"),
        ({"kind": np.array(["choice", "chioce"])}, "kind: row 1 is none of choice, score, noul"),
        ({"kind": np.array([2, 2])}, "n_options: row 1 is a noul's and not 2"),
        (
            {"kind": np.array([1, 0]), "logits": np.array([[1, -np.inf], [0, 1]]), "gold": GOLD * 0},
            "score's and under 2",
        ),
        ({"isolated": np.array([True, False])}, "isolated: row 0 is true for what is no score"),
        ({"isolated": np.array([0, 1])}, r"isolated: the array is int64 \[2\]; it must be booleans"),
        ({"row_tokens": np.array([1, -1])}, "row_tokens: row 1 is negative"),
        ({"familiarity": np.array([0.5, 1.01])}, "familiarity: row 1 is not within 0 and 1"),
        ({"familiarity": np.array([-1e-9, 0.5])}, "familiarity: row 0 is not within 0 and 1"),
        ({"familiarity": np.array([np.nan, np.nan])}, r"familiarity: row 0 is not within 0 and 1 \(2 such rows\)"),
        ({"familiarity": np.array([0, 1])}, r"familiarity: the array is int64 \[2\]; it must be floating-point"),
        ({"familiarity": np.ones((2, 1))}, r"familiarity: the array is float64 \[2, 1\]"),
        ({"key": np.array(["a", "a"])}, "key: rows 0 and 1 are both called 'a'; keys are unique"),
        ({"key": np.array(["a"])}, r"key: the array is <U1 \[1\]; it must be text \[2\]"),
        ({"key": np.array(["a", "b"], dtype=object)}, "the array 'key' holds Python objects, which are not read"),
        ({"key": np.array(["a", "\ud800"])}, r"key.1: the text has a lone surrogate '\\ud800'"),
        ({"task": np.array(["\udfff", "a"])}, "task.0: the text has a lone surrogate"),
        ({"key": np.array([97, 0x110000], dtype=np.uint32).view("U1")}, "key: a text has a code point beyond Unicode"),
        (
            {"facts": np.array(json.dumps(FACTS.to_json() | {"permutations": 0}))},
            "permutations is 0; it must be from 1",
        ),
        (
            {"facts": np.array(json.dumps(FACTS.to_json() | {"joint_items": -1}))},
            "joint_items is -1; it must be from 0",
        ),
        ({"task": np.array([1, 2])}, r"task: the array is int64"),
        ({"option_list": np.array([0, 0])}, "option_lists and option_list belong together"),
        ({"labels": GOLD}, "an array called 'labels' means nothing here"),
        ({"facts": np.array("{}")}, "facts: the facts have no model; add it"),
        ({"facts": np.array("{")}, "facts: malformed JSON"),
        ({"facts": np.array([1])}, r"facts: the array is int64 \[1\]; it must be one text, of JSON"),
        (
            {"facts": np.array(json.dumps(FACTS.to_json() | {"dtyp": "fp32"}))},
            "unknown fact 'dtyp'; did you mean 'dtype'",
        ),
        (
            {"facts": np.array(json.dumps(FACTS.to_json() | {"permutations": True}))},
            "permutations is True; it must be a",
        ),
        ({"facts": np.array(json.dumps(FACTS.to_json() | {"model": 1}))}, "the fact model is 1; it must be text"),
    ],
)
def test_an_unsound_archive_is_refused(save: Save, change: dict[str, Any], said: str) -> None:
    arrays = {"logits": LOGITS, "gold": GOLD} | change
    with pytest.raises(SchemaError, match=rf"^theirs.npz: .*{said}"):
        load_decisions(save(**{name: array for name, array in arrays.items() if array is not None}))


@pytest.mark.parametrize(
    ("lists", "which", "said"),
    [
        ([["a", "b"], ["a", "b", "c"]], [0, 2], "option_list: row 1 is none of the 2 lists"),
        ([["a", "b"], ["a", "b", "c"]], [1, 1], "option_list: row 0 names a list of another length"),
        ([["a", "a"], ["a", "b", "c"]], [0, 1], "option_lists.0: an option has no name of its own"),
        ([["a", 1], ["a", "b", "c"]], [0, 1], "option_lists.0: an option has no name of its own"),
        (["ab", "abc"], [0, 1], "option_lists: the JSON is a list of length 2; it must be a list of lists"),
    ],
)
def test_lists_of_options_are_checked(save: Save, lists: list[Any], which: list[int], said: str) -> None:
    given = {"option_lists": np.array(json.dumps(lists)), "option_list": np.array(which)}
    with pytest.raises(SchemaError, match=said):
        load_decisions(save(logits=LOGITS, gold=GOLD, **given))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "it is no .npz file, which is a ZIP archive"),
        (b"not an archive", "it is no .npz file, which is a ZIP archive"),
        (b"PK\x03\x04 cut short", "it is no sound .npz file of plain arrays"),
    ],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, body: bytes, said: str) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(body)
    with pytest.raises(SchemaError, match=rf"^bad.npz: {said}") as caught:
        load_decisions(path)
    assert "pickle" not in str(caught.value)


def member(shape: tuple[int, ...], body: bytes, descr: str = "<f8") -> bytes:
    """An array as its header declares it, whatever its body."""
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue() + body


@pytest.mark.parametrize(
    ("logits", "said"),
    [
        (member((10**9, 100), b""), "'logits' declares 800,000,000,000 bytes and holds 0"),
        (member((2, 3), b"\0" * 49), "'logits' declares 48 bytes and holds 49"),
        (member((-1, -6), b"\0" * 48), "'logits' declares 48 bytes"),
        (member((10**30, 0), b""), "no sound .npz file"),
        (member((2, 3), b"\0" * 48)[:40], "no sound .npz file"),
        (b"\x93NUMPY\x03\x00" + member((2, 3), b"\0" * 48)[8:], "no sound .npz file"),
        (b"no array", "no sound .npz file"),
    ],
)
def test_sizes_are_checked_before_arrays_are_made(tmp_path: Path, logits: bytes, said: str) -> None:
    path = tmp_path / "d.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("logits.npy", logits)
        archive.writestr("gold.npy", member((2,), b"\0" * 16, "<i8"))
    with pytest.raises(SchemaError, match=f"^d.npz: .*{said}"):
        load_decisions(path)


def test_all_arrays_together_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, logits=LOGITS, gold=GOLD)
    # Two rows of three logits and a right answer: eight numbers of eight bytes, however few they were saved in.
    monkeypatch.setattr("decider.evaluate.archive.MOST_BYTES", 64)
    assert len(load_decisions(path)[0]) == 2
    monkeypatch.setattr("decider.evaluate.archive.MOST_BYTES", 63)
    with pytest.raises(TooLargeError, match=r"^d.npz: its arrays are 64 bytes, over the limit of 63; save fewer"):
        load_decisions(path)


def test_what_unpacks_to_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    header = member((2**29, 2), b"")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logits.npy", header + b"\0" * 2**20)
    body = bytearray(path.read_bytes())
    # The size in the directory at the end, as if 2 ** 33 bytes were in it, but for the 32 bits that it has.
    place = body.index(b"PK\x01\x02") + 24
    body[place : place + 4] = (2**32 - 2).to_bytes(4, "little")
    path.write_bytes(body)
    with pytest.raises(SchemaError, match=r"'logits' declares 8,589,934,592 bytes and holds 4,29"):
        load_decisions(path)


def test_an_encrypted_or_repeated_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, logits=LOGITS, gold=GOLD)
    body = bytearray(path.read_bytes())
    body[body.index(b"PK\x03\x04") + 6] |= 1
    body[body.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(body)
    with pytest.raises(SchemaError, match="the array 'logits' is encrypted; save it again with numpy"):
        load_decisions(path)
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("gold", "gold.npy"):
            archive.writestr(name, member((2,), b"\0" * 16, "<i8"))
    with pytest.raises(SchemaError, match="two arrays are called 'gold'"):
        load_decisions(path)


def test_a_damaged_archive_a_bare_array_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    save_decisions(path, DECISIONS, FACTS)
    body = bytearray(path.read_bytes())
    middle = body.index(b"logits.npy") + 60
    body[middle : middle + 8] = b"\xff" * 8
    path.write_bytes(body)
    with pytest.raises(SchemaError, match=r"^d.npz: it is no sound .npz"):
        load_decisions(path)
    np.save(tmp_path / "bare.npy", LOGITS)
    with pytest.raises(SchemaError, match="one bare array; save named ones"):
        load_decisions(tmp_path / "bare.npy")
    with pytest.raises(SchemaError, match=r"cannot read .*none.npz: No such file"):
        load_decisions(tmp_path / "none.npz")


def test_decisions_are_saved_as_npz_where_there_is_a_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not end in .npz"):
        save_decisions(tmp_path / "d.json", DECISIONS, FACTS)
    with pytest.raises(ConfigError, match="No such file or directory; write to another place"):
        save_decisions(tmp_path / "none" / "d.npz", DECISIONS, FACTS)
    assert list(tmp_path.iterdir()) == []
