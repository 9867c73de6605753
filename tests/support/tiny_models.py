"""Tiny random checkpoints of each supported family, with a tokenizer trained on a few lines; saved as real folders.

They refuse to answer well. Trap: initial weights are scaled up, because near-zero logits would hide any fault.
"""

from __future__ import annotations

import itertools
import string
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3_5TextConfig,
    Qwen3Config,
)

MAX_POSITIONS = 2048
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
COMMON: dict[str, Any] = {
    "vocab_size": 1024,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": MAX_POSITIONS,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}


def configs() -> dict[str, PreTrainedConfig]:
    """One configuration a family; each exercises what is particular to it."""
    return {
        "llama": LlamaConfig(num_hidden_layers=2, tie_word_embeddings=False, **COMMON),
        "llama_tied": LlamaConfig(num_hidden_layers=2, tie_word_embeddings=True, **COMMON),
        "qwen3": Qwen3Config(num_hidden_layers=2, tie_word_embeddings=True, **COMMON),
        "qwen3_5": Qwen3_5TextConfig(
            num_hidden_layers=4,
            tie_word_embeddings=True,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=16,
            linear_value_head_dim=16,
            **COMMON,
        ),
        "gemma3": Gemma3TextConfig(
            num_hidden_layers=3,
            sliding_window=16,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            final_logit_softcapping=5.0,
            **COMMON,
        ),
    }


FAMILIES = tuple(configs())


def save_tokenizer(folder: Path) -> None:
    """A byte-level BPE tokenizer in which every label string is one token, with a chat template."""
    labels = ["".join(pair) for pair in itertools.product(string.ascii_uppercase, repeat=2)]
    corpus = [f"Context:\nQuestion: {word}\nOptions:\n({word}) the state and the answer\nAnswer: (" for word in labels]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=COMMON["vocab_size"],
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(corpus, trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|im_end|>", chat_template=CHAT_TEMPLATE
    ).save_pretrained(folder)


def link_checkpoint(source: Path, target: Path, *, without: str = "no such file") -> Path:
    """A folder `target` of links to the files of `source`, to add to; files named like `without` are left out."""
    target.mkdir(exist_ok=True)
    for file in source.iterdir():
        if without not in file.name:
            (target / file.name).symlink_to(file)
    return target


def save_checkpoint(folder: Path, family: str, *, seed: int = 0) -> Path:
    """Write a random checkpoint of `family` with its tokenizer; returns `folder`."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(configs()[family])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, 0.3)
            elif "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder
