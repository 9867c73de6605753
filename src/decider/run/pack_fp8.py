"""FP8 for packs: whether it can be had, whether each product is right, and which products gain from how many rows on.

It refuses to know requests. Trap: a product of few rows is slower in FP8 than in bfloat16, and how few depends on its
sizes and the card. So each kind is timed on its own weights, and both copies of them stay. What a row is answered with
then depends on the size of the pack it travels in, by what FP8 rounds off.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from decider.backbone.decoder import PARTS, Backbone, Coarse, Delta, Dense, Linear, fp8_linear, part_name
from decider.backbone.load import backbone_of
from decider.errors import ConfigError, ModelError
from decider.model.load import LoadedModel
from decider.ops.fp8 import Fp8Product, check_fp8, nothing_large
from decider.run import measure
from decider.run.device import Pick
from decider.run.graphs import Work, WorkCapturer

# Root mean square that a product in FP8 may be off from the one it stands for, relative. Rounding both sides to three
# bits of mantissa gives 0.04, whatever the weights; a scale at a wrong place is off by about 1.
PRODUCT_TOLERANCE = 0.1
_CHECKED_ROWS = 64
# What gains less is not worth what it rounds off.
LEAST_GAIN = 1.03
_REPEATS = 5


@dataclass(frozen=True, slots=True, eq=False)
class _Product:
    """One product in both precisions."""

    exact: Dense
    coarse: Fp8Product
    beside: Linear | None
    """What FP8 leaves to a product of its own, and the exact one has in it."""


def check_fp8_packs(device: torch.device, dtype: torch.dtype) -> None:
    """Raises DeviceError as `check_fp8`; ConfigError for a model that is not in bfloat16."""
    check_fp8(device)
    if dtype is not torch.bfloat16:
        name = str(dtype).removeprefix("torch.")
        raise ConfigError(f"packs in fp8 are of a model in bfloat16, not {name}; leave out --dtype {name}, or fp8")


@torch.inference_mode()
def in_fp8(exact: Backbone, loaded: LoadedModel) -> Backbone:
    """A decoder of `loaded` with all its large products in FP8, each of them compared with that of `exact`.

    Raises ModelError if it has none that is large enough, or if one differs by more than FP8 rounds.
    """
    coarse = backbone_of(loaded, linear=fp8_linear)
    kinds = _kinds(exact, coarse)
    if not kinds:
        raise nothing_large()
    source = torch.Generator(exact.device).manual_seed(0)
    for name, products in kinds.items():
        for each in products:
            shape = _CHECKED_ROWS, each.exact.weight.shape[1]
            x = torch.randn(shape, generator=source, device=exact.device, dtype=exact.dtype)
            found = each.coarse(x).float()
            wanted = each.exact(x)[:, : found.shape[1]].float()
            apart = float((found - wanted).norm() / wanted.norm().clamp_min(torch.finfo(torch.float32).tiny))
            # A NaN must fail too, so the comparison is not turned round.
            if not apart <= PRODUCT_TOLERANCE:
                raise ModelError(
                    f"a product of {loaded.name!r:.60} ({name}) differs in fp8 by {apart:.2g} from bfloat16 "
                    f"(allowed: {PRODUCT_TOLERANCE:g}); leave fp8 off and report it"
                )
    return coarse


@torch.inference_mode()
def where_fp8_gains(
    exact: Backbone, coarse: Backbone, sizes: Sequence[int], capturer: WorkCapturer
) -> tuple[Backbone, Pick]:
    """`exact` with the layers of `coarse` beside its own: a kind of product from the first of `sizes` that gains on.

    `sizes` rise. Timed as graphs over all weights of a size, one after the other, so that no cache holds them; by
    halving, so a kind that gains at a size is taken to gain at all larger ones. Rows are quantised where they are made,
    which costs next to nothing, but for those of attention, which are quantised before their product.
    """
    assert sizes
    kinds = _kinds(exact, coarse)
    from_rows: dict[str, int] = {}
    chosen, figures = [], []
    for name, products in kinds.items():
        shape = products[0].coarse.codes.shape
        alike = [each for group in kinds.values() for each in group if each.coarse.codes.shape == shape]
        first, times = _first_gain(alike, sizes, exact.device, capturer, quantised=name != "attention out")
        if first < len(sizes):
            # Rows of the last layer's slots may be fewer than any size.
            from_rows[name] = sizes[first] if first else 0
        chosen.append(f"{name} from {sizes[first]:,} tokens" if first < len(sizes) else f"{name} never")
        figures += [
            f"{name} {before:.4f} and {after:.4f} ms at {n_rows:,}"
            for n_rows, (before, after) in sorted(times.items())
            if n_rows in sizes[max(0, first - 1) : first + 1]
        ]
    n_bytes = sum(each.coarse.codes.nbytes + each.coarse.scales.nbytes for group in kinds.values() for each in group)
    reason = (
        f"asked for; where it gains, measured in bfloat16 and in FP8: {', '.join(figures)}; weights are kept in both, "
        f"{n_bytes / 2**30:.1f} GiB more"
    )
    return replace(exact, coarse=Coarse(coarse.layers, from_rows)), Pick("fp8", ", ".join(chosen), reason)


def _first_gain(
    products: Sequence[_Product],
    sizes: Sequence[int],
    device: torch.device,
    capturer: WorkCapturer,
    *,
    quantised: bool,
) -> tuple[int, dict[int, tuple[float, float]]]:
    """(index of the first of `sizes` that gains, or how many there are, what was measured on the way)."""
    times: dict[int, tuple[float, float]] = {}

    def gains(n_rows: int) -> bool:
        before, after = times[n_rows] = _both_ms(products, n_rows, device, capturer, quantised=quantised)
        return before >= LEAST_GAIN * after

    return bisect_left(sizes, True, key=gains), times


def _kinds(exact: Backbone, coarse: Backbone) -> dict[str, list[_Product]]:
    """`part_name` → the products that are in FP8 in `coarse`, in the order of the layers."""
    found: dict[str, list[_Product]] = {}
    for own, other in zip(exact.layers, coarse.layers, strict=True):
        for part in PARTS:
            is_mixer = part == "mixer"
            before = own.mixer.project if is_mixer else getattr(own, part)
            after = other.mixer.project if is_mixer else getattr(other, part)
            if isinstance(after, Fp8Product):
                assert isinstance(before, Dense)
                beside = other.mixer.rates if is_mixer and isinstance(other.mixer, Delta) else None
                found.setdefault(part_name(own, part), []).append(_Product(before, after, beside))
    return found


def _both_ms(
    products: Sequence[_Product], n_rows: int, device: torch.device, capturer: WorkCapturer, *, quantised: bool
) -> tuple[float, float]:
    """Milliseconds of one of `products` with `n_rows`, in the model's dtype and in FP8 of rows that are `quantised`."""
    x = torch.randn(n_rows, products[0].exact.weight.shape[1], device=device, dtype=products[0].exact.weight.dtype)
    rows = products[0].coarse.quantise(x) if quantised else x

    def exactly() -> None:
        for each in products:
            each.exact(x)

    def coarsely() -> None:
        for each in products:
            each.coarse(rows)
            if each.beside is not None:
                each.beside(x)

    before, after = (_graph_ms(work, device, capturer) / len(products) for work in (exactly, coarsely))
    return before, after


def _graph_ms(work: Work, device: torch.device, capturer: WorkCapturer) -> float:
    capturer.warm(work)
    graph = capturer.record(work)
    graph.replay()
    return measure.milliseconds(device, graph.replay, repeats=_REPEATS)
