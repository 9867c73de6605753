"""Packs in FP8: which product runs in it in which shape, that graphs are held to that, and what is refused.

Refuses to know cards: torch multiplies e4m3 on a CPU, and what products take is told. Trap: a decoder that took the
exact layers everywhere would be right to the last bit, so it must differ where FP8 is said to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from captured_packs import captured
from fake_graphs import load_tiny, random_row
from fake_pack_graphs import FakeWorkCapturer, falling_times
from prefix_rows import make_rows
from torch import Tensor

from decider.api import Decider
from decider.backbone.decoder import PARTS, Backbone, Coarse, Delta, Dense, fp8_linear, part_name
from decider.backbone.load import backbone_of
from decider.errors import ConfigError, DeviceError, ModelError
from decider.model.head import LabelHead
from decider.model.load import LoadedModel
from decider.ops import fp8
from decider.ops.fp8 import Fp8Product
from decider.plan.pack import Pack
from decider.plan.packs import PackLimits, card_limits, plan_packs
from decider.plan.tables import capacity_of
from decider.run import measure, pack_fp8, pack_warmup, packed
from decider.run.pack_forward import states_at_slots
from decider.run.pack_fp8 import LEAST_GAIN, check_fp8_packs, in_fp8, where_fp8_gains
from decider.run.packed import packed_executor

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]
Hybrid = tuple[LoadedModel, LabelHead, Backbone, Backbone]
SIZES = (32, 64, 160)
CPU = torch.device("cpu")
NAMES = ["attention in", "attention out", "delta in", "delta out", "gate up", "down"]


@pytest.fixture(autouse=True)
def tiny_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8, "LEAST_FEATURES", 16)


@pytest.fixture(scope="module")
def hybrid(tiny_folder: TinyFolder) -> Iterator[Hybrid]:
    """A hybrid in bfloat16, its head, and its decoder in both precisions."""
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(fp8, "LEAST_FEATURES", 16)
        loaded, head = load_tiny(tiny_folder("qwen3_5"), "bfloat16", quieter=4.0)
        yield loaded, head, backbone_of(loaded), backbone_of(loaded, linear=fp8_linear)


def told(gains_from: dict[str, int], names: Sequence[str]) -> Callable[..., tuple[float, float]]:
    """In the place of `_both_ms`: kinds are asked for in the order of `names`, each until it is settled."""
    asked: list[tuple[int, ...]] = []

    def both_ms(products: Sequence[object], n_rows: int, *_: object, **__: object) -> tuple[float, float]:
        key = tuple(map(id, products))
        if not asked or asked[-1] != key or n_rows == 64:
            # Halving starts in the middle.
            asked.append(key)
        return 0.02, 0.01 if n_rows >= gains_from[names[len(asked) - 1]] else 0.03

    return both_ms


def precision(layers: Backbone) -> list[set[str]]:
    """Layer by layer, the parts that are in FP8."""
    return [
        {
            part
            for part in PARTS
            if isinstance(layer.mixer.project if part == "mixer" else getattr(layer, part), Fp8Product)
        }
        for layer in layers.layers
    ]


def in_order(backbone: Backbone) -> list[str]:
    return list(dict.fromkeys(part_name(layer, part) for layer in backbone.layers for part in PARTS))


def test_each_kind_of_product_is_in_fp8_from_where_it_gains(hybrid: Hybrid, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, exact, coarse = hybrid
    names = in_order(exact)
    assert sorted(names) == sorted(NAMES)
    gains_from = {"attention in": 64, "attention out": 1000, "delta in": 0, "delta out": 160, "gate up": 0, "down": 160}
    monkeypatch.setattr(pack_fp8, "_both_ms", told(gains_from, names))
    mixed, pick = where_fp8_gains(exact, coarse, SIZES, FakeWorkCapturer())
    assert mixed.coarse is not None
    assert mixed.coarse.from_rows == {"attention in": 64, "delta in": 0, "delta out": 160, "gate up": 0, "down": 160}
    assert pick.name == "fp8"
    assert "attention in from 64 tokens" in pick.value
    assert "attention out never" in pick.value
    assert "delta in from 32 tokens" in pick.value
    # The last loss and the first gain.
    assert "down 0.0200 and 0.0300 ms at 64, down 0.0200 and 0.0100 ms at 160" in pick.reason
    assert "weights are kept in both" in pick.reason
    own = {"delta": {"mixer", "gate_up"}, "attention": {"mixer", "gate_up"}}
    kinds = ["delta" if isinstance(layer.mixer, Delta) else "attention" for layer in exact.layers]
    assert precision(mixed.for_rows(64, 64)) == [own[kind] for kind in kinds]
    most = {"delta": {"mixer", "output", "gate_up", "down"}, "attention": {"mixer", "gate_up", "down"}}
    # Behind its mixer the last layer has the slots' rows.
    *before, last = precision(mixed.for_rows(160, 64))
    assert before == [most[kind] for kind in kinds[:-1]]
    assert last == {"mixer", "gate_up"}
    assert precision(mixed.for_rows(8, 8)) == [
        {"mixer", "gate_up"} if kind == "delta" else {"gate_up"} for kind in kinds
    ]
    assert mixed.for_rows(8, 8).coarse is None
    assert exact.for_rows(8, 8) is exact


def test_the_rates_are_in_the_projection_wherever_it_is_exact(hybrid: Hybrid) -> None:
    _, _, exact, coarse = hybrid
    mixed = replace(exact, coarse=Coarse(coarse.layers, {"delta in": 100}))
    for n_tokens, alone in ((99, False), (100, True)):
        mixers = [layer.mixer for layer in mixed.for_rows(n_tokens, 1).layers if isinstance(layer.mixer, Delta)]
        assert mixers
        assert all((mixer.rates is not None) is alone for mixer in mixers)
        assert all(isinstance(mixer.project, Fp8Product if alone else Dense) for mixer in mixers)


def test_what_a_product_takes_is_measured(hybrid: Hybrid, monkeypatch: pytest.MonkeyPatch) -> None:
    """All six kinds, both precisions, by what graphs replay; rows of attention's output are quantised beside it."""
    _, _, exact, coarse = hybrid
    met: list[float] = []
    quantised: list[int] = []

    def milliseconds(_: torch.device, work: Callable[[], object], **__: object) -> float:
        before = len(quantised)
        work()
        met.append(float(len(quantised) - before))
        return 1.0 + len(met) % 2

    quantise_rows = fp8.quantise_rows

    def counted(x: Tensor) -> fp8.Quantised:
        quantised.append(1)
        return quantise_rows(x)

    layers = []
    for layer in coarse.layers:
        assert isinstance(layer.output, Fp8Product)
        layers.append(replace(layer, output=replace(layer.output, quantise=counted)))
    monkeypatch.setattr(measure, "milliseconds", milliseconds)
    capturer = FakeWorkCapturer()
    mixed, pick = where_fp8_gains(exact, replace(coarse, layers=tuple(layers)), (8, 16), capturer)
    assert mixed.coarse is not None
    # Exact first, and it took twice as long.
    assert mixed.coarse.from_rows == dict.fromkeys(in_order(exact), 0)
    assert capturer.recorded == len(met) == 6 * 2 * 2
    assert len([n for n in met if n]) == 2
    assert sorted(name for name in NAMES if f"{name} from 8 tokens" in pick.value) == sorted(NAMES)


