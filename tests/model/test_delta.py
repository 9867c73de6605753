"""The gated delta rule by block inverse: against its definition, against transformers, and in whole models.

Refuses to judge speed. Trap: gates near the middle of their range hide faults of padding, masks and large sums; so
the cases run with gates that forget almost nothing, almost everything, and both in turn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from prefix_rows import load_tiny, make_rows, one_thread, true_float64
from torch import Tensor, nn
from transformers.models.qwen3_5 import modeling_qwen3_5

from decider.errors import EngineError
from decider.model.load import LoadedModel
from decider.ops.delta import chunk_gated_delta_rule, unit_lower_inverse, use_block_inverse
from decider.run.prefix.cache import cached_decoder
from decider.run.prefix.fork import fork_cache

TinyFolder = Callable[[str], Path]

# Of hidden states, up to some 3, in float64; the weights of the tiny models are large and blow rounding up.
MODEL_BOUND = 1e-11
# A chunk holds 64 tokens.
LENGTHS = (1, 2, 33, 63, 64, 65, 128, 200)
DECAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "usual": lambda noise: -nn.functional.softplus(noise),
    "keeps all": lambda noise: -1e-6 * noise.abs(),
    "keeps nothing": lambda noise: -1e4 * (1 + noise.abs()),
    "a large step before small ones": lambda noise: torch.where(noise > 1, -1e4, -1e-3) * noise.abs(),
}


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with one_thread(), torch.inference_mode():
        yield


def inputs(
    tokens: int, *, key_heads: int = 4, value_heads: int = 4, decay: str = "usual", seed: int = 0
) -> dict[str, Any]:
    """Two rows in float64; keys of 8, values of 12."""
    random = torch.Generator().manual_seed(seed + tokens)

    def normal(*shape: int) -> Tensor:
        return torch.randn(2, tokens, *shape, generator=random, dtype=torch.float64)

    beta = normal(value_heads).mul(3).sigmoid()
    # The two ends of its range: nothing is written, the old value is replaced as a whole.
    beta[:, ::5], beta[:, 1::5] = 0, 1
    return {
        "query": normal(key_heads, 8),
        "key": normal(key_heads, 8),
        "value": normal(value_heads, 12),
        "g": DECAYS[decay](normal(value_heads)),
        "beta": beta,
    }


def old_state(heads: int = 4) -> Tensor:
    return torch.randn(2, heads, 8, 12, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def by_definition(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, state: Tensor | None, normed: bool
) -> tuple[Tensor, Tensor]:
    """One token after the other, one head after the other, one row after the other."""
    rows, tokens, value_heads, value_dim = value.shape
    per_key = value_heads // key.shape[2]
    output = torch.zeros_like(value)
    last = value.new_zeros(rows, value_heads, key.shape[3], value_dim) if state is None else state.clone()
    for row in range(rows):
        for head in range(value_heads):
            for token in range(tokens):
                q, k = query[row, token, head // per_key], key[row, token, head // per_key]
                if normed:
                    q, k = (each / (each.square().sum() + 1e-6).sqrt() for each in (q, k))
                held = last[row, head] * g[row, token, head].exp()
                missing = value[row, token, head] - held.T @ k
                last[row, head] = held + beta[row, token, head] * torch.outer(k, missing)
                output[row, token, head] = last[row, head].T @ q / key.shape[3] ** 0.5
    return output, last


def furthest(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    assert ours.isfinite().all()
    return float((ours - theirs).abs().max())


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16, 32, 64])
def test_the_inverse_of_blocks_is_the_inverse(n: int) -> None:
    system = torch.randn(3, 2, n, n, dtype=torch.float64) / n**0.5
    # What is not strictly below the diagonal must not be read.
    inverse = unit_lower_inverse(system.tril(-1) + torch.full_like(system, torch.nan).triu())
    eye = torch.eye(n, dtype=torch.float64)
    assert furthest((system.tril(-1) + eye) @ inverse, eye.expand_as(system)) <= 1e-12
    assert torch.equal(inverse.triu(1), torch.zeros_like(inverse))


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("tokens", LENGTHS)
def test_equals_the_definition_in_float64(tokens: int, decay: str) -> None:
    given = inputs(tokens, decay=decay)
    # Keys that are not normed are shortened, or the rule itself grows without bound.
    for normed, shrink, state in ((True, 1.0, old_state()), (True, 1.0, None), (False, 0.2, old_state())):
        given["key"] = given["key"] * shrink
        output, last = by_definition(**given, state=state, normed=normed)
        ours, ours_last = chunk_gated_delta_rule(
            **given, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=normed
        )
        assert ours_last is not None
        assert furthest(ours, output) <= 1e-12
        assert furthest(ours_last, last) <= 1e-12


@pytest.mark.parametrize("tokens", [1, 65])
def test_a_key_head_serves_its_value_heads_in_a_row(tokens: int) -> None:
    given = inputs(tokens, key_heads=2, value_heads=6)
    output, last = by_definition(**given, state=old_state(6), normed=True)
    ours, ours_last = chunk_gated_delta_rule(
        **given, initial_state=old_state(6), output_final_state=True, use_qk_l2norm_in_kernel=True
    )
    assert ours_last is not None
    assert furthest(ours, output) <= 1e-12
    assert furthest(ours_last, last) <= 1e-12


@pytest.mark.parametrize("decay", DECAYS)
def test_float32_is_as_near_the_definition_as_float32_can_be(decay: str) -> None:
    given = inputs(200, decay=decay)
    output, last = by_definition(**given, state=old_state(), normed=True)
    narrow = {name: tensor.float() for name, tensor in given.items()}
    ours, ours_last = chunk_gated_delta_rule(
        **narrow, initial_state=old_state().float(), output_final_state=True, use_qk_l2norm_in_kernel=True
    )
    assert ours_last is not None
    assert ours.dtype == ours_last.dtype == torch.float32
    assert furthest(ours.double(), output) <= 5e-6
    assert furthest(ours_last.double(), last) <= 5e-6


@pytest.mark.parametrize("tokens", LENGTHS)
@pytest.mark.parametrize("normed", [True, False])
def test_equals_transformers_in_float32(tokens: int, normed: bool) -> None:
    given = {name: tensor.float() for name, tensor in inputs(tokens).items()}
    if not normed:
        given["key"] = given["key"] * 0.2
    for state in (None, old_state().float()):
        arguments: dict[str, Any] = {"initial_state": state, "use_qk_l2norm_in_kernel": normed, "cu_seqlens": None}
        ours, last = chunk_gated_delta_rule(**given, **arguments, output_final_state=True)
        theirs, their_last = modeling_qwen3_5.torch_chunk_gated_delta_rule(
            **given, **arguments, output_final_state=True
        )
        assert last is not None
        assert last.dtype == their_last.dtype
        assert furthest(ours, theirs) <= 5e-6
        assert furthest(last, their_last) <= 5e-6
        assert chunk_gated_delta_rule(**given, **arguments)[1] is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_computed_in_float32(dtype: torch.dtype) -> None:
    given = {name: tensor.to(dtype) for name, tensor in inputs(100).items()}
    wide, wide_last = chunk_gated_delta_rule(
        **{name: tensor.float() for name, tensor in given.items()},
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    ours, last = chunk_gated_delta_rule(**given, output_final_state=True, use_qk_l2norm_in_kernel=True)
    assert last is not None
    assert wide_last is not None
    assert torch.equal(ours, wide.to(dtype))
    assert torch.equal(last, wide_last)


def test_leaves_its_inputs_alone() -> None:
    given, state = inputs(70), old_state()
    kept = {name: tensor.clone() for name, tensor in given.items()}
    chunk_gated_delta_rule(**given, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True)
    assert all(torch.equal(given[name], kept[name]) for name in given)
    assert torch.equal(state, old_state())


def test_refuses_what_would_change_the_result() -> None:
    given = inputs(3)
    chunk_gated_delta_rule(**given, cu_seqlens=None, use_cache=True, position_ids=torch.arange(3))
    with pytest.raises(EngineError, match="cu_seqlens"):
        chunk_gated_delta_rule(**given, cu_seqlens=torch.tensor([0, 1, 3]))
    with pytest.raises(EngineError, match="scale"):
        chunk_gated_delta_rule(**given, scale=1.0)


def loaded_pair(folder: Path, dtype: str) -> tuple[LoadedModel, LoadedModel]:
    """A tiny hybrid model as transformers runs it, and a twin with the block inverse in its three layers."""
    plain, _ = load_tiny(folder, "eager", dtype)
    twin = replace(plain, module=copy.deepcopy(plain.module))
    assert use_block_inverse(twin.module) == 3
    return plain, twin


def full_rows(loaded: LoadedModel, ids: Tensor) -> Tensor:
    hidden: Tensor = loaded.module.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    return hidden


def behind_a_cache(loaded: LoadedModel, ids: Tensor, n_prefix: int) -> Tensor:
    """The first `n_prefix` tokens of the first row once, forked for every row's suffix."""
    decoder = cached_decoder(loaded)
    prefix = decoder.run_prefix(ids[:1, :n_prefix])
    return decoder.run_suffixes(ids[:, n_prefix:], fork_cache(prefix.cache, ids.shape[0]).cache, n_prefix)


