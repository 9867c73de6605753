"""How far FP8 may be from exact arithmetic, from the format alone.

Refuses to look at results. Trap: e4m3 has few exponents, so small values are off by a part of the scale, not of
themselves.
"""

from __future__ import annotations

from torch import Tensor

from decider.ops.fp8 import quantise_rows

# Three mantissa bits: a normal number is off by at most 2⁻⁴ of itself, a subnormal one by half of their step, 2⁻⁹.
UNIT = 2.0**-4
LEAST_STEP = 2.0**-10
# bfloat16 has 8 bits of precision.
BFLOAT16_UNIT = 2.0**-8
# Each factor of a term is off by at most a uniform ±2⁻⁴, independently of the others, and so the standard deviation of
# a sum of such terms is at most √(2/3) · 2⁻⁴ of its own.
RELATIVE_RMS = (2.0 / 3.0) ** 0.5 * UNIT


def rounding(values: Tensor, scales: Tensor) -> Tensor:
    """Largest |codes · scale − values|, float64 [rows, features]; float32 steps on the way are within the 0.1 %."""
    return (UNIT * values.double().abs() + LEAST_STEP * scales.double()) * 1.001


def product(inputs: Tensor, weight: Tensor, *, sums: float = 2.0**-12) -> Tensor:
    """Largest error of inputs [rows, in] · weightᵀ [in, out] in FP8, rounded to bfloat16; float64 [rows, out].

    `sums` is the error of adding up, relative to the sum of magnitudes: 1,024 additions in float32 by default.
    """
    a, w = inputs.double().abs(), weight.double().abs()
    a_off, w_off = rounding(inputs, quantise_rows(inputs)[1]), rounding(weight, quantise_rows(weight)[1])
    error = a_off @ w.t() + (a + a_off) @ w_off.t() + sums * ((a + a_off) @ (w + w_off).t())
    return error + BFLOAT16_UNIT * ((inputs.double() @ weight.double().t()).abs() + error)
