"""Trees with one mistake each, to be made in place of sound ones: what every check of packs must find.

Refuses to break a single row: a mistake is in how branches hang on trunks. Trap: a mistake that changes nothing of a
pack (a wrong trunk where there is one) is none, and a check that finds nothing there is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch

from decider.ops import tree as tree_module
from decider.ops.tree import Run, Tree
from decider.plan.pack import Pack, Span
from decider.run import pack_forward

_sound = tree_module.tree_of


def one_position_too_far(tree: Tree) -> Tree:
    return replace(tree, positions=tree.positions + _in_branches(tree).long())


def trunks_end_hidden(tree: Tree) -> Tree:
    """No branch sees the last token of its trunk."""
    return _other_trunks(tree, lambda trunk: (trunk.start, trunk.start + trunk.length - 1))


def siblings_seen(tree: Tree) -> Tree:
    """Branches that attend at once see each other's tokens."""
    causal = torch.full((256, 256), -torch.inf, device=tree.positions.device).triu_(1)
    return replace(tree, runs=tuple(replace(run, bias=causal[: len(run.bias), : len(run.bias)]) for run in tree.runs))


def look_back_too_far(tree: Tree) -> Tree:
    """A convolution's taps in a branch's first tokens are one token too early."""
    table = tree.look_back.clone()
    heads = tree.heads[_in_branches(tree)[tree.heads]]
    table[heads] = (table[heads] - 1).clamp(min=0)
    return replace(tree, look_back=table)


def another_trunk(tree: Tree) -> Tree:
    """Branches see the keys of the next trunk and go on from its state."""
    roots = [span for span in tree.spans if span.parent is None]
    batches = tuple(
        batch if batch.parents is None else replace(batch, parents=(batch.parents + 1) % len(roots))
        for batch in tree.batches
    )

    def following(trunk: Span) -> tuple[int, int]:
        other = roots[(roots.index(trunk) + 1) % len(roots)]
        return other.start, other.start + other.length

    return replace(_other_trunks(tree, following), batches=batches)


BROKEN: Mapping[str, Callable[[Tree], Tree]] = {
    each.__name__: each
    for each in (one_position_too_far, trunks_end_hidden, siblings_seen, look_back_too_far, another_trunk)
}


def break_trees(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From now on every pack runs over a tree with the mistake of that name."""

    def broken(pack: Pack, device: torch.device, n_taps: int) -> Tree:
        return BROKEN[name](_sound(pack, device, n_taps))

    monkeypatch.setattr(pack_forward, "tree_of", broken)


def _in_branches(tree: Tree) -> torch.Tensor:
    branches = [span for span in tree.spans if span.parent is not None]
    found = torch.zeros(tree.n_tokens, dtype=torch.bool, device=tree.positions.device)
    for span in branches:
        found[span.start : span.start + span.length] = True
    return found


def _other_trunks(tree: Tree, seen_of: Callable[[Span], tuple[int, int]]) -> Tree:
    return replace(tree, runs=tuple(_other_trunk(tree, run, seen_of) for run in tree.runs))


def _other_trunk(tree: Tree, run: Run, seen_of: Callable[[Span], tuple[int, int]]) -> Run:
    branch = next(span for span in tree.spans if span.start <= run.start < span.start + span.length)
    if branch.parent is None:
        return run
    trunk = tree.spans[branch.parent]
    # What touches its trunk is one range with it.
    own = run.keys[-1][0] if len(run.keys) == 2 else trunk.start + trunk.length
    keys = (seen_of(trunk), (own, run.stop))
    return replace(run, keys=tuple((start, stop) for start, stop in keys if start < stop))
