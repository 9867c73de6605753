"""What is served of a run: a model folder as transformers and `decider` read it, and the adapter by itself.

It refuses to know steps and data. Trap: weights are written in the precision of the training's forward. In another one,
what is served would not be what was measured. And an adapter that is stored in fewer bits is another adapter; so the
model is merged from what the file gives back.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from decider.calibrate.whole import whole_place
from decider.model.adapter import ADAPTER_NAME, STORED, Adapter, added, load_adapter, save_adapter, weights_sha256
from decider.model.checkpoint import SINGLE, copy_beside
from decider.tokens.config import CONFIG_NAME
from decider.train.base import Base
from decider.train.checkpoint import write_tensors
from decider.train.forward import Weights
from decider.train.weights import Trainee

# What was fitted to the base's answers.
_FITTED = ("temperature", "x_calibration")


def export(base: Base, trainee: Trainee, out: Path, *, version: str, adapter_dtype: str | None = None) -> None:
    """Write a model folder into `out`; what is there besides stays. With `lora` also `adapter.safetensors`.

    `adapter_dtype` is one of `STORED`; None takes the precision of the training's forward. Raises ConfigError if the
    weights cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    weights = _merged(base, trainee, out / ADAPTER_NAME, adapter_dtype) if trainee.pairs() else _whole(trainee)
    # A tied head that lies in the file, too, is the embedding of before.
    kept = {full: tensor for full, tensor in base.tensors.items() if full in base.names or full != "lm_head.weight"}
    tensors = {full: weights[base.names[full]] if full in base.names else tensor for full, tensor in kept.items()}
    copy_beside(base.folder.path, out)
    _write_json(out / "config.json", _configuration(base, trainee.dtype))
    _write_json(out / CONFIG_NAME, _decider_config(base, version))
    write_tensors(out / SINGLE, tensors, {"format": "pt"})


def _whole(trainee: Trainee) -> Weights:
    return {name: weight.detach() for name, weight in trainee.weights().items()}


def _merged(base: Base, trainee: Trainee, file: Path, adapter_dtype: str | None) -> Weights:
    """Every weight with the adapter that `file` holds, which is written here, in the precision of the forward."""
    name = base.folder.path.name if base.folder.name == str(base.folder.path) else base.folder.name
    pairs = trainee.pairs()
    digest = weights_sha256({short: base.weights[short] for short in pairs})
    own = str(trainee.dtype).removeprefix("torch.")
    # float64, in which nothing is stored, is for tests.
    stored = STORED[adapter_dtype] if adapter_dtype is not None else STORED.get(own, torch.float32)
    with whole_place(file) as draft:
        save_adapter(draft, Adapter(name, digest, trainee.scale, pairs), stored)
        adapter = load_adapter(draft)
    # On the CPU, as where it is served.
    weights = {short: weight.detach().to("cpu", trainee.dtype) for short, weight in base.weights.items()}
    return weights | {short: added(weights[short], pair, adapter.scale) for short, pair in adapter.pairs.items()}


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
