"""The compiled forward: the same logits, few compilations, loud failures, nothing left behind.

Refuses code generators but the one that runs graphs as they are: they are torch's, and slow to start. Trap: torch
compiles a second time for what happens to differ, so compilations are counted over many shapes.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from fake_graphs import LABEL_IDS, VOCAB, load_tiny
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaConfig

from decider.errors import EngineError, ModelError
from decider.model.head import LabelHead, label_head
from decider.model.load import LoadedModel
from decider.model.twin import twin
from decider.ops.convolution import unroll_convolutions
from decider.ops.delta_rule import gated_delta_rule
from decider.ops.fp8 import to_fp8
from decider.run import compiled
from decider.run.compiled import CompiledForward, compile_forward
from decider.run.forward import make_forward, no_packed_sequences

TinyFolder = Callable[[str], Path]

# Sizes that equal each other, the head size, the window of Gemma's, or the length of a chunk.
SHAPES = ((4, 64), (2, 16), (1, 64), (4, 4), (1, 100), (16, 16), (2, 2), (2, 128), (3, 7), (1, 5), (2, 65), (8, 14))


@pytest.fixture(autouse=True)
def unpacked() -> Iterator[None]:
    with no_packed_sequences():
        yield


def tiny(folder: Path) -> tuple[LoadedModel, LabelHead]:
    return load_tiny(folder, quieter=4.0)


def compiled_twin(loaded: LoadedModel, head: LabelHead) -> CompiledForward:
    other = twin(loaded)
    unroll_convolutions(other.module)
    return compile_forward(other, head, backend="eager")


def batch(rows: int, tokens: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows * tokens)
    ids = torch.randint(VOCAB, (rows, tokens), generator=generator)
    return ids, torch.arange(rows) * tokens + tokens - 1


def identity(module: nn.Module) -> list[object]:
    """What a change of the module would change."""
    modules = [(type(each), vars(each).get("forward")) for each in module.modules()]
    return [*modules, *(id(tensor) for tensor in (*module.parameters(), *module.buffers()))]


# Kinds of layers × (one row, several). A kind of Gemma's is a mask tensor, made for rows beyond the window.
@pytest.mark.parametrize(("family", "expected"), [("llama", 2), ("qwen3", 2), ("qwen3_5", 4), ("gemma3", 4)])
def test_logits_are_the_same_and_compilations_few(tiny_folder: TinyFolder, family: str, expected: int) -> None:
    loaded, head = tiny(tiny_folder(family))
    before = identity(loaded.module)
    plain = make_forward(loaded, head)
    forward = compiled_twin(loaded, head)
    assert forward.compilations == 0
    for shape in SHAPES:
        ids, slots = batch(*shape)
        assert torch.allclose(forward(ids, slots), plain(ids, slots), rtol=0, atol=2e-5)
    assert forward.compilations == expected
    assert identity(loaded.module) == before
    forward.seal()
    for shape in ((5, 77), (1, 33)):
        forward(*batch(*shape))
    with pytest.raises(EngineError, match=r"2 × 1 \(rows × tokens\) would compile 'tiny' after the seal"):
        forward(*batch(2, 1))
    assert forward.compilations == expected


@pytest.mark.parametrize("tokens", [1, 9, 64, 70])
@pytest.mark.parametrize("key_heads", [2, 4])
def test_the_delta_rule_is_sound_as_an_operation(tokens: int, key_heads: int) -> None:
    """Schema, aliases, and the shape it claims without being run."""
    generator = torch.Generator().manual_seed(tokens)
    sizes = (key_heads, 8), (key_heads, 8), (4, 16)
    query, key, value = (torch.randn(2, tokens, *size, generator=generator) for size in sizes)
    decay, beta = -torch.rand(2, tokens, 4, generator=generator), torch.rand(2, tokens, 4, generator=generator)
    if key_heads < 4:
        # As transformers does before 5.24, whose rule takes fewer key heads than value heads.
        query, key = (each.repeat_interleave(2, dim=2) for each in (query, key))
    given = (query, key, value, decay, beta, "transformers.models.qwen3_5.modeling_qwen3_5")
    assert gated_delta_rule(*given).shape == value.shape
    torch.library.opcheck(gated_delta_rule, given, test_utils=("test_schema", "test_faketensor"))


def test_two_engines_do_not_share(tiny_folder: TinyFolder) -> None:
    loaded, head = tiny(tiny_folder("qwen3"))
    config = torch._dynamo.config
    limits = config.recompile_limit, config.accumulated_recompile_limit, config.fail_on_recompile_limit_hit
    plain = make_forward(loaded, head)
    first, second = compiled_twin(loaded, head), compiled_twin(loaded, head)
    ids, slots = batch(3, 20)
    wanted = plain(ids, slots)
    assert torch.allclose(first(ids, slots), wanted, rtol=0, atol=2e-5)
    assert (first.compilations, second.compilations) == (1, 0)
    first.seal()
    assert torch.allclose(second(ids, slots), wanted, rtol=0, atol=2e-5)
    assert second(ids[:1], slots[:1]).shape == (1, 255)
    assert (first.compilations, second.compilations) == (1, 2)
    with pytest.raises(EngineError, match="after the seal"):
        first(ids[:1], slots[:1])
    assert limits == (config.recompile_limit, config.accumulated_recompile_limit, config.fail_on_recompile_limit_hit)
    del first
    assert torch.allclose(second(ids, slots), wanted, rtol=0, atol=2e-5)
    assert torch.equal(plain(ids, slots), wanted)


def test_a_dropped_engine_leaves_nothing(tiny_folder: TinyFolder) -> None:
    loaded, head = tiny(tiny_folder("qwen3_5"))
    other = twin(loaded)
    forward = compile_forward(other, head, backend="eager")
    forward(*batch(2, 9))
    left = weakref.ref(other.module)
    del other, forward
    gc.collect()
    assert left() is None


def test_fp8_compiles_with_its_layer() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=1024, intermediate_size=1024, num_hidden_layers=1, num_attention_heads=8
    )
    module: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    module.eval().requires_grad_(False)
    loaded = LoadedModel(module, "one layer", "llama", 2048, "cpu", "bfloat16")
    head = label_head(loaded, LABEL_IDS)
    fp8 = twin(loaded)
    assert to_fp8(fp8.module, keep=[fp8.module.get_output_embeddings()]) == 7
    plain, forward = make_forward(fp8, head), compile_forward(twin(fp8), head, backend="eager")
    for shape in ((2, 9), (3, 70)):
        ids, slots = batch(*shape)
        assert torch.equal(forward(ids, slots), plain(ids, slots))
    assert forward.compilations == 1


class Breaks:
    """What a code generator may do."""

    def __call__(self, *_: object) -> NoReturn:
        raise ValueError("no such instruction\nand more")


def test_an_error_of_the_generator_is_said(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, head = tiny(tiny_folder("qwen3"))
    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda _: Breaks())
    forward = compiled_twin(loaded, head)
    with pytest.raises(EngineError, match=r"one graph: no such instruction \(ValueError\); leave"):
        forward(*batch(2, 9))


class Peeks(nn.Module):
    """Reads a value back to the host, which no graph can."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden * (2.0 if hidden.sum().item() > 0 else 1.0)


