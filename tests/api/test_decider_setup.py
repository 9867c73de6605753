"""What a `Decider` is made of: a folder's own configuration and tokenizer, arguments, a device; and how it fails.

Refuses to check answers against anything but those of another `Decider`. Trap: a folder of links shares its files, so
what a test changes is a copy.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from ticket import QUESTIONS, STATE
from tiny_models import link_checkpoint

from decider import ConfigError, Decider, EngineError, Noul, QuestionError, Score, SetupError
from decider.engine import Engine
from decider.questions.answered import Answers
from decider.questions.request import make_request
from decider.run.stats import ReferenceReport
from decider.tokens.config import CONFIG_NAME
from decider.tokens.rows import Row
from decider.tokens.wordings import LEAST_ASKED, save_wordings, wordings_of

TinyFolder = Callable[[str], Path]


@pytest.fixture(scope="module")
def decider(tiny_folder: TinyFolder) -> Decider:
    return Decider(tiny_folder("llama"), device="cpu", executor="reference")


def test_a_path_never_means_the_embedded_model(
    tiny_folder: TinyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link_checkpoint(tiny_folder("llama"), tmp_path / "default")
    (tmp_path / "default" / "decider_config.json").write_text('{"version": "9"}')
    monkeypatch.chdir(tmp_path)
    assert Decider(Path("default"), device="cpu", executor="reference").name == "decider-9"


def test_configured_temperatures_are_used(tiny_folder: TinyFolder, tmp_path: Path, decider: Decider) -> None:
    link_checkpoint(tiny_folder("llama"), tmp_path)
    (tmp_path / "decider_config.json").write_text(
        json.dumps({"version": "t1", "temperature": 3.0, "temperature_by_type": {"noul": 0.5}, "isolated_levels": True})
    )
    configured = Decider(tmp_path, device="cpu", executor="reference")
    answers = configured.ask(STATE, QUESTIONS)
    assert answers.model == "decider-t1"
    assert answers.choice("team") == decider.ask(STATE, QUESTIONS, temperature=3.0).choice("team")
    assert answers.noul("urgent") == decider.ask(STATE, QUESTIONS, temperature=0.5).noul("urgent")
    list_form = Score("How severe?", ["none", "mild", "severe"], isolated=False)
    assert answers.score("severity") != configured.ask(STATE, {"s": list_form}).score("s")
    levels = [
        configured.ask(
            STATE, {"q": Noul(f"How severe?\nProposed answer: {level}\nDoes the proposed answer fit?")}, temperature=3.0
        )
        .noul("q")
        .noul
        for level in ("none", "mild", "severe")
    ]
    np.testing.assert_allclose(answers.score("severity").probabilities, np.array(levels) / sum(levels), rtol=1e-9)
    with pytest.raises(QuestionError, match="schema_first"):
        configured.ask(STATE, QUESTIONS, layout="plain_schema_first")


def test_calibration_follows_the_dtype(tiny_folder: TinyFolder, tmp_path: Path, decider: Decider) -> None:
    link_checkpoint(tiny_folder("llama"), tmp_path)
    config = tmp_path / "decider_config.json"
    config.write_text('{"temperature": 2, "x_calibration": {"fp32": {"temperature": 4}}}')
    assert Decider(tmp_path, device="cpu", executor="reference").ask(STATE, QUESTIONS).noul("urgent") == decider.ask(
        STATE, QUESTIONS, temperature=4.0
    ).noul("urgent")
    config.write_text('{"temperature": 2, "x_calibration": {"fp8": {"temperature": 4}}}')
    said: list[str] = []
    plain = Decider(tmp_path, device="cpu", executor="reference", say=said.append).ask(STATE, QUESTIONS).noul("urgent")
    assert plain == decider.ask(STATE, QUESTIONS, temperature=2.0).noul("urgent")
    assert any("no entry for fp32" in line for line in said)


FAMILIAR = {"old": Noul("Is it urgent?"), "new": Noul("Would somebody hurry?")}


def test_every_way_of_asking_goes_by_the_familiarity_of_each_question(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    link_checkpoint(tiny_folder("llama"), tmp_path)
    save_wordings(tmp_path, wordings_of([Noul("Is it urgent?")] * LEAST_ASKED))
    (tmp_path / CONFIG_NAME).write_text(
        json.dumps({"temperature_by_type": {"noul": 2.0}, "temperature_unfamiliar_by_type": {"noul": 5.0}})
    )

    def log_odds(answers: Answers) -> list[float]:
        return [math.log(answers.noul(name).noul / (1 - answers.noul(name).noul)) for name in FAMILIAR]

    with Decider(tmp_path, device="cpu", executor="reference") as decider:
        request = make_request(STATE, FAMILIAR)
        asked = decider.prepare(request)
        assert sorted(number for row in asked.temperatures for number in row) == [2.0, 5.0]
        calibrated, plain = (
            [
                decider.ask(STATE, FAMILIAR, temperature=given),
                decider.ask(STATE, FAMILIAR, independent=False, temperature=given),
                decider.ask(STATE, FAMILIAR, permutations=2, temperature=given),
                *decider.ask_many([STATE, STATE], FAMILIAR, temperature=given),
            ]
            for given in (None, 1.0)
        )
        for own, raw in zip(calibrated, plain, strict=True):
            shares = [one / other for one, other in zip(log_odds(raw), log_odds(own), strict=True)]
            assert shares == pytest.approx([2.0, 5.0], rel=1e-3)
        [found] = decider.raw([request])
        assert {name: answer.familiarity for name, answer in found.items()} == {"old": 1.0, "new": 0.0}


def test_temperatures_by_familiarity_without_wordings_are_refused(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    link_checkpoint(tiny_folder("llama"), tmp_path)
    entry = {"temperature_by_type": {"noul": 2.0}, "temperature_unfamiliar_by_type": {"noul": 5.0}}
    (tmp_path / CONFIG_NAME).write_text(json.dumps({"x_calibration": {"fp32": entry}}))
    with pytest.raises(ConfigError, match=r"of fp32 .* has no decider_wordings\.npy .*calibrate into a new"):
        Decider(tmp_path, device="cpu", executor="reference")
    # Of another precision they are not used.
    (tmp_path / CONFIG_NAME).write_text(json.dumps({"x_calibration": {"bf16": entry}}))
    with Decider(tmp_path, device="cpu", executor="reference", say=lambda _: None) as decider:
        [found] = decider.raw([make_request(STATE, FAMILIAR)])
    assert {answer.familiarity for answer in found.values()} == {None}


def test_a_tokenizer_larger_than_the_embedding_is_refused(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    for file in tiny_folder("llama").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    spec = json.loads((tmp_path / "tokenizer.json").read_text())
    token = {**spec["added_tokens"][0], "id": 1024, "content": "ZZTOP", "special": False}
    # Ids of added tokens follow on, so the gap up to the embedding's size is filled.
    used = len(spec["model"]["vocab"])
    spec["added_tokens"] += [{**token, "id": index, "content": f"ZZ{index}"} for index in range(used, 1024)] + [token]
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(SetupError, match="token ids up to 1024"):
        Decider(tmp_path, device="cpu", executor="reference")


def test_a_model_without_a_chat_template_refuses_chat(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    link_checkpoint(tiny_folder("llama"), tmp_path, without="chat_template")
    plain_only = Decider(tmp_path, device="cpu", executor="reference")
    assert plain_only.ask(STATE, QUESTIONS).noul("urgent").noul > 0
    with pytest.raises(QuestionError, match="no chat layout"):
        plain_only.ask(STATE, QUESTIONS, layout="chat")
    with pytest.raises(SetupError, match="chat template"):
        Decider(tmp_path, device="cpu", executor="reference", layout="chat")


def failing(fault: Exception) -> Engine:
    class Full:
        def label_logits(self, _rows: object) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
            raise fault

        def describe(self) -> ReferenceReport:
            return ReferenceReport("cpu", "float32")

        def close(self) -> None:
            """Nothing to give back."""

    return Engine(Full())


@pytest.mark.parametrize(
    "fault",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB"),
        RuntimeError("MPS backend out of memory"),
    ],
)
def test_memory_that_runs_out_is_an_engine_error(fault: Exception) -> None:
    with pytest.raises(EngineError, match=r"out of memory.*max_state_tokens"):
        failing(fault).score([Row((1, 2), (1,), (2,), 1)])


@pytest.mark.parametrize("message", ["CUDA error: an illegal memory access was encountered", "shape '[2]' is invalid"])
def test_another_fault_of_the_device_is_not_called_out_of_memory(message: str) -> None:
    with pytest.raises(RuntimeError, match=re.escape(message)) as caught:
        failing(RuntimeError(message)).score([Row((1, 2), (1,), (2,), 1)])
    assert not isinstance(caught.value, EngineError)


@pytest.mark.parametrize(
    ("argument", "value"), [("config", 3), ("limits", 3), ("limits", {}), ("temperature", 10**400)]
)
def test_arguments_of_another_type_are_refused(argument: str, value: object) -> None:
    with pytest.raises(ConfigError, match=argument):
        Decider(**{argument: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["compile", "fp8"])
def test_options_of_the_grid_are_refused_elsewhere(tiny_folder: TinyFolder, option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} is an option of the grid .*, not of reference"):
        Decider(tiny_folder("llama"), device="cpu", executor="reference", **{option: True})  # type: ignore[arg-type]
    with pytest.raises(SetupError, match="CUDA"):
        Decider(tiny_folder("llama"), device="cpu", executor="grid", **{option: True})  # type: ignore[arg-type]


def test_an_unknown_executor_is_refused(tiny_folder: TinyFolder) -> None:
    with pytest.raises(ConfigError, match="executor is 'warp'"):
        Decider(tiny_folder("llama"), executor="warp")


def test_an_unknown_device_is_refused(tiny_folder: TinyFolder) -> None:
    with pytest.raises(SetupError, match="device 'tpu' is not available"):
        Decider(tiny_folder("llama"), device="tpu")


def test_a_closed_decider_says_so(tiny_folder: TinyFolder) -> None:
    with Decider(tiny_folder("llama"), device="cpu", executor="grid") as decider:
        decider.ask(STATE, QUESTIONS)
    decider.close()
    with pytest.raises(EngineError, match="closed"):
        decider.ask(STATE, QUESTIONS)
