"""The model that a run starts from: its weights by name, its shape, how it reads, and that our forward is its own.

It refuses to know data and optimisers. Trap: a forward that is a little off trains well and serves badly, as training
fits whatever forward it has. So ours is compared with the library's own before the first step.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from decider.backbone.families import read_spec
from decider.backbone.load import load_hf_config
from decider.backbone.spec import DecoderSpec
from decider.errors import ModelError
from decider.model.adapter import weights_sha256
from decider.model.cache import cache_dir
from decider.model.checkpoint import read_tensors, short_names
from decider.model.head import label_head, last_hidden
from decider.model.load import load_module
from decider.model.source import ModelFolder, resolve
from decider.model.wheel import Say
from decider.plan.pack import Group, make_pack
from decider.settings import Settings
from decider.tokens.rows import Row
from decider.train.examples import Reading, reading_of
from decider.train.forward import HEAD, Weights, label_logits
from decider.train.tables import on_device, tables_of

CPU = torch.device("cpu")
TOLERANCE = 1e-3
"""Largest |Δ| of a label logit in float32, relative to the largest; a fault in a layer is of the logits' own size."""
_CHECKED_TOKENS = 48


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """A model folder, read."""

    folder: ModelFolder
    spec: DecoderSpec
    reading: Reading
    tensors: Mapping[str, Tensor]
    """Every tensor of the checkpoint by its full name, in its own dtype."""
    names: Mapping[str, str]
    """Full name → name without prefix, of what the forward reads."""

    @property
    def weights(self) -> Weights:
        """What the forward reads, by names without prefix."""
        return {short: self.tensors[full] for full, short in self.names.items()}

    @property
    def label_ids(self) -> tuple[int, ...]:
        """The token of each label."""
        return self.reading.builder.labels.ids

    def sha256(self) -> str:
        """The digest of `weights`."""
        return weights_sha256(self.weights)


def open_base(settings: Settings, *, max_state_tokens: int, schema_first: bool, say: Say) -> Base:
    """The model that `settings` name. Raises ModelError and ConfigError as serving it by packs would."""
    folder = resolve(settings.model, gguf_file=settings.gguf_file, cache=cache_dir(), say=say)
    spec = read_spec(load_hf_config(folder), folder.name)
    config = None if settings.decider_config is None else Path(settings.decider_config)
    reading = reading_of(
        folder.path,
        config=config,
        layout=settings.layout,
        max_positions=spec.max_positions,
        max_state_tokens=max_state_tokens,
        schema_first=schema_first,
    )
    tensors = read_tensors(folder.path)
    names = {
        full: short
        for full, short in short_names(tensors, folder.path).items()
        if "rotary_emb" not in short and not (spec.tied and short == HEAD)
    }
    return Base(folder, spec, reading, tensors, names)


@torch.no_grad()
def check_forward(base: Base) -> None:
    """Compare a trunk with two branches with full rows of transformers' model. Raises ModelError if they differ."""
    loaded = load_module(base.folder, device="cpu", dtype="float32", attention="sdpa")
    n_tokens = min(_CHECKED_TOKENS, loaded.max_positions)
    draw = random.Random(0)
    ids = [draw.randrange(base.spec.vocab) for _ in range(n_tokens)]
    shared = n_tokens // 2
    rows = [Row((*ids[:shared], *tail), (n_tokens - 1,), (2,), shared) for tail in (ids[shared:], ids[shared:][::-1])]
    tables = on_device(tables_of(make_pack(rows, [Group((0, 1), shared)], n_tokens=None), base.spec.taps), CPU)
    weights = {name: weight.float() for name, weight in base.weights.items()}
    ours = label_logits(weights, base.spec, tables, torch.tensor(base.label_ids))
    head = label_head(loaded, base.label_ids)
    theirs = head(last_hidden(loaded.module, torch.tensor([row.ids for row in rows]))[:, -1])
    difference = float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-6))
    # A NaN must fail too, so the comparison is not turned round.
    if not difference <= TOLERANCE:
        raise ModelError(
            f"the forward in training answers {difference:.2g} of the largest logit differently from "
            f"{base.folder.name!r:.60} ({base.spec.family}, allowed: {TOLERANCE:.2g}); it cannot be trained here"
        )
