"""Linear layers in FP8: e4m3 weights scaled per output channel, activations per token, one product, bfloat16 out.

It refuses to know models; the caller says which linear layers to keep. Trap: with one scale for a tensor, an outlier
or garbage in the padding robs every other token of its bits. Here each token has its own, so that it depends on nothing
else in the batch, and the scale of a row of zeros is a small number, not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from decider.errors import DeviceError, ModelError

Quantised = tuple[Tensor, Tensor]
Quantise = Callable[[Tensor], Quantised]

E4M3 = torch.float8_e4m3fn
E4M3_MAX = 448.0
# A smaller row counts as one of this: the inverse of its scale must be finite in float32.
LEAST_AMAX = 1e-30
# Smaller linear layers gain nothing from FP8 and hold gates and other delicate things.
LEAST_FEATURES = 1024
# What `_scaled_mm` wants of both sizes of a weight.
FEATURES_MULTIPLE = 16
# The first capability whose matrix units take a scale for each row and each column.
LEAST_CAPABILITY = (9, 0)
# Sums in the matrix unit's own registers, of some 14 bits: their error is far below that of 3-bit mantissas.
FAST_ACCUMULATION = True


def quantise_rows(values: Tensor) -> Quantised:
    """values [rows, features] → (e4m3 of the same shape, float32 scales [rows, 1]), so that codes · scale ≈ values.

    The scale of a row is its largest magnitude / 448. A value that is not finite gives NaN, in its row alone.
    """
    wide = values.float()
    # torch divides by a number in one way on a CPU and in another on CUDA; products and `reciprocal` are the same.
    scales = wide.abs().amax(dim=1, keepdim=True).clamp_min(LEAST_AMAX) * (1.0 / E4M3_MAX)
    return (wide * scales.reciprocal()).to(E4M3), scales


@dataclass(frozen=True, slots=True, eq=False)
class Fp8Product:
    """x Wᵀ + b over a quantised copy of a bfloat16 weight."""

    codes: Tensor
    """e4m3 [out, in]."""
    scales: Tensor
    """float32 [1, out]."""
    bias: Tensor | None
    """bfloat16 [out]."""
    quantise: Quantise

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> Self:
        """The product with `weight` [out, in], both sizes large (`is_large`), and `bias`."""
        codes, scales = quantise_rows(weight)
        return cls(
            codes, scales.t().contiguous(), None if bias is None else bias.bfloat16(), _quantise_on(weight.device)
        )

    def __call__(self, x: Tensor | Quantised) -> Tensor:
        """[N, in], or rows that were quantised where they were made → bfloat16 [N, out]."""
        codes, scales = self.quantise(x.contiguous()) if isinstance(x, Tensor) else x
        return _product(codes, scales, self.codes, self.scales, self.bias)


class Fp8Linear(nn.Module):
    """A linear layer over a quantised copy of another's weights; its bias stays as it is."""

    codes: Tensor
    """e4m3 [out, in]."""
    scales: Tensor
    """float32 [1, out]."""
    bias: Tensor | None
    """bfloat16 [out], or None."""

    def __init__(self, linear: nn.Linear, quantise: Quantise = quantise_rows) -> None:
        """`quantise` does for activations, outside the compiler, what `quantise_rows` does."""
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._quantise = quantise
        codes, scales = quantise_rows(linear.weight.detach())
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales.t().contiguous())
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().bfloat16())

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden [..., in] → [..., out] in the dtype of `hidden`, rounded to bfloat16 before."""
        rows = hidden.reshape(-1, self.in_features).contiguous()
        # The compiler fuses the plain form with what stands before it.
        codes, scales = quantise_rows(rows) if torch.compiler.is_compiling() else self._quantise(rows)
        out = _product(codes, scales, self.codes, self.scales, self.bias)
        return out.view(*hidden.shape[:-1], self.out_features).to(hidden.dtype)


def check_fp8(device: torch.device) -> None:
    """Raise DeviceError if `device` has no matrix units for e4m3 with scales of rows and columns."""
    if device.type != "cuda":
        raise DeviceError(f"fp8 needs a CUDA card of the Hopper generation or later, not {device}; leave fp8 off")
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        raise DeviceError(
            f"fp8 needs compute capability {_dotted(LEAST_CAPABILITY)} (Hopper) or later, and {device} "
            f"({torch.cuda.get_device_name(device)}) has {_dotted(capability)}; leave fp8 off"
        )


def to_fp8(module: nn.Module, *, keep: Collection[nn.Module]) -> int:
    """In a twin, put `Fp8Linear` in place of every large linear layer that is not in `keep`; returns how many.

    Large is both sizes at least 1,024 and multiples of 16. Raises ModelError if there is none: nothing would be gained.
    """
    kept = {id(each) for each in keep}
    replaced: dict[int, Fp8Linear] = {}
    quantise = _quantise_on(next(module.parameters()).device)
    for parent in list(module.modules()):
        # Not `named_children`, which leaves out the second name of one child.
        for name, child in list(parent._modules.items()):
            # Not a subclass, which may do more than a product.
            if type(child) is not nn.Linear or id(child) in kept or not is_large(child.weight):
                continue
            if id(child) not in replaced:
                replaced[id(child)] = Fp8Linear(child, quantise)
            setattr(parent, name, replaced[id(child)])
    if not replaced:
        raise nothing_large()
    return len(replaced)


def nothing_large() -> ModelError:
    """To raise for a model without a large linear layer."""
    return ModelError(
        f"fp8 finds no linear layer of at least {LEAST_FEATURES:,} × {LEAST_FEATURES:,} in multiples of "
        f"{FEATURES_MULTIPLE} outside the output embedding, so it gains nothing on this model; leave fp8 off"
    )


def _product(codes: Tensor, scales: Tensor, weight: Tensor, weight_scales: Tensor, bias: Tensor | None) -> Tensor:
    """bfloat16 [rows, out] of e4m3 [rows, in] and [out, in]."""
    return torch._scaled_mm(
        codes,
        weight.t(),
        scale_a=scales,
        scale_b=weight_scales,
        bias=bias,
        out_dtype=torch.bfloat16,
        use_fast_accum=FAST_ACCUMULATION,
    )


def _quantise_on(device: torch.device) -> Quantise:
    """The kernel on CUDA, else the plain form."""
    if device.type != "cuda":
        return quantise_rows
    # Triton is there only where torch has CUDA.
    from decider.ops.fp8_kernel import quantise_rows_in_one_pass

    return quantise_rows_in_one_pass


def is_large(weight: Tensor) -> bool:
    """Whether a linear layer of this weight [out, in] gains by FP8."""
    return all(size >= LEAST_FEATURES and size % FEATURES_MULTIPLE == 0 for size in weight.shape)


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
