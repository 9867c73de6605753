"""Decisions as a NumPy archive (`.npz`), so that logits are paid for once: written here, or by anybody else.

What others write needs two arrays; the rest mean what is said here where they are left out.

- `logits` [N, W] floating: each option's logit up to a constant a row; −inf in the columns beyond a row's options.
- `gold` [N] integer: the right option, level, or (no, yes) = (0, 1).
- `n_options` [N] integer: else up to a row's last column that is not −inf.
- `kind` [N] integer, 0 choice, 1 score, 2 noul, or those words: else all are Choices.
- `isolated` [N] bool: rows of a Score that hold a log-odds of yes a level: else none is.
- `key` [N] text, unique: else "1", "2", …. `task` [N] text: else the file's name without its suffix.
- `row_tokens` [N] integer: else 0.
- `familiarity` [N] floating, in [0, 1] (`decider.tokens.wordings`): else not known.
- `option_lists` text, a JSON list of lists of option names, and `option_list` [N] integer, which of them is a row's:
  else options are called "0", "1", …, and a Noul's "no", "yes". Both or neither.
- `facts` text, a JSON object with the fields of `RunFacts`: else they are "not said".

It refuses pickled objects and arrays of other names. Trap: NumPy drops NUL characters at the end of text, by which two
keys may become one; `labelled` lets no such key in.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decider.calibrate.whole import whole_file
from decider.decisions import CHOICE, KINDS, NOUL, SCORE, BoolArray, Decisions, Float64Array, IntArray
from decider.errors import ConfigError, SchemaError
from decider.evaluate.archive import Arrays, read_arrays
from decider.evaluate.facts import RunFacts, facts_from_json, file_sha256, unknown_facts
from decider.evaluate.labelled import in_file
from decider.questions.faults import located, show
from decider.questions.jsontext import loads, utf8_bytes
from decider.questions.limits import Limits
from decider.questions.prompt import NO_YES

ARRAYS = (
    "logits", "gold", "n_options", "kind", "isolated", "key", "task", "row_tokens", "option_lists", "option_list",
    "familiarity", "facts",
)  # fmt: skip
INTEGERS, FLOATS, BOOLS, TEXT = "iu", "f", "b", "U"
WORDS = {INTEGERS: "integers", FLOATS: "floating-point numbers", BOOLS: "booleans", TEXT: "text"}
JSON_LIMITS = Limits(max_body_bytes=2**28)
"""Of the names of options: a million lists of a few words."""


def save_decisions(path: Path, decisions: Decisions, facts: RunFacts) -> None:
    """Write both to `path`, which ends in ".npz". Raises ConfigError for another suffix, or what cannot be written."""
    if path.suffix != ".npz":
        raise ConfigError(f"{str(path)!r:.120} does not end in .npz; decisions are saved as such a file")
    known: dict[str, Any] = {} if decisions.familiarity is None else {"familiarity": decisions.familiarity}
    with whole_file(path) as file:
        np.savez_compressed(
            file,
            logits=decisions.logits,
            gold=decisions.gold,
            n_options=decisions.n_options,
            kind=decisions.kind,
            isolated=decisions.isolated,
            key=np.array(decisions.key, dtype=np.str_),
            task=np.array(decisions.task, dtype=np.str_),
            row_tokens=decisions.row_tokens,
            option_lists=np.array(json.dumps(decisions.option_lists)),
            option_list=decisions.option_list,
            **known,
            facts=np.array(json.dumps(facts.to_json())),
        )


def load_decisions(path: Path) -> tuple[Decisions, RunFacts]:
    """What `save_decisions` wrote, or another maker.

    Raises SchemaError with the file, the array and the row; TooLargeError for more than `archive.MOST_BYTES`.
    """
    with in_file(path):
        arrays = read_arrays(path, ARRAYS)
        decisions = _decisions(arrays, path.stem)
        if "facts" not in arrays:
            return decisions, unknown_facts(path, file_sha256(path))
        with located("facts"):
            return decisions, facts_from_json(_json(arrays, "facts"))


def _decisions(arrays: Arrays, stem: str) -> Decisions:
    logits = _logits(arrays)
    n, width = logits.shape
    there = ~np.isneginf(logits)
    _refuse(~np.any(there, axis=1), "logits", "has no option; give each option a number")
    # The last column that is not −inf, counted from 1.
    widths = width - there[:, ::-1].argmax(axis=1)
    n_options = _integers(arrays, "n_options", n, default=widths)
    _refuse((n_options < 1) | (n_options > width), "n_options", f"is none of 1 to {width}, the columns of logits")
    _refuse(widths > n_options, "logits", "has a number beyond its options; put −inf there")
    kind = _kinds(arrays, n)
    _refuse((kind == NOUL) & (n_options != 2), "n_options", "is a noul's and not 2, for (no, yes)")
    _refuse((kind == SCORE) & (n_options < 2), "n_options", "is a score's and under 2")
    gold = _integers(arrays, "gold", n)
    _refuse((gold < 0) | (gold >= n_options), "gold", "is no option of its row; count options from 0")
    isolated = _column(arrays, "isolated", BOOLS, n, default=np.zeros(n, dtype=np.bool_))
    _refuse(isolated & (kind != SCORE), "isolated", "is true for what is no score, whose levels alone may be")
    row_tokens = _integers(arrays, "row_tokens", n, default=np.zeros(n, dtype=np.int64))
    _refuse(row_tokens < 0, "row_tokens", "is negative")
    familiarity = _column(arrays, "familiarity", FLOATS, n).astype(np.float64) if "familiarity" in arrays else None
    if familiarity is not None:
        _refuse(~((familiarity >= 0) & (familiarity <= 1)), "familiarity", "is not within 0 and 1")
    option_lists, option_list = _options(arrays, kind, n_options)
    task = _column(arrays, "task", TEXT, n, default=np.full(n, stem))
    return Decisions(
        key=_keys(arrays, n),
        task=_texts(task, "task"),
        kind=kind,
        n_options=n_options,
        gold=gold,
        logits=logits,
        isolated=isolated,
        row_tokens=row_tokens,
        option_lists=option_lists,
        option_list=option_list,
        familiarity=familiarity,
    )


def _logits(arrays: Arrays) -> Float64Array:
    logits = arrays.get("logits")
    if logits is None or logits.ndim != 2 or logits.dtype.kind not in FLOATS or not logits.size:
        shown = "not there" if logits is None else f"{logits.dtype} {list(logits.shape)}"
        raise SchemaError(f"the array is {shown}; it must be floating-point [decisions, options]", loc=("logits",))
    numbers = logits.astype(np.float64, copy=False)
    _refuse(~np.all(numbers < np.inf, axis=1), "logits", "has a NaN or +∞; an option that cannot be is −inf")
    return numbers


def _kinds(arrays: Arrays, n: int) -> IntArray:
    if "kind" in arrays and arrays["kind"].dtype.kind in TEXT:
        words = np.array(_texts(_column(arrays, "kind", TEXT, n), "kind"))
        _refuse(~np.isin(words, KINDS), "kind", f"is none of {', '.join(KINDS)}")
        return np.select([words == word for word in KINDS], range(len(KINDS))).astype(np.int64)
    kind = _integers(arrays, "kind", n, default=np.full(n, CHOICE))
    _refuse((kind < 0) | (kind >= len(KINDS)), "kind", f"is none of 0 to {len(KINDS) - 1} ({', '.join(KINDS)})")
    return kind


def _keys(arrays: Arrays, n: int) -> tuple[str, ...]:
    keys = _texts(_column(arrays, "key", TEXT, n, default=np.arange(1, n + 1).astype(np.str_)), "key")
    if len(set(keys)) < n:
        first: dict[str, int] = {}
        row, key = next((row, key) for row, key in enumerate(keys) if first.setdefault(key, row) != row)
        raise SchemaError(f"rows {first[key]:,} and {row:,} are both called {show(key)}; keys are unique", loc=("key",))
    return keys


def _options(arrays: Arrays, kind: IntArray, n_options: IntArray) -> tuple[tuple[tuple[str, ...], ...], IntArray]:
    """The distinct lists of option names, and which of them is a row's."""
    if ("option_lists" in arrays) != ("option_list" in arrays):
        raise SchemaError("option_lists and option_list belong together; give both or neither")
    if "option_lists" not in arrays:
        forms, which = np.unique(np.stack([kind == NOUL, n_options]), axis=1, return_inverse=True)
        lists = tuple(NO_YES if noul else tuple(map(str, range(count))) for noul, count in forms.T)
        return lists, which.reshape(-1).astype(np.int64)
    with located("option_lists"):
        given = _json(arrays, "option_lists")
        if not isinstance(given, list) or not all(isinstance(names, list) for names in given):
            raise SchemaError(f"the JSON is {show(given)}; it must be a list of lists of option names")
        lists = tuple(tuple(names) for names in given)
        for index, names in enumerate(lists):
            if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
                raise SchemaError("an option has no name of its own; name each by another text", loc=(index,))
    which = _integers(arrays, "option_list", len(kind))
    _refuse((which < 0) | (which >= len(lists)), "option_list", f"is none of the {len(lists):,} lists, counted from 0")
    lengths = np.array([len(names) for names in lists])
    _refuse(lengths[which] != n_options, "option_list", "names a list of another length than n_options")
    return lists, which