def test_a_layer_in_pieces_is_an_error(tiny_folder: TinyFolder) -> None:
    loaded, head = tiny(tiny_folder("qwen3"))
    other = twin(loaded)
    other.module.get_decoder().layers[1].mlp = Peeks()
    forward = compile_forward(other, head, backend="eager")
    with pytest.raises(EngineError, match=r"a decoder layer of 'tiny' does not compile as one graph: .*option compile"):
        forward(*batch(2, 9))


def test_the_limit_is_an_error(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, head = tiny(tiny_folder("qwen3"))
    monkeypatch.setattr(compiled, "COMPILATIONS_LIMIT", 1)
    forward = compiled_twin(loaded, head)
    forward(*batch(2, 9))
    with pytest.raises(EngineError, match=r"compiled 1 times, the limit, and 1 × 9 \(rows × tokens\) wants one more"):
        forward(*batch(1, 9))


def test_to_be_told_not_to_compile_is_an_error(tiny_folder: TinyFolder) -> None:
    loaded, head = tiny(tiny_folder("qwen3"))
    forward = compiled_twin(loaded, head)
    with torch.compiler.set_stance("force_eager"), pytest.raises(EngineError, match="torch compiled nothing of 'tiny'"):
        forward(*batch(2, 9))


def test_a_model_without_marked_layers_is_refused(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, head = tiny(tiny_folder("qwen3"))
    monkeypatch.setattr(compiled, "GradientCheckpointingLayer", type("Other", (nn.Module,), {}))
    with pytest.raises(ModelError, match="no decoder layers that can be compiled"):
        compile_forward(twin(loaded), head, backend="eager")
