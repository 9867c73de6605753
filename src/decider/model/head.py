"""The label head: hidden states to the logits of the labels alone, in fp32.

It refuses to know rows and slots; it multiplies what it is given. Trap: a head that forgets a family's soft-cap or
logit scale still ranks options correctly, and every probability is wrong. `check_head` compares with the model's own
logits at load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from decider.errors import ModelError
from decider.model.load import LoadedModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Largest accepted |Δ| between our logits and the model's own, relative to its largest logit, by the model's precision.
HEAD_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}


@dataclass(frozen=True, slots=True)
class LabelHead:
    """Rows of the output embedding for the labels, and what the family does to logits after the product."""

    weight: Tensor
    """[labels, hidden], float32 (float64 for a float64 model)."""
    bias: Tensor | None
    """[labels] or None."""
    scale: float
    """Logits are multiplied by this (Cohere's `logit_scale`, the inverse of Granite's `logits_scaling`)."""
    soft_cap: float | None
    """c in Gemma's c·tanh(logit / c), applied after the scale and before any mask or temperature."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """hidden [..., hidden] in any precision → logits [..., labels] in the precision of `weight`."""
        logits = torch.nn.functional.linear(hidden.to(self.weight.dtype), self.weight, self.bias) * self.scale
        return logits if self.soft_cap is None else self.soft_cap * torch.tanh(logits / self.soft_cap)


def label_head(loaded: LoadedModel, label_ids: Sequence[int]) -> LabelHead:
    """Cut the label rows out of the model's output embedding. Raises ModelError if it has none."""
    output = loaded.module.get_output_embeddings()
    if not isinstance(output, torch.nn.Linear):
        raise ModelError(
            f"{loaded.name!r} ({loaded.model_type}) has no linear output embedding to read labels from; "
            "use a causal language model"
        )
    rows = torch.tensor(label_ids, device=output.weight.device)
    precision = torch.promote_types(output.weight.dtype, torch.float32)
    config = loaded.module.config.get_text_config()
    return LabelHead(
        weight=output.weight.detach()[rows].to(precision),
        bias=None if output.bias is None else output.bias.detach()[rows].to(precision),
        scale=float(getattr(config, "logit_scale", None) or 1.0)
        / float(getattr(config, "logits_scaling", None) or 1.0),
        soft_cap=getattr(config, "final_logit_softcapping", None),
    )


def last_hidden(module: PreTrainedModel, input_ids: Tensor) -> Tensor:
    """Hidden states [rows, tokens, hidden] after the final norm, for input_ids [rows, tokens]; no head, no cache."""
    return cast("Tensor", module.get_decoder()(input_ids=input_ids, use_cache=False).last_hidden_state)


@torch.inference_mode()
def check_head(loaded: LoadedModel, head: LabelHead, label_ids: Sequence[int]) -> None:
    """Run one short row and compare with the model's own logits. Raises ModelError if they differ."""
    input_ids = torch.tensor([list(label_ids[:8])], device=loaded.device)
    labels = torch.tensor(label_ids, device=loaded.device)
    own = loaded.module(input_ids=input_ids, use_cache=False).logits[..., labels].to(head.weight.dtype)
    ours = head(last_hidden(loaded.module, input_ids))
    if not own.isfinite().all():
        raise ModelError(f"{loaded.name!r} gives logits that are not finite in {loaded.dtype}; its weights are damaged")
    difference = float((own - ours).abs().max() / own.abs().max().clamp_min(1e-6))
    # A NaN of ours must fail too, so the comparison is not turned round.
    if not difference <= HEAD_TOLERANCE[loaded.module.dtype]:
        raise ModelError(
            f"{loaded.name!r} ({loaded.model_type}) does more to its logits than a product, a scale and a soft-cap: "
            f"ours are off by {difference:.2g} of the largest; this family is not supported"
        )
