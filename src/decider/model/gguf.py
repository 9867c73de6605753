"""A GGUF file to a folder of safetensors, configuration and tokenizer, as transformers reads them.

It refuses to know where the file came from. Trap: llama.cpp stores the query and key rows of Llama models in another
order, for its own rotary layout. Forgetting to undo it gives a model that loads, runs and talks nonsense.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from decider.errors import ModelError, first_line
from decider.model.quiet import quiet_transformers

ARCHITECTURES = ("llama", "qwen2", "qwen3")
UNQUANTISED = ("F32", "F16", "F64")
REMEDY = "use the original safetensors checkpoint"


def convert(gguf_path: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Write the model in `gguf_path` into `folder`: float32 if its matrices are unquantised, else bfloat16.

    Raises ModelError if it is no GGUF file, of another architecture than `ARCHITECTURES`, or not one to one with the
    model class's parameters.
    """
    import gguf

    say(f"reading {gguf_path.name}")
    try:
        reader = gguf.GGUFReader(gguf_path)
        architecture = reader.fields["general.architecture"].contents()
    except (OSError, ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise ModelError(f"{gguf_path} is not a readable GGUF file: {error}") from error
    if architecture not in ARCHITECTURES:
        raise ModelError(
            f"GGUF architecture {architecture!r} of {gguf_path.name} is not supported, "
            f"only {', '.join(ARCHITECTURES)}; {REMEDY}"
        )
    with quiet_transformers():
        try:
            config = AutoConfig.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name)
            tokenizer = AutoTokenizer.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name)
        # transformers, tokenizers and their validators each raise their own on metadata they cannot use.
        except Exception as error:
            raise ModelError(
                f"cannot read configuration and tokenizer of {gguf_path.name}: {first_line(error)}; {REMEDY}"
            ) from error
    # What transformers' reader of GGUF configurations passes over.
    if f"{architecture}.attention.key_length" in reader.fields:
        config.head_dim = int(reader.fields[f"{architecture}.attention.key_length"].contents())
    _refuse_unread(reader, architecture, gguf_path.name, config)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config.tie_word_embeddings = "output.weight" not in tensors
    exact = all(tensor.tensor_type.name in UNQUANTISED for tensor in tensors.values() if len(tensor.shape) > 1)
    precision = torch.float32 if exact else torch.bfloat16
    config.dtype = precision
    say(f"converting {len(tensors)} tensors to {precision}")
    weights = {name: weight.to(precision) for name, weight in _weights(config, tensors, architecture, gguf_path.name)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _refuse_unread(reader: Any, architecture: str, file: str, config: Any) -> None:
    """Raises ModelError for what would change the model's answers and is not converted."""
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for key, harmless in (
        ("rope.scaling.type", "none"),
        # llama.cpp scales linearly by these where no type is given.
        ("rope.scaling.factor", 1.0),
        ("rope.scale_linear", 1.0),
        ("rope.dimension_count", head_size),
        ("attention.sliding_window", 0),
    ):
        field = reader.fields.get(f"{architecture}.{key}")
        if field is not None and field.contents() != harmless:
            raise ModelError(f"{file} sets {key} to {field.contents()!r}, which is not converted; {REMEDY}")


def _weights(config: Any, tensors: dict[str, Any], architecture: str, file: str) -> Iterator[tuple[str, Tensor]]:
    """Every parameter of the model class with its tensor, each tensor once."""
    import gguf

    number = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in AutoModelForCausalLM.from_config(config).named_parameters()}
    left = dict(tensors)
    for name, shape in shapes.items():
        source = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if source not in left:
            raise ModelError(f"{file} has no tensor for {name}; {REMEDY}")
        tensor = left.pop(source)
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            values = rotary_halves(values, heads)
        if values.shape != tuple(shape):
            raise ModelError(f"{source} of {file} has shape {values.shape}, not {tuple(shape)}; {REMEDY}")
        # A copy: what is not quantised is a read-only view of the file.
        yield name, torch.from_numpy(np.array(values))
    if left:
        raise ModelError(f"{file} has {len(left)} tensors this model class does not use ({min(left)}, …); {REMEDY}")


def rotary_halves(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """llama.cpp's interleaved rotary rows [heads · 2i + j, …] back to transformers' two halves per head."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)
