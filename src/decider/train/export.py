"""What is served of a run: a model folder as transformers and `decider` read it, and the adapter by itself.

It refuses to know steps and data. Trap: weights are written in the precision of the training's forward. In another one,
what is served would not be what was measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from decider.model.adapter import ADAPTER_NAME, Adapter, save_adapter, weights_sha256
from decider.model.checkpoint import SINGLE, copy_beside
from decider.tokens.config import CONFIG_NAME
from decider.train.base import Base
from decider.train.weights import Trainee

# What was fitted to the base's answers.
_FITTED = ("temperature", "x_calibration")


def export(base: Base, trainee: Trainee, out: Path, *, version: str) -> None:
    """Write a model folder into `out`; what is there besides stays. With `lora` also `adapter.safetensors`."""
    out.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        weights = {name: weight.detach().cpu().contiguous() for name, weight in trainee.weights().items()}
    # A tied head that lies in the file, too, is the embedding of before.
    kept = {full: tensor for full, tensor in base.tensors.items() if full in base.names or full != "lm_head.weight"}
    tensors = {full: weights[base.names[full]] if full in base.names else tensor for full, tensor in kept.items()}
    copy_beside(base.folder.path, out)
    _write_json(out / "config.json", _configuration(base, trainee.dtype))
    _write_json(out / CONFIG_NAME, _decider_config(base, version))
    draft = out / f"{SINGLE}.draft"
    save_file(tensors, draft, metadata={"format": "pt"})
    draft.replace(out / SINGLE)
    pairs = trainee.pairs()
    if pairs:
        name = base.folder.path.name if base.folder.name == str(base.folder.path) else base.folder.name
        digest = weights_sha256({short: base.weights[short] for short in pairs})
        save_adapter(out / ADAPTER_NAME, Adapter(name, digest, trainee.scale, pairs))


def _configuration(base: Base, dtype: torch.dtype) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((base.folder.path / "config.json").read_text(encoding="utf-8"))
    for part in (config, config.get("text_config")):
        if isinstance(part, dict):
            key = "torch_dtype" if "torch_dtype" in part else "dtype"
            part[key] = str(dtype).removeprefix("torch.")
    return config


def _decider_config(base: Base, version: str) -> dict[str, Any]:
    """The base's own without what was fitted to its answers, and with the layout that was trained."""
    file = base.folder.path / CONFIG_NAME
    entries: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    kept = {key: value for key, value in entries.items() if not key.startswith(_FITTED)}
    layout = base.reading.layout
    config = base.reading.config
    return kept | {
        "version": version,
        "layout": "chat" if layout.chat else "plain",
        "chat_template": layout.chat,
        "schema_first": layout.schema_first,
        "schema_first_trained": base.reading.trains_schema_first,
        "neutralize_none": config.neutralize_none,
        "isolated_levels": config.isolated_levels,
    }


def _write_json(path: Path, entries: dict[str, Any]) -> None:
    path.write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