@pytest.mark.parametrize("from_rows", [{"gate up": 65, "down": 160}, dict.fromkeys(NAMES, 65)])
def test_a_graph_runs_what_its_shape_says(
    hybrid: Hybrid, monkeypatch: pytest.MonkeyPatch, from_rows: dict[str, int]
) -> None:
    _, head, exact, coarse = hybrid
    mixed = replace(exact, coarse=Coarse(coarse.layers, from_rows))
    monkeypatch.setattr(measure, "milliseconds", falling_times())
    executor = captured((mixed, head), ladder=SIZES)
    for rows in ([random_row(20, seed=1)], make_rows(30, (9, 12), seed=2), [random_row(150, seed=3)]):
        [(n_tokens, shape)] = executor.forwards(rows)
        assert shape is not None
        [pack] = plan_packs(rows, card_limits(SIZES))
        view = mixed.for_rows(n_tokens, capacity_of(shape).n_slots)
        wanted = head(states_at_slots(view, pack)).numpy()
        found = np.concatenate(executor.label_logits(rows))
        size = float(np.abs(wanted).max())
        assert float(np.abs(found - wanted).max()) <= 0.05 * size
        plain = head(states_at_slots(exact, pack)).numpy()
        # Both small shapes have room for 64 slots.
        assert (float(np.abs(wanted - plain).max()) > 0.01 * size) is (n_tokens > 64)


