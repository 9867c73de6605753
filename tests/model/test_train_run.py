"""Whole trainings of tiny models: that they learn, go on after a kill as if there had been none, and serve what they
measured.

Refuses to judge recipes. Trap: a run that is resumed by chance at its end tests nothing, so it is killed in its middle.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_models import configs, save_tokenizer
from train_data import lines, write_data
from transformers import AutoModelForCausalLM

from decider import Decider
from decider.errors import ConfigError, ModelError
from decider.evaluate.labelled import read_labelled
from decider.model.adapter import ADAPTER_NAME, load_adapter, merged
from decider.model.checkpoint import read_tensors, short_names
from decider.questions.answers import ChoiceAnswer, NoulAnswer
from decider.settings import load_settings
from decider.train import checkpoint
from decider.train.augment import OFF
from decider.train.base import open_base
from decider.train.feed import Kitchen
from decider.train.held import held_out
from decider.train.loop import Outcome
from decider.train.recipe import Recipe
from decider.train.run import find_data, limits_of, model_of, train

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"tokens_per_step": 400, "pack_tokens": 300, "max_state_tokens": 64, "evaluations": 4}


@pytest.fixture(scope="module")
def calm_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """family → a tiny checkpoint with the library's own initial weights, which learns within seconds."""
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            made[family] = tmp_path_factory.mktemp(family)
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(configs()[family])
            model.save_pretrained(made[family])
            save_tokenizer(made[family])
        return made[family]

    return folder


def run(folder: Path, data: Path, out: Path, recipe: Recipe, **others: Any) -> tuple[Outcome, list[str]]:
    said: list[str] = []
    settings = load_settings({"model": str(folder), "device": "cpu"}, environ={})
    options: dict[str, Any] = {"resume": False, "workers": 0, "name": "t"} | others
    return train(find_data(data, None), settings, recipe, out, say=said.append, **options), said


def overfit(base: Path, folder: Path, *, seed: int, **given: Any) -> Outcome:
    """On 64 items of one question each, which are held out as well."""
    data = write_data(folder / f"data{seed}", 0, 0)
    made = lines(64, seed=seed, only="colour")
    # Short rows: seconds.
    for line in made:
        line["state"] = line["gold"]["colour"]
    for name in ("train", "heldout"):
        (data / f"{name}.jsonl").write_text("\n".join(map(json.dumps, made)), encoding="utf-8")
    recipe = Recipe(augmentation=OFF, evaluations=5, tokens_per_step=3000, **given)
    return run(base, data, folder / f"out{seed}", recipe)[0]


