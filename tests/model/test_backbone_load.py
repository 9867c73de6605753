"""Decoders from folders and from models in memory: every weight used once, and everything unknown refused by name.

Refuses to accept a loader that merely runs: what is loaded must answer as the model does. Trap: a refusal that names
the wrong key sends the user looking in the wrong place, so each message is read.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from packed_rows import KNOWN, LABEL_IDS, LLAMA3, Family, load_known, own_logits, packed_logits, rows_of, single_logits
from prefix_rows import one_thread
from safetensors.torch import load_file, save_file
from tiny_models import COMMON, MAX_POSITIONS, configs
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from decider.backbone.decoder import Dense, Linear
from decider.backbone.families import read_spec
from decider.backbone.load import (
    backbone_from,
    backbone_head,
    backbone_of,
    folder_spec,
    load_backbone,
    load_hf_config,
)
from decider.backbone.weights import Checkpoint, build
from decider.errors import DeviceError, ModelError
from decider.model.head import label_head
from decider.model.load import load_module
from decider.model.source import ModelFolder

TinyFolder = Callable[[str], Path]
FAMILIES = [name for name in configs() if name != "gemma3"]
ROWS, GROUPS = rows_of([Family(30), Family(9, (3, 1))])
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with one_thread():
        yield


def folder_of(path: Path) -> ModelFolder:
    return ModelFolder(path, "tiny", "a test")


def answers(path: Path, dtype: str = "float32") -> Tensor:
    backbone = load_backbone(folder_of(path), device="cpu", dtype=dtype)
    return packed_logits(backbone, backbone_head(backbone, LABEL_IDS), ROWS, GROUPS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_and_a_model_in_memory_give_one_decoder(tiny_folder: TinyFolder, family: str, dtype: str) -> None:
    loaded = load_module(folder_of(tiny_folder(family)), device="cpu", dtype=dtype, attention="sdpa")
    ours = backbone_of(loaded)
    assert (ours.device, ours.dtype) == (CPU, loaded.module.dtype)
    assert torch.equal(
        packed_logits(ours, backbone_head(ours, LABEL_IDS), ROWS, GROUPS), answers(tiny_folder(family), dtype)
    )


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_not_merged_is_shared(name: str) -> None:
    module: Any = load_known(name).module
    backbone = backbone_of(load_known(name))
    assert backbone.embedding.data_ptr() == module.model.embed_tokens.weight.data_ptr()
    assert backbone.output_embedding.data_ptr() == module.lm_head.weight.data_ptr()
    for ours, theirs in zip(backbone.layers, module.model.layers, strict=True):
        assert isinstance(ours.down, Dense)
        assert ours.down.weight.data_ptr() == theirs.mlp.down_proj.weight.data_ptr()
        assert ours.mlp_norm.weight.data_ptr() == theirs.post_attention_layernorm.weight.data_ptr()
    assert backbone.n_parameters == module.num_parameters()
    assert backbone.spec.tied == module.config.tie_word_embeddings


def test_a_device_without_room_for_merged_weights_is_named() -> None:
    loaded = load_known("llama", "float32")

    def full(*_: object) -> Linear:
        raise torch.OutOfMemoryError("CUDA out of memory\nat length")

    with pytest.raises(DeviceError, match=r"^cpu has no room for .* CUDA out of memory; free memory, leave fp8 off"):
        backbone_of(loaded, linear=full)


@pytest.mark.parametrize("name", KNOWN)
def test_every_weight_is_read_once(name: str) -> None:
    module = load_known(name).module
    state, reads = dict(module.named_parameters()), Counter[str]()

    def read(key: str) -> Tensor:
        reads[key] += 1
        return state[key]

    checkpoint = Checkpoint("tiny", {key: tuple(tensor.shape) for key, tensor in state.items()}, read)
    build(read_spec(module.config, "tiny"), checkpoint, device=CPU, dtype=torch.float32)
    assert reads == Counter(state.keys())


def test_every_linear_layer_is_made_by_the_seam(tiny_folder: TinyFolder) -> None:
    made: list[tuple[int, ...]] = []

    def counted(weight: Tensor, bias: Tensor | None) -> Linear:
        made.append(tuple(weight.shape))
        return lambda x: 2 * Dense(weight, bias)(x)

    folder = folder_of(tiny_folder("qwen3_5"))
    backbone = load_backbone(folder, device="cpu", dtype="float32", linear=counted)
    # Query, key, value and gate or z, b, a; the output; gate and up; down: of three layers and of one.
    mlp = [(256, 64), (64, 128)]
    assert Counter(made) == Counter(3 * [(200, 64), (64, 64), *mlp] + [(192, 64), (64, 64), *mlp])
    doubled = packed_logits(backbone, backbone_head(backbone, LABEL_IDS), ROWS, GROUPS)
    assert not torch.allclose(doubled, answers(folder.path), atol=0.1)


@pytest.mark.parametrize("tied", [True, False])
def test_the_text_model_of_a_multimodal_checkpoint_answers_as_the_whole(tmp_path: Path, tied: bool) -> None:
    torch.manual_seed(0)
    text = configs()["qwen3_5"].to_dict() | {"tie_word_embeddings": tied}
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64}
    whole = Qwen3_5ForConditionalGeneration(
        Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=tied)
    ).eval()
    for parameter in whole.parameters():
        if parameter.dim() >= 2:
            torch.nn.init.normal_(parameter, std=0.3)
    whole.save_pretrained(tmp_path)
    backbone = load_backbone(folder_of(tmp_path), device="cpu", dtype="float32")
    assert backbone.spec.family == "qwen3_5_text"
    ours = packed_logits(backbone, backbone_head(backbone, LABEL_IDS), ROWS, GROUPS)
    with torch.inference_mode():
        own = [whole(input_ids=torch.tensor([row.ids])).logits[0, list(row.slots)][:, list(LABEL_IDS)] for row in ROWS]
    theirs = torch.cat(own)
    assert theirs.abs().max() > 2
    assert (ours - theirs).abs().max() <= 5e-5 * theirs.abs().max()


def test_several_files_make_one_checkpoint(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_pretrained(tiny_folder("llama")).save_pretrained(tmp_path, max_shard_size="200KB")
    assert not (tmp_path / "model.safetensors").exists()
    assert torch.equal(answers(tmp_path), answers(tiny_folder("llama")))


def test_a_decoder_outlives_its_files(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder("llama"), tmp_path / "copy"))
    backbone = load_backbone(folder_of(folder), device="cpu", dtype="float32")
    file = folder / "model.safetensors"
    with file.open("r+b") as stream:
        stream.write(bytes(file.stat().st_size))
    ours = packed_logits(backbone, backbone_head(backbone, LABEL_IDS), ROWS, GROUPS)
    assert torch.equal(ours, answers(tiny_folder("llama")))


@pytest.mark.embedded
def test_the_embedded_model_answers_as_transformers_has_it(embedded_folder: Path) -> None:
    """It was converted from GGUF, and its head is its embedding."""
    folder = folder_of(embedded_folder)
    loaded = load_module(folder, device="cpu", dtype="float32", attention="sdpa")
    head = label_head(loaded, LABEL_IDS)
    backbone = load_backbone(folder, device="cpu", dtype="float32")
    theirs = own_logits(loaded, head, ROWS)
    ours = single_logits(backbone, backbone_head(backbone, LABEL_IDS), ROWS)
    assert theirs.abs().max() > 2
    # Measured is 1e-6.
    assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()
    tree = packed_logits(backbone, head, ROWS, GROUPS, padding=5)
    assert (tree.softmax(-1) - ours.softmax(-1)).abs().max() <= 1e-5
    assert backbone.n_parameters == loaded.module.num_parameters()


Change = Callable[[dict[str, Tensor]], object]
UP = "model.layers.1.mlp.up_proj.weight"
CHANGES: dict[str, tuple[str, Change, str]] = {
    "missing": ("llama", lambda state: state.pop(UP), rf"lacks 1 of its weights.*\({UP}\)"),
    "another shape": (
        "llama",
        lambda state: state.update({UP: state[UP][:-8].contiguous()}),
        rf"lacks 1 of its weights, or has them in another shape \({UP}\)",
    ),
    "no head": ("llama", lambda state: state.pop("lm_head.weight"), r"lacks 1 of its weights.*\(lm_head\.weight\)"),
    "many missing": (
        "llama",
        lambda state: [state.pop(key) for key in list(state) if "layers.0" in key],
        r"lacks 9 of its weights.*, …\)",
    ),
    "a layer more": (
        "llama",
        lambda state: state.update({UP.replace(".1.", ".2."): state[UP].clone()}),
        r"has 1 layer weights that a llama decoder does not use \(model\.layers\.2\.mlp\.up_proj\.weight\)",
    ),
    "a bias more": (
        "llama",
        lambda state: state.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)}),
        r"has 1 layer weights that a llama decoder does not use \(model\.layers\.0\.self_attn\.q_proj\.bias\)",
    ),
    "another head": (
        "llama_tied",
        lambda state: state.update({"lm_head.weight": state["model.embed_tokens.weight"] + 1}),
        "sets tie_word_embeddings to True, and its lm_head.weight is not its embedding",
    ),
    "no embedding": (
        "llama",
        lambda state: state.pop("model.embed_tokens.weight"),
        r"has no tensor model\.embed_tokens\.weight among its 20",
    ),
}


def changed(source: Path, target: Path, change: Change) -> Path:
    folder = Path(shutil.copytree(source, target))
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("case", CHANGES)
def test_weights_that_are_not_exactly_the_models_are_refused(
    tiny_folder: TinyFolder, tmp_path: Path, case: str
) -> None:
    family, change, message = CHANGES[case]
    folder = changed(tiny_folder(family), tmp_path / "changed", change)
    with pytest.raises(ModelError, match=rf"^'tiny' {message}.*use --executor grid$"):
        load_backbone(folder_of(folder), device="cpu", dtype="float32")


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}),
        lambda state: state.update({"lm_head.weight": state["model.embed_tokens.weight"].clone()}),
        lambda state: state.update({"mtp.layers.0.mlp.up_proj.weight": torch.ones(8)}),
        lambda state: [state.update({key.removeprefix("model."): state.pop(key)}) for key in list(state)],
    ],
    ids=["old buffers", "its embedding twice", "a part for other uses", "saved without a head"],
)
def test_what_changes_no_answer_is_accepted(tiny_folder: TinyFolder, tmp_path: Path, change: Change) -> None:
    folder = changed(tiny_folder("llama_tied"), tmp_path / "changed", change)
    assert torch.equal(answers(folder), answers(tiny_folder("llama_tied")))


def test_of_a_tied_models_weights_the_head_alone_is_read(
    tiny_folder: TinyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = changed(
        tiny_folder("llama_tied"),
        tmp_path / "same",
        lambda state: state.update({"lm_head.weight": state["model.embed_tokens.weight"].clone()}),
    )
    for folder in (tiny_folder("llama_tied"), same):
        assert folder_spec(folder_of(folder), load_hf_config(folder_of(folder))).tied
    family, change, message = CHANGES["another head"]
    other = folder_of(changed(tiny_folder(family), tmp_path / "other", change))
    with pytest.raises(ModelError, match=message):
        folder_spec(other, load_hf_config(other))
    monkeypatch.setattr("decider.backbone.load.safe_open", None)
    untied = folder_of(tiny_folder("llama"))
    assert not folder_spec(untied, load_hf_config(untied)).tied


def damage_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text("[]")


def lose_part(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"x": "part.safetensors"}}')


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "has neither model.safetensors nor .*--executor grid"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 99), "cannot read the weights of 'tiny'"),
        (damage_index, r"model\.safetensors\.index\.json of 'tiny' names no files \(TypeError\)"),
        (lose_part, r"cannot read the weights of 'tiny': .*part\.safetensors"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot read the config.json of 'tiny'"),
    ],
    ids=["no weights", "damaged weights", "damaged index", "a part lost", "damaged configuration"],
)
def test_damaged_folders_are_refused(
    tiny_folder: TinyFolder, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    folder = Path(shutil.copytree(tiny_folder("llama"), tmp_path / "damaged"))
    damage(folder)
    with pytest.raises(ModelError, match=message):
        load_backbone(folder_of(folder), device="cpu", dtype="float32")


YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 512}
WINDOW = {"num_hidden_layers": 4, "use_sliding_window": True, "max_window_layers": 2, "sliding_window": 64}
REFUSALS: list[tuple[type[PreTrainedConfig], dict[str, Any], str]] = [
    (Gemma3TextConfig, {}, "model_type to 'gemma3_text'.*llama, mistral, qwen2, qwen3, qwen3_5"),
    (Qwen3MoeConfig, {}, "model_type to 'qwen3_moe'"),
    (LlamaConfig, {"hidden_act": "gelu"}, "hidden_act to 'gelu'.* only 'silu'"),
    (LlamaConfig, {"mlp_bias": True}, "mlp_bias to True.* only False"),
    (LlamaConfig, {"is_causal": False}, "is_causal to False"),
    (LlamaConfig, {"quantization_config": {"quant_method": "fp8"}}, "quantization_config to {'quant_method"),
    (LlamaConfig, {"final_logit_softcapping": 30.0}, "final_logit_softcapping to 30.0"),
    (LlamaConfig, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping to 50.0"),
    (Qwen3Config, {"logit_scale": 0.5}, "logit_scale to 0.5"),
    (Qwen3Config, {"logits_scaling": 4.0}, "logits_scaling to 4.0"),
    (Qwen3Config, {"num_experts": 8}, "num_experts to 8"),
    (LlamaConfig, {"rope_parameters": YARN}, "rope_parameters.rope_type to 'yarn'.*default, linear and llama3"),
    (
        LlamaConfig,
        {"rope_parameters": {**LLAMA3, "partial_rotary_factor": 0.5}},
        "rope_parameters.partial_rotary_factor to 0.5.*only 1.0",
    ),
    (
        Qwen3_5TextConfig,
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.2}},
        "rope_parameters.partial_rotary_factor to 0.2.*an even part",
    ),
    (MistralConfig, {"sliding_window": MAX_POSITIONS - 1}, "sliding_window to 2047.*at least .*2048"),
    (Qwen2Config, WINDOW, "sliding_window to 64"),
    (Qwen3Config, WINDOW, "sliding_window to 64"),
    (Qwen3Config, {"num_hidden_layers": 1, "layer_types": ["chunked_attention"]}, "layer_types to 'chunked_attention'"),
    (Qwen3Config, {"num_hidden_layers": 1, "layer_types": ["linear_attention"]}, "layer_types to 'linear_attention'"),
    (Qwen3_5TextConfig, {"linear_num_key_heads": 3}, "linear_num_value_heads to 32.*a multiple of the 3"),
    (LlamaConfig, {"num_key_value_heads": 3}, "num_attention_heads to 4.*a multiple of the 3"),
    (LlamaConfig, {"max_position_embeddings": 0}, "max_position_embeddings to 0"),
]


@pytest.mark.parametrize(("family", "change", "message"), REFUSALS, ids=[text.split("'")[0] for *_, text in REFUSALS])
def test_what_we_do_not_compute_is_refused_by_name(
    family: type[PreTrainedConfig], change: dict[str, Any], message: str
) -> None:
    config = family(**{**COMMON, **change})
    with pytest.raises(ModelError, match=rf"^'tiny' sets {message}.*; use --executor grid$"):
        read_spec(config, "tiny")


def test_a_refusal_reaches_who_loads(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="model_type to 'gemma3_text'"):
        load_backbone(folder_of(tiny_folder("gemma3")), device="cpu", dtype="float32")
    with pytest.raises(ModelError, match="model_type to 'gemma3_text'"):
        backbone_from(Gemma3TextConfig(**COMMON), {}, name="tiny", device=CPU, dtype=torch.float32)
    folder = Path(shutil.copytree(tiny_folder("llama"), tmp_path / "changed"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "mlp_bias": True}))
    with pytest.raises(ModelError, match="mlp_bias to True"):
        load_backbone(folder_of(folder), device="cpu", dtype="float32")