def test_graphs_are_judged_in_their_own_precision(hybrid: Hybrid, monkeypatch: pytest.MonkeyPatch) -> None:
    _, head, exact, coarse = hybrid
    judged: list[tuple[int, bool]] = []

    def counted(backbone: Backbone, pack: Pack) -> Tensor:
        assert backbone.coarse is None
        judged.append((pack.n_tokens, any(precision(backbone))))
        return states_at_slots(backbone, pack)

    monkeypatch.setattr(pack_warmup, "states_at_slots", counted)
    monkeypatch.setattr(measure, "milliseconds", falling_times())
    ladder = (72, 96, 120)
    captured((replace(exact, coarse=Coarse(coarse.layers, {"down": 96})), head), ladder=ladder)
    # One power of two, two precisions, two families; the largest of each.
    assert [coarsely for _, coarsely in judged] == [True, True, False, False]
    assert [n > 96 for n, _ in judged] == [True, True, False, False]


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_an_engine_in_fp8(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    monkeypatch.setattr(packed, "check_fp8_packs", lambda *_: None)
    monkeypatch.setattr(packed, "CudaCapturer", lambda _: FakeWorkCapturer())
    monkeypatch.setattr(measure, "milliseconds", falling_times())
    # Falling by a thousandth of a percent is no gain.
    monkeypatch.setattr(pack_fp8, "LEAST_GAIN", 1.0)
    loaded, head = load_tiny(tiny_folder(family), "bfloat16", quieter=4.0)
    limits = PackLimits(160, 64, 256, SIZES)
    plain = packed_executor(loaded, head, limits, prepack=False)
    said: list[str] = []
    executor = packed_executor(loaded, head, limits, prepack=False, fp8=True, say=said.append)
    [pick] = [pick for pick in executor.describe().picks if pick.name == "fp8"]
    assert pick.value.count(" from 32 tokens") == {"llama": 4, "qwen3_5": 6}[family]
    assert said[0].startswith(f"fp8: {pick.value}; asked for; where it gains")
    rows = [random_row(90, seed=1), random_row(8, seed=2)]
    ours, theirs = (np.concatenate(each.label_logits(rows)) for each in (executor, plain))
    assert 0.001 < float(np.abs(ours - theirs).max() / np.abs(theirs).max()) < 0.5


def test_what_gains_little_stays_exact(hybrid: Hybrid, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, exact, coarse = hybrid
    for gain, where in ((0.99 * LEAST_GAIN, {}), (1.01 * LEAST_GAIN, dict.fromkeys(NAMES, 0))):
        monkeypatch.setattr(pack_fp8, "_both_ms", lambda *_, _gain=gain, **__: (_gain, 1.0))
        mixed, _ = where_fp8_gains(exact, coarse, SIZES, FakeWorkCapturer())
        assert mixed.coarse is not None
        assert mixed.coarse.from_rows == where


@pytest.mark.parametrize("spoil", [lambda scales: scales.roll(1), lambda scales: scales * torch.nan])
def test_a_product_that_is_wrong_in_fp8_is_found(
    hybrid: Hybrid, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Tensor], Tensor]
) -> None:
    loaded, _, exact, _ = hybrid
    of = Fp8Product.of.__func__  # type: ignore[attr-defined]
    made: list[Fp8Product] = []

    def spoilt(cls: type[Fp8Product], weight: Tensor, bias: Tensor | None) -> Fp8Product:
        product: Fp8Product = of(cls, weight, bias)
        made.append(replace(product, scales=spoil(product.scales)) if len(made) == 5 else product)
        return made[-1]

    monkeypatch.setattr(Fp8Product, "of", classmethod(spoilt))
    with pytest.raises(ModelError, match=r"a product of .* differs in fp8 by .* from bfloat16 \(allowed: 0.1\)"):
        in_fp8(exact, loaded)


def test_a_model_without_large_layers_is_refused(hybrid: Hybrid, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, _, exact, _ = hybrid
    monkeypatch.setattr(fp8, "LEAST_FEATURES", 1024)
    with pytest.raises(ModelError, match="no linear layer of at least 1,024"):
        in_fp8(exact, loaded)


def test_fp8_is_refused_before_a_model_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="fp8 needs a CUDA card of the Hopper generation or later, not cpu"):
        Decider(tmp_path, device="cpu", executor="packed", fp8=True)
    monkeypatch.setattr(pack_fp8, "check_fp8", lambda _: None)
    with pytest.raises(ConfigError, match="of a model in bfloat16, not float16; leave out --dtype float16, or fp8"):
        check_fp8_packs(CPU, torch.float16)
    with pytest.raises(ConfigError, match="of a model in bfloat16, not float32"):
        Decider(tmp_path, device="cpu", executor="packed", dtype="float32", fp8=True)
