"""The packed executor behind `Decider`, and how an executor is chosen.

Refuses to prove tree = rows, which the backbone's tests do. Trap: rows of a pack are in the pack's order, so a test
with rows of one kind would not see two swapped.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fake_graphs import largest_shift, load_tiny, random_row
from prefix_rows import make_rows

from decider import Choice, ConfigError, Decider, EngineError, Noul, Question, assembly
from decider.backbone.decoder import Backbone
from decider.backbone.load import backbone_of
from decider.model.head import LabelHead
from decider.ops.onednn import why_not_onednn
from decider.plan.pack import Pack
from decider.plan.packs import PackLimits
from decider.run import packed as packed_module
from decider.run.choose import choose_executor
from decider.run.cpu_dtype import pick_cpu_dtype
from decider.run.device import Pick
from decider.run.options import GridOptions
from decider.run.pack_forward import states_at_slots
from decider.run.packed import PackedExecutor, packed_executor
from decider.run.reference import ReferenceExecutor
from decider.settings import Settings

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]

NATIVE = ("llama", "llama_tied", "qwen3", "qwen3_5")
LIMITS = PackLimits(max_tokens=256, max_sequences=8, max_slots=32)
QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", {"billing": "charges", "technical": None, "sales": None}),
    "urgent": Noul("Is it urgent?"),
}


@pytest.mark.parametrize("family", NATIVE)
def test_packs_answer_as_the_reference_in_the_order_asked(tiny_folder: TinyFolder, family: str) -> None:
    loaded, head = load_tiny(tiny_folder(family), quieter=4.0)
    packed = PackedExecutor(backbone_of(loaded), head, LIMITS)
    rows = [
        random_row(9, slots=3),
        *make_rows(40, (3, 9, 1, 70), seed=1),
        random_row(300),
        *make_rows(2, (1, 1), seed=2),
        *(random_row(n, seed=n) for n in (1, 2, 100, 60)),
        *make_rows(200, (60, 50, 3), seed=3),
    ]
    assert largest_shift(packed.label_logits(rows), ReferenceExecutor(loaded, head).label_logits(rows)) <= 1e-5
    assert packed.label_logits([]) == []
    stats = packed.stats
    assert stats.forwards == stats.eager_forwards < len(rows)
    assert stats.eager_rows == len(rows)
    assert stats.shared_calls >= 3
    assert stats.unbucketed_rows >= 1
    assert stats.real_tokens == stats.padded_tokens < sum(len(row.ids) for row in rows)
    assert packed.why_not_shared(rows) is None


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_a_row_that_is_not_finite_is_not_its_siblings(tiny_folder: TinyFolder, family: str) -> None:
    """As of a text on which a half overflows: here of a token whose embedding is not a number."""
    loaded, head = load_tiny(tiny_folder(family), quieter=4.0)
    sound = PackedExecutor(backbone_of(loaded), head, LIMITS)
    rows = [*make_rows(40, (3, 9, 5, 7), seed=1), random_row(20, seed=2), *make_rows(9, (4, 2), seed=3)]
    rows = [replace(row, ids=tuple(token % 1000 for token in row.ids)) for row in rows]
    spoilt = (1, 6)
    for index in spoilt:
        rows[index] = replace(rows[index], ids=(*rows[index].ids[:-1], 1000))
    want = sound.label_logits(rows)
    embedding = backbone_of(loaded).embedding.clone()
    embedding[1000] = torch.nan
    packed = PackedExecutor(replace(backbone_of(loaded), embedding=embedding), head, LIMITS)
    ours = packed.label_logits(rows)
    for index, (one, other) in enumerate(zip(ours, want, strict=True)):
        if index in spoilt:
            assert np.isnan(one[-1]).all()
        else:
            assert largest_shift([one], [other]) <= 1e-6
    # The pack, and the branches of both trunks again.
    assert packed.stats.forwards == sound.stats.forwards + 6


@pytest.mark.parametrize("executor", ["packed", "reference", "grid"])
@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_the_callers_autocast_changes_nothing(tiny_folder: TinyFolder, family: str, executor: str) -> None:
    with Decider(tiny_folder(family), device="cpu", dtype="float32", executor=executor) as decider:
        want = decider.ask("state", QUESTIONS)
        with torch.autocast("cpu", torch.bfloat16):
            assert decider.ask("state", QUESTIONS).answers == want.answers
            assert torch.is_autocast_enabled("cpu")


def test_counts_are_of_branches_alone(tiny_folder: TinyFolder) -> None:
    packed = PackedExecutor(*_made(tiny_folder("llama")), LIMITS)
    packed.label_logits([random_row(9), *make_rows(20, (3, 4), seed=1)])
    assert (packed.stats.shared_rows, packed.stats.shared_calls, packed.stats.eager_rows) == (2, 1, 3)


def test_calls_of_several_threads_run_one_after_the_other(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = PackedExecutor(*_made(tiny_folder("llama")), LIMITS)
    together = threading.Barrier(2, timeout=0.3)
    met: list[bool] = []

    def meet(backbone: Backbone, pack: Pack) -> torch.Tensor:
        try:
            together.wait()
        except threading.BrokenBarrierError:
            met.append(False)
        else:
            met.append(True)
        return states_at_slots(backbone, pack)

    monkeypatch.setattr(packed_module, "states_at_slots", meet)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(packed.label_logits, [[random_row(5)], [random_row(6)]]))
    assert met == [False, False]
    assert packed.stats.forwards == 2


def test_what_it_gives_is_the_callers_own(tiny_folder: TinyFolder) -> None:
    packed = PackedExecutor(*_made(tiny_folder("llama")), LIMITS)
    first, second = packed.label_logits([random_row(5), random_row(6)])
    assert first.base is None
    assert second.base is None
    assert not np.shares_memory(first, second)


def _made(folder: Path) -> tuple[Backbone, LabelHead]:
    loaded, head = load_tiny(folder, quieter=4.0)
    return backbone_of(loaded), head


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_weights_laid_out_once_change_nothing_but_rounding(tiny_folder: TinyFolder, family: str) -> None:
    loaded, head = load_tiny(tiny_folder(family), quieter=4.0)
    rows = [random_row(30, slots=3), *make_rows(40, (3, 9, 1), seed=1)]
    laid_out, plain = (packed_executor(loaded, head, LIMITS, prepack=prepack) for prepack in (True, False))
    assert largest_shift(laid_out.label_logits(rows), plain.label_logits(rows)) <= 1e-6
    [pick] = plain.describe().picks
    assert (pick.value, pick.reason) == ("torch's own", "prepack is off")
    [pick] = laid_out.describe().picks
    refusal = why_not_onednn(torch.device("cpu"), torch.float32)
    assert pick.value == ("oneDNN, weights laid out once" if refusal is None else "torch's own")


def test_a_closed_one_says_so(tiny_folder: TinyFolder) -> None:
    with Decider(tiny_folder("llama"), device="cpu", executor="packed") as decider:
        decider.ask("state", QUESTIONS)
    with pytest.raises(EngineError, match="closed"):
        decider.ask("state", QUESTIONS)


def test_closing_waits_for_packs_in_flight(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph holds addresses of weights, and not the weights."""
    loaded, head = load_tiny(tiny_folder("llama"))
    packed = PackedExecutor(backbone_of(loaded), head, PackLimits(64, 8, 64))
    held: list[bool] = []
    stream = SimpleNamespace(synchronize=lambda: held.append(packed._backbone is not None))
    monkeypatch.setattr(packed, "_stream", stream)
    packed.close()
    assert held == [True]
    assert packed._backbone is None


