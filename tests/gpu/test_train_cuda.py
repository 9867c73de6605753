"""Training on a card: its forward is the CPU's, bfloat16 learns, and a run goes on where it was.

Refuses to measure speed. Trap: sums in another order are other numbers, so nothing here is compared to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.utils
from packed_rows import LABEL_IDS, Family, load_known, rows_of
from train_data import write_data

from decider.backbone.load import backbone_of
from decider.model.checkpoint import short_names
from decider.plan.packs import PackLimits, plan_packs
from decider.settings import load_settings
from decider.tokens.rows import Row, Slot
from decider.train.augment import TWIN_OPTIONS
from decider.train.compiled import compiled_layers, why_not_compiled
from decider.train.examples import Example, Twin
from decider.train.feed import batch_of
from decider.train.forward import label_logits
from decider.train.gradients import PlainGradients
from decider.train.graphed import GraphedGradients
from decider.train.loop import Outcome
from decider.train.loss import LossSpec
from decider.train.model import Model
from decider.train.recipe import Recipe
from decider.train.run import find_data, train
from decider.train.tables import on_device, tables_of
from decider.train.weights import trainee

pytestmark = [
    pytest.mark.gpu,
    # What torch's compiler says of torch.
    pytest.mark.filterwarnings(r"ignore::UserWarning:torch\..*"),
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:torch\..*"),
]

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


@pytest.mark.parametrize("name", ["llama", "qwen3", "qwen3_bias"])
def test_compiled_layers_answer_and_learn_as_plain_ones(name: str) -> None:
    loaded = load_known(name, quieter=4.0)
    spec = backbone_of(loaded).spec
    card = torch.device("cuda")
    assert why_not_compiled(spec, card) is None
    layers = compiled_layers(spec)
    state = loaded.module.state_dict()
    names = short_names(state, Path("tiny"))
    compiled_before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for seed, shape in enumerate([(Family(30, (5, 9, 40)), Family(70), Family(9)), (Family(200, (3, 90)), Family(1))]):
        rows, _ = rows_of(shape, seed=seed)
        [pack] = plan_packs(rows, PackLimits(512, 64, 256, (512,)))
        found = []
        for by_blocks in (False, True):
            weights = {
                names[full]: tensor.detach().to(card, copy=True).requires_grad_()
                for full, tensor in state.items()
                if full in names
            }
            tables = on_device(tables_of(pack, spec.taps, by_blocks=by_blocks), card)
            logits = label_logits(weights, spec, tables, torch.tensor(LABEL_IDS, device=card), layers)
            logits.square().mean().backward()  # type: ignore[no-untyped-call]
            found.append((logits.detach(), {n: w.grad for n, w in weights.items() if w.grad is not None}))
        (plain, plain_gradients), (compiled, gradients) = found
        assert plain.abs().max() > 1
        assert (plain - compiled).abs().max() <= 1e-3
        assert plain_gradients.keys() == gradients.keys()
        for weight, gradient in plain_gradients.items():
            difference = (gradient - gradients[weight]).abs().max()
            assert difference <= 1e-2 * gradient.abs().max().clamp_min(1e-6), weight
    # One graph for both packs and all layers.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiled_before + 1


def twins_of(rows: Sequence[Row]) -> Example:
    """All rows, of which neighbours with as many options are taken for one question in two orders."""
    twins = []
    for place in range(0, len(rows) - 1, 2):
        n_options = rows[place].n_options[0]
        if rows[place + 1].n_options[0] == n_options <= TWIN_OPTIONS:
            order = tuple(reversed(range(n_options)))
            twins.append(Twin(Slot(place, 0), Slot(place + 1, 0), order))
    assert twins
    slots = [len(row.slots) for row in rows]
    return Example(tuple(rows), tuple((1,) * n for n in slots), tuple((0.5,) * n for n in slots), tuple(twins))


@pytest.mark.parametrize("method", ["full", "lora"])
def test_graphed_gradients_are_the_plain_ones(method: str) -> None:
    loaded = load_known("llama", quieter=4.0)
    spec = backbone_of(loaded).spec
    state = loaded.module.state_dict()
    names = short_names(state, Path("tiny"))
    weights = {names[full]: tensor for full, tensor in state.items() if full in names}
    card = torch.device("cuda")
    own = trainee(weights, method=method, device=card, dtype=torch.float32, rank=3, scale=2.0, seed=0)
    with torch.no_grad():
        for name, tensor in own.trained.items():
            # Pairs that are nothing have no gradient in their first half.
            if name.endswith(".lora_b"):
                tensor.normal_(generator=torch.Generator(card).manual_seed(1), std=0.02)
    model = Model(own, spec, torch.tensor(LABEL_IDS, device=card), compiled_layers(spec))
    limits = PackLimits(512, 64, 64, (512,))
    loss = LossSpec(0.1, consistency=0.5)
    graphed = GraphedGradients(model, loss, n_tokens=512, n_slots=64)
    plain = PlainGradients(replace(model, layers=None), loss)
    # Two packs, then one of other rows, then the two again: what lies where the graph reads is always the pack's own.
    shapes = [(Family(30, (5, 9, 40)), Family(400), Family(90)), (Family(200, (3, 90)),)]
    batches = []
    for seed, shape in enumerate(shapes):
        rows, _ = rows_of(shape, seed=seed)
        examples = [twins_of(rows)]
        batches.append([batch_of(examples, limits, 1, by_blocks=by_blocks) for by_blocks in (True, False)])
    assert [len(blocks.packs) for blocks, _ in batches] == [2, 1]
    losses = []
    for index in (0, 1, 0):
        blocks, padded = batches[index]
        wanted = float(plain.of(padded))
        gradients = {name: tensor.grad.clone() for name, tensor in own.trained.items() if tensor.grad is not None}
        losses.append(float(graphed.of(blocks)))
        assert losses[-1] == pytest.approx(wanted, rel=1e-4)
        assert gradients.keys() == own.trained.keys()
        for name, gradient in gradients.items():
            found = own.trained[name].grad
            assert found is not None
            assert (gradient - found).abs().max() <= 1e-2 * gradient.abs().max().clamp_min(1e-6), name
    assert losses[0] == losses[2] != losses[1]


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
