"""A folder of weights to a causal language model in memory, or a clear refusal.

It refuses to know tokens, labels and requests. Trap: transformers fills a weight that the checkpoint lacks with random
numbers and goes on. A model with one random tensor answers with confidence; so a missing weight is an error here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers import AutoModelForCausalLM

from decider.errors import DeviceError, ModelError, first_line
from decider.model.quiet import quiet_transformers
from decider.model.source import ModelFolder

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Towers for images and sound, heads for other tasks and the like may stay unused; a layer of the text model may not.
_TEXT_LAYER = re.compile(r"^(?!.*(vision|visual|audio|mtp)).*\b(layers?|blocks?|h)\.\d+\.")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A text model in evaluation mode, without gradients: a causal language model with its decoder and head."""

    module: PreTrainedModel
    name: str
    model_type: str
    max_positions: int
    device: str
    dtype: str


def load_module(folder: ModelFolder, *, device: str, dtype: str, attention: str) -> LoadedModel:
    """Load the checkpoint in `folder`; of a multimodal one, its text model reads.

    Raises ModelError if it is no causal language model, lacks a weight or has layers too many, or does not say how many
    positions it has; DeviceError if the device has no room for it.
    """
    with quiet_transformers():
        try:
            loaded = AutoModelForCausalLM.from_pretrained(
                folder.path,
                dtype=DTYPES[dtype],
                attn_implementation=attention,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
        # Damaged files raise whatever their reader raises: struct.error, SafetensorError, and more.
        except Exception as error:
            raise ModelError(
                f"cannot load {folder.name!r}: {first_line(error)} ({type(error).__name__}); check its config.json "
                "and its weights, or fetch it again"
            ) from error
    # With `output_loading_info` it returns a pair, which its signature does not say.
    module, report = cast("tuple[PreTrainedModel, dict[str, Any]]", loaded)
    lacking = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if lacking:
        raise ModelError(
            f"{folder.name!r} lacks {len(lacking)} of its weights, or has them in another shape "
            f"({', '.join(lacking[:3])}{', …' if len(lacking) > 3 else ''}); fetch the checkpoint "
            "again, if it is a causal language model at all"
        )
    surplus = sorted(key for key in report["unexpected_keys"] if _TEXT_LAYER.search(key))
    if surplus:
        raise ModelError(
            f"{folder.name!r} has {len(surplus)} layer weights that {type(module).__name__} does not use "
            f"({', '.join(surplus[:3])}{', …' if len(surplus) > 3 else ''}): its config.json and its weights "
            "do not belong together; fetch the checkpoint again"
        )
    text_config = module.config.get_text_config()
    positions = getattr(text_config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        raise ModelError(
            f"{folder.name!r} does not say how many positions it has; set max_position_embeddings in its config.json"
        )
    try:
        module.eval().requires_grad_(False).to(device)
    except torch.OutOfMemoryError as error:
        raise DeviceError(f"{folder.name!r} does not fit on {device}: {first_line(error)}; use --device cpu") from error
    return LoadedModel(module, folder.name, text_config.model_type, positions, device, dtype)
