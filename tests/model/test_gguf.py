"""GGUF files written from tiny models, converted, and compared with the models they came from.

Refuses to trust the converter's idea of a tensor's order: the writer here follows llama.cpp's published layout. Trap: a
wrong rotary order changes nothing at position 0, so the rows compared are long.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from gguf_headers import write_header
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen2Config, Qwen3Config

from decider.errors import ModelError
from decider.model.gguf import convert
from decider.model.source import resolve

TinyFolder = Callable[[str], Path]
SHAPE: dict[str, Any] = {
    "vocab_size": 1024,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
CONFIGS = {
    "llama": LlamaConfig(tie_word_embeddings=False, **SHAPE),
    "llama-tied": LlamaConfig(tie_word_embeddings=True, **SHAPE),
    "qwen2": Qwen2Config(tie_word_embeddings=True, **SHAPE),
    "qwen3": Qwen3Config(tie_word_embeddings=True, **SHAPE),
}


def model_of(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    model: torch.nn.Module = AutoModelForCausalLM.from_config(CONFIGS[name], attn_implementation="eager").eval()
    for parameter_name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
        elif "bias" in parameter_name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def interleaved(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """The order llama.cpp stores rotary rows in: the two halves of each head taken in turns."""
    out = np.empty_like(rows)
    size = rows.shape[0] // heads
    for head in range(heads):
        for i in range(size // 2):
            out[head * size + 2 * i] = rows[head * size + i]
            out[head * size + 2 * i + 1] = rows[head * size + size // 2 + i]
    return out


def write_gguf(
    file: Path,
    name: str,
    tokenizer_folder: Path,
    *,
    quantise: str | None = None,
    drop: str = "",
    extra: str = "",
    scaling: str = "",
    number: tuple[str, float] | None = None,
) -> torch.nn.Module:
    model, config = model_of(name), CONFIGS[name]
    architecture = name.split("-")[0]
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(1024)
    if scaling:
        writer.add_string(f"{architecture}.rope.scaling.type", scaling)
    if number:
        key, value = f"{architecture}.{number[0]}", number[1]
        if isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_float32(key, value)
    spec = json.loads((tokenizer_folder / "tokenizer.json").read_text())["model"]
    tokens = sorted(spec["vocab"], key=spec["vocab"].__getitem__)
    tokens += [f"<unused{index}>" for index in range(1024 - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in spec["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    names = gguf.get_tensor_name_map(
        next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture), config.num_hidden_layers
    )
    for parameter_name, parameter in model.named_parameters():
        target = names.get_name(parameter_name, try_suffixes=(".weight", ".bias"))
        assert target is not None, parameter_name
        if target == drop:
            continue
        values = parameter.detach().numpy()
        if architecture == "llama" and ("q_proj" in parameter_name or "k_proj" in parameter_name):
            values = interleaved(values, 4 if "q_proj" in parameter_name else 2)
        if quantise and values.ndim > 1:
            kind = GGMLQuantizationType[quantise]
            writer.add_tensor(target, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(target, values)
    if extra:
        writer.add_tensor(extra, np.ones(8, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


@torch.inference_mode()
@pytest.mark.parametrize("name", CONFIGS)
def test_a_converted_model_equals_its_source(tiny_folder: TinyFolder, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "gguf"
    folder.mkdir()
    model = write_gguf(folder / "model.gguf", name, tiny_folder("llama"))
    (folder / "decider_config.json").write_text('{"version": "from-gguf"}')
    found = resolve(folder, gguf_file="model.gguf", cache=tmp_path / "cache", say=print)
    assert (found.path / "decider_config.json").read_text() == '{"version": "from-gguf"}'
    converted = AutoModelForCausalLM.from_pretrained(found.path, dtype=torch.float32, attn_implementation="eager")
    ids = torch.randint(0, 1024, (1, 100), generator=torch.Generator().manual_seed(3))
    expected = model(ids).logits
    assert expected.abs().max() > 0.5
    assert (converted(ids).logits - expected).abs().max() < 1e-4
    assert converted.config.tie_word_embeddings == CONFIGS[name].tie_word_embeddings
    text = "Question: the state and the answer (A) 7"
    assert AutoTokenizer.from_pretrained(found.path).tokenize(text) == AutoTokenizer.from_pretrained(
        tiny_folder("llama")
    ).tokenize(text)
    assert resolve(folder / "model.gguf", gguf_file=None, cache=tmp_path / "cache", say=print).path == found.path


@torch.inference_mode()
@pytest.mark.parametrize("quantise", ["Q8_0", "BF16"])
def test_quantised_tensors_become_bfloat16(tiny_folder: TinyFolder, tmp_path: Path, quantise: str) -> None:
    model = write_gguf(tmp_path / "model.gguf", "llama-tied", tiny_folder("llama"), quantise=quantise)
    (tmp_path / "out").mkdir()
    convert(tmp_path / "model.gguf", tmp_path / "out", print)
    assert AutoConfig.from_pretrained(tmp_path / "out").dtype == torch.bfloat16
    converted = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    for (name, ours), (_, source) in zip(converted.named_parameters(), model.named_parameters(), strict=True):
        torch.testing.assert_close(ours, source, atol=0.02, rtol=0.02, msg=name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"drop": "blk.1.ffn_up.weight"}, "has no tensor for model.layers.1.mlp.up_proj.weight"),
        ({"scaling": "yarn"}, "sets rope.scaling.type to 'yarn'"),
        ({"number": ("rope.scaling.factor", 4.0)}, "sets rope.scaling.factor to 4.0"),
        ({"number": ("rope.scale_linear", 4.0)}, "sets rope.scale_linear to 4.0"),
        ({"number": ("rope.dimension_count", 8)}, "sets rope.dimension_count to 8,"),
        ({"extra": "rope_freqs.weight"}, "1 tensors this model class does not use"),
    ],
)
def test_a_file_that_does_not_match_the_class_is_refused(
    tiny_folder: TinyFolder, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    write_gguf(tmp_path / "model.gguf", "llama", tiny_folder("llama"), **change)
    (tmp_path / "out").mkdir()
    with pytest.raises(ModelError, match=said):
        convert(tmp_path / "model.gguf", tmp_path / "out", print)


def test_one_exact_matrix_does_not_make_a_quantised_file_exact(
    tiny_folder: TinyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = gguf.GGUFWriter.add_tensor

    def with_exact_embeddings(writer: Any, name: str, values: Any, **options: Any) -> None:
        if name == "token_embd.weight":
            add(writer, name, np.zeros((1024, 64), dtype=np.float16))
        else:
            add(writer, name, values, **options)

    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", with_exact_embeddings)
    write_gguf(tmp_path / "model.gguf", "llama-tied", tiny_folder("llama"), quantise="Q8_0")
    (tmp_path / "out").mkdir()
    convert(tmp_path / "model.gguf", tmp_path / "out", print)
    assert AutoConfig.from_pretrained(tmp_path / "out").dtype == torch.bfloat16


def test_another_architecture_is_refused_with_a_remedy(tmp_path: Path) -> None:
    write_header(tmp_path / "model.gguf", "gemma3", sizes=False)
    with pytest.raises(ModelError, match=r"'gemma3' of model\.gguf is not supported.*safetensors"):
        convert(tmp_path / "model.gguf", tmp_path, print)
