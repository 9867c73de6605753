"""Before the seal: which eager forward each graph of a pack is compared with.

Refuses to know kernels. Trap: sizes of one power of two are judged by the largest of them, so a fault in a smaller one
must be found through it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_graphs import load_tiny
from fake_pack_graphs import FakeWorkCapturer, falling_times
from torch import Tensor

from decider.backbone.decoder import Backbone
from decider.backbone.load import backbone_of
from decider.errors import EngineError
from decider.model.head import LabelHead
from decider.plan.pack import Pack
from decider.plan.packs import card_limits
from decider.plan.tables import StaticTables
from decider.run import measure, pack_warmup
from decider.run.pack_forward import read_back_forward, states_at_slots
from decider.run.pack_warmup import Warmed, warm_up

pytestmark = pytest.mark.usefixtures("one_thread")

TinyFolder = Callable[[str], Path]
LADDER_HERE = (40, 72, 96, 130)


@pytest.fixture(scope="module")
def model(tiny_folder: TinyFolder) -> tuple[Backbone, LabelHead]:
    loaded, head = load_tiny(tiny_folder("qwen3_5"), quieter=4.0)
    return backbone_of(loaded), head


def warmed(
    model: tuple[Backbone, LabelHead],
    monkeypatch: pytest.MonkeyPatch,
    capturer: FakeWorkCapturer,
    *,
    broken: Callable[[StaticTables[Tensor]], bool] = lambda _: False,
) -> Warmed:
    """With a captured forward whose first slot is off by a tenth wherever `broken`."""
    sound = read_back_forward(*model)

    def forward(tables: StaticTables[Tensor]) -> Tensor:
        logits = sound(tables)
        logits[0] *= 1.1 if broken(tables) else 1.0
        return logits

    monkeypatch.setattr(measure, "milliseconds", falling_times())
    return warm_up(*model, forward, card_limits(LADDER_HERE), capturer, lambda _: None)


def test_the_largest_size_of_each_power_of_two_meets_the_plain_forward(
    model: tuple[Backbone, LabelHead], monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[int] = []

    def counted(backbone: Backbone, pack: Pack) -> Tensor:
        met.append(pack.n_tokens)
        return states_at_slots(backbone, pack)

    monkeypatch.setattr(pack_warmup, "states_at_slots", counted)
    capturer = FakeWorkCapturer()
    assert warmed(model, monkeypatch, capturer).n_captures == 8
    # Packs of 130, 96 and 40 tokens, in both families and nearly full.
    assert len(met) == 6
    assert [n > 96 for n in met] == [True] * 2 + [False] * 4
    assert all(72 < n <= 96 for n in met[2:4])
    # Twice a graph, and once by the judge for either graph of 72 tokens.
    assert (capturer.recorded, capturer.warmed) == (8, 18)


@pytest.mark.parametrize("size", LADDER_HERE)
@pytest.mark.parametrize("tree", [False, True])
def test_a_fault_of_any_size_is_found(
    model: tuple[Backbone, LabelHead], monkeypatch: pytest.MonkeyPatch, size: int, tree: bool
) -> None:
    with pytest.raises(EngineError, match=rf"{'tree' if tree else 'flat'} of {size} tokens.*differs from its eager"):
        warmed(
            model,
            monkeypatch,
            FakeWorkCapturer(),
            broken=lambda tables: (tables.n_tokens, tables.is_tree) == (size, tree),
        )


def test_a_judge_that_is_broken_is_named_itself(
    model: tuple[Backbone, LabelHead], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineError, match="tree of 96 tokens"):
        warmed(model, monkeypatch, FakeWorkCapturer(), broken=lambda tables: 64 <= tables.n_tokens <= 127)
