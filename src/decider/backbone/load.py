"""A model folder, or a model in memory, to a `Backbone`; and the label head that belongs to it.

It refuses to know families and forwards. Trap: what safetensors gives on a CPU is the file itself, mapped. A backbone
that kept it would change, or crash, with the file; so every tensor is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig

from decider.backbone.decoder import Backbone, Dense, MakeLinear
from decider.backbone.families import REMEDY, read_spec
from decider.backbone.spec import DecoderSpec
from decider.backbone.weights import HEAD, Checkpoint, build, check_tied
from decider.errors import DeviceError, ModelError, first_line
from decider.model.checkpoint import INDEX, SINGLE, weight_files
from decider.model.head import LabelHead
from decider.model.load import DTYPES, LoadedModel
from decider.model.quiet import quiet_transformers
from decider.model.source import ModelFolder

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def load_backbone(folder: ModelFolder, *, device: str, dtype: str, linear: MakeLinear = Dense) -> Backbone:
    """The decoder of the checkpoint in `folder`, from its safetensors files; of a multimodal one, its text model.

    `linear` makes its linear layers. Raises ModelError if the configuration is not one we compute, or the weights are
    not exactly its; DeviceError if the device has no room for them.
    """
    spec = read_spec(load_hf_config(folder), folder.name)
    with _opened(folder) as checkpoint:
        try:
            return build(spec, checkpoint, device=torch.device(device), dtype=DTYPES[dtype], linear=linear)
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                f"{folder.name!r} does not fit on {device}: {first_line(error)}; use --device cpu"
            ) from error


def load_hf_config(folder: ModelFolder) -> PreTrainedConfig:
    """The Hugging Face configuration in `folder`. Raises ModelError if there is none that transformers can use."""
    with quiet_transformers():
        try:
            config: PreTrainedConfig = AutoConfig.from_pretrained(
                folder.path, local_files_only=True, trust_remote_code=False
            )
        # transformers and its validators each raise their own on what they cannot use.
        except Exception as error:
            raise ModelError(
                f"cannot read the config.json of {folder.name!r}: {first_line(error)}; fetch the checkpoint again"
            ) from error
    return config


def backbone_of(loaded: LoadedModel, *, linear: MakeLinear = Dense) -> Backbone:
    """The decoder of a model in memory. Embeddings, norms and what else is not merged are its tensors, not copies.

    Raises ModelError if its configuration is not one we compute; DeviceError if there is no room for what is merged.
    """
    try:
        return backbone_from(
            loaded.module.config,
            loaded.module.state_dict(),
            name=loaded.name,
            device=torch.device(loaded.device),
            dtype=DTYPES[loaded.dtype],
            linear=linear,
        )
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{loaded.device} has no room for the weights of {loaded.name!r:.60} as packs take them, beside its own: "
            f"{first_line(error):.120}; free memory, leave fp8 off if it is on, or use --executor grid"
        ) from error


def few_layers_of(loaded: LoadedModel, layers: Sequence[int], ids: Sequence[int], *, dtype: torch.dtype) -> Backbone:
    """These `layers` of a model in memory, in `dtype`, with the embeddings of `ids` alone; token i means `ids[i]`.

    `layers` rise and are of every kind that the model has. Raises ModelError if its configuration is not one we
    compute.
    """
    state = loaded.module.state_dict()
    shapes = {key: tuple(tensor.shape) for key, tensor in state.items()}
    prefix = Checkpoint(loaded.name, shapes, state.__getitem__).prefix
    spec = read_spec(loaded.module.config, loaded.name)
    # A tied model needs no head, and none of these has logits.
    few = {key: tensor for key, tensor in state.items() if not key.startswith(f"{prefix}layers.") and key != HEAD}
    few[f"{prefix}embed_tokens.weight"] = few[f"{prefix}embed_tokens.weight"][list(ids)]
    for new, old in enumerate(layers):
        inside = f"{prefix}layers.{old}."
        few |= {
            f"{prefix}layers.{new}.{key.removeprefix(inside)}": tensor
            for key, tensor in state.items()
            if key.startswith(inside)
        }
    kept = replace(spec, layers=tuple(spec.layers[layer] for layer in layers), vocab=len(ids), tied=True)
    checkpoint = Checkpoint(loaded.name, {key: tuple(tensor.shape) for key, tensor in few.items()}, few.__getitem__)
    return build(kept, checkpoint, device=torch.device(loaded.device), dtype=dtype)


def folder_spec(folder: ModelFolder, config: PreTrainedConfig) -> DecoderSpec:
    """The decoder that `config` describes, for the checkpoint in `folder`, of which it reads names.

    A head beside a tied embedding it reads as well, and raises ModelError if they differ; also as `read_spec`.
    """
    spec = read_spec(config, folder.name)
    if spec.tied:
        with _opened(folder) as checkpoint:
            if HEAD in checkpoint.shapes:
                check_tied(checkpoint)
    return spec


def backbone_from(
    config: PreTrainedConfig,
    state: Mapping[str, Tensor],
    *,
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    linear: MakeLinear = Dense,
) -> Backbone:
    """The decoder that `config` describes with the weights of `state`. Raises ModelError as `load_backbone`."""
    shapes = {key: tuple(tensor.shape) for key, tensor in state.items()}
    checkpoint = Checkpoint(name, shapes, state.__getitem__)
    return build(read_spec(config, name), checkpoint, device=device, dtype=dtype, linear=linear)


def backbone_head(backbone: Backbone, label_ids: Sequence[int]) -> LabelHead:
    """The label rows of its output embedding. None of the families adds a bias, a scale or a soft-cap."""
    rows = torch.tensor(label_ids, device=backbone.device)
    precision = torch.promote_types(backbone.dtype, torch.float32)
    return LabelHead(backbone.output_embedding[rows].to(precision), None, 1.0, None)


@contextmanager
def _opened(folder: ModelFolder) -> Iterator[Checkpoint]:
    """Every tensor of the folder's files, which stay open within it. Raises ModelError where they cannot be read."""
    places: dict[str, Any] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    with ExitStack() as stack:
        try:
            for file in _files(folder):
                handle = stack.enter_context(safe_open(file, framework="pt", device="cpu"))
                for key in handle.keys():  # noqa: SIM118 - a handle is no mapping
                    places[key] = handle
                    shapes[key] = tuple(handle.get_slice(key).get_shape())
            yield Checkpoint(folder.name, shapes, lambda key: places[key].get_tensor(key).clone())
        except (OSError, SafetensorError) as error:
            raise ModelError(
                f"cannot read the weights of {folder.name!r}: {first_line(error)} ({type(error).__name__}); fetch the "
                "checkpoint again"
            ) from error


def _files(folder: ModelFolder) -> list[Path]:
    """Raises ModelError if there is no safetensors file of the usual name, or the index of several is damaged."""
    if not (folder.path / SINGLE).is_file() and not (folder.path / INDEX).is_file():
        raise ModelError(
            f"{folder.name!r} has neither {SINGLE} nor {INDEX}; fetch its safetensors weights, or {REMEDY}"
        )
    try:
        return [folder.path / name for name in weight_files(folder.path)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{INDEX} of {folder.name!r} names no files ({type(error).__name__}); fetch the checkpoint again"
        ) from error
