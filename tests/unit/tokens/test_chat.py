"""The chat frame: split at the content, think blocks closed, merges refused."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as RawTokenizer
from transformers import PreTrainedTokenizerFast

from decider.errors import ModelError
from decider.tokens.chat import ChatFrame, chat_frame
from decider.tokens.labels import label_table
from decider.tokens.tokenizer import Tokenizer

Sources = dict[str, PreTrainedTokenizerFast]
MakeSource = Callable[[RawTokenizer, str | None], PreTrainedTokenizerFast]

FRAMES = {
    "gemma": (
        "<bos><start_of_turn>user\n",
        "<end_of_turn>\n<start_of_turn>model\n<|channel>thought\n<channel|>",
    ),
    "llama": (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "qwen": (
        "<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    ),
    "think": (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n<think>\n</think>\n\n",
    ),
}


def frame_of(source: PreTrainedTokenizerFast) -> ChatFrame:
    tokenizer = Tokenizer(source)
    return chat_frame(tokenizer, label_table(tokenizer))


def test_frames(tokenizer: Tokenizer, family: str, decode: Callable[[Sequence[int]], str]) -> None:
    frame = chat_frame(tokenizer, label_table(tokenizer))
    assert (decode(frame.head), decode(frame.tail)) == FRAMES[family]
    assert list(frame.head) == tokenizer.encode_control(FRAMES[family][0])
    assert list(frame.tail) == tokenizer.encode_control(FRAMES[family][1])


def test_a_think_block_without_a_newline_is_closed(sources: Sources, make_source: MakeSource) -> None:
    frame = frame_of(make_source(sources["qwen"].backend_tokenizer, "{{ messages[0].content }}<think>"))
    assert list(frame.tail) == Tokenizer(sources["qwen"]).encode_control("<think></think>\n\n")


def test_no_template(sources: Sources, make_source: MakeSource) -> None:
    with pytest.raises(ModelError, match="no chat template"):
        frame_of(make_source(sources["qwen"].backend_tokenizer, None))


@pytest.mark.parametrize(("template", "times"), [("fixed text", 0), ("{{ messages[0].content * 2 }}", 2)])
def test_content_must_appear_once(sources: Sources, make_source: MakeSource, template: str, times: int) -> None:
    with pytest.raises(ModelError, match=f"content {times} times"):
        frame_of(make_source(sources["qwen"].backend_tokenizer, template))


def test_a_tail_that_merges_with_the_answer_piece(sources: Sources, make_source: MakeSource) -> None:
    with pytest.raises(ModelError, match="merges with the answer piece"):
        frame_of(make_source(sources["qwen"].backend_tokenizer, "{{ messages[0].content }}("))


def test_a_label_that_merges_with_the_answer_piece(sources: Sources, make_source: MakeSource) -> None:
    raw = copy.deepcopy(sources["qwen"].backend_tokenizer)
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" |\([A-Z]|\w+|\W"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    with pytest.raises(ModelError, match=r"merges label 'A' with the answer piece 'Answer: \('"):
        frame_of(make_source(raw, "{{ messages[0].content }}"))