def test_a_tiny_model_overfits_64_items_and_then_an_adapter_others(
    calm_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    whole = overfit(calm_folder("llama"), tmp_path, seed=0, method="full", epochs=100, learning_rate=5e-3)
    assert whole.before is not None
    assert whole.best is not None
    assert whole.before.accuracy < 0.5
    assert whole.best.accuracy > 0.95
    # Pairs beside random weights would have nothing to add to.
    pairs = overfit(tmp_path / "out0", tmp_path, seed=9, method="lora", epochs=50, learning_rate=5e-3)
    assert pairs.before is not None
    assert pairs.best is not None
    assert pairs.before.accuracy < 0.6
    assert pairs.best.accuracy > pairs.before.accuracy + 0.3


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_folder_serves_what_the_trainer_measured(
    calm_folder: Callable[[str], Path], tmp_path: Path, family: str, method: str
) -> None:
    data, out = write_data(tmp_path / "data", 40, 12), tmp_path / "out"
    recipe = Recipe(method=method, epochs=1, learning_rate=1e-2, rank=4, **SMALL)
    outcome, _ = run(calm_folder(family), data, out, recipe)
    assert outcome.best is not None

    # The trainer's own probabilities, from its best weights.
    settings = load_settings({"model": str(calm_folder(family)), "device": "cpu"}, environ={})
    base = open_base(settings, max_state_tokens=64, schema_first=False, say=lambda _: None)
    model = model_of(base, recipe, CPU)
    with torch.no_grad():
        for name, tensor in checkpoint.load_best(out, outcome.best.step).items():
            model.trainee.trained[name].copy_(tensor)
        weights = model.trainee.weights()
    items = read_labelled(data / "heldout.jsonl")
    held = held_out(items, Kitchen(items, base.reading, OFF, 0, 1, limits_of(recipe), base.spec.taps))
    ours = held.distributions(lambda tables: model.logits(weights, tables).detach())
    step = outcome.best.step
    assert held.evaluate(step, lambda tables: model.logits(weights, tables).detach()) == outcome.best

    with Decider(out, device="cpu", dtype="float32", executor="packed", say=lambda _: None) as decider:
        assert decider.name == "decider-t"
        theirs = []
        for item in items:
            answers = decider.answer(item.request)
            colour, dark = answers["colour"], answers["dark"]
            assert isinstance(colour, ChoiceAnswer)
            assert isinstance(dark, NoulAnswer)
            theirs += [np.array([*colour.probabilities.values()]), np.array([1 - dark.noul, dark.noul])]
    assert len(ours) == len(theirs) == 24
    assert max(np.abs(a - b).max() for a, b in zip(ours, theirs, strict=True)) <= 1e-5

    if method == "lora":
        adapter = load_adapter(out / ADAPTER_NAME)
        together = merged(base.weights, adapter)
        exported = read_tensors(out)
        names = short_names(exported, out)
        assert any(not torch.equal(together[name], base.weights[name]) for name in together)
        for full, short in names.items():
            if short in together:
                assert (together[short] - exported[full]).abs().max() <= 1e-6
        with pytest.raises(ModelError, match="belongs to other weights"):
            merged(together, adapter)
    else:
        assert not (out / ADAPTER_NAME).exists()


KILLED = """
import os, signal, sys
import torch
from pathlib import Path
sys.path.insert(0, sys.argv[1])
torch.set_num_threads(1)
from decider.questions.answers import ChoiceAnswer, NoulAnswer
from decider.settings import load_settings
from decider.train.recipe import Recipe
from decider.train.augment import OFF
from decider.train.feed import Kitchen
from decider.train.run import find_data, train

evaluations = []

def say(line):
    if "held-out NLL" in line and "step" in line:
        evaluations.append(line)

made = Kitchen.step

def step(kitchen, number):
    # After the second evaluation's checkpoint, which is of other steps.
    if len(evaluations) == 3:
        evaluations.append("")
    elif len(evaluations) == 4:
        evaluations.append("")
        print(number, flush=True)
        os.kill(os.getpid(), int(sys.argv[6]))
    return made(kitchen, number)

Kitchen.step = step
recipe = Recipe(**eval(sys.argv[5]))
settings = load_settings({"model": sys.argv[2], "device": "cpu"}, environ={})
data, out = find_data(Path(sys.argv[3]), None), Path(sys.argv[4])
train(data, settings, recipe, out, resume=False, workers=0, say=say, name="t")
"""


# Python ends by SIGINT where nobody catches a KeyboardInterrupt.
@pytest.mark.parametrize(
    ("method", "how", "status"),
    [("full", signal.SIGKILL, -signal.SIGKILL), ("lora", signal.SIGTERM, -signal.SIGINT)],
)
def test_a_run_that_was_killed_ends_as_if_it_had_not_been(
    calm_folder: Callable[[str], Path], tmp_path: Path, method: str, how: int, status: int
) -> None:
    data = write_data(tmp_path / "data", 24, 6)
    given = {"method": method, "epochs": 2, "learning_rate": 3e-3, "rank": 4, "patience": 9, **SMALL}
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    words = [sys.executable, "-c", KILLED, str(Path(__file__).parents[1] / "support"), str(calm_folder("llama"))]
    done = subprocess.run(
        [*words, str(data), str(killed), repr(given), str(int(how))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stderr
    found = checkpoint.load(killed)
    assert found is not None
    # Who is told to stop finishes its step and saves; who is killed has what it saved before.
    assert found.step - int(done.stdout) in ((1,) if how == signal.SIGTERM else (0, -1))
    assert not (killed / "model.safetensors").exists()

    expected, _ = run(calm_folder("llama"), data, whole, Recipe(**given))
    assert 0 < found.step < expected.step
    with pytest.raises(ConfigError, match="holds the checkpoint of a run"):
        run(calm_folder("llama"), data, killed, Recipe(**given))
    with pytest.raises(ConfigError, match="another recipe"):
        run(calm_folder("llama"), data, killed, Recipe(**{**given, "seed": 5}), resume=True)
    resumed, said = run(calm_folder("llama"), data, killed, Recipe(**given), resume=True)
    assert "resumed" in said
    assert resumed.step == expected.step
    assert resumed.best == expected.best
    ours, theirs = load_file(killed / "model.safetensors"), load_file(whole / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    last, wanted = checkpoint.load(killed), checkpoint.load(whole)
    assert last is not None
    assert wanted is not None
    assert all(torch.equal(last.trained[name], tensor) for name, tensor in wanted.trained.items())
    assert all(torch.equal(last.optimizer[name], tensor) for name, tensor in wanted.optimizer.items())


def test_a_run_ends_when_the_held_out_no_longer_gain_and_keeps_the_best(
    calm_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    data = write_data(tmp_path / "data", 40, 8)
    # What is held out contradicts what is trained, so that nothing can be gained.
    wrong = lines(8, seed=3)
    for line in wrong:
        line["gold"]["dark"] = not line["gold"]["dark"]
        line["gold"]["colour"] = next(o for o in line["questions"]["colour"]["criteria"] if o != line["gold"]["colour"])
    (data / "heldout.jsonl").write_text("\n".join(map(json.dumps, wrong)), encoding="utf-8")
    recipe = Recipe(method="full", epochs=60, learning_rate=5e-3, patience=2, **{**SMALL, "evaluations": 60})
    outcome, said = run(calm_folder("llama"), data, tmp_path / "out", recipe)
    assert outcome.stopped_early
    assert outcome.best is not None
    held = [entry["held_out"] for entry in outcome.history if "held_out" in entry]
    assert outcome.best.calibrated_nll == min(entry["calibrated_nll"] for entry in held[1:])
    assert outcome.best.step < outcome.step
    exported = load_file(tmp_path / "out" / "model.safetensors")
    best = checkpoint.load_best(tmp_path / "out", outcome.best.step)
    assert all(
        torch.equal(exported[f"model.{name}"], tensor) for name, tensor in best.items() if name != "lm_head.weight"
    )
    assert "ended early" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert any("held-out NLL" in line for line in said)


def test_a_run_by_the_clock_ends_by_it(calm_folder: Callable[[str], Path], tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", 200, 8)
    recipe = Recipe(method="lora", minutes=0.03, learning_rate=1e-3, **SMALL)
    outcome, _ = run(calm_folder("llama"), data, tmp_path / "out", recipe)
    assert 1.8 <= outcome.elapsed_s < 8
    assert outcome.step > 3
    assert math.isfinite(outcome.history[-1].get("held_out", {"nll": math.inf})["nll"])


def test_nothing_held_out_is_said_and_the_last_weights_are_kept(
    calm_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    data = write_data(tmp_path / "data", 20, 2)
    recipe = Recipe(method="full", epochs=1, learning_rate=1e-3, **SMALL)
    outcome, said = run(calm_folder("llama"), data / "train.jsonl", tmp_path / "out", recipe)
    assert outcome.best is None
    assert any("nothing is held out" in line for line in said)
    assert "nothing was measured" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    last = checkpoint.load(tmp_path / "out")
    assert last is not None
    exported = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(exported["model.norm.weight"], last.trained["norm.weight"])
