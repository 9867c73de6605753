"""When a shared prefix is used, when it declines, how it chunks, and what it counts.

Refuses to repeat the comparison with full rows, which `test_prefix_answers` makes. Trap: a call that declines without
need looks right to every comparison of answers; so each test says which way it expects.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from prefix_rows import load_tiny, make_rows, one_thread
from torch import Tensor

from decider.errors import ConfigError, EngineError
from decider.plan.cost import CostModel
from decider.plan.sharing import PrefixCost
from decider.run.prefix import prices
from decider.run.prefix import shared as shared_module
from decider.run.prefix.cache import CACHE_NAMES, CachedDecoder, Prefix, cached_decoder
from decider.run.prefix.groups import common_prefix, prefix_groups
from decider.run.prefix.prices import fit
from decider.run.prefix.shared import PrefixLimits, SharedPrefix
from decider.run.stats import GridStats
from decider.tokens.rows import Row

TinyFolder = Callable[[str], Path]
CHEAP = CostModel(1e-3, 1e-6)
DEAR = CostModel(10.0, 10.0)


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with one_thread():
        yield


def make_shared(folder: Path, limits: PrefixLimits | None = None) -> SharedPrefix:
    return SharedPrefix(*load_tiny(folder, "sdpa", "float32"), limits or PrefixLimits(min_prefix_tokens=8))


def row(*ids: int, prefix: int) -> Row:
    return Row(ids, (len(ids) - 1,), (2,), prefix)


def test_the_common_prefix_ends_at_the_shortest_or_at_the_first_difference() -> None:
    assert common_prefix([]) == 0
    assert common_prefix([row(1, 2, 3, prefix=2)]) == 2
    assert common_prefix([row(1, 2, 3, 4, prefix=3), row(1, 2, 3, 5, prefix=2)]) == 2
    assert common_prefix([row(1, 2, 3, 4, prefix=3), row(1, 9, 3, 4, prefix=3)]) == 1
    assert common_prefix([row(8, 2, 3, 4, prefix=3), row(1, 2, 3, 4, prefix=3)]) == 0


@given(st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=12), st.integers(0, 11)), min_size=1))
def test_the_common_prefix_is_the_longest_there_is(drawn: list[tuple[list[int], int]]) -> None:
    rows = [row(*ids, prefix=min(prefix, len(ids) - 1)) for ids, prefix in drawn]
    most = min(each.prefix_tokens for each in rows)
    lengths = [n for n in range(most + 1) if len({each.ids[:n] for each in rows}) == 1]
    assert common_prefix(rows) == max(lengths)


def test_groups_are_neighbours_with_the_whole_reusable_start_in_common() -> None:
    alike = [row(1, 2, 3, 4, prefix=3), row(1, 2, 3, 5, prefix=3)]
    assert prefix_groups([], 1) == []
    assert prefix_groups(alike, 3) == [range(2)]
    assert prefix_groups(alike, 4) == []
    assert prefix_groups([*alike, row(1, 2, 4, 4, prefix=3), row(1, 2, 4, 5, prefix=3)], 1) == [range(2), range(2, 4)]
    assert prefix_groups([alike[0], row(1, 2, 3, 5, prefix=2), alike[1]], 1) == []


def test_declines_one_row_a_short_prefix_and_nothing_shared(tiny_folder: TinyFolder) -> None:
    shared = make_shared(tiny_folder("llama"))
    rows = make_rows(20, (3, 4))
    strangers = [rows[0], *make_rows(20, (3,), seed=1)]
    for declined, reason in (
        ([], "one row shares"),
        (rows[:1], "one row shares"),
        (strangers, "common prefix of 0 tokens"),
    ):
        assert shared.label_logits(declined, gate=False) is None
        assert reason in str(shared.why_not(declined, gate=False))
    shared.set_cost(PrefixCost(full=DEAR, prefix=CHEAP, suffix=CHEAP, fork=CHEAP))
    short = make_rows(7, (3, 4))
    assert "common prefix of 7 tokens is below min_prefix_tokens" in str(shared.why_not(short))
    assert shared.label_logits(short) is None
    assert shared.why_not(short, gate=False) is None
    assert shared.why_not(make_rows(8, (3, 4))) is None
    assert shared.stats == GridStats(declined_calls=4)


def test_the_gate_decides_by_price_and_declines_before_prices_are_known(tiny_folder: TinyFolder) -> None:
    shared = make_shared(tiny_folder("llama"))
    rows = make_rows(20, (3, 4))
    assert shared.label_logits(rows) is None
    assert shared.why_not(rows) == "prices are not measured yet"
    shared.set_cost(PrefixCost(full=DEAR, prefix=CHEAP, suffix=CHEAP, fork=CHEAP))
    assert shared.label_logits(rows) is not None
    assert shared.label_logits(rows, full_ms=1e-9) is None
    shared.set_cost(PrefixCost(full=CHEAP, prefix=DEAR, suffix=DEAR, fork=DEAR))
    assert shared.why_not(rows) == "full rows are faster"
    assert shared.label_logits(rows) is None
    assert shared.label_logits(rows, full_ms=1e9) is not None
    assert shared.label_logits(rows, gate=False) is not None
    assert (shared.stats.shared_calls, shared.stats.declined_calls) == (3, 3)


def test_the_gate_counts_every_forward_of_the_suffixes(tiny_folder: TinyFolder) -> None:
    rows = make_rows(20, (4, 4, 4))
    suffix = CostModel(100.0, 1e-6)
    cost = PrefixCost(full=CHEAP, prefix=CHEAP, suffix=suffix, fork=CHEAP)
    for limits, chosen in ((PrefixLimits(8), True), (PrefixLimits(8, suffix_tokens=4), False)):
        shared = make_shared(tiny_folder("llama"), limits)
        shared.set_cost(cost)
        assert (shared.label_logits(rows, full_ms=200.0) is not None) == chosen


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_measured_prices_are_prices_of_this_model(tiny_folder: TinyFolder, family: str) -> None:
    shared = make_shared(tiny_folder(family))
    full = CostModel(1.0, 1e-4)
    shared.measure(full)
    cost = shared.cost
    assert cost is not None
    assert cost.full == full
    assert cost.prefix.launch_ms + 128 * cost.prefix.token_ms > 0.05
    assert min(cost.prefix.token_ms, cost.suffix.token_ms) >= full.token_ms
    rows = make_rows(20, (3, 4))
    assert shared.why_not(rows, full_ms=1e9) is None
    assert shared.why_not(rows, full_ms=1e-6) == "full rows are faster"


@pytest.mark.parametrize(
    ("full_token_ms", "prefix", "suffix_token_ms"),
    # A full row's token is the least that any token costs, and the launch takes what is left of the long run.
    [(0.1, CostModel(3.0, 0.6), 0.5), (0.55, CostModel(3.0, 0.6), 0.55), (0.61, CostModel(1.72, 0.61), 0.61)],
)
def test_measured_prices_are_those_that_were_timed(
    tiny_folder: TinyFolder,
    monkeypatch: pytest.MonkeyPatch,
    full_token_ms: float,
    prefix: CostModel,
    suffix_token_ms: float,
) -> None:
    clock = [0.0]

    class Timed(CachedDecoder):
        def run_prefix(self, ids: Tensor) -> Prefix:
            clock[0] += 3 + 0.6 * ids.shape[1]
            return Prefix(SimpleNamespace(layers=[]), ids.shape[1], 1)

        def run_suffixes(self, ids: Tensor, cache: object, n_prefix: int) -> Tensor:  # noqa: ARG002
            clock[0] += 10 + ids.shape[0] * (2 + 0.01 * n_prefix + 0.5 * ids.shape[1])
            return ids

    def milliseconds(_: torch.device, work: Callable[[], object]) -> float:
        before = clock[0]
        work()
        return clock[0] - before

    monkeypatch.setattr(prices, "milliseconds", milliseconds)
    full = CostModel(1.0, full_token_ms)
    cost = prices.measure_prices(Timed(load_tiny(tiny_folder("llama"), "sdpa", "float32")[0], "cache", True), full)
    assert cost.full == full
    for found, wanted in (
        (cost.prefix, prefix),
        (cost.fork, CostModel(2.0, 0.01)),
        (cost.suffix, CostModel(10.0, suffix_token_ms)),
    ):
        assert (found.launch_ms, found.token_ms) == pytest.approx((wanted.launch_ms, wanted.token_ms))


def test_a_fit_finds_the_prices_that_made_its_points() -> None:
    points = [(1, 32, 8), (4, 32, 8), (4, 256, 8), (4, 32, 32)]
    timed = [10 + n_rows * (2 + 0.01 * prefix + 0.5 * suffix) for n_rows, prefix, suffix in points]
    fork, suffix_price = fit(points, timed)
    assert (fork.launch_ms, fork.token_ms) == pytest.approx((2, 0.01))
    assert (suffix_price.launch_ms, suffix_price.token_ms) == pytest.approx((10, 0.5))
    noisy, _ = fit(points, [30.0, 20.0, 20.0, 20.0])
    assert noisy.launch_ms > 0


def test_bytes_and_free_memory_bound_a_fork(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_folder("llama")
    rows = make_rows(20, (5, 5, 5, 5, 5))
    # Two layers of keys and values, 2 heads of 16, float32.
    row_bytes = (20 + 5) * 2 * 2 * 2 * 16 * 4
    want = make_shared(folder).label_logits(rows, gate=False)
    assert want is not None
    for fork_bytes, forwards in ((row_bytes, 5), (2 * row_bytes + 1, 3), (5 * row_bytes, 1)):
        shared = make_shared(folder, PrefixLimits(8, fork_bytes=fork_bytes))
        got = shared.label_logits(rows, gate=False)
        assert got is not None
        assert shared.stats.shared_forwards == 1 + forwards
        assert all(np.allclose(one, other, atol=1e-4) for one, other in zip(got, want, strict=True))
    small = make_shared(folder, PrefixLimits(8, fork_bytes=row_bytes - 1))
    assert small.label_logits(rows, gate=False) is None
    assert "does not fit the budget" in str(small.why_not(rows, gate=False))
    monkeypatch.setattr(shared_module, "free_bytes", lambda _: 4 * row_bytes)
    half = make_shared(folder)
    assert half.label_logits(rows, gate=False) is not None
    assert half.stats.shared_forwards == 4


def test_suffix_tokens_bound_a_forward_and_padding_is_counted(tiny_folder: TinyFolder) -> None:
    shared = make_shared(tiny_folder("llama"), PrefixLimits(8, suffix_tokens=12))
    assert shared.label_logits(make_rows(20, (2, 6, 13, 5)), gate=False) is not None
    assert shared.stats == GridStats(
        forwards=4,
        real_tokens=20 + 26,
        padded_tokens=20 + 13 + 12 + 2,
        shared_calls=1,
        shared_rows=4,
        shared_forwards=4,
    )


def test_answers_belong_to_the_caller(tiny_folder: TinyFolder) -> None:
    shared = make_shared(tiny_folder("llama"))
    rows = make_rows(20, (5, 5))
    first = shared.label_logits(rows, gate=False)
    assert first is not None
    kept = [one.copy() for one in first]
    assert all(one.flags.owndata for one in first)
    first[0][:] = 0
    second = shared.label_logits(rows, gate=False)
    assert second is not None
    assert all(np.array_equal(one, other) for one, other in zip(second, kept, strict=True))


def test_a_slot_inside_the_prefix_is_our_bug(tiny_folder: TinyFolder) -> None:
    rows = [replace(each, slots=(19,), n_options=(2,)) for each in make_rows(20, (3, 4))]
    with pytest.raises(AssertionError):
        make_shared(tiny_folder("llama")).label_logits(rows, gate=False)


def test_unknown_tensors_are_counted_once_a_fork(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run_prefix = CachedDecoder.run_prefix

    def with_unknown(self: CachedDecoder, ids: Tensor) -> Prefix:
        prefix = run_prefix(self, ids)
        prefix.cache.layers[1].some_new_state = torch.zeros(1, 3)
        return prefix

    monkeypatch.setattr(CachedDecoder, "run_prefix", with_unknown)
    shared = make_shared(tiny_folder("llama"), PrefixLimits(8, suffix_tokens=4))
    assert shared.label_logits(make_rows(20, (4, 4)), gate=False) is not None
    assert shared.stats.unknown_tensors == 2


def test_a_cache_that_cannot_fork_is_never_shared(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(self: CachedDecoder, ids: Tensor) -> Prefix:  # noqa: ARG001 - stands for a method
        return Prefix(SimpleNamespace(layers=[SimpleNamespace(store=object())]), ids.shape[1], 1)

    monkeypatch.setattr(CachedDecoder, "run_prefix", unreadable)
    shared = make_shared(tiny_folder("llama"))
    rows = make_rows(20, (4, 4))
    assert "'store' of type 'object', which cannot be forked" in str(shared.refusal)
    assert shared.label_logits(rows, gate=False) is None
    assert shared.why_not(rows, gate=False) == shared.refusal
    shared.measure(CHEAP)
    assert shared.cost is None


@pytest.mark.parametrize("wrong", ["positions", "mask", "nan"])
def test_a_model_that_is_wrong_behind_a_cache_is_never_shared(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    run_suffixes = CachedDecoder.run_suffixes

    def mistaken(self: CachedDecoder, ids: Tensor, cache: Any, n_prefix: int) -> Tensor:
        if wrong == "positions":
            return run_suffixes(self, ids, cache, 0)
        if wrong == "nan":
            return run_suffixes(self, ids, cache, n_prefix) * torch.nan
        # Later tokens of the prefix give nothing, as behind a mask that `is_causal` aligns top-left.
        for layer in cache.layers:
            layer.values[:, :, ids.shape[1] :] = 0
        return run_suffixes(self, ids, cache, n_prefix)

    monkeypatch.setattr(CachedDecoder, "run_suffixes", mistaken)
    shared = make_shared(tiny_folder("llama"))
    assert "of the largest logit differently behind a cached prefix" in str(shared.refusal)
    assert shared.label_logits(make_rows(20, (4, 4)), gate=False) is None


class Output(dict[str, Any]):
    """Fields by name and, as in transformers, by attribute too."""

    __getattr__ = dict.__getitem__


@pytest.mark.parametrize("name", CACHE_NAMES)
@pytest.mark.parametrize("positions", [True, False])
def test_the_cache_argument_is_found_by_its_name(tiny_folder: TinyFolder, name: str, positions: bool) -> None:
    """Versions from 5.17 on, and families, differ in it."""
    made = SimpleNamespace(layers=[SimpleNamespace(keys=torch.zeros(1, 2, 5, 4))])
    taken: list[dict[str, Any]] = []

    class Decoder:
        def forward(self, **arguments: Any) -> Output:
            taken.append(arguments)
            return Output({"last_hidden_state": arguments["input_ids"], name: made})

        __call__ = forward

    names = ("self", "input_ids", name, *(("position_ids",) if positions else ()))
    Decoder.forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(each, inspect.Parameter.POSITIONAL_OR_KEYWORD) for each in names]
    )
    loaded, _ = load_tiny(tiny_folder("llama"), "sdpa", "float32")
    module: Any = SimpleNamespace(get_decoder=Decoder)
    decoder = cached_decoder(replace(loaded, module=module))
    prefix = decoder.run_prefix(torch.zeros(1, 5, dtype=torch.int64))
    decoder.run_suffixes(torch.zeros(2, 3, dtype=torch.int64), made, 5)
    assert (prefix.cache, prefix.n_tokens, prefix.n_bytes) == (made, 5, 160)
    assert taken[1][name] is made
    assert taken[1].get("position_ids", torch.empty(0)).tolist() == ([[5, 6, 7]] if positions else [])


def test_a_decoder_without_a_cache_is_never_shared(tiny_folder: TinyFolder) -> None:
    loaded, head = load_tiny(tiny_folder("llama"), "sdpa", "float32")
    module: Any = SimpleNamespace(get_decoder=lambda: SimpleNamespace(forward=lambda input_ids: input_ids))
    stub = replace(loaded, module=module)
    with pytest.raises(EngineError, match="'tiny' \\(llama\\) takes no cache, none of cache, past_key_values"):
        cached_decoder(stub)
    assert "takes no cache" in str(SharedPrefix(stub, head, PrefixLimits()).refusal)


def test_limits_are_whole_numbers_above_zero() -> None:
    for name in ("min_prefix_tokens", "fork_bytes", "suffix_tokens"):
        for wrong in (0, -1, 1.5, True, None):
            with pytest.raises(ConfigError, match=f"^{name} is {wrong!r}; it must be a whole number of at least 1$"):
                PrefixLimits(**{name: wrong})  # type: ignore[arg-type]
