"""Four small tokenizers, trained here on a small text: Qwen-, Llama-3- and Gemma-like, each with 255 labels; and
"think", Qwen-like with 40 labels only and a chat template that leaves a think block open."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from string import ascii_uppercase

import pytest
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from decider.tokens.chat import chat_frame
from decider.tokens.config import DeciderConfig
from decider.tokens.labels import label_table
from decider.tokens.rows import RowBuilder
from decider.tokens.tokenizer import Tokenizer

LABELS = [*ascii_uppercase, *map("".join, product(ascii_uppercase, repeat=2))]
SENTENCES = [
    "Context:\nMy card was charged twice for order 4417. Please fix this.",
    "\n\nQuestion: Which team should handle this?\nOptions:\n(A) billing: charges and refunds\n(B) sales\nAnswer: (",
    "\n\nQuestion 2: Is it urgent?\nOptions:\n(A) no\n(B) yes\nAnswer 2: (",
    "The customer wants the money back, the parcel is late, the invoice is wrong and the login does not work.",
    "user assistant model system thought You are a helpful assistant.",
]

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_SPLIT = QWEN_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

QWEN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
THINK_TEMPLATE = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{{ '<think>\n' }}"
)
LLAMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}<|start_header_id|>assistant<|end_header_id|>{{ '\n\n' }}"
)
GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"
    "<start_of_turn>model\n{{ '<|channel>thought\n' }}"
)


def corpus(n_labels: int) -> Iterator[str]:
    yield from SENTENCES * 20
    for label in LABELS[:n_labels]:
        yield from [label] * 30
        yield from [f"\n({label}) option"] * 3


def byte_level(split: str, n_labels: int, *, ignore_merges: bool = False) -> tokenizers.Tokenizer:
    raw = tokenizers.Tokenizer(models.BPE(ignore_merges=ignore_merges))
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + 2 * n_labels + 150,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(corpus(n_labels), trainer)
    return raw


def byte_fallback(n_labels: int) -> tokenizers.Tokenizer:
    raw = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    raw.normalizer = normalizers.Replace(" ", "▁")
    raw.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    raw.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    trainer = trainers.BpeTrainer(vocab_size=60 + 2 * n_labels + 150, max_token_length=12, show_progress=False)
    raw.train_from_iterator(corpus(n_labels), trainer)
    spec = json.loads(raw.to_str())
    vocabulary = spec["model"]["vocab"]
    for token in ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\n\n", "\n\n\n", "<b>", "</b>"]:
        vocabulary.setdefault(token, len(vocabulary))
    raw = tokenizers.Tokenizer.from_str(json.dumps(spec))
    raw.add_tokens([AddedToken(text, normalized=False) for text in ("\n\n", "\n\n\n", "<b>", "</b>")])
    return raw


def wrap(raw: tokenizers.Tokenizer, template: str | None, **special: str) -> PreTrainedTokenizerFast:
    source: PreTrainedTokenizerFast = PreTrainedTokenizerFast(tokenizer_object=raw, **special)
    source.chat_template = template
    return source


def qwen_like(template: str, n_labels: int) -> PreTrainedTokenizerFast:
    raw = byte_level(QWEN_SPLIT, n_labels)
    raw.normalizer = normalizers.NFC()
    raw.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    raw.add_tokens([AddedToken(text, normalized=False) for text in ("<think>", "</think>", "<|fim|>", "<kept>")])
    return wrap(raw, template, eos_token="<|im_end|>")


def llama_like() -> PreTrainedTokenizerFast:
    raw = byte_level(LLAMA_SPLIT, 300, ignore_merges=True)
    raw.add_special_tokens(["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"])
    return wrap(raw, LLAMA_TEMPLATE, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")


def gemma_like() -> PreTrainedTokenizerFast:
    raw = byte_fallback(300)
    raw.add_special_tokens(["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<|channel>", "<channel|>"])
    return wrap(raw, GEMMA_TEMPLATE, bos_token="<bos>", eos_token="<eos>")


@pytest.fixture(scope="session")
def sources() -> dict[str, PreTrainedTokenizerFast]:
    """All four, by family, as `transformers` tokenizers. Copy one before changing it."""
    return {
        "gemma": gemma_like(),
        "llama": llama_like(),
        "qwen": qwen_like(QWEN_TEMPLATE, 300),
        "think": qwen_like(THINK_TEMPLATE, 40),
    }


@pytest.fixture(scope="session")
def make_source() -> Callable[[tokenizers.Tokenizer, str | None], PreTrainedTokenizerFast]:
    """A bare tokenizer and a chat template to a `transformers` tokenizer of its own."""
    return lambda raw, template: wrap(copy.deepcopy(raw), template)


@pytest.fixture(scope="session", params=["gemma", "llama", "qwen", "think"])
def family(request: pytest.FixtureRequest) -> str:
    """Each family in turn; the fixtures below follow it."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def source(sources: dict[str, PreTrainedTokenizerFast], family: str) -> PreTrainedTokenizerFast:
    return sources[family]


@pytest.fixture(scope="session")
def tokenizer(source: PreTrainedTokenizerFast) -> Tokenizer:
    return Tokenizer(source)


@pytest.fixture(scope="session")
def builder(tokenizer: Tokenizer) -> RowBuilder:
    """A builder without a config file and with room for every test's rows."""
    labels = label_table(tokenizer)
    frame = chat_frame(tokenizer, labels)
    return RowBuilder(tokenizer, labels, DeciderConfig(), chat=frame, max_positions=100_000)


@pytest.fixture(scope="session")
def decode(source: PreTrainedTokenizerFast) -> Callable[[Sequence[int]], str]:
    """Token ids back to text, control tokens spelled out."""
    raw = source.backend_tokenizer
    return lambda ids: str(raw.decode(list(ids), skip_special_tokens=False))
