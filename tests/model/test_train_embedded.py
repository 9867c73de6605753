"""The embedded model: its forward in training is the one that is served.

Refuses to train it. Trap: 30 layers add up what one rounds; the bound is for the sum.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from decider.api import Decider
from decider.plan.packs import PackLimits
from decider.questions.request import make_request
from decider.questions.types import Choice, Noul
from decider.settings import load_settings
from decider.train.augment import Asking
from decider.train.base import open_base
from decider.train.feed import batch_of
from decider.train.loss import own_log_probabilities
from decider.train.recipe import Recipe
from decider.train.run import model_of

pytestmark = [pytest.mark.embedded, pytest.mark.usefixtures("one_thread")]


def test_probabilities_in_training_are_those_served(embedded_folder: Path) -> None:
    settings = load_settings({"model": str(embedded_folder), "device": "cpu"}, environ={})
    base = open_base(settings, max_state_tokens=256, schema_first=False, say=lambda _: None)
    request = make_request(
        {"ticket": 4711, "text": "I was charged twice this month and want my money back."},
        {"team": Choice("Which team?", {"billing": "charges", "technical": None, "sales": None}), "n": Noul("Urgent?")},
    )
    example = base.reading.example(Asking(request, {"team": 0, "n": 1}))
    batch = batch_of([example], PackLimits(2048, 64, 64), base.spec.taps)
    model = model_of(base, Recipe(epochs=1.0, method="lora", rank=2), torch.device("cpu"))
    [(tables, targets)] = batch.packs
    with torch.no_grad():
        logits = model.logits(model.trainee.weights(), tables)
        ours = own_log_probabilities(logits, torch.tensor(targets.n_options)).exp().numpy()
    with Decider(embedded_folder, device="cpu", dtype="float32", executor="packed", say=lambda _: None) as decider:
        raw = decider.raw([request])[0]
    assert len(ours) == 2
    for own, name in zip(ours, ("team", "n"), strict=True):
        theirs = np.exp(raw[name].logits)
        assert np.abs(own[: len(theirs)] - theirs).max() <= 1e-5
