"""What a loaded model multiplies, read from its layers and its configuration.

It refuses to guess: attention of a kind it does not know leaves the floor open. Trap: an engine may replace linear
layers (FP8 does), so this must be read before one is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from decider.bench.floor import Attention, ModelWork

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Kinds of layers, as transformers calls them, that hold no softmax attention.
_WITHOUT = ("linear_attention", "conv", "moe", "mamba")


def model_work(module: PreTrainedModel) -> ModelWork:
    """Linear layers and attention layers of a causal language model's decoder."""
    decoder: torch.nn.Module = module.get_decoder()
    linears = [layer for layer in decoder.modules() if isinstance(layer, torch.nn.Linear)]
    attention = _attention(module.config.get_text_config(), decoder)
    known = {id(layer.weight) for layer in linears}
    # Embeddings are looked up, and a depthwise convolution is next to nothing. Stacked experts and the like multiply.
    known |= {id(each.weight) for each in decoder.modules() if isinstance(each, (torch.nn.Embedding, torch.nn.Conv1d))}
    if any(parameter.dim() > 1 and id(parameter) not in known for parameter in decoder.parameters()):
        return ModelWork(None, attention)
    return ModelWork(sum(layer.weight.numel() for layer in linears), attention)


def _attention(config: Any, decoder: torch.nn.Module) -> tuple[Attention, ...] | None:
    window: int | None = getattr(config, "sliding_window", None)
    # Without kinds, one window holds for all layers (Mistral), or there is none (Llama).
    only = "full_attention" if window is None else "sliding_attention"
    kinds = getattr(config, "layer_types", None) or [only] * config.num_hidden_layers
    layers = []
    for layer in decoder.modules():
        index, head_dim = getattr(layer, "layer_idx", None), getattr(layer, "head_dim", None)
        # Every attention module of transformers has both; linear attention has an index only.
        if not isinstance(index, int) or not isinstance(head_dim, int):
            continue
        slides = kinds[index] == "sliding_attention"
        if not slides and kinds[index] != "full_attention":
            return None
        layers.append(Attention(int(config.num_attention_heads), head_dim, window if slides else None))
    return tuple(layers) if len(layers) == sum(kind not in _WITHOUT for kind in kinds) else None
