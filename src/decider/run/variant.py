"""What an engine runs: the loaded model, or a copy of its modules with the engine's options in it.

It refuses to know how an option works. Trap: options go into a copy that shares the model's tensors, never into the
model, and never into a library; so two engines differ in one process, and dropping the copy undoes everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from decider.errors import ConfigError
from decider.model.head import LabelHead
from decider.model.load import LoadedModel
from decider.model.twin import twin
from decider.ops.attention import AttentionPolicy, attention_policy
from decider.ops.convolution import unroll_convolutions
from decider.ops.delta import use_block_inverse
from decider.ops.delta_rule import DELTA_RULE
from decider.ops.fp8 import check_fp8, to_fp8
from decider.ops.pinned_delta import has_kernels, pin_delta_rules
from decider.ops.rebind import users
from decider.run.compiled import CompiledForward, compile_forward
from decider.run.device import Pick
from decider.run.forward import Forward, make_forward
from decider.run.options import GridOptions


@dataclass(frozen=True, slots=True)
class Variant:
    """One engine's model. `compiled` is for capture alone; whatever runs eagerly runs `forward`."""

    loaded: LoadedModel
    forward: Forward
    compiled: CompiledForward | None
    policy: AttentionPolicy
    picks: tuple[Pick, ...]


def has_single_key_head(loaded: LoadedModel) -> bool:
    """Whether the heads of some attention layer share one head of keys and values."""
    config = loaded.module.config.get_text_config()
    return any(name.endswith("key_value_heads") and n_heads == 1 for name, n_heads in vars(config).items())


def check_options(options: GridOptions, device: torch.device, *, captures: bool) -> None:
    """Raises ConfigError for an option `device` has no use for, DeviceError for fp8 on a device without it."""
    if options.compile and not captures:
        raise ConfigError(
            f"compile is for captured graphs, which {device} has none of; leave it off, or use a CUDA card"
        )
    if options.fp8:
        check_fp8(device)


def make_variant(loaded: LoadedModel, head: LabelHead, options: GridOptions, *, captures: bool) -> Variant:
    """Put `options` into a copy of `loaded`. Raises what `check_options` raises, ModelError where one does not fit."""
    device = torch.device(loaded.device)
    check_options(options, device, captures=captures)
    picks: list[Pick] = []
    if options.fp8:
        loaded = twin(loaded)
        n_linears = to_fp8(loaded.module, keep=(loaded.module.get_output_embeddings(),))
        picks.append(Pick("fp8", f"{n_linears} linear layers", "asked for"))
    compiled = None
    if options.compile:
        own = twin(loaded)
        n_unrolled = unroll_convolutions(own.module)
        compiled = compile_forward(own, head)
        unrolled = f", {n_unrolled} convolutions unrolled" if n_unrolled else ""
        picks.append(Pick("compile", f"layers{unrolled}", "asked for; eager forwards stay uncompiled"))
    if users(loaded.module, DELTA_RULE):
        loaded, pick = _choose_delta_rule(loaded, device, options)
        picks.append(pick)
    policy = attention_policy(device, loaded.module.dtype, single_key_head=has_single_key_head(loaded))
    picks.append(Pick("attention back ends", policy.value, policy.reason))
    return Variant(loaded, make_forward(loaded, head), compiled, policy, tuple(picks))


def _choose_delta_rule(loaded: LoadedModel, device: torch.device, options: GridOptions) -> tuple[LoadedModel, Pick]:
    """How the gated delta rule runs eagerly, and where nothing is compiled, captured too."""
    name = "delta rule"
    if device.type == "cuda" and has_kernels() and loaded.module.dtype is not torch.float32:
        if not options.pin_kernels:
            return loaded, Pick(name, "flash-linear-attention", "installed; pin_kernels is off")
        loaded = twin(loaded)
        pin_delta_rules(loaded.module)
        reason = "installed; its norm is tuned anew for every 65,536 vectors, ours is not"
        return loaded, Pick(name, "flash-linear-attention, norm of our own", reason)
    loaded = twin(loaded)
    use_block_inverse(loaded.module)
    reasons = {
        "cpu": "1.5 to 2.1 times as fast as the library's own, and nearer to float64 (docs/log.md)",
        "mps": "a triangular solve is slow on Metal; not measured by us",
    }
    if device.type == "cuda" and has_kernels():
        reasons["cuda"] = "flash-linear-attention multiplies float32 in TF32"
    return loaded, Pick(name, "block inverse", reasons.get(device.type, "flash-linear-attention is not installed"))
