"""A minute of training on one processor: a small model of random weights learns to look a word up in its state.

Refuses to judge real models. Trap: held-out items repeat the words and never the items, so that what counts is reading.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from tiny_models import COMMON, save_tokenizer
from train_data import write_data
from transformers import AutoModelForCausalLM, LlamaConfig

from decider.settings import load_settings
from decider.train.recipe import Recipe
from decider.train.run import find_data, train

pytestmark = pytest.mark.long

LEAST_ACCURACY, LEAST_GAIN_NATS = 0.65, 0.25
MINUTES = 1.5


def test_it_learns(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    torch.manual_seed(0)
    config = LlamaConfig(num_hidden_layers=3, tie_word_embeddings=True, **(COMMON | {"hidden_size": 128}))
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    save_tokenizer(folder)
    data = write_data(tmp_path / "data", 4000, 100)
    recipe = Recipe(
        method="full", minutes=MINUTES, learning_rate=2e-3, tokens_per_step=2000, max_state_tokens=64, patience=20
    )
    settings = load_settings({"model": str(folder), "device": "cpu"}, environ={})
    began = time.monotonic()
    outcome = train(
        find_data(data, None), settings, recipe, tmp_path / "out", resume=False, workers=0, say=print, name="t"
    )
    assert time.monotonic() - began < 60 * MINUTES + 60
    assert outcome.before is not None
    assert outcome.best is not None
    print(f"accuracy {outcome.before.accuracy:.3f} → {outcome.best.accuracy:.3f}, NLL {outcome.best.nll:.3f}")
    assert outcome.before.accuracy < 0.6
    assert outcome.best.accuracy >= LEAST_ACCURACY
    assert outcome.best.nll <= outcome.before.nll - LEAST_GAIN_NATS
