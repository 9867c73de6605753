"""The weights of a training run: what is trained, in float32, and what stays as it is, in the precision of the forward.

It refuses to know optimisers and data. Trap: a forward reads every weight in one precision. What is trained is rounded
to it anew for every pack, and the gradient passes that rounding as if it were none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from decider.model.adapter import Pair, added, is_adapted
from decider.train.forward import EMBEDDING, Weights

A, B = ".lora_a", ".lora_b"


@dataclass(frozen=True, slots=True, eq=False)
class Trainee:
    """A model that is trained."""

    frozen: Weights
    """In the forward's precision; with `full`, none."""
    trained: Mapping[str, Tensor]
    """Leaves with gradients, float32 (float64 in a float64 run): weights by name, or the two parts of pairs."""
    dtype: torch.dtype
    scale: float
    """What a pair's product is multiplied by."""

    def weights(self) -> Weights:
        """Every weight in the forward's precision, connected to what is trained. Made anew after each step."""
        made = dict(self.frozen)
        made |= {name: tensor.to(self.dtype) for name, tensor in self.trained.items() if not name.endswith((A, B))}
        for names in self._alike():
            # Like matrices of all layers together: one product instead of one a layer.
            frozen = torch.stack([self.frozen[name] for name in names])
            pair = Pair(*(torch.stack([self.trained[name + part] for name in names]) for part in (A, B)))
            made.update(zip(names, added(frozen, pair, self.scale).unbind(), strict=True))
        return made

    def _alike(self) -> Iterable[list[str]]:
        """The names of weights with pairs, those of one shape together."""
        groups: dict[torch.Size, list[str]] = {}
        for name in self.trained:
            if name.endswith(A):
                base = name.removesuffix(A)
                groups.setdefault(self.frozen[base].shape, []).append(base)
        return groups.values()

    def pairs(self) -> dict[str, Pair]:
        """The low-rank pairs by the names of their weights; none with `full`."""
        names = (name.removesuffix(A) for name in self.trained if name.endswith(A))
        return {name: Pair(self.trained[name + A].detach(), self.trained[name + B].detach()) for name in names}

    @property
    def n_trained(self) -> int:
        """Numbers that are trained."""
        return sum(tensor.numel() for tensor in self.trained.values())

    def decayed(self) -> Iterator[Tensor]:
        """What weight decay is for: matrices but for embeddings."""
        return (tensor for name, tensor in self.trained.items() if tensor.dim() > 1 and name != EMBEDDING)


def trainee(
    weights: Weights, *, method: str, device: torch.device, dtype: torch.dtype, rank: int, scale: float, seed: int
) -> Trainee:
    """`weights` (in any precision, left as they are) ready to be trained on `device` in forwards of `dtype`.

    Pairs begin as nothing: A is uniform as a linear layer's own start (He et al. 2015), B is 0.
    """
    assert method in ("full", "lora"), method
    precision = torch.promote_types(dtype, torch.float32)
    trained: dict[str, Tensor] = {}
    if method == "full":
        trained = {name: weight.detach().to(device, precision, copy=True) for name, weight in weights.items()}
        frozen: dict[str, Tensor] = {}
    else:
        # One source on the CPU, so that every device begins alike.
        source = torch.Generator().manual_seed(seed)
        for name in sorted(filter(is_adapted, weights)):
            n_out, n_in = weights[name].shape
            start = torch.rand(rank, n_in, generator=source, dtype=precision).sub_(0.5).mul_(2 * n_in**-0.5)
            trained[name + A] = start.to(device)
            trained[name + B] = torch.zeros(n_out, rank, dtype=precision, device=device)
        frozen = {name: weight.detach().to(device, dtype, copy=True) for name, weight in weights.items()}
    for tensor in trained.values():
        tensor.requires_grad_(True)
    return Trainee(frozen, trained, dtype, scale)
