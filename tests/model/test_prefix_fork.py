"""Forked caches: equal to their source, in storage of their own, whatever their layers are made of.

Refuses to trust layer classes: fakes stand for layouts that no installed version has. Trap: a fork that shares memory
is equal too; only a write shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from prefix_rows import load_tiny
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicIndexedLayer

from decider.errors import EngineError
from decider.run.prefix.cache import cached_decoder
from decider.run.prefix.fork import cache_bytes, fork_cache

TinyFolder = Callable[[str], Path]
FAMILIES = ("llama", "qwen3", "qwen3_5", "gemma3")


class FakeCache:
    """What a future version might bring: layers of any make, and tensors beside them."""

    def __init__(self, *layers: object, **beside: object) -> None:
        self.layers = list(layers)
        vars(self).update(beside)


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors of a cache, of a layer or in a container, in a fixed order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for held in value:
            yield from tensors(held)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif hasattr(value, "layers"):
        yield from tensors([vars(layer) for layer in value.layers])


def run_prefix(folder: Path, n_tokens: int) -> Any:
    loaded, _ = load_tiny(folder, "eager", "float32")
    with torch.inference_mode():
        return cached_decoder(loaded).run_prefix(torch.arange(n_tokens).unsqueeze(0))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n_tokens", [1, 3, 40])
@torch.inference_mode()
def test_a_fork_repeats_its_source_and_shares_no_memory(tiny_folder: TinyFolder, family: str, n_tokens: int) -> None:
    prefix = run_prefix(tiny_folder(family), n_tokens)
    before = [tensor.clone() for tensor in tensors(prefix.cache)]
    fork = fork_cache(prefix.cache, 3)
    assert type(fork.cache) is type(prefix.cache)
    assert fork.unknown == ()
    pairs = list(zip(tensors(fork.cache), before, strict=True))
    assert len(pairs) >= 4
    for copied, source in pairs:
        assert copied.is_contiguous()
        if source.dim():
            assert copied.shape == (3, *source.shape[1:])
            assert all(torch.equal(row, source[0]) for row in copied)
    assert sum(source.numel() * source.element_size() for _, source in pairs) == prefix.n_bytes
    for copied, source in pairs:
        if source.dim():
            # An update in place of one row, as linear layers do.
            copied[1].fill_(torch.nan)
            assert all(torch.equal(copied[row], source[0]) for row in (0, 2))
    assert all(torch.equal(now, then) for now, then in zip(tensors(prefix.cache), before, strict=True))


@torch.inference_mode()
def test_a_suffix_on_a_fork_leaves_the_source_and_other_forks(tiny_folder: TinyFolder) -> None:
    loaded, _ = load_tiny(tiny_folder("qwen3_5"), "eager", "float32")
    decoder = cached_decoder(loaded)
    prefix = decoder.run_prefix(torch.arange(11).unsqueeze(0))
    before = [tensor.clone() for tensor in tensors(prefix.cache)]
    used, kept = fork_cache(prefix.cache, 2).cache, fork_cache(prefix.cache, 2).cache
    decoder.run_suffixes(torch.tensor([[7], [9]]), used, 11)
    assert used.get_seq_length() == 12
    assert (prefix.cache.get_seq_length(), kept.get_seq_length()) == (11, 11)
    assert all(torch.equal(now, then) for now, then in zip(tensors(prefix.cache), before, strict=True))
    assert all(torch.equal(now[:1], then) for now, then in zip(tensors(kept), before, strict=True) if then.dim())


def test_a_window_keeps_its_length_and_what_is_left_of_its_tokens(tiny_folder: TinyFolder) -> None:
    fork = fork_cache(run_prefix(tiny_folder("gemma3"), 40).cache, 2).cache
    assert [layer.keys.shape for layer in fork.layers] == [(2, 2, 15, 16), (2, 2, 40, 16), (2, 2, 15, 16)]
    assert [layer.get_seq_length() for layer in fork.layers] == [40, 40, 40]


def test_index_keys_of_sparse_attention_are_forked_along_their_own_dimension() -> None:
    layer = DynamicIndexedLayer()
    keys, index_keys, positions = torch.randn(1, 2, 5, 4), torch.randn(1, 5, 3), torch.arange(15).view(3, 1, 5)
    layer.update(keys, keys + 1)
    layer.update_indexer(index_keys)
    layer.indexer_position_ids = positions
    cache = DynamicCache()
    cache.layers = [layer]
    fork = fork_cache(cache, 2)
    (twin,) = fork.cache.layers
    assert fork.unknown == ()
    assert torch.equal(twin.values, (keys + 1).repeat(2, 1, 1, 1))
    assert torch.equal(twin.indexer_keys, index_keys.repeat(2, 1, 1))
    assert torch.equal(twin.indexer_position_ids, positions.repeat(1, 2, 1))
    assert cache_bytes(cache) == 4 * (40 + 40 + 15) + 8 * 15


def test_unknown_tensors_of_batch_one_are_forked_and_named() -> None:
    source = torch.arange(6.0).view(1, 2, 3)
    layer = SimpleNamespace(memory=source, states={"a": [source + 1], "b": None}, kernel=4, name="x")
    cache = FakeCache(layer, linear_cache=[[], source + 2], keys=torch.zeros(()))
    fork = fork_cache(cache, 4)
    (twin,) = fork.cache.layers
    assert fork.unknown == ("memory", "states", "linear_cache")
    assert torch.equal(twin.memory, source.repeat(4, 1, 1))
    assert torch.equal(twin.states["a"][0], (source + 1).repeat(4, 1, 1))
    assert torch.equal(fork.cache.linear_cache[1], (source + 2).repeat(4, 1, 1))
    assert (twin.states["b"], twin.kernel, twin.name, fork.cache.linear_cache[0]) == (None, 4, "x", [])
    twin.memory.zero_()
    assert source.sum() == 15
    assert cache_bytes(cache) == 3 * 24 + 4


def test_a_tensor_under_two_names_stays_one_and_counts_once() -> None:
    both = torch.ones(1, 2)
    layer = SimpleNamespace(keys=both, values=both)
    fork = fork_cache(FakeCache(layer, layer), 2).cache
    assert fork.layers[0].keys is fork.layers[0].values
    assert fork.layers[0] is fork.layers[1]
    assert cache_bytes(FakeCache(layer)) == 8


def test_scalars_and_empty_tensors_are_copied() -> None:
    layer = SimpleNamespace(cumulative_length=torch.tensor(7), keys=torch.empty(0))
    (twin,) = fork_cache(FakeCache(layer), 2).cache.layers
    twin.cumulative_length.add_(1)
    assert (int(layer.cumulative_length), int(twin.cumulative_length)) == (7, 8)
    assert twin.keys.shape == (0,)


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        (FakeCache(SimpleNamespace(table=torch.zeros(2, 3))), r"'table' of shape \(2, 3\), which is no batch of 1"),
        (FakeCache(SimpleNamespace(keys=torch.zeros(2, 3))), r"'keys' of shape \(2, 3\), which is no batch of 1"),
        (FakeCache(SimpleNamespace(store=SimpleNamespace())), "'store' of type 'SimpleNamespace', which cannot"),
        (FakeCache(SimpleNamespace(ids={1, 2})), "'ids' of type 'set', which cannot"),
        (SimpleNamespace(), "type 'SimpleNamespace' has no list of layers"),
        (((torch.zeros(1), torch.zeros(1)),), "type 'tuple' has no list of layers"),
    ],
)
def test_what_cannot_be_read_is_refused(cache: object, message: str) -> None:
    with pytest.raises(EngineError, match=f"{message}.*; run full rows$"):
        fork_cache(cache, 2)
