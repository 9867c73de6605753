"""Which precision a CPU multiplies fastest, by a measurement of milliseconds.

It refuses to know models. Trap: bfloat16 is several times slower than float32 on processors without instructions for
it, and nothing says so but a clock.
"""

from __future__ import annotations

import time

import torch

from decider.run.device import Pick

# About the largest product of a 135-million-parameter model on a 256-token row.
_ROWS, _IN, _OUT = 256, 576, 3072
_RUNS = 5
# bfloat16 changes answers that are close, so it must be worth it.
LEAST_GAIN = 1.3
MOVES = "it moves probabilities, by up to 0.10 among 6,666 decisions of a small model; --dtype float32 does not"
"""Measured: docs/log.md."""


def pick_cpu_dtype() -> Pick:
    """`bfloat16` where its products take less than 1 / `LEAST_GAIN` of float32's time, else `float32`."""
    float32_ms, bfloat16_ms = (_product_ms(dtype) for dtype in (torch.float32, torch.bfloat16))
    measured = f"measured: {_ROWS} × {_IN} × {_OUT} takes {bfloat16_ms:.1f} ms in bfloat16, {float32_ms:.1f} in float32"
    if LEAST_GAIN * bfloat16_ms < float32_ms:
        return Pick("dtype", "bfloat16", f"{measured}; {MOVES}")
    return Pick("dtype", "float32", measured)


@torch.inference_mode()
def _product_ms(dtype: torch.dtype) -> float:
    x, weight = torch.ones(_ROWS, _IN, dtype=dtype), torch.ones(_OUT, _IN, dtype=dtype)
    torch.nn.functional.linear(x, weight)
    times = []
    for _ in range(_RUNS):
        began = time.perf_counter()
        torch.nn.functional.linear(x, weight)
        times.append(1e3 * (time.perf_counter() - began))
    # The least, not the median: what else the machine does only ever adds.
    return min(times)
