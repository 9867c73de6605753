"""Several devices behind one `Decider`: which names mean what, answers as of one device, faults by name.

Refuses to need a card: two engines on the CPU do. Trap: the same rows in other packs differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from answer_numbers import numbers
from fake_executor import AcceleratorError, FakeExecutor
from pack_rows import row

from decider import (
    Choice,
    ConfigError,
    Decider,
    DeviceError,
    EngineError,
    ModelError,
    Noul,
    Question,
    Score,
    assembly,
)
from decider.cli import main
from decider.model.head import LabelHead
from decider.model.load import LoadedModel
from decider.questions.request import make_request
from decider.run.device import engine_names, pick_device, pick_devices
from decider.run.executor import Executor
from decider.run.grid import GridExecutor
from decider.run.stats import GridStats
from decider.settings import Settings

TinyFolder = Callable[[str], Path]
QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", {"billing": "charges", "technical": None, "sales": None}),
    "severity": Score("How severe?", ["none", "mild", "severe"]),
    "urgent": Noul("Is it urgent?"),
}
STATES = [f"My card was charged twice for order {index}. " * (1 + index % 4) for index in range(60)]
HERE = ("cuda:0", "cuda:1", "cpu")

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    names = {"cuda:0": "NVIDIA H200", "cuda:1": "NVIDIA H200"}
    monkeypatch.setattr(torch.cuda, "get_device_name", names.__getitem__)
    return names


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        ("auto", "cuda:0"),
        ("cuda", "cuda:0"),
        ("cuda:1", "cuda:1"),
        ("cuda:all", "cuda:0,cuda:1"),
        ("cuda:1, cuda:0", "cuda:1,cuda:0"),
        ("cuda,cuda:0", "cuda:0,cuda:0"),
        ("cpu,cpu", "cpu,cpu"),
    ],
)
@pytest.mark.usefixtures("cards")
def test_names_of_devices(wanted: str, value: str) -> None:
    assert pick_devices(wanted, HERE).value == value


def test_auto_is_one_card_and_says_how_to_have_all() -> None:
    assert "cuda:all" in pick_devices("auto", HERE).reason
    assert "cuda:all" not in pick_devices("auto", ("cuda:0", "cpu")).reason
    assert pick_devices("cuda:all", ("cuda:0", "cpu")).value == "cuda:0"


@pytest.mark.parametrize(
    ("wanted", "here", "said"),
    [
        ("cuda:0,cuda:7", HERE, "'cuda:7' is not available"),
        ("cuda:0,", HERE, "'' is not available"),
        ("cuda:all", ("cpu",), "'cuda:all' is not available; this machine has cpu"),
        ("cuda:0,cpu", HERE, r"cuda:0 \(NVIDIA H200\), cpu \(cpu\)"),
        ("mps,mps", ("mps", "cpu"), "mps is one device"),
    ],
)
@pytest.mark.usefixtures("cards")
def test_what_is_not_there_or_of_two_kinds_is_refused(wanted: str, here: tuple[str, ...], said: str) -> None:
    with pytest.raises(DeviceError, match=said):
        pick_devices(wanted, here)


def test_unlike_cards_are_refused(cards: dict[str, str]) -> None:
    cards["cuda:1"] = "NVIDIA A10"
    with pytest.raises(DeviceError, match=r"cuda:0 \(NVIDIA H200\), cuda:1 \(NVIDIA A10\)"):
        pick_devices("cuda:all", HERE)


@pytest.mark.usefixtures("cards")
def test_who_runs_on_one_device_says_so() -> None:
    with pytest.raises(DeviceError, match="'cuda:all' is 2 devices and this runs on one; name one, as cuda:0"):
        pick_device("cuda:all", HERE)
    with pytest.raises(DeviceError, match="2 devices"):
        assembly.open_model(Settings(device="cpu,cpu"), print)
    with pytest.raises(ConfigError, match="oracle"):
        Decider(device="cpu,cpu", executor="reference")


def test_engines_have_names_of_their_own() -> None:
    assert engine_names("cuda:0") == ("cuda:0",)
    assert engine_names("cpu,cuda:1,cpu,cpu") == ("cpu", "cuda:1", "cpu#2", "cpu#3")


@pytest.mark.parametrize("executor", ["packed", "grid"])
def test_answers_are_those_of_one_device_and_the_work_is_spread(tiny_folder: TinyFolder, executor: str) -> None:
    folder = tiny_folder("llama")
    said: list[str] = []
    with (
        Decider(folder, device="cpu", executor=executor, dtype="float32") as one,
        Decider(folder, device="cpu,cpu", executor=executor, dtype="float32", say=said.append) as two,
    ):
        before = two.engines
        assert [each.name for each in before] == ["cpu", "cpu#2"]
        assert two.describe().device == "cpu,cpu#2"
        assert one.describe().device == "cpu"
        # One call of one request runs whole on one engine, to the same bits.
        assert two.ask(STATES[0], QUESTIONS).to_wire() == one.ask(STATES[0], QUESTIONS).to_wire()
        assert sum(now.stats != was.stats for now, was in zip(two.engines, before, strict=True)) == 1
        for ours, theirs in zip(two.ask_many(STATES, QUESTIONS), one.ask_many(STATES, QUESTIONS), strict=True):
            np.testing.assert_allclose(numbers(ours), numbers(theirs), atol=1e-5)
        ran = [now.stats - was.stats for now, was in zip(two.engines, before, strict=True)]
        assert min(each.real_tokens for each in ran) > sum(each.real_tokens for each in ran) / 4
        assert two.stats == sum((each.stats for each in two.engines), GridStats())
        assert (two.calibration, two.dtype_key, two.name) == (one.calibration, one.dtype_key, one.name)
        raw = [make_request(state, QUESTIONS) for state in STATES]
        for mine, other in zip(two.raw(raw), one.raw(raw), strict=True):
            for question in QUESTIONS:
                np.testing.assert_allclose(mine[question].logits, other[question].logits, atol=1e-5)
        assert "also cpu#2" in [pick.name for pick in two.picks]
        assert "cpu#2: loading" in said
    with pytest.raises(EngineError, match="closed"):
        two.ask("closed", QUESTIONS)
    with pytest.raises(EngineError, match="closed"):
        two.ask_many(STATES, QUESTIONS)


def test_a_device_that_fails_at_the_start_is_named_and_the_others_are_closed(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Executor] = []
    original = assembly.make_executor

    def make(settings: Settings, opened: assembly.OpenModel, say: assembly.Say) -> Executor:
        if made:
            raise error
        made.append(original(settings, opened, say))
        return made[-1]

    monkeypatch.setattr(assembly, "make_executor", make)
    for error, kind in (
        (DeviceError("no room"), DeviceError),
        (EngineError("cannot be captured"), EngineError),
        (ModelError("broken"), ModelError),
        (AcceleratorError("CUDA error: busy\nand more"), DeviceError),
    ):
        made.clear()
        with pytest.raises(kind, match=f"^no engine on cpu#2: {str(error).splitlines()[0]}"):
            Decider(tiny_folder("llama"), device="cpu,cpu", executor="packed", dtype="float32")
        with pytest.raises(EngineError, match="closed"):
            made[0].label_logits([row(1, 2, prefix=0)])


def test_what_closing_the_others_raises_does_not_hide_which_device_failed(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = FakeExecutor()
    first.error = AcceleratorError("CUDA error: an illegal memory access\nand more")
    made: list[Executor] = []

    def make(*_: object) -> Executor:
        if made:
            raise DeviceError("no room")
        made.append(first)
        return first

    monkeypatch.setattr(assembly, "make_executor", make)
    with pytest.raises(DeviceError, match=r"^no engine on cpu#2: no room") as raised:
        Decider(tiny_folder("llama"), device="cpu,cpu", dtype="float32")
    assert first.closed == 1
    assert raised.value.__notes__ == ["closing another engine failed as well: CUDA error: an illegal memory access"]


def test_the_first_device_is_named_where_there_are_others(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object, **__: object) -> None:
        raise ModelError("no room")

    monkeypatch.setattr(assembly, "load_module", load)
    for device, said in (("cpu,cpu", "^no engine on cpu: no room"), ("cpu", "^no room")):
        with pytest.raises(ModelError, match=said):
            Decider(tiny_folder("llama"), device=device, dtype="float32")


def test_each_engine_has_labels_of_its_own_weights(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[LoadedModel, LabelHead]] = []
    original = assembly.make_executor

    def make(settings: Settings, opened: assembly.OpenModel, say: assembly.Say) -> Executor:
        made.append((opened.loaded, opened.head))
        return original(settings, opened, say)

    monkeypatch.setattr(assembly, "make_executor", make)
    with Decider(tiny_folder("llama"), device="cpu,cpu", dtype="float32"):
        (one, head), (two, other) = made
    assert one.module is not two.module
    assert head is not other


def test_pinned_memory_is_warmed_for_all_engines_on_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[int] = []
    monkeypatch.setattr(assembly, "warm_pinned", warmed.append)
    monkeypatch.setattr(assembly, "make_executor", lambda *_: object.__new__(GridExecutor))
    monkeypatch.setattr(assembly, "_beside", lambda opened, *_: opened)
    opened: Any = None
    for names in (("cuda:0",), ("cpu", "cpu#2"), ("cuda:0", "cuda:1", "cuda:0#2")):
        assert [*assembly._executors(Settings(), opened, names, print)] == [*names]
    # One engine has warmed up its own.
    assert warmed == [3]


@pytest.mark.parametrize(
    ("command", "takes_several"), [("verify", False), ("bench engine", False), ("train", False), ("doctor", True)]
)
def test_help_offers_several_devices_where_they_are_taken(
    capsys: pytest.CaptureFixture[str], command: str, takes_several: bool
) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    assert ("cuda:all" in capsys.readouterr().out) == takes_several