def _json(arrays: Arrays, name: str) -> Any:
    """The JSON in an array without dimensions. Raises SchemaError as `loads` does, or for another array."""
    array = arrays[name]
    if array.ndim or array.dtype.kind not in TEXT:
        raise SchemaError(f"the array is {array.dtype} {list(array.shape)}; it must be one text, of JSON")
    return loads(_texts(array.reshape(1), name)[0], JSON_LIMITS)


def _integers(arrays: Arrays, name: str, n: int, default: NDArray[Any] | None = None) -> IntArray:
    return np.asarray(_column(arrays, name, INTEGERS, n, default).astype(np.int64))


def _column(arrays: Arrays, name: str, kinds: str, n: int, default: NDArray[Any] | None = None) -> NDArray[Any]:
    """[N] the array called `name`. Raises SchemaError for another shape or type, or for none without a default."""
    array = arrays.get(name, default)
    if array is None:
        raise SchemaError(f"there is no array {name!r}; add it", loc=(name,))
    if array.shape != (n,) or array.dtype.kind not in kinds:
        raise SchemaError(
            f"the array is {array.dtype} {list(array.shape)}; it must be {WORDS[kinds]} [{n}], one a row of logits",
            loc=(name,),
        )
    return array


def _texts(column: NDArray[Any], name: str) -> tuple[str, ...]:
    """The texts of [N] the array called `name`. Raises SchemaError for what is not Unicode, a lone surrogate too."""
    if column.dtype.itemsize:
        # Beyond Unicode, making a text is what fails.
        points = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("=")).view(np.uint32)
        if (points > sys.maxunicode).any():
            raise SchemaError("a text has a code point beyond Unicode; save valid Unicode", loc=(name,))
    texts: tuple[str, ...] = tuple(column.tolist())
    for row, text in enumerate(texts):
        utf8_bytes(text, loc=(name, row))
    return texts


def _refuse(wrong: BoolArray, name: str, what: str) -> None:
    """Raises SchemaError for the first row that is `wrong`, which says how many are."""
    if wrong.any():
        count = f" ({int(wrong.sum()):,} such rows)" if wrong.sum() > 1 else ""
        raise SchemaError(f"row {int(wrong.argmax()):,} {what}{count}", loc=(name,))
