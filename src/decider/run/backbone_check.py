"""Whether a backbone may answer: its trees against its rows, and its answers against the model's own.

It refuses to repair, and to know requests. Trap: bfloat16 moves logits as far as many a wrong mask does, so a limit
with room for rounding lets broken trees through. What a tree is does not depend on the dtype; so it is checked where
rounding is small, in float32, and the model's own dtype needs to show no more than rounding.

The model's own gated delta rule is computed in torch here. Kernels that may be installed for it multiply float32 in
TF32, and tune themselves at first use, for the better part of a minute.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from decider.backbone.decoder import Backbone
from decider.backbone.load import few_layers_of
from decider.errors import DeviceError, ModelError, first_line
from decider.model.head import LabelHead, last_hidden
from decider.model.load import LoadedModel
from decider.model.twin import twin
from decider.ops.delta_rule import DELTA_RULE, use_torch_rule
from decider.ops.rebind import users
from decider.plan.packs import PackLimits, plan_packs
from decider.run.executor import Executor, Logits, by_row
from decider.run.forward import on_device
from decider.run.pack_forward import states_at_slots
from decider.run.precision import full_float32
from decider.tokens.rows import Row

# Largest |Δ| of a label logit that a backbone may have from the library's own forward, relative to the largest. A
# layer that is put together wrongly is off by the logits' own size; halves differ by what they round.
BACKBONE_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.2}
_CHECKED_TOKENS = 48

# Largest difference between a branch and its row, as root mean square relative to the row's states. Some layers in
# float32 round to 1e-6; of wrong trees the mildest seen (a position too far, on a hybrid) is off by 1e-2.
TREE_TOLERANCE = 1e-4
# In a coarse dtype a branch may be this much farther than its own row from the row in float32. Two correct forwards are
# about equally far, as the mean of hundreds of numbers.
ROUNDINGS = 2.0
# (trunk, branches). A trunk shorter than a convolution's taps, one longer than a run of attention, a branch that is,
# and a row that shares nothing. Several trunks, so that one can be taken for another.
_TREES = ((2, (1, 3, 9)), (65, (1, 4)), (5, (65, 2)), (5, ()))
_TREE_LIMITS = PackLimits(max_tokens=512, max_sequences=32, max_slots=64)
_TREE_VOCAB = 256


@torch.inference_mode()
def check_backbone(executor: Executor, loaded: LoadedModel, head: LabelHead) -> None:
    """Compare a short trunk with two branches with full rows of `loaded`. Raises ModelError if they differ."""
    n_tokens = min(_CHECKED_TOKENS, loaded.max_positions)
    vocab = int(loaded.module.config.get_text_config().vocab_size)
    draw = random.Random(0)
    ids = [draw.randrange(vocab) for _ in range(n_tokens)]
    shared = n_tokens // 2
    rows = [Row((*ids[:shared], *tail), (n_tokens - 1,), (2,), shared) for tail in (ids[shared:], ids[shared:][::-1])]
    ours = np.concatenate(executor.label_logits(rows))
    with on_device(torch.device(loaded.device)):
        hidden = last_hidden(_in_torch(loaded).module, torch.tensor([row.ids for row in rows], device=loaded.device))
        theirs = head(hidden[:, -1]).cpu().numpy()
    difference = float(np.abs(ours - theirs).max() / max(1e-6, np.abs(theirs).max()))
    allowed = BACKBONE_TOLERANCE[loaded.module.dtype]
    # A NaN must fail too, so the comparison is not turned round.
    if not difference <= allowed:
        raise ModelError(
            f"our backbone answers {difference:.2g} of the largest logit differently from {loaded.name!r:.60} "
            f"({loaded.model_type}, allowed: {allowed:.2g}); use --executor grid and report it"
        )


def _in_torch(loaded: LoadedModel) -> LoadedModel:
    """`loaded`, or a twin of it that computes the gated delta rule without kernels."""
    if not users(loaded.module, DELTA_RULE):
        return loaded
    own = twin(loaded)
    use_torch_rule(own.module)
    return own


@torch.inference_mode()
def check_trees(backbone: Backbone, loaded: LoadedModel) -> None:
    """Compare branches behind their trunks with the same rows in packs of their own, in a few layers of `backbone`.

    The layers are the first two and the first of each kind, with random ids, as they are and again from `loaded` in
    float32. In float32 a branch must be its row but for `TREE_TOLERANCE`. In a coarse dtype the branch and the row both
    meet the row in float32, and the branch may be `ROUNDINGS` times as far from it: less than that cannot be told from
    rounding, and more is a fault of the dtype's own way through the operations.

    Raises ModelError if they differ, DeviceError if the device has no room for those layers in float32.
    """
    kinds = backbone.spec.layers
    layers = sorted({*range(min(2, len(kinds))), *(kinds.index(kind) for kind in set(kinds))})
    vocab = min(_TREE_VOCAB, backbone.spec.vocab)
    ids = random.Random(0).sample(range(backbone.spec.vocab), vocab)
    rows = _rows(vocab)
    with on_device(backbone.device), full_float32():
        try:
            wide = few_layers_of(loaded, layers, ids, dtype=torch.promote_types(backbone.dtype, torch.float32))
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                f"{backbone.device} has no room to check {loaded.name!r:.60} in float32: {first_line(error):.120}; "
                "free memory, or use --executor grid"
            ) from error
        few = tuple(backbone.layers[layer] for layer in layers)
        own = replace(backbone, layers=few, embedding=backbone.embedding[torch.tensor(ids, device=backbone.device)])
        exact = _alone(wide, rows)
        if wide.dtype != own.dtype:
            _compare(loaded, rows, _states(wide, rows), exact, exact)
        _compare(loaded, rows, _states(own, rows), exact, exact if wide.dtype == own.dtype else _alone(own, rows))


def _compare(
    loaded: LoadedModel, rows: Sequence[Row], ours: list[Logits], exact: list[Logits], rounded: list[Logits]
) -> None:
    for row, branch, exactly, nearly in zip(rows, ours, exact, rounded, strict=True):
        distance = _distance(branch, exactly)
        allowed = max(TREE_TOLERANCE, ROUNDINGS * _distance(nearly, exactly))
        # A NaN must fail too, so the comparison is not turned round.
        if not distance <= allowed:
            raise ModelError(
                f"our backbone answers {distance:.2g} differently for {len(row.ids) - row.prefix_tokens} tokens behind "
                f"{row.prefix_tokens} shared ones than for the same row in one piece ({loaded.name!r:.60}, "
                f"{loaded.model_type}, allowed: {allowed:.2g}); use --executor grid and report it"
            )


def _rows(vocab: int) -> list[Row]:
    draw = random.Random(1)
    rows = []
    for n_trunk, branches in _TREES:
        trunk = [draw.randrange(vocab) for _ in range(n_trunk)]
        for n_tokens in branches or (0,):
            ids = (*trunk, *(draw.randrange(vocab) for _ in range(n_tokens)))
            start = n_trunk if n_tokens else 0
            slots = tuple(sorted({start, (start + len(ids)) // 2, len(ids) - 1}))
            rows.append(Row(ids, slots, (2,) * len(slots), start))
    return rows


def _states(backbone: Backbone, rows: Sequence[Row]) -> list[Logits]:
    """[slots, hidden] of each row, from as few packs as hold them."""
    found: dict[int, Logits] = {}
    for pack in plan_packs(rows, _TREE_LIMITS):
        precise = states_at_slots(backbone, pack).to(torch.promote_types(backbone.dtype, torch.float32))
        found.update(by_row(precise.cpu().numpy(), pack.rows, rows))
    return [found[index] for index in range(len(rows))]


def _alone(backbone: Backbone, rows: Sequence[Row]) -> list[Logits]:
    return [states for row in rows for states in _states(backbone, [row])]


def _distance(ours: Logits, theirs: Logits) -> float:
    """Root mean square of the difference, relative to that of `theirs`."""
    return float(np.sqrt(np.square(ours - theirs).mean() / np.square(theirs).mean()))