def long_ids(tokens: int, rows: int = 2) -> Tensor:
    return torch.tensor([row.ids for row in make_rows(tokens - 1, (1,) * rows, seed=tokens)])


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 200])
def test_a_whole_model_gives_the_same(tiny_folder: TinyFolder, tokens: int) -> None:
    plain, twin = loaded_pair(tiny_folder("qwen3_5"), "float64")
    with true_float64():
        assert furthest(full_rows(twin, long_ids(tokens)), full_rows(plain, long_ids(tokens))) <= MODEL_BOUND


def test_a_whole_float32_model_is_no_further_from_the_truth(tiny_folder: TinyFolder) -> None:
    plain, twin = loaded_pair(tiny_folder("qwen3_5"), "float32")
    with true_float64():
        truth = full_rows(load_tiny(tiny_folder("qwen3_5"), "eager", "float64")[0], long_ids(200, rows=8))
    ours, theirs = (full_rows(loaded, long_ids(200, rows=8)).double() for loaded in (twin, plain))
    # Of all values: the furthest one is a matter of luck.
    assert (ours - truth).square().mean() <= 1.1 * (theirs - truth).square().mean() <= 1e-8


@pytest.mark.parametrize("n_prefix", [1, 2, 5, 63, 64, 65, 130])
def test_suffixes_behind_a_cache_give_the_same(tiny_folder: TinyFolder, n_prefix: int) -> None:
    plain, twin = loaded_pair(tiny_folder("qwen3_5"), "float64")
    with true_float64():
        for suffix in (1, 2, 70):
            ids = torch.tensor([row.ids for row in make_rows(n_prefix, (suffix, suffix), seed=suffix)])
            ours = behind_a_cache(twin, ids, n_prefix)
            assert furthest(ours, behind_a_cache(plain, ids, n_prefix)) <= MODEL_BOUND
            assert furthest(ours, full_rows(twin, ids)[:, n_prefix:]) <= MODEL_BOUND


def test_other_models_and_other_families_stay_as_they_are(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, twin = loaded_pair(tiny_folder("qwen3_5"), "float32")
    calls: list[int] = []
    original = modeling_qwen3_5.torch_chunk_gated_delta_rule

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(modeling_qwen3_5, "torch_chunk_gated_delta_rule", counted)
    ids = torch.arange(10).unsqueeze(0)
    full_rows(twin, ids)
    assert calls == []
    full_rows(plain, ids)
    assert len(calls) == 3
    assert use_block_inverse(copy.deepcopy(load_tiny(tiny_folder("qwen3"), "eager", "float32")[0].module)) == 0
