"""Whole rows of published tokenizers, id by id, and the labels, from `tests/data/golden-layouts.json`.

The Qwen2.5 rows need its tokenizer: set QWEN25_TOKENIZER to a folder that holds it.
"""

from __future__ import annotations

import copy
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from decider.errors import ModelError
from decider.questions.limits import Limits
from decider.questions.wire import parse_request
from decider.tokens.chat import chat_frame
from decider.tokens.config import DeciderConfig
from decider.tokens.labels import LabelTable, label_table
from decider.tokens.layout import Layout
from decider.tokens.rows import RowBuilder
from decider.tokens.tokenizer import Tokenizer

GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "golden-layouts.json").read_text(encoding="utf-8"))


@cache
def load(folder: str) -> PreTrainedTokenizerFast:
    source = AutoTokenizer.from_pretrained(folder)
    assert isinstance(source, PreTrainedTokenizerFast)
    return source


@cache
def prepare(folder: str, template: str | None) -> tuple[Tokenizer, LabelTable]:
    source = copy.copy(load(folder))
    if template is not None:
        source.chat_template = template
    tokenizer = Tokenizer(source)
    return tokenizer, label_table(tokenizer)


def folder_of(name: str, request: pytest.FixtureRequest) -> str:
    if name == "smollm2":
        return str(request.getfixturevalue("embedded_folder"))
    if "QWEN25_TOKENIZER" not in os.environ:
        pytest.skip("QWEN25_TOKENIZER names no folder with the tokenizer of Qwen2.5")
    return os.environ["QWEN25_TOKENIZER"]


def param(value: Any, tokenizer: str, name: str) -> Any:
    return pytest.param(value, id=f"{tokenizer}/{name}", marks=[pytest.mark.embedded] if tokenizer == "smollm2" else [])


@pytest.mark.parametrize("name", [param(name, name, "labels") for name in GOLDEN["tokenizers"]])
def test_labels(name: str, request: pytest.FixtureRequest) -> None:
    _, table = prepare(folder_of(name, request), None)
    assert list(table.names) == GOLDEN["tokenizers"][name]["label_names"]
    assert list(table.ids) == GOLDEN["tokenizers"][name]["label_ids"]


@pytest.mark.parametrize("case", [param(case, case["tokenizer"], case["name"]) for case in GOLDEN["cases"]])
def test_rows(case: dict[str, Any], request: pytest.FixtureRequest) -> None:
    asked = case["request"]
    tokenizer, labels = prepare(folder_of(case["tokenizer"], request), asked.get("chat_template"))
    if "error" in case:
        with pytest.raises(ModelError, match=case["error"]):
            chat_frame(tokenizer, labels)
        return
    builder = RowBuilder(
        tokenizer,
        labels,
        DeciderConfig(isolated_levels=asked["isolated_levels"], neutralize_none=asked["neutralize_none"]),
        chat=chat_frame(tokenizer, labels),
        max_positions=8192,
        max_state_tokens=asked["state_cap"],
    )
    parsed = parse_request({key: asked[key] for key in ("state", "questions", "independent")}, Limits())
    built = builder.build(parsed, layout=Layout.parse(case["layout"]), truncate=True)
    rows = [{"ids": list(row.ids), "slots": list(row.slots), "n_options": list(row.n_options)} for row in built.rows]
    assert rows == case["rows"]