@pytest.mark.parametrize("family", NATIVE)
def test_auto_takes_packs_on_a_cpu_where_a_backbone_has_the_model(tiny_folder: TinyFolder, family: str) -> None:
    with Decider(tiny_folder(family), device="cpu", dtype="float32") as decider:
        picks = {pick.name: pick for pick in decider.picks}
        assert picks["executor"].value.startswith("packed: ")
        assert picks["executor"].reason.startswith("auto: ")
        ours = decider.ask({"order": 4417}, QUESTIONS)
    with Decider(tiny_folder(family), device="cpu", executor="reference") as decider:
        want = decider.ask({"order": 4417}, QUESTIONS)
    assert ours.choice("team").probabilities == pytest.approx(want.choice("team").probabilities, abs=1e-4)
    assert ours.noul("urgent").noul == pytest.approx(want.noul("urgent").noul, abs=1e-4)
    assert ours.input_tokens == want.input_tokens


def test_a_family_without_a_backbone_gets_the_grid_and_packs_are_refused(tiny_folder: TinyFolder) -> None:
    with Decider(tiny_folder("gemma3"), device="cpu") as decider:
        pick = next(pick for pick in decider.picks if pick.name == "executor")
        assert pick.value.startswith("grid: ")
        assert "no native backbone" in pick.reason
        assert "gemma3" in pick.reason
    with pytest.raises(ConfigError, match=r"--executor packed has no backbone .*gemma3.*use --executor grid"):
        Decider(tiny_folder("gemma3"), device="cpu", executor="packed")


