"""A model folder, or a model in memory, to a `Backbone`; and the label head that belongs to it.

It refuses to know families and forwards. Trap: what safetensors gives on a CPU is the file itself, mapped. A backbone
that kept it would change, or crash, with the file; so every tensor is copied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig

from decider.backbone.decoder import Backbone, Dense, MakeLinear
from decider.backbone.families import REMEDY, read_spec
from decider.backbone.weights import Checkpoint, build
from decider.errors import DeviceError, ModelError, first_line
from decider.model.head import LabelHead
from decider.model.load import DTYPES, LoadedModel
from decider.model.quiet import quiet_transformers
from decider.model.source import ModelFolder

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def load_backbone(folder: ModelFolder, *, device: str, dtype: str, linear: MakeLinear = Dense) -> Backbone:
    """The decoder of the checkpoint in `folder`, from its safetensors files; of a multimodal one, its text model.

    `linear` makes its linear layers. Raises ModelError if the configuration is not one we compute, or the weights are
    not exactly its; DeviceError if the device has no room for them.
    """
    spec = read_spec(load_hf_config(folder), folder.name)
    with ExitStack() as stack:
        try:
            checkpoint = _open(folder, stack)
            return build(spec, checkpoint, device=torch.device(device), dtype=DTYPES[dtype], linear=linear)
        except (OSError, SafetensorError) as error:
            raise ModelError(
                f"cannot read the weights of {folder.name!r}: {first_line(error)} ({type(error).__name__}); fetch the "
                "checkpoint again"
            ) from error
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

    Raises ModelError if its configuration is not one we compute.
    """
    return backbone_from(
        loaded.module.config,
        loaded.module.state_dict(),
        name=loaded.name,
        device=torch.device(loaded.device),
        dtype=DTYPES[loaded.dtype],
        linear=linear,
    )


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


def _open(folder: ModelFolder, stack: ExitStack) -> Checkpoint:
    """Every tensor of the folder's files; they stay open for as long as `stack`."""
    places: dict[str, Any] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for file in _files(folder):
        handle = stack.enter_context(safe_open(file, framework="pt", device="cpu"))
        for key in handle.keys():  # noqa: SIM118 - a handle is no mapping
            places[key] = handle
            shapes[key] = tuple(handle.get_slice(key).get_shape())
    return Checkpoint(folder.name, shapes, lambda key: places[key].get_tensor(key).clone())


def _files(folder: ModelFolder) -> list[Path]:
    """Raises ModelError if there is no safetensors file of the usual name, or the index of several is damaged."""
    if (folder.path / _SINGLE).is_file():
        return [folder.path / _SINGLE]
    if not (folder.path / _INDEX).is_file():
        raise ModelError(
            f"{folder.name!r} has neither {_SINGLE} nor {_INDEX}; fetch its safetensors weights, or {REMEDY}"
        )
    try:
        index = json.loads((folder.path / _INDEX).read_text(encoding="utf-8"))
        return [folder.path / name for name in sorted(set(index["weight_map"].values()))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{_INDEX} of {folder.name!r} names no files ({type(error).__name__}); fetch the checkpoint again"
        ) from error
