"""Which kernels torch's scaled dot product attention (SDPA) may take, in which order, and why; pinned for a while.

It refuses to know models and engines. A captured graph keeps the kernels it was captured with, so the policy is pinned
round captures, compilations and eager forwards, not round replays.

Trap: torch keeps the choice in flags of the process. While `pinned` is active on CUDA, the threads of other libraries
compute under our flags too; engines of ours wait for each other.

What transformers 5.17 and 5.24 hand to SDPA (`integrations/sdpa_attention.py`), which decides what may serve it:

- Without a mask: rows with as many queries as keys, causal by `is_causal`; a single query behind a cache, not causal.
  Up to a head size of 256 the keys of grouped heads are handed over as they are (`enable_gqa`). Flash attention takes
  that. The memory-efficient kernel knows no grouped heads, so in float32 such rows go to math.
- With a mask: several queries behind a cache, and sliding windows once a row is as long as the window. Flash attention
  takes no mask. During stream capture 5.17 makes one for every row; 5.24 does not.
- With a mask and grouped heads, `repeat_kv` expands the keys and reshapes them. From two key heads on, that copies. A
  single key head becomes a view of stride 0 over the heads, and for that layout the memory-efficient kernel is wrong at
  some numbers of keys, 513 for one (pytorch #191937; seen in bfloat16 and float32 with torch 2.11 on an H200). Such
  models do without that kernel. For a single query 5.24 folds the heads into the queries instead.
- A forked cache is copied row by row, so no stride over the rows is 0.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

_NAMES = {
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "memory-efficient",
    SDPBackend.MATH: "math",
}

_NEVER_CUDNN = "never cuDNN, which on some cards is wrong for masked attention with fewer queries than keys"

# One policy at a time in a process, because the flags are the process's.
_PINNED = threading.RLock()


@dataclass(frozen=True, slots=True)
class AttentionPolicy:
    """The SDPA back ends that are allowed, first choice first, and why."""

    backends: tuple[SDPBackend, ...]
    """Empty: torch's own choice."""
    reason: str

    @property
    def value(self) -> str:
        """The back ends in words."""
        return ", ".join(_NAMES[backend] for backend in self.backends) or "torch's own choice"

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Within it, SDPA takes the first of these back ends that can serve a call; afterwards all is as before.

        Where there is something to pin it holds a lock of the whole process, which its thread may take again, also for
        another policy: the innermost one counts. Hold no lock that a thread inside could wait for. Nothing is pinned,
        and no lock is held, where the choice is torch's own.
        """
        if not self.backends:
            yield
            return
        with _PINNED:
            # `sdpa_kernel` forgets the place of a back end that was switched off before.
            order = torch._C._get_sdp_priority_order()
            try:
                with sdpa_kernel(list(self.backends), set_priority=True):
                    yield
            finally:
                torch._C._set_sdp_priority_order(order)


def attention_policy(device: torch.device, dtype: torch.dtype, *, single_key_head: bool) -> AttentionPolicy:
    """The policy for SDPA calls in `dtype` on `device`.

    `single_key_head`: in some layer all heads share one head of keys and values.
    """
    if device.type != "cuda":
        return AttentionPolicy(
            (), f"on {device.type} torch has one fused kernel and no cuDNN; nothing to keep away from"
        )
    if single_key_head:
        fast = (SDPBackend.FLASH_ATTENTION,) if dtype in (torch.float16, torch.bfloat16) else ()
        return AttentionPolicy(
            (*fast, SDPBackend.MATH),
            "the model has a single key head, expanded without a copy, for which the memory-efficient kernel is wrong; "
            f"{_NEVER_CUDNN}",
        )
    if dtype in (torch.float16, torch.bfloat16):
        return AttentionPolicy(
            (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH),
            f"flash for rows without a mask, memory-efficient for masked ones, math for the rest; {_NEVER_CUDNN}",
        )
    if dtype == torch.float32:
        return AttentionPolicy(
            (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH),
            f"memory-efficient, but math for grouped heads without a mask; flash takes no float32; {_NEVER_CUDNN}",
        )
    return AttentionPolicy((SDPBackend.MATH,), f"no other back end takes {str(dtype).removeprefix('torch.')}")
