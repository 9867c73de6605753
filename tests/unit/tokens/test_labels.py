"""The label table: order, limit, and which tokenizers are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import models, normalizers
from transformers import PreTrainedTokenizerFast

from decider.errors import ModelError
from decider.tokens.labels import LabelTable, label_table
from decider.tokens.tokenizer import Tokenizer

Sources = dict[str, PreTrainedTokenizerFast]
MakeSource = Callable[[RawTokenizer, str | None], PreTrainedTokenizerFast]


def without(letter: str, sources: Sources, make_source: MakeSource) -> Tokenizer:
    """A tokenizer for which the capital `letter` is two tokens."""
    raw = copy.deepcopy(sources["think"].backend_tokenizer)
    raw.normalizer = normalizers.Replace(letter, "##")
    return Tokenizer(make_source(raw, None))


def test_order_is_the_candidates_not_the_ids(tokenizer: Tokenizer, family: str) -> None:
    table = label_table(tokenizer)
    assert len(table) == (40 if family == "think" else 255)
    assert table.names[:29] == (*"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "AA", "AB", "AC")
    assert [tokenizer.encode(name) for name in table.names] == [[label] for label in table.ids]
    assert len(set(table.ids)) == len(table)


def test_a_label_of_two_tokens_is_left_out(sources: Sources, make_source: MakeSource) -> None:
    names = label_table(without("K", sources, make_source)).names
    assert names == (*"ABCDEFGHIJLMNOPQRSTUVWXYZ", *(f"A{letter}" for letter in "ABCDEFGHIJLMN"))


def test_a_tokenizer_without_the_first_ten_is_refused(sources: Sources, make_source: MakeSource) -> None:
    with pytest.raises(ModelError, match=r"has 38 one-token labels among A to ZZ, without J;"):
        label_table(without("J", sources, make_source))


def test_labels_that_share_an_id_are_refused(make_source: MakeSource) -> None:
    known = {word: index for index, word in enumerate("?ABCDEFGHIJ")}
    raw = RawTokenizer(models.WordLevel(known, unk_token="?"))
    with pytest.raises(ModelError, match=r"255 one-token labels .* only 11 distinct ids"):
        label_table(Tokenizer(make_source(raw, None)))


def test_a_table_must_be_aligned() -> None:
    with pytest.raises(AssertionError):
        LabelTable(("A", "B"), (1,))
