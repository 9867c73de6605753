"""Training on a card: its forward is the CPU's, bfloat16 learns, and a run goes on where it was.

Refuses to measure speed. Trap: sums in another order are other numbers, so nothing here is compared to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packed_rows import LABEL_IDS, Family, load_known, rows_of
from train_data import write_data

from decider.backbone.load import backbone_of
from decider.model.checkpoint import short_names
from decider.plan.packs import PackLimits, plan_packs
from decider.settings import load_settings
from decider.train.forward import label_logits
from decider.train.loop import Outcome
from decider.train.recipe import Recipe
from decider.train.run import find_data, train
from decider.train.tables import on_device, tables_of

pytestmark = pytest.mark.gpu

TinyFolder = Callable[[str], Path]


@pytest.mark.parametrize("name", ["llama", "qwen3", "qwen3_5"])
def test_logits_and_gradients_are_those_of_the_cpu(name: str) -> None:
    loaded = load_known(name, quieter=4.0)
    spec = backbone_of(loaded).spec
    rows, _ = rows_of((Family(30, (5, 9, 40)), Family(70), Family(9)))
    [pack] = plan_packs(rows, PackLimits(4096, 64, 256))
    state = loaded.module.state_dict()
    names = short_names(state, Path("tiny"))
    found = []
    for device in (torch.device("cpu"), torch.device("cuda")):
        weights = {
            names[full]: tensor.detach().to(device, copy=True).requires_grad_()
            for full, tensor in state.items()
            if full in names
        }
        tables = on_device(tables_of(pack, spec.taps), device)
        logits = label_logits(weights, spec, tables, torch.tensor(LABEL_IDS, device=device))
        logits.square().mean().backward()  # type: ignore[no-untyped-call]
        gradients = {short: weight.grad.cpu() for short, weight in weights.items() if weight.grad is not None}
        found.append((logits.detach().cpu(), gradients))
    (cpu, cpu_gradients), (card, card_gradients) = found
    assert (cpu - card).abs().max() <= 1e-3
    assert cpu_gradients.keys() == card_gradients.keys()
    for weight, gradient in cpu_gradients.items():
        assert (gradient - card_gradients[weight]).abs().max() <= 1e-2 * gradient.abs().max().clamp_min(1e-6), weight


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_run_in_bfloat16_lowers_its_loss_and_resumes(tiny_folder: TinyFolder, tmp_path: Path, method: str) -> None:
    data = write_data(tmp_path / "data", 200, 20)
    settings = load_settings({"model": str(tiny_folder("llama")), "device": "cuda"}, environ={})

    def run(**others: Any) -> Outcome:
        recipe = Recipe(method=method, epochs=8, learning_rate=2e-3, tokens_per_step=2000, evaluations=4)
        options: dict[str, Any] = {"resume": False, "workers": 2, "name": "t"} | others
        return train(find_data(data, None), settings, recipe, tmp_path / "out", say=print, **options)

    outcome = run()
    assert outcome.best is not None
    assert outcome.before is not None
    assert outcome.best.nll < outcome.before.nll - 0.2
    assert run(resume=True).best == outcome.best