def test_a_head_beside_a_tied_embedding_gets_the_grid(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    """As a multimodal checkpoint has that was saved untied on top and tied in its text model."""
    folder = Path(shutil.copytree(tiny_folder("llama"), tmp_path / "tied"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    with Decider(folder, device="cpu", dtype="float32") as decider:
        pick = next(pick for pick in decider.picks if pick.name == "executor")
        assert pick.value.startswith("grid: ")
        assert "no native backbone" in pick.reason
        assert "lm_head.weight is not its embedding" in pick.reason
        ours = decider.ask("state", QUESTIONS)
    with Decider(folder, device="cpu", executor="reference") as decider:
        want = decider.ask("state", QUESTIONS)
    assert ours.choice("team").probabilities == pytest.approx(want.choice("team").probabilities, abs=1e-4)
    with pytest.raises(ConfigError, match=r"--executor packed has no backbone .*lm_head\.weight is not its embedding"):
        Decider(folder, device="cpu", executor="packed")


@pytest.mark.parametrize(
    ("wanted", "device", "options", "refusal", "value", "words"),
    [
        ("auto", "cpu", GridOptions(), None, "packed", "nothing is padded"),
        ("auto", "cpu", GridOptions(), "unknown family", "grid", "unknown family"),
        ("auto", "cuda:0", GridOptions(), None, "packed", "captured packs"),
        ("auto", "cuda:0", GridOptions(), "unknown family", "grid", "unknown family"),
        ("auto", "mps", GridOptions(), None, "grid", "Metal"),
        ("auto", "cuda:0", GridOptions(fp8=True), None, "packed", "captured packs"),
        ("auto", "cuda:0", GridOptions(compile=True), None, "grid", "compile"),
        ("packed", "cuda:0", GridOptions(), None, "packed", "asked for"),
        ("packed", "cuda:0", GridOptions(fp8=True), None, "packed", "asked for"),
        ("grid", "cpu", GridOptions(), None, "grid", "asked for"),
        ("reference", "cpu", GridOptions(), None, "reference", "asked for"),
    ],
)
def test_the_choice_and_its_reason(
    wanted: str, device: str, options: GridOptions, refusal: str | None, value: str, words: str
) -> None:
    pick = choose_executor(wanted, device, options=options, refusal=refusal, not_captured=None)
    assert pick.value == value
    assert words in pick.reason


def test_packs_without_graphs_are_not_taken_by_themselves() -> None:
    """A card with too little shared memory would run them eagerly, slower than the grid's graphs."""
    reason = "kernels want 120,000 bytes of shared memory a block, and this card has 101,376"
    pick = choose_executor("auto", "cuda:0", options=GridOptions(), refusal=None, not_captured=reason)
    assert pick.value == "grid"
    assert reason in pick.reason
    asked = choose_executor("packed", "cuda:0", options=GridOptions(), refusal=None, not_captured=reason)
    assert asked.value == "packed"


@pytest.mark.parametrize(
    ("dtype", "fp8", "head_dim", "shared", "reason"),
    [
        ("auto", False, 128, 232_448, None),
        ("float32", False, 128, 232_448, None),
        ("auto", True, 128, 232_448, None),
        ("auto", False, 128, 101_376, "kernels want 120,000 bytes of shared memory a block, and this card has 101,376"),
        ("auto", False, 512, 232_448, "heads of 512 are not between 16 and 256"),
        ("float16", True, 128, 232_448, "in fp8 they are of bfloat16, not float16"),
        ("float32", True, 128, 232_448, "in fp8 they are of bfloat16, not float32"),
        ("auto", False, 128, None, "Triton is not installed"),
    ],
)
def test_what_is_known_of_a_card_before_weights_are_read(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    dtype: str,
    fp8: bool,
    head_dim: int,
    shared: int | None,
    reason: str | None,
) -> None:
    """A card of told facts: the choice of `auto`, and the reason that `decider doctor` would print."""
    spec: Any = SimpleNamespace(attention=SimpleNamespace(head_dim=head_dim), delta=None)
    chosen: list[Pick] = []

    def choose(*arguments: Any, **named: Any) -> None:
        chosen.append(choose_executor(*arguments, **named))
        raise ConfigError("chosen")

    kernels = SimpleNamespace(SMALLEST_HEAD=16, LARGEST_HEAD=256)
    monkeypatch.setitem(sys.modules, "decider.ops.attention_kernel", kernels)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None if shared is None else kernels)
    facts = SimpleNamespace(shared_memory_per_block_optin=shared)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: facts)
    monkeypatch.setattr("decider.run.device.available_devices", lambda: ("cuda:0", "cpu"))
    monkeypatch.setattr(assembly, "check_options", lambda *_, **__: None)
    monkeypatch.setattr(assembly, "resolve", lambda *_, **__: SimpleNamespace(path=tmp_path))
    monkeypatch.setattr(assembly, "spec_or_refusal", lambda _: (None, spec))
    monkeypatch.setattr(assembly, "choose_executor", choose)
    with pytest.raises(ConfigError, match="chosen"):
        assembly.open_model(Settings(model="m", dtype=dtype, fp8=fp8), print)
    [pick] = chosen
    assert pick.value == ("packed" if reason is None else "grid")
    assert pick.reason == (
        "auto: captured packs, up to eight times as fast as a grid (docs/log.md)"
        if reason is None
        else f"auto: packs cannot be captured here ({reason})"
    )


@pytest.mark.parametrize(
    ("wanted", "option", "known"),
    [
        ("packed", "compile", "grid executor"),
        ("reference", "compile", "grid executor"),
        ("reference", "fp8", "grid and packed executors"),
    ],
)
def test_options_that_an_executor_has_not_are_refused(wanted: str, option: str, known: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} is an option of the {known}, not of {wanted}"):
        choose_executor(wanted, "cuda:0", options=GridOptions(**{option: True}), refusal=None, not_captured=None)


def test_the_dtype_of_a_cpu_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {torch.float32: 13.0, torch.bfloat16: 9.0}
    monkeypatch.setattr("decider.run.cpu_dtype._product_ms", told.__getitem__)
    assert pick_cpu_dtype().value == "bfloat16"
    assert "takes 9.0 ms in bfloat16, 13.0 in float32" in pick_cpu_dtype().reason
    assert "it moves probabilities, by up to 0.10 among 6,666 decisions" in pick_cpu_dtype().reason
    assert "--dtype float32 does not" in pick_cpu_dtype().reason
    told[torch.bfloat16] = 10.1
    assert pick_cpu_dtype().value == "float32"
    assert "moves" not in pick_cpu_dtype().reason


def test_a_dtype_can_be_asked_for(tiny_folder: TinyFolder) -> None:
    with Decider(tiny_folder("llama"), device="cpu", dtype="bfloat16") as decider:
        pick = next(pick for pick in decider.picks if pick.name == "dtype")
        assert (pick.value, pick.reason) == ("bfloat16", "asked for")
    with pytest.raises(ConfigError, match="dtype is 'int8'; it must be one of auto, float32"):
        Decider(tiny_folder("llama"), device="cpu", dtype="int8")
