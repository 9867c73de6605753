"""A twin: modules of its own over the same tensors.

Refuses to judge options. Trap: a copied tensor gives the same answers, so identity is what is compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
import torch
from fake_graphs import load_tiny
from tiny_models import FAMILIES
from torch import nn

from decider.errors import ModelError
from decider.model.twin import twin
from decider.run.forward import make_forward

TinyFolder = Callable[[str], Path]


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_twin_has_other_modules_over_the_same_tensors(tiny_folder: TinyFolder, family: str) -> None:
    loaded, head = load_tiny(tiny_folder(family))
    loaded.module.table = torch.zeros(3)
    other = twin(loaded)
    ours, theirs = loaded.module, other.module
    tensors = [list(chain(module.named_parameters(), module.named_buffers())) for module in (ours, theirs)]
    assert len(tensors[0]) > 10
    assert [(name, id(tensor)) for name, tensor in tensors[0]] == [(name, id(tensor)) for name, tensor in tensors[1]]
    assert theirs.table is ours.table
    assert [type(module) for module in ours.modules()] == [type(module) for module in theirs.modules()]
    assert not {id(module) for module in ours.modules()} & {id(module) for module in theirs.modules()}
    assert (other.name, other.device, other.dtype) == (loaded.name, loaded.device, loaded.dtype)
    assert not theirs.training
    ids, slots = torch.arange(20).view(2, 10), torch.tensor([4, 19])
    assert torch.equal(make_forward(other, head)(ids, slots), make_forward(loaded, head)(ids, slots))


def test_tied_weights_stay_tied(tiny_folder: TinyFolder) -> None:
    module = twin(load_tiny(tiny_folder("llama_tied"))[0]).module
    assert module.get_output_embeddings().weight is module.get_input_embeddings().weight


def test_what_is_changed_in_a_twin_is_changed_there_alone(tiny_folder: TinyFolder) -> None:
    loaded, _ = load_tiny(tiny_folder("qwen3"))
    first, second = twin(loaded), twin(loaded)
    first.module.config._attn_implementation = "eager"
    first.module.get_decoder().norm = nn.Identity()
    for other in (loaded, second):
        assert other.module.config._attn_implementation == "sdpa"
        assert type(other.module.get_decoder().norm).__name__ == "Qwen3RMSNorm"


def test_what_cannot_be_copied_is_refused(tiny_folder: TinyFolder) -> None:
    loaded, _ = load_tiny(tiny_folder("qwen3"))
    vars(loaded.module)["lock"] = threading.Lock()
    with pytest.raises(ModelError, match="cannot be copied"):
        twin(loaded)
