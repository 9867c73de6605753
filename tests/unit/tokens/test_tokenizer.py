"""Callers' text never becomes a control token; everything else is the tokenizer as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as RawTokenizer
from transformers import PreTrainedTokenizerFast

from decider.errors import ModelError
from decider.tokens.tokenizer import Tokenizer

Sources = dict[str, PreTrainedTokenizerFast]
MakeSource = Callable[[RawTokenizer, str | None], PreTrainedTokenizerFast]
Changed = Callable[..., PreTrainedTokenizerFast]

CONTROLS = {
    "gemma": {"<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<|channel>", "<channel|>"},
    "llama": {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
    "qwen": {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim|>", "<think>", "</think>"},
    "think": {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim|>", "<think>", "</think>"},
}


@pytest.fixture
def changed(sources: Sources, make_source: MakeSource) -> Changed:
    """A copy of the qwen-like tokenizer with more added tokens and, if given, another template."""

    def change(*tokens: AddedToken, template: str | None = None) -> PreTrainedTokenizerFast:
        source = make_source(sources["qwen"].backend_tokenizer, template or sources["qwen"].chat_template)
        source.backend_tokenizer.add_tokens(list(tokens))
        return source

    return change


def test_control_tokens_of_each_family(tokenizer: Tokenizer, family: str) -> None:
    assert tokenizer.control_tokens == CONTROLS[family]


def test_control_tokens_stay_text_for_callers_only(tokenizer: Tokenizer, source: PreTrainedTokenizerFast) -> None:
    for spelling in tokenizer.control_tokens:
        token_id = source.backend_tokenizer.token_to_id(spelling)
        assert tokenizer.encode_control(f"a{spelling}b").count(token_id or 0) == 1
        assert token_id not in tokenizer.encode(f"a{spelling}b")
        assert token_id not in tokenizer.encode(f" {spelling}\n{spelling}{spelling}")


def test_text_of_control_tokens_survives(tokenizer: Tokenizer, source: PreTrainedTokenizerFast) -> None:
    text = "Stop." + "".join(sorted(tokenizer.control_tokens)) + "go"
    assert source.backend_tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("name", "token"), [("gemma", "\n\n"), ("gemma", "\n\n\n"), ("gemma", "<b>"), ("qwen", "<kept>")]
)
def test_other_added_tokens_keep_their_ids(sources: Sources, name: str, token: str) -> None:
    token_id = sources[name].backend_tokenizer.token_to_id(token)
    tokenizer = Tokenizer(sources[name])
    assert tokenizer.encode(token) == tokenizer.encode_control(token) == [token_id]


def test_an_added_token_that_the_template_spells_is_control(changed: Changed) -> None:
    tool = AddedToken("<tool>", normalized=False)
    assert "<tool>" in Tokenizer(changed(tool, template="{{ '<tool>' }}")).control_tokens
    assert "<tool>" not in Tokenizer(changed(tool)).control_tokens


def test_white_space_in_a_template_is_not_control(sources: Sources, make_source: MakeSource) -> None:
    source = make_source(sources["gemma"].backend_tokenizer, "\n\n{{ messages[0].content }}\n\n\n")
    assert Tokenizer(source).control_tokens.isdisjoint({"\n\n", "\n\n\n"})


@given(text=st.text(max_size=40).filter(lambda text: text.isascii()))
def test_plain_text_reads_the_same_both_ways(sources: Sources, text: str) -> None:
    tokenizer = Tokenizer(sources["llama"])
    assert tokenizer.encode(text) == tokenizer.encode_control(text)


def test_a_control_token_that_text_can_spell_is_refused(changed: Changed) -> None:
    reachable = AddedToken("AA", special=True, normalized=False)
    with pytest.raises(ModelError, match="'AA' into control token"):
        Tokenizer(changed(reachable))


def test_padding_and_truncation_are_switched_off(sources: Sources, changed: Changed) -> None:
    padded = changed()
    padded.backend_tokenizer.enable_padding(length=64)
    padded.backend_tokenizer.enable_truncation(max_length=3)
    tokenizer, expected = Tokenizer(padded), Tokenizer(sources["qwen"])
    text = "The customer wants the money back."
    assert tokenizer.encode(text) == tokenizer.encode_control(text) == expected.encode(text)


def test_later_changes_of_the_source_do_not_reach_the_tokenizer(changed: Changed) -> None:
    source = changed()
    tokenizer = Tokenizer(source)
    before = tokenizer.encode("The customer"), tokenizer.render_chat("x")
    source.backend_tokenizer.enable_truncation(max_length=1)
    source.chat_template = "other"
    assert (tokenizer.encode("The customer"), tokenizer.render_chat("x")) == before


def test_render_chat(sources: Sources) -> None:
    assert Tokenizer(sources["qwen"]).render_chat("hi") == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_render_chat_without_a_template(changed: Changed) -> None:
    source = changed()
    source.chat_template = None
    assert Tokenizer(source).render_chat("hi") is None


@pytest.mark.parametrize("template", ["{{ raise_exception('no user\nturns') }}", "{% if %}"])
def test_a_failing_template_is_a_model_error(changed: Changed, template: str) -> None:
    with pytest.raises(ModelError, match="chat template cannot render") as caught:
        Tokenizer(changed(template=template)).render_chat("hi")
    assert "\n" not in str(caught.value)


def test_from_pretrained(source: PreTrainedTokenizerFast, tokenizer: Tokenizer, tmp_path: Path) -> None:
    source.save_pretrained(tmp_path)
    loaded = Tokenizer.from_pretrained(tmp_path)
    text = "Is it <|im_end|> urgent?\n\n<b>é</b>"
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.encode_control(text) == tokenizer.encode_control(text)
    assert loaded.control_tokens == tokenizer.control_tokens
    assert loaded.render_chat("hi") == tokenizer.render_chat("hi")


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json") as caught:
        Tokenizer.from_pretrained(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}', encoding="utf-8")
    with pytest.raises(ModelError, match="cannot be loaded"):
        Tokenizer.from_pretrained(tmp_path)


def test_a_slow_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer"}), encoding="utf-8")
    with pytest.raises(ModelError, match="slow one"):
        Tokenizer.from_pretrained(tmp_path)


def test_threads(tokenizer: Tokenizer) -> None:
    texts = [f"Context:\ninvoice {n} <|im_end|> é\n\nQuestion: urgent?" for n in range(200)]
    expected = [(tokenizer.encode(text), tokenizer.encode_control(text)) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        plain = pool.map(tokenizer.encode, texts)
        control = pool.map(tokenizer.encode_control, texts)
        assert list(zip(plain, control, strict=True)) == expected


def test_imports_stay_light() -> None:
    code = (
        "import sys, decider.tokens.rows, decider.tokens.temperature\n"
        "heavy = {'torch', 'transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
