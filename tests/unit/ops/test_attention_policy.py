"""The choice of SDPA back ends and how it is pinned. torch has the flags on every machine, so no card is needed.

Refuses to compute any attention. Trap: the flags are the process's; a test that leaves one behind changes the next.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from decider.ops.attention import AttentionPolicy, attention_policy

HALF = attention_policy(torch.device("cuda:0"), torch.bfloat16, single_key_head=False)
SINGLE = attention_policy(torch.device("cuda"), torch.float32, single_key_head=False)


NAMES = {
    "flash": "flash",
    "memory-efficient": "mem_efficient",
    "math": "math",
    "cudnn": "cudnn",
    "other": "overrideable",
}


def flags() -> dict[str, bool]:
    return {name: getattr(torch._C, f"_get_{flag}_sdp_enabled")() for name, flag in NAMES.items()}


def order() -> list[SDPBackend]:
    return [SDPBackend(number) for number in torch._C._get_sdp_priority_order()]


def state() -> tuple[dict[str, bool], list[SDPBackend]]:
    return flags(), order()


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = state()
    yield
    assert state() == before


@pytest.mark.parametrize(
    ("device", "dtype", "value", "words"),
    [
        ("cuda:0", torch.bfloat16, "flash, memory-efficient, math", "never cuDNN"),
        ("cuda:1", torch.float16, "flash, memory-efficient, math", "masked"),
        ("cuda:0", torch.float32, "memory-efficient, math", "flash takes no float32"),
        ("cuda:0", torch.float64, "math", "float64"),
        ("cpu", torch.float32, "torch's own choice", "on cpu"),
        ("mps", torch.float16, "torch's own choice", "on mps"),
    ],
)
def test_the_choice_and_its_reason(device: str, dtype: torch.dtype, value: str, words: str) -> None:
    policy = attention_policy(torch.device(device), dtype, single_key_head=False)
    assert policy.value == value
    assert words in policy.reason
    assert SDPBackend.CUDNN_ATTENTION not in policy.backends


@pytest.mark.parametrize("policy", [HALF, SINGLE], ids=["half", "single"])
def test_pins_its_back_ends_in_its_order(policy: AttentionPolicy) -> None:
    assert flags()["cudnn"]
    with policy.pinned():
        assert flags() == {name: name in policy.value.split(", ") for name in flags()}
        assert tuple(order()[: len(policy.backends)]) == policy.backends


@pytest.mark.parametrize(
    ("dtype", "value"), [(torch.bfloat16, "flash, math"), (torch.float16, "flash, math"), (torch.float32, "math")]
)
def test_a_single_key_head_does_without_the_kernel_that_is_wrong_for_it(dtype: torch.dtype, value: str) -> None:
    policy = attention_policy(torch.device("cuda:0"), dtype, single_key_head=True)
    assert policy.value == value
    assert "single key head" in policy.reason


def fail(policy: AttentionPolicy) -> None:
    with policy.pinned():
        assert flags()["flash"] is (policy is HALF)
        raise ValueError("a fault")


@pytest.mark.parametrize("policy", [HALF, SINGLE], ids=["half", "single"])
def test_restores_after_an_exception(policy: AttentionPolicy) -> None:
    before = state()
    with pytest.raises(ValueError, match="a fault"):
        fail(policy)
    assert state() == before


def test_restores_what_someone_else_had_set() -> None:
    # Flash is off but stays first in the order, which `sdpa_kernel` alone would not bring back.
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]):
        before = state()
        with HALF.pinned():
            assert not flags()["cudnn"]
        assert state() == before


def test_the_innermost_policy_counts_and_the_outer_one_returns() -> None:
    with HALF.pinned():
        outer = state()
        with SINGLE.pinned():
            assert not flags()["flash"]
            with HALF.pinned():
                assert state() == outer
        assert state() == outer


def test_two_threads_exclude_each_other() -> None:
    entered, seen = threading.Event(), []

    def other() -> None:
        with SINGLE.pinned():
            seen.append(flags()["flash"])
            entered.set()

    thread = threading.Thread(target=other)
    with HALF.pinned():
        thread.start()
        assert not entered.wait(0.2)
        assert flags()["flash"]
    thread.join(10)
    assert seen == [False]


def test_many_threads_never_see_another_policy() -> None:
    faults: list[object] = []

    def work(policy: AttentionPolicy) -> None:
        for _ in range(200):
            with policy.pinned():
                if flags()["flash"] != (policy is HALF):
                    faults.append(flags())

    threads = [threading.Thread(target=work, args=(policy,)) for policy in (HALF, SINGLE) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert faults == []


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_without_a_card_nothing_is_pinned_and_nobody_waits(device: str) -> None:
    policy = attention_policy(torch.device(device), torch.float32, single_key_head=True)
    before, entered = state(), threading.Event()

    def other() -> None:
        with policy.pinned():
            entered.set()

    thread = threading.Thread(target=other)
    with policy.pinned(), HALF.pinned():
        # Not even for one who holds the lock.
        thread.start()
        assert entered.wait(10)
        thread.join(10)
    with policy.pinned():
        assert state() == before
